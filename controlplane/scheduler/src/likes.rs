//! On which nodes pods of the same labels are, so that those that a selector selects are counted without looking at each.
//!
//! Pods of one ReplicaSet have the same labels: a selector is asked once for all of them.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use coracle_api::selector::LabelSelector;

type Labels = BTreeMap<String, String>;

/// Pods by node.
pub(crate) type Counts = HashMap<Arc<str>, i64>;

/// Pods by namespace, labels and node; those that end are gone already. Kept current by [`crate::cache::Cache`] alone.
#[derive(Debug, Default)]
pub(crate) struct Likes(HashMap<String, HashMap<Labels, Counts>>);

impl Likes {
    /// The pods of a namespace that are selected.
    pub(crate) fn selected(&self, namespace: &str, selector: &LabelSelector) -> Counts {
        let groups = self.0.get(namespace).into_iter().flatten();
        let mut selected =
            groups.filter(|(labels, _)| selector.matches(|key| labels.get(key).map(String::as_str))).map(|(_, on)| on);
        let mut sum = selected.next().cloned().unwrap_or_default();
        for (node, count) in selected.flatten() {
            *sum.entry(node.clone()).or_default() += count;
        }
        sum
    }

    pub(crate) fn add(&mut self, namespace: &str, labels: &Labels, node: &str) {
        if !self.0.contains_key(namespace) {
            self.0.insert(namespace.to_owned(), HashMap::new());
        }
        let Some(groups) = self.0.get_mut(namespace) else { return };
        if !groups.contains_key(labels) {
            groups.insert(labels.clone(), Counts::new());
        }
        let Some(on) = groups.get_mut(labels) else { return };
        match on.get_mut(node) {
            Some(count) => *count += 1,
            None => drop(on.insert(node.into(), 1)),
        }
    }

    /// One that was added so.
    pub(crate) fn remove(&mut self, namespace: &str, labels: &Labels, node: &str) {
        let Some(groups) = self.0.get_mut(namespace) else { return };
        let Some(on) = groups.get_mut(labels) else { return };
        if let Some(count) = on.get_mut(node) {
            *count -= 1;
            if *count == 0 {
                on.remove(node);
            }
        }
        if on.is_empty() {
            groups.remove(labels);
        }
        if groups.is_empty() {
            self.0.remove(namespace);
        }
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
