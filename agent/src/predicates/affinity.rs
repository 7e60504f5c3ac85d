//! `nodeSelector` and required node affinity.
//!
//! Source: `k8s.io/component-helpers/scheduling/corev1/nodeaffinity` at v1.37.

use k8s_openapi::api::core::v1::{NodeSelectorRequirement, NodeSelectorTerm, PodSpec};

use super::NodeInfo;

/// Whether the pod may run on the node, for all that it says itself.
pub(super) fn matches(spec: &PodSpec, node: &NodeInfo) -> bool {
    if !spec.node_selector.iter().flatten().all(|(key, value)| node.labels.get(key) == Some(value)) {
        return false;
    }
    let affinity = spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
    let required = affinity.and_then(|one| one.required_during_scheduling_ignored_during_execution.as_ref());
    required.is_none_or(|selector| selector.node_selector_terms.iter().any(|term| meets(term, node)))
}

/// A term without any requirement meets nothing.
fn meets(term: &NodeSelectorTerm, node: &NodeInfo) -> bool {
    let labels = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    if labels.is_empty() && fields.is_empty() {
        return false;
    }
    let by_label = |one: &NodeSelectorRequirement| holds(one, node.labels.get(&one.key).map(String::as_str));
    // The only field there is.
    let by_field = |one: &NodeSelectorRequirement| one.key == "metadata.name" && holds(one, Some(&node.name));
    labels.iter().all(by_label) && fields.iter().all(by_field)
}

fn holds(requirement: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let values = requirement.values.as_deref().unwrap_or_default();
    let listed = value.is_some_and(|value| values.iter().any(|listed| listed == value));
    let number = |text: Option<&str>| text.and_then(|text| text.parse::<i64>().ok());
    let compared = number(value).zip(number(values.first().map(String::as_str)));
    match requirement.operator.as_str() {
        "In" => listed,
        "NotIn" => !listed,
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => compared.is_some_and(|(has, asked)| has > asked),
        "Lt" => compared.is_some_and(|(has, asked)| has < asked),
        _ => false,
    }
}
