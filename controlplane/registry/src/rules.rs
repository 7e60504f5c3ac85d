//! Rules in CEL of custom resources: `x-kubernetes-validations`.
//!
//! | module | does |
//! |---|---|
//! | `rule` | one rule, compiled |
//! | `tree` | all rules of a schema, where they stand in it |
//! | `definition` | what of the rules of a definition is refused, and what they may cost |
//! | `evaluate` | objects against them |
//! | `place` | where in an object that is, and whether it is as it was |
//!
//! The language itself is `coracle_cel`'s. Rules are compiled once for a kind that is served.
//!
//! Source: `pkg/apiserver/schema/cel/{compilation,validation}.go` and
//! `pkg/apis/apiextensions/validation/{validation,cel_validation}.go` of
//! `k8s.io/apiextensions-apiserver` at v1.37.

mod definition;
mod evaluate;
mod place;
mod rule;
mod tree;

use coracle_api::status::FieldErrors;
use serde_json::Value;

pub(crate) use self::definition::errors as definition_errors;
use self::tree::Node;

/// The rules of a schema, compiled.
pub(crate) struct Rules(Node);

impl Rules {
    /// `None` if there are none.
    pub(crate) fn read(schema: &Value) -> Option<Self> {
        tree::read(schema).map(Self)
    }

    /// What an object breaks that is made, or changed from what it was. What of it is as it was
    /// is not told.
    pub(crate) fn check(&self, object: &Value, old: Option<&Value>) -> FieldErrors {
        evaluate::object(&self.0, object, old)
    }
}

#[cfg(test)]
mod tests;
