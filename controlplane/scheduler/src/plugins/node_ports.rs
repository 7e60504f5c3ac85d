//! NodePorts: host ports are taken once a node.

use crate::{
    framework::{Filter, Reason},
    node_info::NodeInfo,
    pod_info::PodInfo,
};

pub(super) struct NodePorts;

impl Filter for NodePorts {
    fn filter(&self, pod: &PodInfo, node: &NodeInfo) -> Vec<Reason> {
        if pod.host_ports.is_empty() {
            return Vec::new();
        }
        let taken = node.pods.values().flat_map(|placed| &placed.host_ports);
        let conflict = taken.into_iter().any(|taken| pod.host_ports.iter().any(|wanted| wanted.conflicts(taken)));
        if conflict { vec!["node(s) didn't have free ports for the requested pod ports".into()] } else { Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::framework::testing::{info, node, pod_with};

    #[test]
    fn a_taken_port_keeps_others_away() {
        let spec = json!({"containers": [{"name": "c", "ports": [{"containerPort": 80, "hostPort": 80}]}]});
        let mut node = info(&node("n", "4"));
        assert!(NodePorts.filter(&pod_with("a", spec.clone()), &node).is_empty());
        node.add_pod(&pod_with("a", spec.clone()));
        assert_eq!(NodePorts.filter(&pod_with("b", spec), &node).len(), 1);
    }
}
