//! Versions of a kind: schemas, columns, subresources, selectable fields.
//!
//! Source: `validateCustomResourceDefinitionVersion` and what it calls, at v1.37.

use std::collections::HashSet;

use coracle_api::{name, schema::structural::field_errors, status::FieldErrors};
use coracle_structural::rules::{self, Brackets};
use serde_json::Value;

use crate::{
    check,
    rules::definition_errors,
    value::{items, string},
};

const COLUMN_TYPES: [&str; 5] = ["boolean", "date", "integer", "number", "string"];
const COLUMN_FORMATS: [&str; 8] = [
    "byte",
    "date",
    "date-time",
    "double",
    "float",
    "int32",
    "int64",
    "password",
];
const MOST_SELECTABLE: usize = 8;
const MOST_WARNING: usize = 256;

/// A part of a version that upstream keeps once if it is the same in all.
#[derive(Clone, Copy)]
struct Part {
    /// In a version.
    field: &'static str,
    /// In the spec, where it is kept once.
    common: &'static str,
    check: fn(&mut FieldErrors, &str, &Value),
}

/// In the order in which they are told.
const PARTS: [Part; 4] = [
    Part {
        field: "schema",
        common: "validation",
        check: schema,
    },
    Part {
        field: "subresources",
        common: "subresources",
        check: subresources,
    },
    Part {
        field: "additionalPrinterColumns",
        common: "additionalPrinterColumns",
        check: columns,
    },
    Part {
        field: "selectableFields",
        common: "selectableFields",
        check: selectable_fields,
    },
];

impl Part {
    fn is_common(self, versions: &[Value]) -> bool {
        let mut pairs = versions.windows(2);
        !versions.is_empty() && pairs.all(|pair| pair[0][self.field] == pair[1][self.field])
    }
}

/// What is wrong with single versions.
pub(super) fn each(errors: &mut FieldErrors, versions: &[Value]) {
    let own = PARTS.iter().filter(|part| !part.is_common(versions));
    let own: Vec<&Part> = own.collect();
    for (at, version) in versions.iter().enumerate() {
        let path = format!("spec.versions[{at}]");
        let wrong = name::dns_1035_label_errors(string(&version["name"]));
        if !wrong.is_empty() {
            errors.invalid(format!("{path}.name"), &version["name"], wrong.join(","));
        }
        deprecation(errors, &path, version);
        for part in &own {
            (part.check)(errors, &format!("{path}.{}", part.field), version);
        }
    }
}

/// What is wrong with what all of them have.
pub(super) fn common(errors: &mut FieldErrors, versions: &[Value]) {
    let Some(first) = versions.first() else {
        return;
    };
    // Where any has a status the schema of all is looked at so.
    let mut any = first.clone();
    let status = versions
        .iter()
        .map(|version| &version["subresources"]["status"]);
    if let Some(status) = status.into_iter().find(|status| !status.is_null()) {
        any["subresources"]["status"] = status.clone();
    }
    for part in PARTS.iter().filter(|part| part.is_common(versions)) {
        let version = if part.field == "schema" { &any } else { first };
        (part.check)(errors, &format!("spec.{}", part.common), version);
    }
}

fn deprecation(errors: &mut FieldErrors, path: &str, version: &Value) {
    let warning = &version["deprecationWarning"];
    let Some(text) = warning.as_str() else { return };
    let path = format!("{path}.deprecationWarning");
    if version["deprecated"] != true {
        return errors.invalid(path, warning, "can only be set for deprecated versions");
    }
    if text.len() > MOST_WARNING {
        errors.invalid(
            &*path,
            warning,
            format!("must be <= {MOST_WARNING} characters long"),
        );
    }
    if text.is_empty() {
        errors.invalid(&*path, warning, "must not be an empty string");
    }
    if let Some((at, _)) = text
        .char_indices()
        .find(|(_, letter)| !is_printable(*letter))
    {
        let what = format!(
            "must only contain printable UTF-8 characters; non-printable character found at index {at}"
        );
        errors.invalid(path, warning, what);
    }
}

/// As Go counts it: of blanks the plain one alone.
fn is_printable(letter: char) -> bool {
    letter == ' ' || !(letter.is_control() || letter.is_whitespace() || is_invisible(letter))
}

