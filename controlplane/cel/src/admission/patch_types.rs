//! `Object{}` and `JSONPatch{}`: what mutations are made of.
//!
//! `Object.spec{}` is the type of a field `spec` of the object, and so on along the path. Nobody
//! knows the fields; whether the names fit is looked at when the value is made
//! ([`crate::value::Value::to_json`]).
//!
//! Source: `k8s.io/apiserver/pkg/cel/mutation` at v1.37.

use crate::types::{Type, Types};

#[derive(Debug)]
pub(super) struct PatchTypes;

impl Types for PatchTypes {
    fn field(&self, type_name: &str, field: &str) -> Option<Type> {
        match (type_name, field) {
            ("JSONPatch", "op" | "path" | "from") => Some(Type::String),
            ("JSONPatch", "value") => Some(Type::Dyn),
            (name, _) if is_object(name) => Some(Type::Dyn),
            _ => None,
        }
    }

    fn constructible(&self, type_name: &str) -> bool {
        type_name == "JSONPatch" || is_object(type_name)
    }
}

fn is_object(name: &str) -> bool {
    name == "Object" || name.starts_with("Object.")
}
