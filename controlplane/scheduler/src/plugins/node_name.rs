//! NodeName: a pod that names its node goes nowhere else.

use crate::{
    framework::{Filter, Reason},
    node_info::NodeInfo,
    pod_info::PodInfo,
};

pub(super) struct NodeName;

impl Filter for NodeName {
    fn filter(&self, pod: &PodInfo, node: &NodeInfo) -> Vec<Reason> {
        match &pod.node_name {
            Some(name) if *name != node.name => vec!["node(s) didn't match the requested node name".into()],
            _ => Vec::new(),
        }
    }
}
