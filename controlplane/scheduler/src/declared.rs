//! What the pods on nodes say about the pods beside them: once for all that say the same, with the
//! nodes that they are on.
//!
//! Filed under the namespaces that are meant. Most mean their own, and cost the pods of others
//! nothing.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use crate::{
    likes::{Counts, count, uncount},
    pod_info::{AffinityTerms, PodInfo},
};

type Sayings = HashMap<Arc<AffinityTerms>, Counts>;

/// See the module. Kept current by [`crate::cache::Cache`] alone.
#[derive(Debug, Default)]
pub(crate) struct Declared {
    by_namespace: BTreeMap<String, Sayings>,
    /// Those that may mean any namespace.
    anywhere: Sayings,
}

impl Declared {
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
            let sayings = self.by_namespace.entry(namespace.clone()).or_default();
            count(sayings.entry(pod.terms.clone()).or_default(), node);
        }
    }

    /// One that was added so.
    pub(crate) fn remove(&mut self, pod: &PodInfo, node: &str) {
        let Some(namespaces) = pod.terms.reach() else {
            return forget(&mut self.anywhere, pod, node);
        };
        for namespace in namespaces {
            let Some(sayings) = self.by_namespace.get_mut(namespace) else {
                continue;
            };
            forget(sayings, pod, node);
            if sayings.is_empty() {
                self.by_namespace.remove(namespace);
            }
        }
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.by_namespace.is_empty() && self.anywhere.is_empty()
    }
}

fn forget(sayings: &mut Sayings, pod: &PodInfo, node: &str) {
    let Some(on) = sayings.get_mut(&pod.terms) else {
        return;
    };
    uncount(on, node);
    if on.is_empty() {
        sayings.remove(&pod.terms);
    }
}
