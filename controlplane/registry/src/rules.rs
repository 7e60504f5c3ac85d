//! Rules in CEL of custom resources: `x-kubernetes-validations`.
//!
//! | module | does |
//! |---|---|
//! | `rule` | one rule, compiled |
//! | `tree` | all rules of a schema, where they stand in it |
//! | `definition` | what of the rules of a definition is refused, and what they may cost |
//! | `evaluate` | objects against them |
//! | `place` | where in an object that is, and whether it is as it was |
//! | `metrics` | how long they take |
//!
//! The language itself is `coracle_cel`'s. Rules are compiled once for a kind that is served.
//!
//! Source: `pkg/apiserver/schema/cel/{compilation,validation}.go` and
//! `pkg/apis/apiextensions/validation/{validation,cel_validation}.go` of
//! `k8s.io/apiextensions-apiserver` at v1.37.

mod definition;
mod evaluate;
mod metrics;
mod place;
mod rule;
mod tree;

use std::{sync::OnceLock, time::Instant};

use coracle_api::{schema::Structural, status::FieldErrors};
use serde_json::Value;

pub(crate) use self::definition::errors as definition_errors;
pub use self::metrics::RuleMetrics;
use self::tree::Node;
use crate::beside::beside;

/// The rules of a schema, compiled.
pub(crate) struct Rules {
    root: Node,
    metrics: RuleMetrics,
}

impl Rules {
    /// `None` if there are none.
    pub(crate) fn read(schema: &Value, metrics: &RuleMetrics) -> Option<Self> {
        let begun = Instant::now();
        let root = tree::read(schema)?;
        let took = begun.elapsed().as_secs_f64();
        metrics.compilation.observe(took);
        Some(Self {
            root,
            metrics: metrics.clone(),
        })
    }

    /// What an object breaks that is made, or changed from what it was. What of it is as it was
    /// is not told.
    pub(crate) fn check(&self, object: &Value, old: Option<&Value>) -> FieldErrors {
        let begun = Instant::now();
        let errors = evaluate::object(&self.root, object, old);
        let took = begun.elapsed().as_secs_f64();
        self.metrics.evaluation.observe(took);
        errors
    }
}

/// Rules that are compiled when they are first asked: many kinds are served that nobody writes.
pub(crate) struct LazyRules {
    rules: OnceLock<Option<Rules>>,
    metrics: RuleMetrics,
}

impl LazyRules {
    pub(crate) fn new(metrics: &RuleMetrics) -> Self {
        Self {
            rules: OnceLock::new(),
            metrics: metrics.clone(),
        }
    }

    /// Those of `schema`, which is always the same; `None` if there are none.
    pub(crate) fn get(&self, schema: &Structural) -> Option<&Rules> {
        let read = || Rules::read(&schema.published(), &self.metrics);
        let rules = match self.rules.get() {
            Some(rules) => rules,
            None => beside(|| self.rules.get_or_init(read)),
        };
        rules.as_ref()
    }
}

#[cfg(test)]
mod tests;
