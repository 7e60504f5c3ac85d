//! How a pod wants to be spread with its like, read once when the pod is seen.
//!
//! Source: `topologySpreadConstraint` in
//! `pkg/scheduler/framework/plugins/podtopologyspread/common.go` at v1.37.

use std::collections::BTreeMap;

use coracle_api::selector::LabelSelector;
use k8s_openapi::api::core::v1::TopologySpreadConstraint;

use super::affinity_term::{selector, with_labels_of};
use crate::label_counts::{Counts, LabelCounts};

/// One of a pod's `topologySpreadConstraints`, parsed.
#[derive(Debug, Clone)]
pub(crate) struct SpreadConstraint {
    pub(crate) max_skew: i64,
    pub(crate) topology_key: String,
    selector: LabelSelector,
    pub(crate) min_domains: usize,
    /// Whether only nodes count that the pod's node affinity allows.
    pub(crate) honours_affinity: bool,
    /// Whether only nodes count whose taints the pod tolerates.
    pub(crate) honours_taints: bool,
}

impl SpreadConstraint {
    /// Those of a pod with `labels` that are `required`, or those that are not.
    pub(crate) fn all(
        constraints: Option<&Vec<TopologySpreadConstraint>>,
        required: bool,
        labels: &BTreeMap<String, String>,
    ) -> Vec<Self> {
        let meant = |one: &&TopologySpreadConstraint| is_required(one) == required;
        constraints
            .into_iter()
            .flatten()
            .filter(meant)
            .map(|one| Self::of(one, labels))
            .collect()
    }

    /// Those of a profile that are `required`, or those that are not, for a pod that says nothing:
    /// with the pods that `alike` selects.
    pub(crate) fn defaults(
        constraints: &[TopologySpreadConstraint],
        required: bool,
        alike: &LabelSelector,
    ) -> Vec<Self> {
        let meant = |one: &&TopologySpreadConstraint| is_required(one) == required;
        let meant = constraints.iter().filter(meant);
        meant.map(|one| Self::with(one, alike.clone())).collect()
    }

    fn of(constraint: &TopologySpreadConstraint, labels: &BTreeMap<String, String>) -> Self {
        let keys = with_labels_of(constraint.match_label_keys.as_deref(), "In", labels);
        Self::with(
            constraint,
            selector(constraint.label_selector.as_ref(), keys),
        )
    }

    fn with(constraint: &TopologySpreadConstraint, selector: LabelSelector) -> Self {
        let honours =
            |policy: &Option<String>, unsaid: &str| policy.as_deref().unwrap_or(unsaid) == "Honor";
        Self {
            max_skew: constraint.max_skew.into(),
            topology_key: constraint.topology_key.clone(),
            selector,
            min_domains: constraint
                .min_domains
                .and_then(|number| number.try_into().ok())
                .unwrap_or(1),
            honours_affinity: honours(&constraint.node_affinity_policy, "Honor"),
            honours_taints: honours(&constraint.node_taints_policy, "Ignore"),
        }
    }

    /// A wish of the system's, for a pod that says nothing.
    pub(crate) fn wish(topology_key: &str, max_skew: i64, selector: LabelSelector) -> Self {
        Self {
            max_skew,
            topology_key: topology_key.to_owned(),
            selector,
            min_domains: 1,
            honours_affinity: true,
            honours_taints: false,
        }
    }

    /// The pods of a namespace that it selects; none if it would select every pod.
    pub(crate) fn selected(&self, namespace: &str, counts: &LabelCounts) -> Counts {
        if self.selects_everything() {
            Counts::new()
        } else {
            counts.selected(namespace, &self.selector)
        }
    }

    pub(crate) fn selector(&self) -> &LabelSelector {
        &self.selector
    }

    /// How much is written in it.
    pub(crate) fn length(&self) -> usize {
        1 + self
            .selector
            .requirements()
            .iter()
            .map(|requirement| 1 + requirement.values.len())
            .sum::<usize>()
    }

    pub(crate) fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        self.selector
            .matches(|key| labels.get(key).map(String::as_str))
    }

    /// Whether it selects every pod; then none is counted.
    pub(crate) fn selects_everything(&self) -> bool {
        self.selector.is_everything()
    }
}

/// Whether a pod goes nowhere that breaks it.
fn is_required(constraint: &TopologySpreadConstraint) -> bool {
    constraint.when_unsatisfiable == "DoNotSchedule"
}
