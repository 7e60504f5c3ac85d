//! What ConfigMaps and Secrets have in common: keys that become file names, a size, and
//! immutability.

use coracle_api::{name, status::FieldErrors};
use serde_json::Value;

use crate::{
    check,
    value::{keys, string},
};

/// The most that all values of one object may hold together.
pub(super) const MAX_BYTES: usize = 1 << 20;

/// Every key is good as a file name.
pub(super) fn names(errors: &mut FieldErrors, path: &str, data: &Value) {
    for key in keys(data) {
        let messages = name::config_map_key_errors(key);
        check::invalid_all(errors, &format!("{path}[{key}]"), &key.into(), messages);
    }
}

/// How many bytes the values have.
pub(super) fn text_bytes(data: &Value) -> usize {
    data.as_object()
        .into_iter()
        .flatten()
        .map(|(_, value)| string(value).len())
        .sum()
}

/// How many bytes the values have once decoded.
pub(super) fn base64_bytes(data: &Value) -> usize {
    let decoded = |text: &str| {
        let padding = text.bytes().rev().take_while(|byte| *byte == b'=').count();
        (text.len() / 4 * 3).saturating_sub(padding)
    };
    data.as_object()
        .into_iter()
        .flatten()
        .map(|(_, value)| decoded(string(value)))
        .sum()
}

/// Once `immutable` is set, neither it nor the data can change.
pub(super) fn stays_immutable(errors: &mut FieldErrors, new: &Value, old: &Value, fields: &[&str]) {
    const MESSAGE: &str = "field is immutable when `immutable` is set";
    if old["immutable"] != true {
        return;
    }
    if new["immutable"] != true {
        errors.forbidden("immutable", MESSAGE);
    }
    for field in fields {
        if new[*field] != old[*field] {
            errors.forbidden(*field, MESSAGE);
        }
    }
}
