//! Expressions of admission: policies and match conditions.
//!
//! | module | does |
//! |---|---|
//! | `names` | what they may name, and of what types that is |
//! | `compiler` | from texts to expressions, each with the variables before it |
//! | `activation` | their values for one request, within a budget |
//! | `patch_types` | `Object{}` and `JSONPatch{}`, which mutations make |
//!
//! What a request is belongs to the caller: it brings the values.
//!
//! Source: `k8s.io/apiserver/pkg/admission/plugin/cel` and `pkg/cel/mutation` at v1.37.

mod activation;
mod compiler;
mod names;
mod patch_types;

pub use self::{
    activation::{Activation, Budget, Inputs, OutOfBudget},
    compiler::{Compiler, Expression, Fault, Sort, Variable},
    names::{Names, namespace_type, request_type},
};
