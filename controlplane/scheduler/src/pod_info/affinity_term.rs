//! What a pod says about the pods beside it: the terms of its affinity, read once when the pod is
//! seen.
//!
//! Source: `AffinityTerm` in `pkg/scheduler/framework/types.go` at v1.37.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{BuildHasher, Hash, Hasher, RandomState},
    sync::LazyLock,
};

use coracle_api::selector::LabelSelector;
use k8s_openapi::{
    api::core::v1::{Affinity, PodAffinityTerm, WeightedPodAffinityTerm},
    apimachinery::pkg::apis::meta::v1::{self as meta, LabelSelectorRequirement},
};

use crate::namespaces::Namespaces;

/// Namespaces up to which it is kept who means them.
const NAMESPACES_KEPT: usize = 16;

/// Pods of these namespaces, or of namespaces with these labels, that have these labels, wherever a
/// node's label says that it is the same place.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct AffinityTerm {
    // First: terms are ordered by it.
    pub(crate) topology_key: String,
    pub(crate) namespaces: BTreeSet<String>,
    pub(crate) namespace_selector: LabelSelector,
    pub(crate) selector: LabelSelector,
}

/// A term that is wished for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct WeightedTerm {
    pub(crate) term: AffinityTerm,
    /// 1 to 100 for each time that it is wished for; less than 0 of a term of anti-affinity.
    pub(crate) weight: i64,
}

/// All terms of a pod: each once, ordered by topology key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct AffinityTerms {
    pub(crate) required: Vec<AffinityTerm>,
    pub(crate) required_anti: Vec<AffinityTerm>,
    /// Of affinity and anti-affinity.
    pub(crate) preferred: Vec<WeightedTerm>,
    /// How much is written in them: what it takes to ask them about one pod.
    length: usize,
    /// They are looked up as often as a pod changes, and may be long.
    digest: u64,
}

impl Hash for AffinityTerms {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.digest);
    }
}

impl AffinityTerms {
    /// Of a pod in `namespace` with `labels`.
    pub(crate) fn of(
        affinity: Option<&Affinity>,
        namespace: &str,
        labels: &BTreeMap<String, String>,
    ) -> Self {
        let near = affinity.and_then(|affinity| affinity.pod_affinity.as_ref());
        let apart = affinity.and_then(|affinity| affinity.pod_anti_affinity.as_ref());
        let of = |term: &PodAffinityTerm| AffinityTerm::of(term, namespace, labels);
        let required = |terms: Option<&Vec<PodAffinityTerm>>| {
            distinct(terms.into_iter().flatten().map(of).collect())
        };
        let weighted = |terms: Option<&Vec<WeightedPodAffinityTerm>>, sign: i64| {
            let one = |wish: &WeightedPodAffinityTerm| WeightedTerm {
                term: of(&wish.pod_affinity_term),
                weight: i64::from(wish.weight) * sign,
            };
            terms.into_iter().flatten().map(one).collect::<Vec<_>>()
        };
        let wished = near.and_then(|near| {
            near.preferred_during_scheduling_ignored_during_execution
                .as_ref()
        });
        let unwanted = apart.and_then(|apart| {
            apart
                .preferred_during_scheduling_ignored_during_execution
                .as_ref()
        });
        let preferred = merged([weighted(wished, 1), weighted(unwanted, -1)].concat());
        let required_anti = required(apart.and_then(|apart| {
            apart
                .required_during_scheduling_ignored_during_execution
                .as_ref()
        }));
        let required = required(near.and_then(|near| {
            near.required_during_scheduling_ignored_during_execution
                .as_ref()
        }));
        Self::new(required, required_anti, preferred)
    }

