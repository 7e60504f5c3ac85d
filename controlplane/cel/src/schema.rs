//! Types of data that has a schema, for the checker, the evaluator and the estimate of costs.
//!
//! Source: `k8s.io/apiserver/pkg/cel/common/schemas.go` and `.../cel/types.go`.

mod build;
mod decl;
mod json;
mod names;

pub(crate) use self::decl::find_field;
pub use self::{
    build::{Schema, decl_type},
    decl::{DeclField, DeclKind, DeclType, DeclTypes, ListKind},
    names::{escape, unescape},
};
