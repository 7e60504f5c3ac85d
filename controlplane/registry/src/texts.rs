//! Labels and annotations: what of them is wrong.

use coracle_api::{meta, name, status::FieldErrors};
use serde_json::{Value, json};

/// Most bytes of all annotations together.
const ANNOTATIONS_LIMIT: usize = 256 * 1024;

/// What is wrong with labels and annotations.
pub(crate) fn validate(object: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    labels(object, &mut errors);
    annotations(object, &mut errors);
    errors
}

pub(crate) fn labels(object: &Value, errors: &mut FieldErrors) {
    for (key, value) in meta::labels(object).into_iter().flatten() {
        for reason in name::qualified_name_errors(key) {
            errors.invalid("metadata.labels", &json!(key), reason);
        }
        for reason in name::label_value_errors(value.as_str().unwrap_or_default()) {
            errors.invalid("metadata.labels", value, reason);
        }
    }
}

pub(crate) fn annotations(object: &Value, errors: &mut FieldErrors) {
    let mut size = 0;
    for (key, value) in meta::annotations(object).into_iter().flatten() {
        for reason in name::qualified_name_errors(&key.to_ascii_lowercase()) {
            errors.invalid("metadata.annotations", &json!(key), reason);
        }
        size += key.len() + value.as_str().map_or(0, str::len);
    }
    if size > ANNOTATIONS_LIMIT {
        errors.too_long("metadata.annotations", &Value::Null, ANNOTATIONS_LIMIT);
    }
}
