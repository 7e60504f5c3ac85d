//! Values of objects, as tables and field selectors have them.

use serde_json::Value;

use crate::{cells, strategy::Column};

/// The first value that a column finds, as its type prints it; null if there is none or it is of
/// another type.
pub(super) fn cell(column: &Column, found: Vec<&Value>, now_secs: i64) -> Value {
    let Some(first) = found.first() else {
        return Value::Null;
    };
    match &*column.kind {
        "integer" => first.as_i64().map_or(Value::Null, Value::from),
        "number" => first.as_f64().map_or(Value::Null, Value::from),
        "boolean" => first.as_bool().map_or(Value::Null, Value::from),
        "date" => cells::since(first, now_secs).into(),
        _ => found
            .into_iter()
            .map(shown)
            .collect::<Vec<_>>()
            .join(",")
            .into(),
    }
}

/// A value as text: what is text already, without quotes.
pub(super) fn shown(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}
