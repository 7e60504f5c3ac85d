//! The labels of namespaces, which terms of pod affinity may select by.

use std::collections::{BTreeMap, HashMap};

/// By name.
#[derive(Debug, Default)]
pub(crate) struct Namespaces(HashMap<String, BTreeMap<String, String>>);

impl Namespaces {
    /// The labels of one; none if it is not known.
    pub(crate) fn labels(&self, name: &str) -> Option<&BTreeMap<String, String>> {
        self.0.get(name)
    }

    /// Whether that is news.
    pub(crate) fn set(&mut self, name: &str, labels: BTreeMap<String, String>) -> bool {
        if self.0.get(name) == Some(&labels) {
            return false;
        }
        self.0.insert(name.to_owned(), labels);
        true
    }

    pub(crate) fn remove(&mut self, name: &str) {
        self.0.remove(name);
    }
}
