//! Objects within custom objects (`x-kubernetes-embedded-resource`): their kinds and their metadata
//! are checked as those of any object, in every update anew.
//!
//! Not here: that they say what they are (`coracle_structural`).
//!
//! Source: `k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta/validation.go` at v1.37.

use coracle_api::{meta, name, schema::Structural, status::FieldErrors};
use serde_json::{Map, Value, json};

use crate::object_meta;

/// What is wrong with the objects within an object.
pub(super) fn validate(schema: &Structural, object: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    schema.each_embedded(object, &mut |path, within| {
        errors.extend_at(path, of_one(within));
    });
    errors
}

fn of_one(within: &Map<String, Value>) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let kind = within.get("kind").and_then(Value::as_str);
    if let Some(kind) = kind.filter(|kind| !kind.is_empty()) {
        let wrong = name::dns_1035_label_errors(&kind.to_lowercase());
        if !wrong.is_empty() {
            let what = "may have mixed case, but should otherwise match";
            errors.invalid("kind", &json!(kind), format!("{what}: {}", wrong.join(",")));
        }
    }
    let Some(metadata) = within
        .get("metadata")
        .filter(|metadata| metadata.is_object())
    else {
        return errors;
    };
    // The functions for metadata look at whole objects.
    let object = json!({"metadata": metadata});
    for field in ["generateName", "name"] {
        let text = meta::text(&object, field);
        let mut wrong = name::path_segment_errors(text);
        if field == "generateName" {
            // What follows it makes these another name.
            wrong.retain(|_| !matches!(text, "." | ".."));
        }
        for why in wrong {
            errors.invalid(format!("metadata.{field}"), &json!(text), why);
        }
    }
    let namespace = meta::namespace(&object);
    if !namespace.is_empty() {
        for why in name::dns_label_errors(namespace) {
            errors.invalid("metadata.namespace", &json!(namespace), why);
        }
    }
    if meta::get_i64(&object, &["metadata", "generation"]).is_some_and(|number| number < 0) {
        let generation = &object["metadata"]["generation"];
        let what = "must be greater than or equal to 0";
        errors.invalid("metadata.generation", generation, what);
    }
    object_meta::validate_lists(&object, &mut errors);
    errors
}
