//! A schema is structural: types are said once, outside of alternatives.
//!
//! Source: `validateStructuralInvariants` in
//! `k8s.io/apiextensions-apiserver/pkg/apiserver/schema/validation.go` at v1.37.

use serde_json::{Value, json};

use super::is_zero;
use crate::{
    schema::flag,
    violation::{Violations, child},
};

const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";
const EMBEDDED: &str = "x-kubernetes-embedded-resource";
const INT_OR_STRING: &str = "x-kubernetes-int-or-string";

/// Where a schema stands.
#[derive(Clone, Copy, PartialEq)]
enum Level {
    Root,
    Item,
    Field,
}

/// What is not structural.
pub(super) fn check(schema: &Value, path: &str) -> Violations {
    let mut found = Violations::default();
    invariants(schema, Level::Root, path, &mut found);
    found
}

fn invariants(schema: &Value, level: Level, path: &str, found: &mut Violations) {
    let at = |name: &str| child(path, name);
    let kind = schema["type"].as_str().unwrap_or_default();
    let items = schema.get("items").filter(|items| items.is_object());
    match items {
        Some(items) => invariants(items, Level::Item, &at("items"), found),
        None if kind == "array" => found.required(&at("items"), "must be specified"),
        None => {}
    }
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let path = at(&format!("properties[{name}]"));
        invariants(property, Level::Field, &path, found);
    }
    if let Some(additional) = schema
        .get("additionalProperties")
        .filter(|value| !value.is_null())
    {
        let path = at("additionalProperties");
        if level == Level::Root {
            found.forbidden(&path, "must not be used at the root");
        }
        if additional.is_object() {
            invariants(additional, Level::Field, &path, found);
        }
        if flag(schema, EMBEDDED) {
            let what = format!("must not be used if {EMBEDDED} is set");
            found.forbidden(&path, what);
        }
    }
    extensions(schema, path, found);
    values(
        schema,
        is_int_or_string(&schema["anyOf"]),
        is_first_int_or_string(schema),
        path,
        found,
    );
    check_type(schema, kind, level, path, found);
    check_meta(schema, level, path, found);
}

fn extensions(schema: &Value, path: &str, found: &mut Violations) {
    if !flag(schema, INT_OR_STRING) {
        return;
    }
    for name in [PRESERVE, EMBEDDED] {
        if flag(schema, name) {
            let what = format!("must be false if {INT_OR_STRING} is true");
            found.invalid(&child(path, name), &true.into(), what);
        }
    }
}

fn check_type(schema: &Value, kind: &str, level: Level, path: &str, found: &mut Violations) {
    let at = child(path, "type");
    let is_open = flag(schema, INT_OR_STRING) || flag(schema, PRESERVE);
    if flag(schema, EMBEDDED) && kind != "object" {
        let what = format!("must be object if {EMBEDDED} is true");
        if kind.is_empty() {
            found.required(&at, &what);
        } else {
            found.invalid(&at, &kind.into(), what);
        }
    } else if kind.is_empty() && !is_open {
        let what = match level {
            Level::Root => "must not be empty at the root",
            Level::Item => "must not be empty for specified array items",
            Level::Field => "must not be empty for specified object fields",
        };
        found.required(&at, what);
    }
    if level == Level::Root && !kind.is_empty() && kind != "object" {
        found.invalid(&at, &kind.into(), "must be object at the root");
    }
}

