//! Keywords that upstream's structural schemas have no place for. A schema with one is no such
//! schema: besides its keywords nothing of it is told.
//!
//! Source: `NewStructural` and `validateUnsupportedFields` in
//! `k8s.io/apiextensions-apiserver/pkg/apiserver/schema/convert.go` at v1.37.

use serde_json::Value;

use super::{children, is_zero};

/// As they are written, and as they are told.
const UNSUPPORTED: [(&str, &str); 7] = [
    ("id", "id"),
    ("$schema", "schema"),
    ("$ref", "$ref"),
    ("patternProperties", "patternProperties"),
    ("dependencies", "dependencies"),
    ("additionalItems", "additionalItems"),
    ("definitions", "definitions"),
];

/// The first of them, in a sentence.
pub(super) fn unsupported(schema: &Value) -> Option<String> {
    let is_set = |keyword: &str| match keyword {
        "additionalItems" => !schema[keyword].is_null(),
        _ => !is_zero(&schema[keyword]),
    };
    let mut own = UNSUPPORTED.iter().filter(|(keyword, _)| is_set(keyword));
    if let Some((_, name)) = own.next() {
        return Some(format!("OpenAPIV3Schema '{name}' is not supported"));
    }
    if schema["x-kubernetes-preserve-unknown-fields"] == false {
        let what =
            "internal error: 'x-kubernetes-preserve-unknown-fields' must be true or undefined";
        return Some(what.to_owned());
    }
    if schema["items"].is_array() {
        return Some("OpenAPIV3Schema 'items' must be a schema, but is an array".to_owned());
    }
    children(schema).into_iter().find_map(unsupported)
}
