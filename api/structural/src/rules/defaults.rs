//! Defaults are values that the schema takes, with nothing in them that it does not know.
//!
//! Source: `ValidateDefaults` in
//! `k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting/validation.go` at v1.37.

use serde_json::Value;

use crate::{
    schema::{Schema, flag},
    violation::{Violation, Violations, child},
};

/// Bytes of all defaults of a schema, as JSON: each object that is read has them again.
const MOST: usize = 64 << 10;

/// What is wrong with the defaults of a schema that is structural.
pub(super) fn check(schema: &Value, path: &str) -> Violations {
    let mut found = Violations::default();
    let size = size(schema);
    if size > MOST {
        let what = format!("all defaults together take {size} bytes; they may take {MOST}");
        found.forbidden(path, what);
        return found;
    }
    walk(schema, path, true, &mut found);
    found
}

fn size(schema: &Value) -> usize {
    let default = schema.get("default").filter(|default| !default.is_null());
    let own = default.map_or(0, |default| default.to_string().len());
    let below = ["items", "additionalProperties"]
        .into_iter()
        .filter_map(|name| schema.get(name).filter(|below| below.is_object()));
    let properties = schema["properties"].as_object().into_iter().flatten();
    let below = below.chain(properties.map(|(_, property)| property));
    own + below.map(size).sum::<usize>()
}

fn walk(schema: &Value, path: &str, is_root: bool, found: &mut Violations) {
    if let Some(default) = schema.get("default").filter(|default| !default.is_null()) {
        check_one(schema, default, &child(path, "default"), is_root, found);
    }
    // Not along additionalProperties: upstream does not either.
    if let Some(items) = schema.get("items").filter(|items| items.is_object()) {
        walk(items, &child(path, "items"), false, found);
    }
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let path = child(path, &format!("properties[{name}]"));
        walk(property, &path, false, found);
    }
}

fn check_one(schema: &Value, default: &Value, path: &str, is_root: bool, found: &mut Violations) {
    if !is_known(
        schema,
        default,
        is_root || flag(schema, "x-kubernetes-embedded-resource"),
    ) {
        found.invalid(path, default, "must not have unknown fields");
    }
    let Ok(read) = Schema::read(schema) else {
        return;
    };
    for Violation { path: below, what } in read.validate(default) {
        let path = match below.as_str() {
            crate::violation::NOWHERE => path.to_owned(),
            below => child(path, below),
        };
        found.add(&path, what);
    }
}

/// Whether nothing of a value would be pruned.
fn is_known(schema: &Value, value: &Value, is_object: bool) -> bool {
    let of_every_object = ["apiVersion", "kind", "metadata"];
    match value {
        Value::Array(list) => {
            let items = &schema["items"];
            !items.is_object()
                || list
                    .iter()
                    .all(|item| is_known(items, item, is_embedded(items)))
        }
        Value::Object(map) => map.iter().all(|(name, value)| {
            if is_object && of_every_object.contains(&name.as_str()) {
                return true;
            }
            if let Some(property) = schema["properties"].get(name) {
                return is_known(property, value, is_embedded(property));
            }
            match &schema["additionalProperties"] {
                additional @ Value::Object(_) => {
                    is_known(additional, value, is_embedded(additional))
                }
                Value::Bool(true) => true,
                _ => flag(schema, "x-kubernetes-preserve-unknown-fields"),
            }
        }),
        _ => true,
    }
}

fn is_embedded(schema: &Value) -> bool {
    flag(schema, "x-kubernetes-embedded-resource")
}