/// What every object has is not for a schema to say.
fn check_meta(schema: &Value, level: Level, path: &str, found: &mut Violations) {
    let is_object = level == Level::Root || flag(schema, EMBEDDED);
    let properties = &schema["properties"];
    for name in ["kind", "apiVersion"] {
        let Some(property) = properties.get(name).filter(|_| is_object) else {
            continue;
        };
        let kind = property["type"].as_str().unwrap_or_default();
        if kind != "string" {
            let path = child(path, &format!("properties[{name}].type"));
            found.invalid(&path, &kind.into(), "must be string");
        }
    }
    if let Some(metadata) = properties.get("metadata") {
        let path = child(path, "properties[metadata]");
        let kind = metadata["type"].as_str().unwrap_or_default();
        if is_object && kind != "object" {
            found.invalid(&child(&path, "type"), &kind.into(), "must be object");
        }
        if level == Level::Root && !is_plain_metadata(metadata) {
            let what = "must not specify anything other than name and generateName, but metadata is implicitly specified";
            found.forbidden(&path, what);
        }
    }
    let is_empty = properties.as_object().is_none_or(serde_json::Map::is_empty);
    if flag(schema, EMBEDDED) && !flag(schema, PRESERVE) && is_empty {
        let what = format!("must not be empty if {EMBEDDED} is true without {PRESERVE}");
        found.required(&child(path, "properties"), &what);
    }
}

fn is_plain_metadata(metadata: &Value) -> bool {
    let is_name = |name: &String| matches!(name.as_str(), "name" | "generateName");
    let mut members = metadata.as_object().into_iter().flatten();
    members.all(|(keyword, value)| match keyword.as_str() {
        "type" | "default" => true,
        "properties" => value.as_object().is_some_and(|map| map.keys().all(is_name)),
        _ => is_zero(value),
    })
}

fn is_int_or_string(any_of: &Value) -> bool {
    *any_of == json!([{"type": "integer"}, {"type": "string"}])
}

fn is_first_int_or_string(schema: &Value) -> bool {
    is_int_or_string(&schema["allOf"][0]["anyOf"])
}

/// What a schema asks of values, alternatives within it too.
fn values(schema: &Value, skips_any: bool, skips_first: bool, path: &str, found: &mut Violations) {
    let list = |name: &str| schema[name].as_array().into_iter().flatten().enumerate();
    if !skips_any {
        for (at, one) in list("anyOf") {
            nested(one, false, &child(path, &format!("anyOf[{at}]")), found);
        }
    }
    for (at, one) in list("allOf") {
        nested(
            one,
            skips_first && at == 0,
            &child(path, &format!("allOf[{at}]")),
            found,
        );
    }
    for (at, one) in list("oneOf") {
        nested(one, false, &child(path, &format!("oneOf[{at}]")), found);
    }
    if let Some(not) = schema.get("not").filter(|not| not.is_object()) {
        nested(not, false, &child(path, "not"), found);
    }
}

/// What an alternative may say: nothing of structure.
fn nested(schema: &Value, skips_any: bool, path: &str, found: &mut Violations) {
    values(schema, skips_any, false, path, found);
    if let Some(items) = schema.get("items").filter(|items| items.is_object()) {
        nested(items, false, &child(path, "items"), found);
    }
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        nested(
            property,
            false,
            &child(path, &format!("properties[{name}]")),
            found,
        );
    }
    for (keyword, must) in [
        ("type", "must be empty"),
        ("additionalProperties", "must be undefined"),
        ("default", "must be undefined"),
        ("title", "must be empty"),
        ("description", "must be empty"),
        ("nullable", "must be false"),
        ("externalDocs", "must be undefined"),
        (PRESERVE, "must be false"),
        (EMBEDDED, "must be false"),
        (INT_OR_STRING, "must be false"),
        ("x-kubernetes-list-map-keys", "must be empty"),
        ("x-kubernetes-list-type", "must be undefined"),
        ("x-kubernetes-map-type", "must be undefined"),
        ("x-kubernetes-validations", "must be empty"),
    ] {
        let Some(value) = schema.get(keyword).filter(|value| !value.is_null()) else {
            continue;
        };
        if must == "must be undefined" || !is_zero(value) {
            found.forbidden(&child(path, keyword), format!("{must} to be structural"));
        }
    }
    if schema["properties"].get("metadata").is_some() {
        let what = "must not be specified in a nested context";
        found.forbidden(&child(path, "properties[metadata]"), what);
    }
}
