//! `nodeSelector` and node affinity.
//!
//! Source: `k8s.io/component-helpers/scheduling/corev1/nodeaffinity` at v1.37.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Affinity, NodeSelectorRequirement, NodeSelectorTerm};

use crate::name;

/// A node, as far as affinity sees it.
#[derive(Debug, Clone, Copy)]
pub struct NodeView<'a> {
    /// `metadata.name`.
    pub name: &'a str,
    /// `metadata.labels`.
    pub labels: &'a BTreeMap<String, String>,
}

/// Whether a node is one that a pod with this `spec.nodeSelector` and `spec.affinity` requires: all
/// labels of the selector, and any of the affinity's terms.
#[must_use]
pub fn required_affinity_matches(
    selector: Option<&BTreeMap<String, String>>,
    affinity: Option<&Affinity>,
    node: NodeView<'_>,
) -> bool {
    if !selector
        .into_iter()
        .flatten()
        .all(|(key, value)| node.labels.get(key) == Some(value))
    {
        return false;
    }
    let affinity = affinity.and_then(|affinity| affinity.node_affinity.as_ref());
    let required = affinity.and_then(|one| {
        one.required_during_scheduling_ignored_during_execution
            .as_ref()
    });
    required.is_none_or(|selector| {
        selector
            .node_selector_terms
            .iter()
            .any(|term| meets_term(term, node))
    })
}

/// Whether a node meets all requirements of a term. One without any requirement meets nothing, and
/// so does one with a requirement that cannot be meant.
#[must_use]
pub fn meets_term(term: &NodeSelectorTerm, node: NodeView<'_>) -> bool {
    let labels = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    can_be_met(term)
        && labels
            .iter()
            .all(|one| holds(one, node.labels.get(&one.key).map(String::as_str)))
        && fields.iter().all(|one| field_holds(one, node))
}

/// Whether a term requires anything, and nothing that cannot be meant: what [`meets_term`] asks
/// before it looks at a node.
#[must_use]
pub fn can_be_met(term: &NodeSelectorTerm) -> bool {
    let labels = term.match_expressions.as_deref().unwrap_or_default();
    let has_fields = term
        .match_fields
        .as_ref()
        .is_some_and(|fields| !fields.is_empty());
    // All of them are looked at: a wrong one counts wherever it stands.
    (!labels.is_empty() || has_fields) && labels.iter().all(is_meant)
}

fn values(requirement: &NodeSelectorRequirement) -> &[String] {
    requirement.values.as_deref().unwrap_or_default()
}

/// Whether values are there where the operator needs them.
fn is_meant(requirement: &NodeSelectorRequirement) -> bool {
    let values = values(requirement);
    let numbered = match requirement.operator.as_str() {
        "In" | "NotIn" => !values.is_empty(),
        "Exists" | "DoesNotExist" => values.is_empty(),
        "Gt" | "Lt" => values.len() == 1 && values[0].parse::<i64>().is_ok(),
        _ => false,
    };
    numbered
        && values
            .iter()
            .all(|value| name::label_value_errors(value).is_empty())
}

