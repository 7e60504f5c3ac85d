//! What a schema may say: the rules by which it is structural, and those on its keywords.
//!
//! A schema is looked at as it was written, a JSON value. Messages and paths are upstream's; where
//! upstream's order is that of a hash map, names are sorted here.
//!
//! Not here: rules in CEL beyond their texts, and what a definition says besides its schemas.
//!
//! Source: `k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation/validation.go` at
//! v1.37.

mod complete;
mod defaults;
mod keywords;
mod structure;

use std::collections::BTreeSet;

use serde_json::Value;

use crate::{format::Format, violation::Violations};

/// Keywords that the root may have where `status` is a subresource.
const AT_ROOT: [(&str, &str); 22] = [
    ("description", "Description"),
    ("type", "Type"),
    ("format", "Format"),
    ("title", "Title"),
    ("maximum", "Maximum"),
    ("exclusiveMaximum", "ExclusiveMaximum"),
    ("minimum", "Minimum"),
    ("exclusiveMinimum", "ExclusiveMinimum"),
    ("maxLength", "MaxLength"),
    ("minLength", "MinLength"),
    ("pattern", "Pattern"),
    ("maxItems", "MaxItems"),
    ("minItems", "MinItems"),
    ("uniqueItems", "UniqueItems"),
    ("multipleOf", "MultipleOf"),
    ("required", "Required"),
    ("items", "Items"),
    ("properties", "Properties"),
    ("externalDocs", "ExternalDocs"),
    ("example", "Example"),
    (
        "x-kubernetes-preserve-unknown-fields",
        "XPreserveUnknownFields",
    ),
    ("x-kubernetes-validations", "XValidations"),
];

/// Deeper than any schema that people write.
const LEVELS: usize = 64;

/// What of a schema at `path` is not allowed. `has_status` says whether `status` is a subresource
/// of the version.
#[must_use]
pub fn check(schema: &Value, path: &str, has_status: bool) -> Violations {
    let mut found = Violations::default();
    if is_too_deep(schema, LEVELS) {
        let detail = format!("must not be nested deeper than {LEVELS} levels");
        found.forbidden(path, detail);
        return found;
    }
    if has_status {
        check_root(schema, path, &mut found);
    }
    if schema["nullable"] == true {
        let path = format!("{path}.nullable");
        found.forbidden(&path, "nullable cannot be true at the root");
    }
    let mut structural = structure::check(schema, path);
    structural.extend(complete::check(schema, path));
    structural.sort();
    if structural.is_empty() {
        structural.extend(defaults::check(schema, path));
    }
    found.extend(structural);
    found.extend(keywords::check(schema, path));
    found
}

/// The schema of the field that a path such as `.spec.colour` leads to.
///
/// # Errors
/// Why it leads to none, in upstream's words.
pub fn field_at<'a>(schema: &'a Value, path: &str) -> Result<&'a Value, String> {
    let Some(names) = path.strip_prefix('.') else {
        let first: String = path.chars().take(1).collect();
        return Err(format!("expected [ or . but got: {first}"));
    };
    names.split('.').try_fold(schema, |schema, name| {
        if name.is_empty() {
            return Err("unexpected end of JSON path".to_owned());
        }
        if name.contains(['[', ']']) {
            return Err("array notation is not allowed".to_owned());
        }
        let property = schema["properties"].get(name);
        property.ok_or_else(|| "does not refer to a valid field".to_owned())
    })
}

/// Whether any schema has rules in CEL.
#[must_use]
pub fn has_validations(schema: &Value) -> bool {
    is_any(schema, LEVELS, &|schema| {
        schema["x-kubernetes-validations"]
            .as_array()
            .is_some_and(|rules| !rules.is_empty())
    })
}

/// Formats that are written somewhere and that nobody checks, each once.
#[must_use]
pub fn unknown_formats(schema: &Value) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    visit(schema, LEVELS, &mut |schema| {
        let Some(format) = schema["format"]
            .as_str()
            .filter(|format| !format.is_empty())
        else {
            return;
        };
        let is_known = match schema["type"].as_str().unwrap_or_default() {
            "integer" => matches!(format, "int32" | "int64"),
            "number" => matches!(format, "float" | "double"),
            "" | "string" => Format::is_known(format),
            _ => false,
        };
        if !is_known {
            found.insert(format.to_owned());
        }
    });
    found
}

fn check_root(schema: &Value, path: &str, found: &mut Violations) {
    let Some(map) = schema.as_object() else {
        return;
    };
    let kind = schema["type"].as_str().unwrap_or_default();
    if !kind.is_empty() && kind != "object" {
        let what = "only \"object\" is allowed as the type at the root of the schema if the status subresource is enabled";
        return found.invalid(&format!("{path}.type"), &kind.into(), what);
    }
    let is_allowed = |name: &String| AT_ROOT.iter().any(|(allowed, _)| allowed == name);
    if map
        .iter()
        .any(|(name, value)| !is_zero(value) && !is_allowed(name))
    {
        let names: Vec<&str> = AT_ROOT.iter().map(|(_, name)| *name).collect();
        let what = format!(
            "only [{}] fields are allowed at the root of the schema if the status subresource is enabled",
            names.join(" ")
        );
        found.invalid(path, schema, what);
    }
}

/// What Go leaves out: as if it were not there.
fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::Number(_) => false,
    }
}

/// The schemas in a schema, in the order of their keywords.
fn children(schema: &Value) -> Vec<&Value> {
    let mut found = Vec::new();
    for (keyword, value) in schema.as_object().into_iter().flatten() {
        match (keyword.as_str(), value) {
            ("not" | "additionalProperties" | "items" | "additionalItems", Value::Object(_)) => {
                found.push(value);
            }
            ("allOf" | "anyOf" | "oneOf" | "items", Value::Array(list)) => found.extend(list),
            ("properties" | "patternProperties" | "definitions", Value::Object(map)) => {
                found.extend(map.values());
            }
            _ => {}
        }
    }
    found
}

fn is_any(schema: &Value, levels: usize, holds: &dyn Fn(&Value) -> bool) -> bool {
    holds(schema)
        || (levels > 0
            && children(schema)
                .into_iter()
                .any(|child| is_any(child, levels - 1, holds)))
}

fn is_too_deep(schema: &Value, levels: usize) -> bool {
    levels == 0
        || children(schema)
            .into_iter()
            .any(|child| is_too_deep(child, levels - 1))
}

fn visit(schema: &Value, levels: usize, see: &mut dyn FnMut(&Value)) {
    see(schema);
    if levels > 0 {
        for child in children(schema) {
            visit(child, levels - 1, see);
        }
    }
}
