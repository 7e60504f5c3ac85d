//! `x-kubernetes-list-type` and the keys of lists that are maps.

use std::collections::HashSet;

use serde_json::Value;

use super::is_of_type;
use crate::{
    schema::{flag, texts},
    violation::{Violations, child},
};

const LIST_TYPE: &str = "x-kubernetes-list-type";
const KEYS: &str = "x-kubernetes-list-map-keys";

pub(super) fn check(schema: &Value, path: &str, found: &mut Violations) {
    let at = |name: &str| child(path, name);
    let list_type = schema[LIST_TYPE].as_str();
    let keys = texts(schema.get(KEYS));
    let items = schema.get("items").filter(|items| items.is_object());
    if let Some(name) = list_type {
        let is_array = is_of_type(schema, "array", LIST_TYPE, path, found);
        if is_array
            && name == "set"
            && let Some(items) = items
        {
            element_of_set(items, &at("items"), found);
        }
        let known = ["atomic", "set", "map"];
        if !known.contains(&name) {
            let known = known.map(str::to_owned).to_vec();
            found.not_supported(&at(LIST_TYPE), &name.into(), known);
        }
    }
    if !keys.is_empty() {
        let what = "must be map if x-kubernetes-list-map-keys is non-empty";
        match list_type {
            None => found.required(&at(LIST_TYPE), what),
            Some("map") => {}
            Some(name) => found.invalid(&at(LIST_TYPE), &name.into(), what),
        }
    }
    if list_type == Some("map") {
        if keys.is_empty() {
            let what = "must not be empty if x-kubernetes-list-type is map";
            found.required(&at(KEYS), what);
        }
        match items {
            Some(items) => element_of_map(schema, &keys, items, path, found),
            None if schema["items"].is_array() => {
                let what = "must only have a single schema if x-kubernetes-list-type is map";
                found.invalid(&at("items"), &schema["items"], what);
            }
            None => {
                let what = "must have a schema if x-kubernetes-list-type is map";
                found.required(&at("items"), what);
            }
        }
    }
    if let (Some(name @ ("set" | "map")), Some(items)) = (list_type, items) {
        no_nulls(name, &keys, items, &at("items"), found);
    }
}

/// An element of a set is one value.
fn element_of_set(items: &Value, path: &str, found: &mut Violations) {
    let what = "must be atomic as item of a list with x-kubernetes-list-type=set";
    let value = &items[LIST_TYPE];
    match items["type"].as_str() {
        Some("array") if value.as_str().is_some_and(|name| name != "atomic") => {
            found.invalid(&child(path, LIST_TYPE), value, what);
        }
        Some("object") if items["x-kubernetes-map-type"] != "atomic" => {
            found.invalid(&child(path, "x-kubernetes-map-type"), value, what);
        }
        _ => {}
    }
}

fn element_of_map(
    schema: &Value,
    keys: &[String],
    items: &Value,
    path: &str,
    found: &mut Violations,
) {
    let kind = items["type"].as_str().unwrap_or_default();
    if kind != "object" {
        let what = "must be object if parent array's x-kubernetes-list-type is map";
        return found.invalid(&child(path, "items.type"), &kind.into(), what);
    }
    let mut seen = HashSet::new();
    for key in keys {
        match items["properties"].get(key) {
            Some(property) if property["type"] == "array" || property["type"] == "object" => {
                let path = child(path, &format!("items.properties[{key}].type"));
                let what = "must be a scalar type if parent array's x-kubernetes-list-type is map";
                found.invalid(&path, &kind.into(), what);
            }
            Some(_) => {}
            None => {
                let what = "entries must all be names of item properties";
                found.invalid(&child(path, KEYS), &schema[KEYS], what);
            }
        }
        if !seen.insert(key) {
            let what = "must not contain duplicate entries";
            found.invalid(&child(path, KEYS), &schema[KEYS], what);
        }
    }
}

/// What tells elements apart is there and not null.
fn no_nulls(name: &str, keys: &[String], items: &Value, path: &str, found: &mut Violations) {
    if flag(items, "nullable") {
        let what = format!("cannot be nullable when x-kubernetes-list-type is {name}");
        found.forbidden(&child(path, "nullable"), what);
    }
    if name != "map" {
        return;
    }
    let required: HashSet<String> = texts(items.get("required")).into_iter().collect();
    for key in keys {
        let Some(property) = items["properties"].get(key) else {
            continue;
        };
        let path = child(path, &format!("properties[{key}]"));
        if !required.contains(key) && property["default"].is_null() {
            let what = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
            found.required(&child(&path, "default"), what);
        }
        if flag(property, "nullable") {
            let what = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
            found.forbidden(&child(&path, "nullable"), what);
        }
    }
}
