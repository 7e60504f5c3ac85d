//! Which mutating policies look once more: those that ask for it, if what they have seen was
//! changed since.
//!
//! Source: `.../policy/mutating/reinvocationcontext.go` at v1.37.

use std::{collections::BTreeSet, mem::take};

use serde_json::Value;

/// A policy with its binding and one parameter.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(super) policy: String,
    pub(super) binding: String,
    /// Namespace and name.
    pub(super) params: (String, String),
}

/// What is kept of the first look for the second.
#[derive(Debug, Default)]
pub(crate) struct PolicyReinvocation {
    asked: BTreeSet<Key>,
    due: BTreeSet<Key>,
    /// What the policies have left.
    left: Option<Value>,
}

impl PolicyReinvocation {
    /// Begins the turn of the policies in the second look.
    pub(crate) fn enter(&mut self, object: &Value) {
        if self.left.as_ref().is_some_and(|left| left != object) {
            self.changed();
        }
    }

    /// What was changed is due to all that may look again.
    pub(super) fn changed(&mut self) {
        self.due.extend(take(&mut self.asked));
    }

    /// A policy that may look again has looked.
    pub(super) fn asked(&mut self, key: Key) {
        self.asked.insert(key);
    }

    pub(super) fn is_due(&self, key: &Key) -> bool {
        self.due.contains(key)
    }

    /// Ends the turn. Nobody asks for what is left if nobody looks again.
    pub(crate) fn leave(&mut self, object: &Value) {
        let is_asked_for = !self.asked.is_empty() || !self.due.is_empty();
        self.left = is_asked_for.then(|| object.clone());
    }
}
