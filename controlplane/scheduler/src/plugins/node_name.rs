//! NodeName: a pod that names its node goes nowhere else.
//!
//! Source: `pkg/scheduler/framework/plugins/nodename` at v1.37.

use crate::{
    framework::{Actions, CycleState, EnqueueExtensions, Filter, Plugin, PluginName, Status},
    node_info::NodeInfo,
    pod_info::PodInfo,
};

#[derive(Clone, Copy)]
pub(super) struct NodeName;

impl Plugin for NodeName {
    fn name(&self) -> PluginName {
        PluginName::NodeName
    }
}

impl Filter for NodeName {
    fn filter(&self, _: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Status {
        match &pod.node_name {
            Some(name) if **name != *node.name => {
                Status::unresolvable(vec!["node(s) didn't match the requested node name".into()])
            }
            _ => Status::SUCCESS,
        }
    }
}

impl EnqueueExtensions for NodeName {
    fn events(&self) -> Actions {
        Actions::ADD_NODE
    }
}
