//! NodeAffinity: `nodeSelector`, required and preferred node affinity.
//!
//! Source: `k8s.io/component-helpers/scheduling/corev1/nodeaffinity` at v1.37.

use k8s_openapi::api::core::v1::{NodeSelectorRequirement, NodeSelectorTerm};

use crate::{
    framework::{Filter, Reason, Score, normalize_by_max},
    node_info::NodeInfo,
    pod_info::PodInfo,
};

pub(super) struct NodeAffinity;

impl Filter for NodeAffinity {
    fn filter(&self, pod: &PodInfo, node: &NodeInfo) -> Vec<Reason> {
        if matches(pod, node) { Vec::new() } else { vec!["node(s) didn't match Pod's node affinity/selector".into()] }
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
        let met = preferred.into_iter().flatten().filter(|preference| meets(&preference.preference, node));
        met.map(|preference| i64::from(preference.weight)).sum()
    }

    fn normalize(&self, scores: &mut [i64]) {
        normalize_by_max(scores, false);
    }

    fn weight(&self) -> i64 {
        2
    }
}

fn matches(pod: &PodInfo, node: &NodeInfo) -> bool {
    if !pod.node_selector.iter().all(|(key, value)| node.labels.get(key) == Some(value)) {
        return false;
    }
    let required = pod
        .affinity
        .as_ref()
        .and_then(|affinity| affinity.node_affinity.as_ref())
        .and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref());
    required.is_none_or(|selector| selector.node_selector_terms.iter().any(|term| meets(term, node)))
}

/// A term without any requirement meets nothing.
fn meets(term: &NodeSelectorTerm, node: &NodeInfo) -> bool {
    let (labels, fields) = (term.match_expressions.as_deref(), term.match_fields.as_deref());
    let (labels, fields) = (labels.unwrap_or_default(), fields.unwrap_or_default());
    if labels.is_empty() && fields.is_empty() {
        return false;
    }
    let by_label = |requirement: &NodeSelectorRequirement| {
        holds(requirement, node.labels.get(&requirement.key).map(String::as_str))
    };
    // The only field there is.
    let by_field = |requirement: &NodeSelectorRequirement| {
        requirement.key == "metadata.name" && holds(requirement, Some(&node.name))
    };
    labels.iter().all(by_label) && fields.iter().all(by_field)
}

fn holds(requirement: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let values = requirement.values.as_deref().unwrap_or_default();
    let listed = || value.is_some_and(|value| values.iter().any(|listed| listed == value));
    let number = |text: Option<&str>| text.and_then(|text| text.parse::<i64>().ok());
    let compared = || Some((number(value)?, number(values.first().map(String::as_str))?));
    match requirement.operator.as_str() {
        "In" => listed(),
        "NotIn" => !listed(),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => compared().is_some_and(|(has, asked)| has > asked),
        "Lt" => compared().is_some_and(|(has, asked)| has < asked),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::framework::testing::{info, node, pod_with};

    fn check(requirement: Value, expect: bool) {
        let mut node = info(&node("n1", "4"));
        node.labels.insert("disk".to_owned(), "ssd".to_owned());
        node.labels.insert("size".to_owned(), "7".to_owned());
        let term = json!({"nodeSelectorTerms": [{"matchExpressions": [requirement]}]});
        let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": term}});
        let pod = pod_with("p", json!({"containers": [], "affinity": affinity}));
        assert_eq!(NodeAffinity.filter(&pod, &node).is_empty(), expect, "{requirement}");
    }

    #[test]
    fn operators_mean_what_upstream_says() {
        check(json!({"key": "disk", "operator": "In", "values": ["ssd", "nvme"]}), true);
        check(json!({"key": "disk", "operator": "NotIn", "values": ["ssd"]}), false);
        check(json!({"key": "absent", "operator": "NotIn", "values": ["ssd"]}), true);
        check(json!({"key": "disk", "operator": "Exists"}), true);
        check(json!({"key": "disk", "operator": "DoesNotExist"}), false);
        check(json!({"key": "size", "operator": "Gt", "values": ["6"]}), true);
        check(json!({"key": "size", "operator": "Lt", "values": ["7"]}), false);
        check(json!({"key": "disk", "operator": "Gt", "values": ["1"]}), false);
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
