//! NodeUnschedulable: cordoned nodes take no pods, unless they tolerate the cordon.

use coracle_api::scheduling::tolerates_any;
use k8s_openapi::api::core::v1::Taint;

use crate::{
    framework::{Filter, Reason},
    node_info::NodeInfo,
    pod_info::PodInfo,
};

pub(super) struct NodeUnschedulable;

impl Filter for NodeUnschedulable {
    fn filter(&self, pod: &PodInfo, node: &NodeInfo) -> Vec<Reason> {
        if !node.unschedulable {
            return Vec::new();
        }
        let taint = Taint {
            key: "node.kubernetes.io/unschedulable".to_owned(),
            effect: "NoSchedule".to_owned(),
            ..Taint::default()
        };
        if tolerates_any(&pod.tolerations, &taint) { Vec::new() } else { vec!["node(s) were unschedulable".into()] }
    }
}