    fn new(
        required: Vec<AffinityTerm>,
        required_anti: Vec<AffinityTerm>,
        preferred: Vec<WeightedTerm>,
    ) -> Self {
        static DIGEST: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        let wished = preferred.iter().map(|wish| &wish.term);
        let length = required
            .iter()
            .chain(&required_anti)
            .chain(wished)
            .map(AffinityTerm::length)
            .sum();
        let digest = if length == 0 {
            0
        } else {
            DIGEST.hash_one((&required, &required_anti, &preferred))
        };
        Self {
            required,
            required_anti,
            preferred,
            length,
            digest,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.length == 0
    }

    pub(crate) fn length(&self) -> usize {
        self.length
    }

    /// These and others.
    #[cfg(test)]
    pub(crate) fn with(&self, more: &Self) -> Self {
        Self::new(
            distinct([self.required.clone(), more.required.clone()].concat()),
            distinct([self.required_anti.clone(), more.required_anti.clone()].concat()),
            merged([self.preferred.clone(), more.preferred.clone()].concat()),
        )
    }

    /// The only namespaces whose pods they may mean; `None` if these are not known beforehand, or
    /// too many.
    pub(crate) fn reach(&self) -> Option<BTreeSet<&String>> {
        let mut namespaces = BTreeSet::new();
        let wished = self.preferred.iter().map(|wish| &wish.term);
        for term in self
            .required
            .iter()
            .chain(&self.required_anti)
            .chain(wished)
        {
            namespaces.extend(term.only_in()?);
            if namespaces.len() > NAMESPACES_KEPT {
                return None;
            }
        }
        Some(namespaces)
    }
}

fn distinct(mut terms: Vec<AffinityTerm>) -> Vec<AffinityTerm> {
    terms.sort_unstable();
    terms.dedup();
    terms
}

/// What is wished for more than once counts for so much more.
fn merged(mut wishes: Vec<WeightedTerm>) -> Vec<WeightedTerm> {
    wishes.sort_unstable();
    wishes.dedup_by(|next, kept| {
        let is_same = next.term == kept.term;
        if is_same {
            kept.weight += next.weight;
        }
        is_same
    });
    wishes
}

impl AffinityTerm {
    fn of(term: &PodAffinityTerm, namespace: &str, labels: &BTreeMap<String, String>) -> Self {
        let mut namespaces: BTreeSet<String> = term.namespaces.iter().flatten().cloned().collect();
        if namespaces.is_empty() && term.namespace_selector.is_none() {
            namespaces.insert(namespace.to_owned());
        }
        let keys = |keys: &Option<Vec<String>>, operator| {
            with_labels_of(keys.as_deref(), operator, labels)
        };
        let mut more = keys(&term.match_label_keys, "In");
        more.extend(keys(&term.mismatch_label_keys, "NotIn"));
        Self {
            namespaces,
            namespace_selector: selector(term.namespace_selector.as_ref(), Vec::new()),
            selector: selector(term.label_selector.as_ref(), more),
            topology_key: term.topology_key.clone(),
        }
    }

    /// The only namespaces whose pods it means, if it names them.
    pub(crate) fn only_in(&self) -> Option<&BTreeSet<String>> {
        (self.namespace_selector == LabelSelector::nothing()).then_some(&self.namespaces)
    }

    fn length(&self) -> usize {
        let of = |selector: &LabelSelector| {
            selector
                .requirements()
                .iter()
                .map(|requirement| 1 + requirement.values.len())
                .sum::<usize>()
        };
        1 + self.namespaces.len() + of(&self.namespace_selector) + of(&self.selector)
    }

    /// Whether a pod in `namespace` with `labels` is meant.
    pub(crate) fn matches(
        &self,
        namespace: &str,
        labels: &BTreeMap<String, String>,
        all: &Namespaces,
    ) -> bool {
        #[cfg(test)]
        crate::postings::work::done(1);
        let is_there = || {
            self.namespaces.contains(namespace)
                || self
                    .namespace_selector
                    .matches(|key| all.labels(namespace)?.get(key).map(String::as_str))
        };
        self.selects(labels) && is_there()
    }

    /// Whether such a pod is meant if its namespace has the labels for it.
    pub(crate) fn may_match(&self, namespace: &str, labels: &BTreeMap<String, String>) -> bool {
        let may_be_there = self
            .only_in()
            .is_none_or(|namespaces| namespaces.contains(namespace));
        may_be_there && self.selects(labels)
    }

    fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        self.selector
            .matches(|key| labels.get(key).map(String::as_str))
    }
}

/// The requirement that pods have, or do not have, the same value of these labels. Upstream's API
/// server writes them into the selector as the pod is created; here the object stays as it was
/// given.
pub(super) fn with_labels_of(
    keys: Option<&[String]>,
    operator: &str,
    labels: &BTreeMap<String, String>,
) -> Vec<LabelSelectorRequirement> {
    let known = keys
        .into_iter()
        .flatten()
        .filter_map(|key| Some((key, labels.get(key)?)));
    known
        .map(|(key, value)| LabelSelectorRequirement {
            key: key.clone(),
            operator: operator.to_owned(),
            values: Some(vec![value.clone()]),
        })
        .collect()
}

/// A selector as it is asked. None selects nothing, and so does one that the API server would not
/// have taken.
pub(crate) fn selector(
    object: Option<&meta::LabelSelector>,
    more: Vec<LabelSelectorRequirement>,
) -> LabelSelector {
    let Some(mut object) = object.cloned() else {
        return LabelSelector::nothing();
    };
    if !more.is_empty() {
        object
            .match_expressions
            .get_or_insert_default()
            .extend(more);
    }
    let object = serde_json::to_value(object).unwrap_or_default();
    LabelSelector::from_object(&object).unwrap_or_else(|_| LabelSelector::nothing())
}
