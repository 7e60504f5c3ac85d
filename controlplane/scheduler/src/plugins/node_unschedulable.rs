//! NodeUnschedulable: cordoned nodes take no pods, unless they tolerate the cordon.
//!
//! Source: `pkg/scheduler/framework/plugins/nodeunschedulable` at v1.37.

use k8s_openapi::api::core::v1::Taint;

use crate::{
    framework::{
        Actions, ClusterEvent, CycleState, EnqueueExtensions, Filter, Plugin, PluginName,
        QueueingHint, Status,
    },
    node_info::NodeInfo,
    pod_info::PodInfo,
};

#[derive(Clone, Copy)]
pub(super) struct NodeUnschedulable;

impl Plugin for NodeUnschedulable {
    fn name(&self) -> PluginName {
        PluginName::NodeUnschedulable
    }
}

impl Filter for NodeUnschedulable {
    fn filter(&self, _: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Status {
        if !node.unschedulable || tolerates_cordon(pod) {
            return Status::SUCCESS;
        }
        Status::unresolvable(vec!["node(s) were unschedulable".into()])
    }
}

impl EnqueueExtensions for NodeUnschedulable {
    fn events(&self) -> Actions {
        Actions::ADD_NODE | Actions::UPDATE_NODE_TAINT | Actions::UPDATE_POD_TOLERATION
    }

    fn hint(&self, _pod: &PodInfo, event: &ClusterEvent<'_>) -> QueueingHint {
        let helps = match event {
            ClusterEvent::NodeAdded(node) => !node.unschedulable,
            ClusterEvent::NodeUpdated { old, new } => old.unschedulable && !new.unschedulable,
            ClusterEvent::Updated { new, .. } => tolerates_cordon(new),
            _ => false,
        };
        helps.into()
    }
}

fn tolerates_cordon(pod: &PodInfo) -> bool {
    let taint = Taint {
        key: "node.kubernetes.io/unschedulable".to_owned(),
        effect: "NoSchedule".to_owned(),
        ..Taint::default()
    };
    pod.tolerations.tolerate(&taint)
}
