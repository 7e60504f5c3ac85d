//! NodeAffinity: `nodeSelector`, required and preferred node affinity.
//!
//! Source: `pkg/scheduler/framework/plugins/nodeaffinity` at v1.37.

use coracle_api::scheduling::{NodeView, meets_term, required_affinity_matches};
use k8s_openapi::api::core::v1::{NodeSelectorTerm, PreferredSchedulingTerm};

use crate::{
    framework::{
        Actions, ClusterEvent, CycleState, EnqueueExtensions, Filter, NodeNames, Plugin, PluginName, PreFilter,
        PreScore, QueueingHint, Score, Status, normalize_by_max,
    },
    node_info::NodeInfo,
    pod_info::PodInfo,
    snapshot::Snapshot,
};

pub(super) struct NodeAffinity;

impl Plugin for NodeAffinity {
    fn name(&self) -> PluginName {
        PluginName::NodeAffinity
    }
}

impl PreFilter for NodeAffinity {
    /// The nodes that a pod names, as a DaemonSet's do: the others need no look.
    fn pre_filter(&self, _: &mut CycleState, pod: &PodInfo, _: &Snapshot<'_>) -> (Option<NodeNames>, Status) {
        let Some(terms) = required(pod) else {
            return (None, if pod.node_selector.is_empty() { Status::SKIP } else { Status::SUCCESS });
        };
        let mut names = NodeNames::new();
        for term in terms {
            match names_of(term) {
                Some(of_term) => names.extend(of_term),
                // Terms are alternatives: this one leaves all nodes.
                None => return (None, Status::SUCCESS),
            }
        }
        if names.is_empty() && !terms.is_empty() {
            return (None, Status::unresolvable(vec!["pod affinity terms conflict".into()]));
        }
        ((!names.is_empty()).then_some(names), Status::SUCCESS)
    }
}

impl Filter for NodeAffinity {
    fn filter(&self, _: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Status {
        if matches(pod, node) {
            return Status::SUCCESS;
        }
        Status::unresolvable(vec!["node(s) didn't match Pod's node affinity/selector".into()])
    }
}

impl PreScore for NodeAffinity {
    fn pre_score(&self, _: &mut CycleState, pod: &PodInfo, _: &[&NodeInfo], _: &Snapshot<'_>) -> Status {
        if preferred(pod).is_empty() { Status::SKIP } else { Status::SUCCESS }
    }
}

impl Score for NodeAffinity {
    /// Sum of the weights of the preferences that the node meets.
    fn score(&self, _: &CycleState, pod: &PodInfo, node: &NodeInfo) -> i64 {
        let met = preferred(pod).iter().filter(|preference| meets_term(&preference.preference, view(node)));
        met.map(|preference| i64::from(preference.weight)).sum()
    }

    fn normalize(&self, _: &PodInfo, _: &[&NodeInfo], scores: &mut [i64]) {
        normalize_by_max(scores, false);
    }

    fn weight(&self) -> i64 {
        2
    }
}

impl EnqueueExtensions for NodeAffinity {
    fn events(&self) -> Actions {
        Actions::ADD_NODE | Actions::UPDATE_NODE_LABEL
    }

