//! Plugins that change a write may want to see what those after them have made of it: all of them
//! look once more, and webhooks only if they have asked for it.
//!
//! Source: `k8s.io/apiserver/pkg/admission/reinvocation.go` and
//! `.../plugin/webhook/mutating/reinvocationcontext.go` at v1.37.

use std::{collections::BTreeSet, mem::take};

use serde_json::Value;

/// What is kept of the first look for the second.
#[derive(Debug, Default)]
pub struct Reinvocation {
    /// This is the second.
    is_again: bool,
    is_wanted: bool,
    /// Webhooks that were called and may be called again.
    called: BTreeSet<String>,
    /// Those whose object has been changed since.
    due: BTreeSet<String>,
    /// What the last webhook has left.
    left: Option<Value>,
}

impl Reinvocation {
    /// Whether this is the second look.
    pub fn is_again(&self) -> bool {
        self.is_again
    }

    /// Asks for a second look: a policy or a webhook has changed something.
    pub fn want(&mut self) {
        self.is_wanted = true;
    }

    /// Begins the second look if there is to be one.
    pub fn begins_again(&mut self) -> bool {
        let begins = self.is_wanted && !self.is_again;
        self.is_again |= begins;
        begins
    }

    /// What was changed since they were called is due to all that may be called again.
    pub fn changed(&mut self) {
        self.due.extend(take(&mut self.called));
    }

    /// A webhook that may be called again was called.
    pub fn called(&mut self, uid: &str) {
        self.called.insert(uid.to_owned());
    }

    /// Whether it is to be called in the second look.
    pub fn is_due(&self, uid: &str) -> bool {
        self.due.contains(uid)
    }

    /// Begins the turn of the webhooks with what the plugins before them have made of the object.
    pub fn enter(&mut self, object: &Value) {
        if self.is_again && self.left.as_ref().is_some_and(|left| left != object) {
            self.changed();
        }
    }

    /// Ends it. Nobody asks for what the second look has left.
    pub fn leave(&mut self, object: &Value) {
        if !self.is_again && self.is_wanted {
            self.left = Some(object.clone());
        }
    }
}
