//! Decoded values as Go tells them, for messages of upstream's that have them.

use serde_json::Value;

/// What `%T` makes of it.
pub(crate) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// What `%v` makes of it.
pub(crate) fn shown(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::Array(all) => {
            let all: Vec<String> = all.iter().map(shown).collect();
            format!("[{}]", all.join(" "))
        }
        Value::Object(map) => {
            let mut all: Vec<String> = map
                .iter()
                .map(|(key, value)| format!("{key}:{}", shown(value)))
                .collect();
            all.sort_unstable();
            format!("map[{}]", all.join(" "))
        }
    }
}
