//! Fields of an object's JSON, read as what they ought to be: an absent field, and one of another
//! type, is an empty one.
//!
//! For what has been decoded, where a wrong type cannot be; validation of what a client sent tells
//! of it before.

use jiff::Timestamp;
use serde_json::Value;

/// A string field, or the empty string.
#[must_use]
pub fn string(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// A string field, or `otherwise` when absent or empty.
#[must_use]
pub fn string_or<'a>(value: &'a Value, otherwise: &'a str) -> &'a str {
    match value.as_str() {
        Some(text) if !text.is_empty() => text,
        _ => otherwise,
    }
}

/// A number field, or zero.
#[must_use]
pub fn number(value: &Value) -> i64 {
    value.as_i64().unwrap_or_default()
}

/// The elements of a list field; none when absent.
#[must_use]
pub fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// How many entries a map or list field has.
#[must_use]
pub fn len(value: &Value) -> usize {
    match value {
        Value::Object(map) => map.len(),
        Value::Array(list) => list.len(),
        _ => 0,
    }
}

/// The keys of a map field.
pub fn keys(value: &Value) -> impl Iterator<Item = &str> {
    value
        .as_object()
        .into_iter()
        .flat_map(|map| map.keys())
        .map(String::as_str)
}

/// The Unix time of an RFC 3339 field.
#[must_use]
pub fn unix_seconds(value: &Value) -> Option<i64> {
    value
        .as_str()?
        .parse::<Timestamp>()
        .ok()
        .map(Timestamp::as_second)
}