/// Of a requirement that can be meant. A label that is not there is not among any values.
fn holds(requirement: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let values = values(requirement);
    let listed = || value.is_some_and(|value| values.iter().any(|listed| listed == value));
    let number = |text: Option<&str>| text.and_then(|text| text.parse::<i64>().ok());
    let compared = || number(value).zip(number(values.first().map(String::as_str)));
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

/// Whether a node's field is as required. `metadata.name` is the only field there is; every other
/// one is empty.
#[must_use]
pub fn field_holds(requirement: &NodeSelectorRequirement, node: NodeView<'_>) -> bool {
    let has = if requirement.key == "metadata.name" {
        node.name
    } else {
        ""
    };
    match (requirement.operator.as_str(), values(requirement)) {
        ("In", [one]) => one == has,
        ("NotIn", [one]) => one != has,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn meets(term: Value) -> bool {
        let labels = [
            ("disk", "ssd"),
            ("size", "7"),
            ("word", "seven"),
            ("empty", ""),
        ];
        let labels = labels
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into();
        let term = serde_json::from_value(term).expect("a term");
        meets_term(
            &term,
            NodeView {
                name: "n1",
                labels: &labels,
            },
        )
    }

    fn check(table: &[(Value, bool)], field: &str) {
        for (requirement, expect) in table {
            assert_eq!(
                meets(json!({ field: [requirement] })),
                *expect,
                "{requirement}"
            );
        }
    }

    #[test]
    fn operators_compare_labels() {
        check(
            &[
                (
                    json!({"key": "disk", "operator": "In", "values": ["ssd", "nvme"]}),
                    true,
                ),
                (
                    json!({"key": "disk", "operator": "In", "values": ["nvme"]}),
                    false,
                ),
                (
                    json!({"key": "absent", "operator": "In", "values": [""]}),
                    false,
                ),
                (
                    json!({"key": "empty", "operator": "In", "values": [""]}),
                    true,
                ),
                (
                    json!({"key": "disk", "operator": "NotIn", "values": ["ssd"]}),
                    false,
                ),
                (
                    json!({"key": "absent", "operator": "NotIn", "values": ["ssd"]}),
                    true,
                ),
                (json!({"key": "disk", "operator": "Exists"}), true),
                (json!({"key": "absent", "operator": "Exists"}), false),
                (json!({"key": "disk", "operator": "DoesNotExist"}), false),
                (json!({"key": "absent", "operator": "DoesNotExist"}), true),
                (
                    json!({"key": "size", "operator": "Gt", "values": ["6"]}),
                    true,
                ),
                (
                    json!({"key": "size", "operator": "Gt", "values": ["7"]}),
                    false,
                ),
                (
                    json!({"key": "size", "operator": "Lt", "values": ["8"]}),
                    true,
                ),
                (
                    json!({"key": "size", "operator": "Lt", "values": ["7"]}),
                    false,
                ),
                (
                    json!({"key": "word", "operator": "Gt", "values": ["1"]}),
                    false,
                ),
                (
                    json!({"key": "absent", "operator": "Lt", "values": ["1"]}),
                    false,
                ),
            ],
            "matchExpressions",
        );
    }

    #[test]
    fn what_cannot_be_meant_meets_nothing() {
        check(
            &[
                (json!({"key": "absent", "operator": "NotIn"}), false),
                (
                    json!({"key": "absent", "operator": "NotIn", "values": ["a b"]}),
                    false,
                ),
                (
                    json!({"key": "disk", "operator": "Exists", "values": ["ssd"]}),
                    false,
                ),
                (
                    json!({"key": "size", "operator": "Gt", "values": ["1", "2"]}),
                    false,
                ),
                (
                    json!({"key": "size", "operator": "Gt", "values": ["one"]}),
                    false,
                ),
                (
                    json!({"key": "disk", "operator": "Is", "values": ["ssd"]}),
                    false,
                ),
            ],
            "matchExpressions",
        );
        assert!(!meets(json!({})), "a term without a requirement");
    }

    #[test]
    fn fields_have_one_value() {
        check(
            &[
                (
                    json!({"key": "metadata.name", "operator": "In", "values": ["n1"]}),
                    true,
                ),
                (
                    json!({"key": "metadata.name", "operator": "In", "values": ["n2"]}),
                    false,
                ),
                (
                    json!({"key": "metadata.name", "operator": "In", "values": ["n1", "n2"]}),
                    false,
                ),
                (
                    json!({"key": "metadata.name", "operator": "NotIn", "values": ["n2"]}),
                    true,
                ),
                (
                    json!({"key": "metadata.name", "operator": "NotIn", "values": ["n1"]}),
                    false,
                ),
                (json!({"key": "metadata.name", "operator": "Exists"}), false),
                (
                    json!({"key": "spec.other", "operator": "In", "values": ["n1"]}),
                    false,
                ),
            ],
            "matchFields",
        );
    }

    #[test]
    fn selector_and_every_requirement_of_one_term_must_hold() {
        let labels: BTreeMap<String, String> = [("disk".to_owned(), "ssd".to_owned())].into();
        let node = NodeView {
            name: "n1",
            labels: &labels,
        };
        let disk = |value: &str| json!({"key": "disk", "operator": "In", "values": [value]});
        let name =
            |value: &str| json!({"key": "metadata.name", "operator": "In", "values": [value]});
        let term = |label: Value, field: Value| json!({"matchExpressions": [label], "matchFields": [field]});
        for (selector, terms, expect) in [
            (json!(null), json!(null), true),
            (json!({"disk": "ssd"}), json!(null), true),
            (json!({"disk": "ssd", "x": "y"}), json!(null), false),
            (
                json!({"disk": "hdd"}),
                json!([term(disk("ssd"), name("n1"))]),
                false,
            ),
            (
                json!({"disk": "ssd"}),
                json!([term(disk("ssd"), name("n2"))]),
                false,
            ),
            (
                json!(null),
                json!([term(disk("ssd"), name("n2")), term(disk("ssd"), name("n1"))]),
                true,
            ),
            (json!(null), json!([]), false),
            (json!(null), json!([{}]), false),
        ] {
            let required = (!terms.is_null()).then(|| json!({"nodeSelectorTerms": terms}));
            let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}});
            let affinity: Affinity = serde_json::from_value(affinity).expect("affinity");
            let wanted: Option<BTreeMap<String, String>> =
                serde_json::from_value(selector.clone()).expect("selector");
            let found = required_affinity_matches(wanted.as_ref(), Some(&affinity), node);
            assert_eq!(found, expect, "{selector} {terms}");
        }
    }
}