    fn hint(&self, pod: &PodInfo, event: &ClusterEvent<'_>) -> QueueingHint {
        let helps = match event {
            ClusterEvent::NodeAdded(node) => matches(pod, node),
            ClusterEvent::NodeUpdated { old, new } => !matches(pod, old) && matches(pod, new),
            _ => false,
        };
        helps.into()
    }
}

/// Whether the node is one that the pod requires.
pub(super) fn matches(pod: &PodInfo, node: &NodeInfo) -> bool {
    required_affinity_matches(Some(&pod.node_selector), pod.affinity.as_ref(), view(node))
}

fn required(pod: &PodInfo) -> Option<&[NodeSelectorTerm]> {
    let affinity = pod.affinity.as_ref()?.node_affinity.as_ref()?;
    let selector = affinity.required_during_scheduling_ignored_during_execution.as_ref()?;
    Some(&selector.node_selector_terms)
}

fn preferred(pod: &PodInfo) -> &[PreferredSchedulingTerm] {
    let affinity = pod.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
    let preferred = affinity.and_then(|one| one.preferred_during_scheduling_ignored_during_execution.as_deref());
    preferred.unwrap_or_default()
}

/// The nodes that a term names; `None` if it names none. Its requirements have to hold together.
fn names_of(term: &NodeSelectorTerm) -> Option<NodeNames> {
    let named = |key: &str, operator: &str| key == "metadata.name" && operator == "In";
    let fields = term.match_fields.iter().flatten().filter(|field| named(&field.key, &field.operator));
    let sets = fields.map(|field| field.values.iter().flatten().cloned().collect::<NodeNames>());
    sets.reduce(|one, other| one.intersection(&other).cloned().collect())
}

/// A node as affinity sees it.
fn view(node: &NodeInfo) -> NodeView<'_> {
    NodeView { name: &node.name, labels: &node.labels }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::{Nodes, filtered, info, node, pod_with};

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
        assert_eq!(NodeAffinity.score(&CycleState::default(), &pod, &node), 10);
    }

    #[test]
    fn a_node_selector_must_match_whole() {
        let node = info(&node("n1", "4"));
        for (selector, expect) in [
            (json!({"kubernetes.io/hostname": "n1"}), true),
            (json!({"kubernetes.io/hostname": "n1", "x": "y"}), false),
        ] {
            let pod = pod_with("p", json!({"containers": [], "nodeSelector": selector}));
            assert_eq!(filtered(&NodeAffinity, &pod, &node).is_success(), expect, "{selector}");
        }
    }

    #[test]
    fn nodes_that_a_pod_names_are_the_only_ones_looked_at() {
        let field = |names: &[&str]| json!({"key": "metadata.name", "operator": "In", "values": names});
        let label = json!({"key": "disk", "operator": "Exists"});
        for (terms, expected) in [
            (json!([{"matchFields": [field(&["a"])]}, {"matchFields": [field(&["b"])]}]), Ok(Some(vec!["a", "b"]))),
            (json!([{"matchFields": [field(&["a"])]}, {"matchExpressions": [label]}]), Ok(None)),
            (json!([{"matchFields": [field(&["a", "b"]), field(&["b", "c"])]}]), Ok(Some(vec!["b"]))),
            (json!([{"matchFields": [field(&["a"]), field(&["b"])]}]), Err("pod affinity terms conflict")),
        ] {
            let required = json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}});
            let pod = pod_with("p", json!({"containers": [], "affinity": {"nodeAffinity": required}}));
            let nodes = Nodes::of(&[]);
            let (names, status) = NodeAffinity.pre_filter(&mut CycleState::default(), &pod, &nodes.snapshot());
            let message = status.message();
            let found = if status.is_success() { Ok(names) } else { Err(message.as_str()) };
            let expected = expected.map(|names| names.map(|names| names.into_iter().map(str::to_owned).collect()));
            assert_eq!(found, expected, "{terms}");
        }
    }

    #[test]
    fn only_a_node_that_matches_now_and_did_not_before_helps() {
        let pod = pod_with("p", json!({"containers": [], "nodeSelector": {"disk": "ssd"}}));
        let bare = info(&node("n1", "4"));
        let mut labelled = bare.clone();
        labelled.labels.insert("disk".to_owned(), "ssd".to_owned());
        for (event, expected) in [
            (ClusterEvent::NodeAdded(&labelled), QueueingHint::Queue),
            (ClusterEvent::NodeAdded(&bare), QueueingHint::Skip),
            (ClusterEvent::NodeUpdated { old: &bare, new: &labelled }, QueueingHint::Queue),
            (ClusterEvent::NodeUpdated { old: &labelled, new: &labelled }, QueueingHint::Skip),
        ] {
            assert_eq!(NodeAffinity.hint(&pod, &event), expected, "{event:?}");
        }
    }
}
