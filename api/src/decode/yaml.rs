//! YAML bodies: the same visitor as JSON's, and the lines of keys that stand twice.
//!
//! Nesting and aliases are bounded before the parser sees the text (`yaml_bounds`).

use std::collections::HashSet;

use serde::de::DeserializeSeed;
use serde_json::Value;

use super::{
    TypeMeta,
    visit::{Context, Failure, ObjectSeed, Place},
    yaml_bounds,
};
use crate::status::quote;

pub(super) fn parse<T: Place>(
    body: &[u8],
    place: T,
    context: &mut Context,
) -> Result<Value, Failure> {
    yaml_bounds::check(body)
        .map_err(|why| Failure::Syntax(format!("error converting YAML to JSON: yaml: {why}")))?;
    let deserializer = serde_yaml::Deserializer::from_slice(body);
    let object = ObjectSeed {
        context: &mut *context,
        place,
    }
    .deserialize(deserializer)
    .map_err(|error| {
        if context.mismatch.is_none() && context.no_object.is_none() {
            Failure::Syntax(format!("error converting YAML to JSON: yaml: {error}"))
        } else {
            context.failure(String::new())
        }
    })?;
    let duplicates: Vec<usize> = (0..context.strict.len())
        .filter(|i| context.strict[*i].starts_with("duplicate field"))
        .collect();
    if !duplicates.is_empty() {
        // Upstream's YAML reader reports these, before the decoder sees anything, all in one text.
        let keys: Vec<String> = duplicates
            .iter()
            .map(|i| last_key(&context.strict[*i]))
            .collect();
        let lines = duplicate_lines(&String::from_utf8_lossy(body), &keys);
        context
            .strict
            .retain(|text| !text.starts_with("duplicate field"));
        context.strict.insert(
            0,
            format!(
                "error converting YAML to JSON: yaml: unmarshal errors:\n  {}",
                lines.join("\n  ")
            ),
        );
    }
    Ok(object)
}

/// `apiVersion` and `kind` of a YAML object that is within its bounds. What else it holds is not
/// kept.
pub(super) fn type_meta(body: &[u8]) -> Option<(String, String)> {
    let meta: TypeMeta = serde_yaml::from_slice(body).ok()?;
    Some((meta.api_version, meta.kind))
}

/// The key in a text such as `duplicate field "metadata.labels.k"`.
fn last_key(text: &str) -> String {
    let path = text
        .trim_start_matches("duplicate field \"")
        .trim_end_matches('"');
    path.rsplit('.').next().unwrap_or(path).to_owned()
}

/// `line 10: key "k" already set in map` for every key of `keys` that a block mapping has twice.
/// One look at each line.
fn duplicate_lines(text: &str, keys: &[String]) -> Vec<String> {
    let mut out = Vec::new();
    // The block mappings that are open: the column, and which of `keys` they have.
    let mut open: Vec<(usize, HashSet<&str>)> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let content = line.trim_start_matches([' ', '-']);
        if content.is_empty() || content.starts_with('#') {
            continue;
        }
        let column = line.len() - content.len();
        // A new list item begins a new mapping even at the same column.
        let is_item = line.trim_start().starts_with("- ");
        while open
            .last()
            .is_some_and(|(c, _)| *c > column || (*c == column && is_item))
        {
            open.pop();
        }
        let unquoted = content.trim_start_matches(['"', '\'']);
        let is_here = |key: &&String| {
            let after = unquoted.strip_prefix(key.as_str());
            after.is_some_and(|after| {
                after
                    .trim_start_matches(['"', '\''])
                    .trim_start()
                    .starts_with(':')
            })
        };
        let Some(key) = keys.iter().find(is_here) else {
            continue;
        };
        if open.last().is_none_or(|(c, _)| *c < column) {
            open.push((column, HashSet::new()));
        }
        if let Some((_, seen)) = open.last_mut()
            && !seen.insert(key)
        {
            out.push(format!(
                "line {}: key {} already set in map",
                number + 1,
                quote(key)
            ));
        }
    }
    if out.is_empty() {
        out.extend(
            keys.iter()
                .map(|key| format!("key {} already set in map", quote(key))),
        );
    }
    out.dedup();
    out
}
