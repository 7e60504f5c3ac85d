//! YAML bodies: the same visitor as JSON's, and the lines of keys that stand twice.
//!
//! Aliases are bounded by the parser: a text that repeats itself too often is refused.

use serde::de::DeserializeSeed;
use serde_json::Value;

use super::visit::{Context, Failure, ObjectSeed};
use crate::schema::Type;
use crate::status::quote;

pub(super) fn parse(body: &[u8], ty: Type, context: &mut Context) -> Result<Value, Failure> {
    let deserializer = serde_yaml::Deserializer::from_slice(body);
    let object = ObjectSeed { context: &mut *context, ty }.deserialize(deserializer).map_err(|error| {
        if context.mismatch.is_none() && context.no_object.is_none() {
            Failure::Syntax(format!("error converting YAML to JSON: yaml: {error}"))
        } else {
            context.failure(String::new())
        }
    })?;
    let duplicates: Vec<usize> =
        (0..context.strict.len()).filter(|i| context.strict[*i].starts_with("duplicate field")).collect();
    if !duplicates.is_empty() {
        // Upstream's YAML reader reports these, before the decoder sees anything, all in one text.
        let keys: Vec<String> = duplicates.iter().map(|i| last_key(&context.strict[*i])).collect();
        let lines = duplicate_lines(&String::from_utf8_lossy(body), &keys);
        context.strict.retain(|text| !text.starts_with("duplicate field"));
        context
            .strict
            .insert(0, format!("error converting YAML to JSON: yaml: unmarshal errors:\n  {}", lines.join("\n  ")));
    }
    Ok(object)
}

/// `apiVersion` and `kind` of a YAML object.
pub(super) fn type_meta(body: &[u8]) -> Option<(String, String)> {
    let value: serde_yaml::Value = serde_yaml::from_slice(body).ok()?;
    let text = |key: &str| value.get(key).and_then(|v| v.as_str()).unwrap_or_default().to_owned();
    Some((text("apiVersion"), text("kind")))
}

/// The key in a text such as `duplicate field "metadata.labels.k"`.
fn last_key(text: &str) -> String {
    let path = text.trim_start_matches("duplicate field \"").trim_end_matches('"');
    path.rsplit('.').next().unwrap_or(path).to_owned()
}

/// `line 10: key "k" already set in map` for every key of `keys` that a block mapping has twice.
fn duplicate_lines(text: &str, keys: &[String]) -> Vec<String> {
    let mut out = Vec::new();
    for key in keys {
        let mut open: Vec<usize> = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let content = line.trim_start_matches([' ', '-']);
            if content.is_empty() || content.starts_with('#') {
                continue;
            }
            let column = line.len() - content.len();
            // A new list item begins a new mapping even at the same column.
            let item = line.trim_start().starts_with("- ");
            open.retain(|c| *c < column || (*c == column && !item));
            let after = content.trim_start_matches(['"', '\'']).strip_prefix(key.as_str());
            if !after.is_some_and(|a| a.trim_start_matches(['"', '\'']).trim_start().starts_with(':')) {
                continue;
            }
            if open.contains(&column) {
                out.push(format!("line {}: key {} already set in map", number + 1, quote(key)));
            } else {
                open.push(column);
            }
        }
    }
    if out.is_empty() {
        out.extend(keys.iter().map(|key| format!("key {} already set in map", quote(key))));
    }
    out.dedup();
    out
}
