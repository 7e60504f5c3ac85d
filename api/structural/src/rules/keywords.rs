//! Which keywords there are, and what they may be beside one another.
//!
//! Source: `ValidateCustomResourceDefinitionOpenAPISchema` in
//! `k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation/validation.go` at v1.37.

mod lists;
mod validations;

use serde_json::Value;

use super::is_zero;
use crate::{
    schema::flag,
    violation::{Violations, child},
};

const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];
const EMBEDDED: &str = "x-kubernetes-embedded-resource";

/// What holds for all that is in a schema.
#[derive(Clone, Default)]
struct Place {
    is_root: bool,
    /// In `apiVersion`, `kind` or `metadata`.
    in_meta: bool,
    /// Why there may be no defaults, if there may be none.
    no_defaults: Option<String>,
}

/// Keywords that are wrong.
pub(super) fn check(schema: &Value, path: &str) -> Violations {
    let mut found = Violations::default();
    let place = Place {
        is_root: true,
        ..Place::default()
    };
    walk(schema, path, &place, &mut found);
    found
}

fn walk(schema: &Value, path: &str, place: &Place, found: &mut Violations) {
    let at = |name: &str| child(path, name);
    standard(schema, path, place, found);
    if flag(schema, "uniqueItems") {
        let what =
            "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        found.forbidden(&at("uniqueItems"), what);
    }
    let within = Place {
        is_root: false,
        ..place.clone()
    };
    additional(schema, path, &within, found);
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let place = of_property(schema, name, place);
        walk(property, &at(&format!("properties[{name}]")), &place, found);
    }
    for (step, one) in alternatives(schema) {
        walk(one, &at(&step), &within, found);
    }
    if let Some(items) = schema.get("items").filter(|items| items.is_object()) {
        walk(items, &at("items"), &within, found);
    }
    if schema["x-kubernetes-preserve-unknown-fields"] == false {
        let path = at("x-kubernetes-preserve-unknown-fields");
        found.invalid(&path, &false.into(), "must be true or undefined");
    }
    map_type(schema, path, found);
    lists::check(schema, path, found);
    validations::check(schema, path, found);
}

fn alternatives(schema: &Value) -> impl Iterator<Item = (String, &Value)> {
    let not = schema.get("not").filter(|not| not.is_object());
    let not = not.map(|not| ("not".to_owned(), not));
    let listed = ["allOf", "oneOf", "anyOf"]
        .into_iter()
        .flat_map(move |name| {
            let list = schema[name].as_array().into_iter().flatten().enumerate();
            list.map(move |(at, one)| (format!("{name}[{at}]"), one))
        });
    not.into_iter().chain(listed)
}

fn of_property(schema: &Value, name: &str, place: &Place) -> Place {
    let mut own = Place {
        is_root: false,
        ..place.clone()
    };
    let is_object = place.is_root || flag(schema, EMBEDDED);
    if is_object && matches!(name, "metadata" | "kind" | "apiVersion") {
        own.in_meta = true;
        if place.is_root {
            own.no_defaults = Some(format!("in top-level {name}"));
        }
    }
    own
}

fn additional(schema: &Value, path: &str, place: &Place, found: &mut Violations) {
    let Some(additional) = schema
        .get("additionalProperties")
        .filter(|value| !value.is_null())
    else {
        return;
    };
    let path = child(path, "additionalProperties");
    if !is_zero(&schema["properties"]) && *additional != true {
        let what = "additionalProperties and properties are mutual exclusive";
        found.forbidden(&path, what);
    }
    let mut place = place.clone();
    if place.in_meta {
        let why = "inside additionalProperties applying to object metadata";
        place.no_defaults = Some(why.to_owned());
    }
    if additional.is_object() {
        walk(additional, &path, &place, found);
    }
}

/// Keywords that no schema has.
fn standard(schema: &Value, path: &str, place: &Place, found: &mut Violations) {
    let at = |name: &str| child(path, name);
    let kind = &schema["type"];
    if let Some(name) = kind
        .as_str()
        .filter(|name| !name.is_empty() && !TYPES.contains(name))
    {
        let types = TYPES.map(str::to_owned).to_vec();
        found.not_supported(&at("type"), &name.into(), types);
    }
    if let Some(why) = &place.no_defaults
        && !schema["default"].is_null()
    {
        found.forbidden(&at("default"), format!("must not be set {why}"));
    }
    for name in [
        "id",
        "additionalItems",
        "patternProperties",
        "definitions",
        "dependencies",
        "$ref",
    ] {
        let value = &schema[name];
        let is_set = if matches!(name, "id" | "patternProperties" | "definitions") {
            !is_zero(value)
        } else {
            !value.is_null()
        };
        if is_set {
            found.forbidden(&at(name), format!("{name} is not supported"));
        }
    }
    if *kind == "null" {
        let what = "type cannot be set to null, use nullable as an alternative";
        found.forbidden(&at("type"), what);
    }
    if schema["items"].is_array() {
        found.forbidden(
            &at("items"),
            "items must be a schema object and not an array",
        );
    }
    if place.in_meta && flag(schema, EMBEDDED) {
        found.forbidden(&at(EMBEDDED), "must not be used inside of resource meta");
    }
}

fn map_type(schema: &Value, path: &str, found: &mut Violations) {
    let Some(name) = schema["x-kubernetes-map-type"].as_str() else {
        return;
    };
    is_of_type(schema, "object", "x-kubernetes-map-type", path, found);
    let known = ["atomic", "granular"];
    if !known.contains(&name) {
        let path = child(path, "x-kubernetes-map-type");
        found.not_supported(&path, &name.into(), known.map(str::to_owned).to_vec());
    }
}

/// Tells if the type is not the one that a keyword needs; whether it is.
fn is_of_type(
    schema: &Value,
    kind: &str,
    keyword: &str,
    path: &str,
    found: &mut Violations,
) -> bool {
    let own = schema["type"].as_str().unwrap_or_default();
    if own == kind {
        return true;
    }
    let (path, what) = (
        child(path, "type"),
        format!("must be {kind} if {keyword} is specified"),
    );
    if own.is_empty() {
        found.required(&path, &what);
    } else {
        found.invalid(&path, &own.into(), what);
    }
    false
}