/// What orders text and is not seen.
fn is_invisible(letter: char) -> bool {
    matches!(letter, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

fn schema(errors: &mut FieldErrors, path: &str, version: &Value) {
    let schema = &version["schema"]["openAPIV3Schema"];
    if schema.is_object() {
        let has_status = !version["subresources"]["status"].is_null();
        let path = format!("{path}.openAPIV3Schema");
        let checked = rules::check(schema, &path, has_status);
        let ruled = definition_errors(schema, &path, |path| checked.is_sound(path));
        errors.extend(field_errors(checked.violations));
        errors.extend(ruled);
    }
}

fn subresources(errors: &mut FieldErrors, path: &str, version: &Value) {
    let scale = &version["subresources"]["scale"];
    if !scale.is_object() {
        return;
    }
    for (field, below, what) in [
        (
            "specReplicasPath",
            &[".spec."][..],
            "should be a json path under .spec",
        ),
        (
            "statusReplicasPath",
            &[".status."][..],
            "should be a json path under .status",
        ),
        (
            "labelSelectorPath",
            &[".spec.", ".status."][..],
            "should be a json path under either .spec or .status",
        ),
    ] {
        let (path, value) = (format!("{path}.scale.{field}"), &scale[field]);
        let text = string(value);
        if text.is_empty() {
            if field != "labelSelectorPath" {
                errors.required(path, "");
            }
        } else if json_path(errors, &path, value)
            && !below.iter().any(|prefix| text.starts_with(prefix))
        {
            errors.invalid(path, value, what);
        }
    }
}

fn columns(errors: &mut FieldErrors, path: &str, version: &Value) {
    for (at, column) in items(&version["additionalPrinterColumns"])
        .iter()
        .enumerate()
    {
        let path = format!("{path}[{at}]");
        check::required(errors, &format!("{path}.name"), &column["name"]);
        let (kind, format) = (&column["type"], &column["format"]);
        let types = format!("must be one of {}", COLUMN_TYPES.join(","));
        if string(kind).is_empty() {
            errors.required(format!("{path}.type"), types);
        } else if !COLUMN_TYPES.contains(&string(kind)) {
            errors.invalid(format!("{path}.type"), kind, types);
        }
        if !string(format).is_empty() && !COLUMN_FORMATS.contains(&string(format)) {
            let what = format!("must be one of {}", COLUMN_FORMATS.join(","));
            errors.invalid(format!("{path}.format"), format, what);
        }
        let (path, value) = (format!("{path}.JSONPath"), &column["jsonPath"]);
        if check::required(errors, &path, value) {
            json_path(errors, &path, value);
        }
    }
}

/// Says whether it is one.
fn json_path(errors: &mut FieldErrors, path: &str, value: &Value) -> bool {
    let is_path = string(value).starts_with('.');
    if !is_path {
        errors.invalid(path, value, "must be a simple json path starting with .");
    }
    is_path
}

fn selectable_fields(errors: &mut FieldErrors, path: &str, version: &Value) {
    let schema = &version["schema"]["openAPIV3Schema"];
    let mut seen: HashSet<String> = HashSet::new();
    for (at, field) in items(&version["selectableFields"]).iter().enumerate() {
        let (path, value) = (format!("{path}[{at}].jsonPath"), &field["jsonPath"]);
        if !check::required(errors, &path, value) {
            continue;
        }
        let found = match rules::field_at(schema, string(value), Brackets::Forbidden) {
            Ok(found) => found,
            Err(why) => {
                errors.invalid(path, value, format!("is an invalid path: {why}"));
                continue;
            }
        };
        if found.shown == "metadata" || found.shown.starts_with("metadata.") {
            errors.invalid(&*path, value, "must not point to fields in metadata");
        }
        let kind = string(&found.schema["type"]);
        if !matches!(kind, "string" | "boolean" | "integer") {
            let what = "must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed.";
            errors.invalid(&*path, value, what);
        }
        if !seen.insert(found.shown) {
            errors.duplicate(path, value);
        }
    }
    if seen.len() > MOST_SELECTABLE {
        errors.too_many(path, seen.len(), MOST_SELECTABLE);
    }
}
