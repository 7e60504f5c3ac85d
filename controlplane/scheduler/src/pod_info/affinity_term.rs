//! What a pod says about the pods beside it: the terms of its affinity, read once when the pod is seen.
//!
//! Source: `AffinityTerm` in `pkg/scheduler/framework/types.go` at v1.37.

use std::collections::{BTreeMap, BTreeSet};

use coracle_api::selector::LabelSelector;
use k8s_openapi::{
    api::core::v1::{Affinity, PodAffinityTerm, WeightedPodAffinityTerm},
    apimachinery::pkg::apis::meta::v1::{self as meta, LabelSelectorRequirement},
};

use crate::namespaces::Namespaces;

/// Pods of these namespaces, or of namespaces with these labels, that have these labels, wherever a node's label says that it is
/// the same place.
#[derive(Debug, Clone)]
pub(crate) struct AffinityTerm {
    namespaces: BTreeSet<String>,
    namespace_selector: LabelSelector,
    selector: LabelSelector,
    pub(crate) topology_key: String,
}

/// A term that is wished for.
#[derive(Debug, Clone)]
pub(crate) struct WeightedTerm {
    /// 1 to 100; less than 0 of a term of anti-affinity.
    pub(crate) weight: i64,
    pub(crate) term: AffinityTerm,
}

/// All terms of a pod.
#[derive(Debug, Clone, Default)]
pub(crate) struct AffinityTerms {
    pub(crate) required: Vec<AffinityTerm>,
    pub(crate) required_anti: Vec<AffinityTerm>,
    /// Of affinity and anti-affinity.
    pub(crate) preferred: Vec<WeightedTerm>,
}

impl AffinityTerms {
    /// Of a pod in `namespace` with `labels`.
    pub(crate) fn of(affinity: Option<&Affinity>, namespace: &str, labels: &BTreeMap<String, String>) -> Self {
        let near = affinity.and_then(|affinity| affinity.pod_affinity.as_ref());
        let apart = affinity.and_then(|affinity| affinity.pod_anti_affinity.as_ref());
        let required = |terms: Option<&Vec<PodAffinityTerm>>| {
            terms.into_iter().flatten().map(|term| AffinityTerm::of(term, namespace, labels)).collect()
        };
        let preferred = |terms: Option<&Vec<WeightedPodAffinityTerm>>, sign: i64| {
            let weighted = terms.into_iter().flatten().map(|term| WeightedTerm {
                weight: i64::from(term.weight) * sign,
                term: AffinityTerm::of(&term.pod_affinity_term, namespace, labels),
            });
            weighted.collect::<Vec<_>>()
        };
        let mut wished =
            preferred(near.and_then(|near| near.preferred_during_scheduling_ignored_during_execution.as_ref()), 1);
        wished.extend(preferred(
            apart.and_then(|apart| apart.preferred_during_scheduling_ignored_during_execution.as_ref()),
            -1,
        ));
        Self {
            required: required(near.and_then(|near| near.required_during_scheduling_ignored_during_execution.as_ref())),
            required_anti: required(
                apart.and_then(|apart| apart.required_during_scheduling_ignored_during_execution.as_ref()),
            ),
            preferred: wished,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.required.is_empty() && self.required_anti.is_empty() && self.preferred.is_empty()
    }
}

impl AffinityTerm {
    fn of(term: &PodAffinityTerm, namespace: &str, labels: &BTreeMap<String, String>) -> Self {
        let mut namespaces: BTreeSet<String> = term.namespaces.iter().flatten().cloned().collect();
        if namespaces.is_empty() && term.namespace_selector.is_none() {
            namespaces.insert(namespace.to_owned());
        }
        let keys = |keys: &Option<Vec<String>>, operator| with_labels_of(keys.as_deref(), operator, labels);
        let mut more = keys(&term.match_label_keys, "In");
        more.extend(keys(&term.mismatch_label_keys, "NotIn"));
        Self {
            namespaces,
            namespace_selector: selector(term.namespace_selector.as_ref(), Vec::new()),
            selector: selector(term.label_selector.as_ref(), more),
            topology_key: term.topology_key.clone(),
        }
    }

    /// Whether a pod in `namespace` with `labels` is meant.
    pub(crate) fn matches(&self, namespace: &str, labels: &BTreeMap<String, String>, all: &Namespaces) -> bool {
        let is_there = || {
            self.namespaces.contains(namespace)
                || self.namespace_selector.matches(|key| all.labels(namespace)?.get(key).map(String::as_str))
        };
        self.selects(labels) && is_there()
    }

    /// Whether such a pod is meant if its namespace has the labels for it.
    pub(crate) fn may_match(&self, namespace: &str, labels: &BTreeMap<String, String>) -> bool {
        let may_be_there = self.namespaces.contains(namespace) || self.namespace_selector != LabelSelector::nothing();
        may_be_there && self.selects(labels)
    }

    fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        self.selector.matches(|key| labels.get(key).map(String::as_str))
    }
}

/// The requirement that pods have, or do not have, the same value of these labels. Upstream's API server writes them into the
/// selector as the pod is created; here the object stays as it was given.
pub(super) fn with_labels_of(
    keys: Option<&[String]>,
    operator: &str,
    labels: &BTreeMap<String, String>,
) -> Vec<LabelSelectorRequirement> {
    let known = keys.into_iter().flatten().filter_map(|key| Some((key, labels.get(key)?)));
    known
        .map(|(key, value)| LabelSelectorRequirement {
            key: key.clone(),
            operator: operator.to_owned(),
            values: Some(vec![value.clone()]),
        })
        .collect()
}

/// A selector as it is asked. None selects nothing, and so does one that the API server would not have taken.
pub(super) fn selector(object: Option<&meta::LabelSelector>, more: Vec<LabelSelectorRequirement>) -> LabelSelector {
    let Some(mut object) = object.cloned() else { return LabelSelector::nothing() };
    if !more.is_empty() {
        object.match_expressions.get_or_insert_default().extend(more);
    }
    let object = serde_json::to_value(object).unwrap_or_default();
    LabelSelector::from_object(&object).unwrap_or_else(|_| LabelSelector::nothing())
}
