//! The affinity terms of the pods on nodes: each set of terms once, with the nodes of the pods that
//! have it.
//!
//! By the namespaces that the terms mean. Most mean their own, and cost the pods of others nothing.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use crate::{
    label_counts::{Counts, count, uncount},
    pod_info::{AffinityTerms, PodInfo},
};

/// Sets of terms, and how many pods on which node have each.
type TermCounts = HashMap<Arc<AffinityTerms>, Counts>;

/// The affinity terms of pods on nodes, by the namespaces they mean. Kept current by
/// [`crate::cache::Cache`] alone.
#[derive(Debug, Default)]
pub(crate) struct AffinityIndex {
    by_namespace: BTreeMap<String, TermCounts>,
    /// Those that may mean any namespace.
    anywhere: TermCounts,
}

impl AffinityIndex {
    /// What may mean pods of `namespace`, and how many pods on which node say it.
    pub(crate) fn about(&self, namespace: &str) -> impl Iterator<Item = (&AffinityTerms, &Counts)> {
        let here = self.by_namespace.get(namespace).into_iter().flatten();
        here.chain(&self.anywhere).map(|(terms, on)| (&**terms, on))
    }

    pub(crate) fn add(&mut self, pod: &PodInfo, node: &str) {
        if pod.terms.is_empty() {
            return;
        }
        let Some(namespaces) = pod.terms.reach() else {
            return count(self.anywhere.entry(pod.terms.clone()).or_default(), node);
        };
        for namespace in namespaces {
            let terms = self.by_namespace.entry(namespace.clone()).or_default();
            count(terms.entry(pod.terms.clone()).or_default(), node);
        }
    }

    /// One that was added so.
    pub(crate) fn remove(&mut self, pod: &PodInfo, node: &str) {
        let Some(namespaces) = pod.terms.reach() else {
            return forget(&mut self.anywhere, pod, node);
        };
        for namespace in namespaces {
            let Some(terms) = self.by_namespace.get_mut(namespace) else {
                continue;
            };
            forget(terms, pod, node);
            if terms.is_empty() {
                self.by_namespace.remove(namespace);
            }
        }
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.by_namespace.is_empty() && self.anywhere.is_empty()
    }
}

fn forget(terms: &mut TermCounts, pod: &PodInfo, node: &str) {
    let Some(on) = terms.get_mut(&pod.terms) else {
        return;
    };
    uncount(on, node);
    if on.is_empty() {
        terms.remove(&pod.terms);
    }
}
