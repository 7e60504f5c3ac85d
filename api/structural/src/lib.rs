//! Structural schemas, as CustomResourceDefinitions have them: what values they allow, and what
//! they themselves may say.
//!
//! | module | does |
//! |---|---|
//! | `schema` | a schema as a tree, read once |
//! | `validate` | values against it, and updates against what was before |
//! | `list_type` | lists of type `set` and `map`: nothing is there twice |
//! | `embedded` | objects within objects say what they are |
//! | `format`, [`pattern`] | texts: formats, regular expressions as Go reads them |
//! | [`rules`] | what a schema may say |
//! | [`violation`] | what is wrong, in upstream's words |
//!
//! Pruning, defaulting and server-side apply are `coracle_api`'s: one walk along every schema. How
//! violations are answered is its too. Rules in CEL (`x-kubernetes-validations`) are looked at as
//! far as their texts must be there; `coracle_registry` compiles and evaluates them.
#![forbid(unsafe_code)]

mod embedded;
mod format;
mod list_type;
pub mod pattern;
pub mod rules;
mod schema;
mod validate;
pub mod violation;

pub use schema::{ReadSchema, Schema};
pub use violation::{Violation, Violations, Wrong};

#[cfg(test)]
mod tests;
