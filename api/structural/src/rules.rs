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
mod convert;
mod defaults;
mod field_path;
mod keywords;
mod patterns;
mod structure;

use std::collections::BTreeSet;

use serde_json::Value;

pub use self::field_path::{Brackets, Field, field_at};
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

/// What is wrong with a schema.
#[derive(Debug, Default)]
pub struct Checked {
    /// What is not allowed, in upstream's order.
    pub violations: Violations,
    /// Where keywords are wrong: rules in CEL that are around it cannot be compiled. `None` where
    /// no rule can be, because the schema as a whole is not structural.
    keywords: Option<Vec<String>>,
}

impl Checked {
    /// Whether rules of the schema at `path` can be compiled.
    #[must_use]
    pub fn is_sound(&self, path: &str) -> bool {
        let is_in = |place: &String| match place.strip_prefix(path) {
            Some(rest) => rest.is_empty() || rest.starts_with('.'),
            None => false,
        };
        let keywords = self.keywords.as_ref();
        keywords.is_some_and(|places| !places.iter().any(is_in))
    }
}

/// What of a schema at `path` is not allowed. `has_status` says whether `status` is a subresource
/// of the version.
#[must_use]
pub fn check(schema: &Value, path: &str, has_status: bool) -> Checked {
    let mut found = Violations::default();
    if is_too_deep(schema, LEVELS) {
        let detail = format!("must not be nested deeper than {LEVELS} levels");
        found.forbidden(path, detail);
        return Checked {
            violations: found,
            keywords: None,
        };
    }
    if has_status {
        check_root(schema, path, &mut found);
    }
    if schema["nullable"] == true {
        let path = format!("{path}.nullable");
        found.forbidden(&path, "nullable cannot be true at the root");
    }
    let unsupported = convert::unsupported(schema);
    let mut is_structural = unsupported.is_none();
    if is_structural {
        let mut structural = structure::check(schema, path);
        structural.extend(complete::check(schema, path));
        structural.extend(patterns::check(schema, path));
        structural.sort();
        if structural.is_empty() {
            structural.extend(defaults::check(schema, path));
        }
        is_structural = structural.is_empty();
        found.extend(structural);
    }
    let keywords = keywords::check(schema, path);
    let places = keywords.iter().map(|one| one.path.clone()).collect();
    let is_all_told = keywords.more() == 0;
    found.extend(keywords);
    if let Some(what) = unsupported.filter(|_| found.is_empty()) {
        found.invalid(path, &"".into(), what);
    }
    Checked {
        violations: found,
        keywords: (is_structural && is_all_told).then_some(places),
    }
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
