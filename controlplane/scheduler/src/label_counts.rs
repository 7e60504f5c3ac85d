//! On which nodes pods of the same labels are, so that those that a selector selects are counted
//! without looking at each.
//!
//! Pods of one ReplicaSet have the same labels: a selector is asked once for all of them.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use coracle_api::selector::LabelSelector;

use crate::postings::Postings;

/// Requirements of a selector up to which each kind of pods is asked.
const FEW: usize = 16;

pub(crate) type Labels = BTreeMap<String, String>;

/// Pods by node.
pub(crate) type Counts = HashMap<Arc<str>, i64>;

/// Pods by namespace, labels and node. Kept current by [`crate::cache::Cache`] alone.
#[derive(Debug, Default)]
pub(crate) struct LabelCounts(HashMap<String, HashMap<Labels, LabelGroup>>);

/// Pods of one namespace with the same labels.
#[derive(Debug, Default)]
pub(crate) struct LabelGroup {
    lasting: Counts,
    /// Those that end: gone already for whoever spreads, and there for whoever keeps apart.
    ending: Counts,
}

impl LabelGroup {
    /// On which nodes how many of them are.
    pub(crate) fn on(&self) -> impl Iterator<Item = (&str, i64)> {
        self.lasting
            .iter()
            .chain(&self.ending)
            .map(|(node, count)| (&**node, *count))
    }

    fn counts(&mut self, ends: bool) -> &mut Counts {
        if ends {
            &mut self.ending
        } else {
            &mut self.lasting
        }
    }
}

impl LabelCounts {
    /// The pods of a namespace that are selected, without those that end.
    pub(crate) fn selected(&self, namespace: &str, selector: &LabelSelector) -> Counts {
        let groups = || self.0.get(namespace).into_iter().flatten();
        if selector.requirements().len() > FEW {
            let (on, postings): (Vec<_>, _) = (
                groups().map(|(_, group)| &group.lasting).collect(),
                Postings::of(groups().map(|(labels, _)| labels)),
            );
            return sum(postings.selected(selector).iter().map(|number| on[number]));
        }
        let selected = groups()
            .filter(|(labels, _)| selector.matches(|key| labels.get(key).map(String::as_str)));
        sum(selected.map(|(_, group)| &group.lasting))
    }

    /// All pods of one namespace, by their labels.
    pub(crate) fn of<'a>(
        &'a self,
        namespace: &str,
    ) -> impl Iterator<Item = (&'a Labels, &'a LabelGroup)> + use<'a> {
        self.0.get(namespace).into_iter().flatten()
    }

    /// The namespaces that have pods.
    pub(crate) fn namespaces(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// A pod that `ends` or lasts is on this node.
    pub(crate) fn add(&mut self, (namespace, labels): (&str, &Labels), ends: bool, node: &str) {
        if !self.0.contains_key(namespace) {
            self.0.insert(namespace.to_owned(), HashMap::new());
        }
        let Some(groups) = self.0.get_mut(namespace) else {
            return;
        };
        if !groups.contains_key(labels) {
            groups.insert(labels.clone(), LabelGroup::default());
        }
        let Some(group) = groups.get_mut(labels) else {
            return;
        };
        count(group.counts(ends), node);
    }

    /// One that was added so.
    pub(crate) fn remove(&mut self, (namespace, labels): (&str, &Labels), ends: bool, node: &str) {
        let Some(groups) = self.0.get_mut(namespace) else {
            return;
        };
        let Some(group) = groups.get_mut(labels) else {
            return;
        };
        uncount(group.counts(ends), node);
        if group.lasting.is_empty() && group.ending.is_empty() {
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

fn sum<'a>(mut all: impl Iterator<Item = &'a Counts>) -> Counts {
    let mut sum = all.next().cloned().unwrap_or_default();
    for (node, count) in all.flatten() {
        *sum.entry(node.clone()).or_default() += count;
    }
    sum
}

/// One more on the node.
pub(crate) fn count(on: &mut Counts, node: &str) {
    match on.get_mut(node) {
        Some(count) => *count += 1,
        None => drop(on.insert(node.into(), 1)),
    }
}

/// One less on the node.
pub(crate) fn uncount(on: &mut Counts, node: &str) {
    if let Some(count) = on.get_mut(node) {
        *count -= 1;
        if *count == 0 {
            on.remove(node);
        }
    }
}
