//! The framework: what a plugin can say about a pod and a node.
//!
//! Source: `k8s.io/kube-scheduler/framework` at v1.37, cut down to what is used.

use std::borrow::Cow;

use crate::{node_info::NodeInfo, pod_info::PodInfo};

/// The best score of a plugin; the worst is 0.
pub(crate) const MAX_NODE_SCORE: i64 = 100;

/// Why a node cannot take a pod, in upstream's words.
pub(crate) type Reason = Cow<'static, str>;

/// Says whether a node can take a pod at all.
pub(crate) trait Filter: Send + Sync {
    /// The reasons why not; empty if it can.
    fn filter(&self, pod: &PodInfo, node: &NodeInfo) -> Vec<Reason>;
}

/// Says how well a node suits a pod.
pub(crate) trait Score: Send + Sync {
    /// Higher is better; any scale if [`Score::normalize`] brings it to 0..=100.
    fn score(&self, pod: &PodInfo, node: &NodeInfo, nodes_total: usize) -> i64;

    /// Brings the scores of all feasible nodes to 0..=[`MAX_NODE_SCORE`].
    fn normalize(&self, _scores: &mut [i64]) {}

    /// How much it counts beside the others.
    fn weight(&self) -> i64;
}

/// Scales so that the largest becomes 100; with `reverse`, so that the largest becomes 0.
///
/// Source: `pkg/scheduler/framework/plugins/helper/normalize_score.go` at v1.37.
pub(crate) fn normalize_by_max(scores: &mut [i64], reverse: bool) {
    let max = scores.iter().copied().max().unwrap_or(0);
    for score in scores {
        let scaled = if max == 0 { 0 } else { *score * MAX_NODE_SCORE / max };
        *score = if reverse { MAX_NODE_SCORE - scaled } else { scaled };
    }
}

#[cfg(test)]
pub(crate) mod testing {
    //! Small pods and nodes for the tests of this crate.

    use k8s_openapi::api::core::v1::{Node, Pod};
    use serde_json::{Value, json};

    use super::{NodeInfo, PodInfo};

    pub(crate) fn node(name: &str, cpu: &str) -> Node {
        node_with(name, json!({}), json!({"allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "110"}}))
    }

    pub(crate) fn node_with(name: &str, spec: Value, status: Value) -> Node {
        let metadata = json!({"name": name, "labels": {"kubernetes.io/hostname": name}});
        serde_json::from_value(json!({"metadata": metadata, "spec": spec, "status": status})).expect("a node")
    }

    pub(crate) fn info(node: &Node) -> NodeInfo {
        let mut info = NodeInfo::default();
        info.set_node(node);
        info
    }

    pub(crate) fn pod(name: &str, cpu: &str) -> PodInfo {
        pod_with(name, json!({"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}]}))
    }

    pub(crate) fn pod_with(name: &str, spec: Value) -> PodInfo {
        let metadata = json!({"name": name, "namespace": "default", "uid": name});
        let pod: Pod = serde_json::from_value(json!({"metadata": metadata, "spec": spec})).expect("a pod");
        PodInfo::new(&pod).expect("complete")
    }
}
