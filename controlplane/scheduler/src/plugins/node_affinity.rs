//! NodeAffinity: `nodeSelector`, required and preferred node affinity.
//!
//! Source: `pkg/scheduler/framework/plugins/nodeaffinity` at v1.37.

use coracle_api::scheduling::{NodeView, meets_term, required_affinity_matches};

use crate::{
    framework::{Filter, Reason, Score, normalize_by_max},
    node_info::NodeInfo,
    pod_info::PodInfo,
};

pub(super) struct NodeAffinity;

impl Filter for NodeAffinity {
    fn filter(&self, pod: &PodInfo, node: &NodeInfo) -> Vec<Reason> {
        if required_affinity_matches(Some(&pod.node_selector), pod.affinity.as_ref(), view(node)) {
            return Vec::new();
        }
        vec!["node(s) didn't match Pod's node affinity/selector".into()]
    }
}

impl Score for NodeAffinity {
    /// Sum of the weights of the preferences that the node meets.
    fn score(&self, pod: &PodInfo, node: &NodeInfo, _nodes_total: usize) -> i64 {
        let preferred = pod
            .affinity
            .as_ref()
            .and_then(|affinity| affinity.node_affinity.as_ref())
            .and_then(|affinity| affinity.preferred_during_scheduling_ignored_during_execution.as_ref());
        let met = preferred.into_iter().flatten().filter(|preference| meets_term(&preference.preference, view(node)));
        met.map(|preference| i64::from(preference.weight)).sum()
    }

    fn normalize(&self, scores: &mut [i64]) {
        normalize_by_max(scores, false);
    }

    fn weight(&self) -> i64 {
        2
    }
}

/// A node as affinity sees it.
fn view(node: &NodeInfo) -> NodeView<'_> {
    NodeView { name: &node.name, labels: &node.labels }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::framework::testing::{info, node, pod_with};

    #[test]
    fn preferences_that_a_node_meets_add_up() {
        let mut node = info(&node("n1", "4"));
        node.labels.insert("disk".to_owned(), "ssd".to_owned());
        let prefer = |weight: i32, disk: &str| {
            let requirement = json!({"key": "disk", "operator": "In", "values": [disk]});
            json!({"weight": weight, "preference": {"matchExpressions": [requirement]}})
        };
        let preferred = json!([prefer(3, "ssd"), prefer(5, "nvme"), prefer(7, "ssd")]);
        let affinity = json!({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}});
        let pod = pod_with("p", json!({"containers": [], "affinity": affinity}));
        assert_eq!(NodeAffinity.score(&pod, &node, 1), 10);
    }

    #[test]
    fn a_node_selector_must_match_whole() {
        let node = info(&node("n1", "4"));
        for (selector, expect) in [
            (json!({"kubernetes.io/hostname": "n1"}), true),
            (json!({"kubernetes.io/hostname": "n1", "x": "y"}), false),
        ] {
            let pod = pod_with("p", json!({"containers": [], "nodeSelector": selector}));
            assert_eq!(NodeAffinity.filter(&pod, &node).is_empty(), expect, "{selector}");
        }
    }
}
