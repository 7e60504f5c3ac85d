//! NodePorts: host ports are taken once a node.
//!
//! Source: `pkg/scheduler/framework/plugins/nodeports` at v1.37.

use crate::{
    framework::{
        Actions, ClusterEvent, CycleState, EnqueueExtensions, Filter, NodeNames, Plugin,
        PluginName, PreFilter, QueueingHint, Status,
    },
    node_info::NodeInfo,
    pod_info::PodInfo,
    snapshot::Snapshot,
};

#[derive(Clone, Copy)]
pub(super) struct NodePorts;

impl Plugin for NodePorts {
    fn name(&self) -> PluginName {
        PluginName::NodePorts
    }
}

impl PreFilter for NodePorts {
    fn pre_filter(
        &self,
        _: &mut CycleState,
        pod: &PodInfo,
        _: &Snapshot<'_>,
    ) -> (Option<NodeNames>, Status) {
        (
            None,
            if pod.host_ports.is_empty() {
                Status::SKIP
            } else {
                Status::SUCCESS
            },
        )
    }
}

impl Filter for NodePorts {
    fn filter(&self, _: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Status {
        if node
            .pods
            .values()
            .any(|placed| pod.host_ports.conflict(&placed.host_ports))
        {
            return Status::unschedulable(vec![
                "node(s) didn't have free ports for the requested pod ports".into(),
            ]);
        }
        Status::SUCCESS
    }
}

impl EnqueueExtensions for NodePorts {
    fn events(&self) -> Actions {
        Actions::ADD_NODE | Actions::DELETE_POD
    }

    fn hint(&self, pod: &PodInfo, event: &ClusterEvent<'_>) -> QueueingHint {
        match event {
            ClusterEvent::AssignedPodDeleted(gone) => {
                pod.host_ports.conflict(&gone.host_ports).into()
            }
            _ => QueueingHint::Queue,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::testing::{filtered, info, node, pod_with};

    #[test]
    fn a_taken_port_keeps_others_away() {
        let spec = json!({"containers": [{"name": "c", "ports": [{"containerPort": 80, "hostPort": 80}]}]});
        let mut node = info(&node("n", "4"));
        assert!(filtered(&NodePorts, &pod_with("a", spec.clone()), &node).is_success());
        node.add_pod(Arc::new(pod_with("a", spec.clone())));
        assert_eq!(
            filtered(&NodePorts, &pod_with("b", spec.clone()), &node)
                .reasons()
                .len(),
            1
        );
        let waiting = pod_with("b", spec);
        let portless = pod_with("c", json!({"containers": []}));
        for (gone, expected) in [
            (&waiting, QueueingHint::Queue),
            (&portless, QueueingHint::Skip),
        ] {
            assert_eq!(
                NodePorts.hint(&waiting, &ClusterEvent::AssignedPodDeleted(gone)),
                expected
            );
        }
    }
}
