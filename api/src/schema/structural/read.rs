//! From JSON to the tree, and what is refused on the way.

use serde_json::{Map, Value};

use super::{Kind, ListType, Node, Properties};

/// Deeper than any schema that people write, and far from what a stack holds.
const LEVELS: usize = 64;

/// Why a schema is not taken.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("schema at {path:?}: {what}")]
pub struct ReadStructural {
    /// Such as `spec.replicas`; empty for the schema itself.
    pub path: String,
    /// What is wrong there.
    pub what: &'static str,
}

pub(super) fn node(schema: &Value, path: &str) -> Result<Node, ReadStructural> {
    read(schema, path, LEVELS)
}

fn read(schema: &Value, path: &str, levels: usize) -> Result<Node, ReadStructural> {
    let refused = |what| ReadStructural {
        path: path.to_owned(),
        what,
    };
    let left = levels
        .checked_sub(1)
        .ok_or_else(|| refused("is nested too deep"))?;
    let map = schema
        .as_object()
        .ok_or_else(|| refused("must be an object"))?;
    if map.contains_key("$ref") {
        return Err(refused("$ref is forbidden"));
    }
    let flag = |name: &str| map.get(name).and_then(Value::as_bool).unwrap_or(false);
    let mut node = Node {
        kind: kind(map).map_err(refused)?,
        default: map.get("default").cloned().map(Box::new),
        nullable: flag("nullable"),
        preserves_unknown: flag("x-kubernetes-preserve-unknown-fields"),
        is_embedded: flag("x-kubernetes-embedded-resource"),
        is_atomic: map
            .get("x-kubernetes-map-type")
            .is_some_and(|kind| kind == "atomic"),
        list: list_type(map),
        list_keys: texts(map.get("x-kubernetes-list-map-keys")).into(),
        ..Node::default()
    };
    let properties = map.get("properties").and_then(Value::as_object);
    let properties = properties.into_iter().flatten().map(|(name, property)| {
        let read = read(property, &super::joined(path, name), left)?;
        Ok((name.as_str().into(), read))
    });
    node.properties = properties.collect::<Result<Properties, ReadStructural>>()?;
    match map.get("additionalProperties") {
        None | Some(Value::Bool(false)) => {}
        Some(Value::Bool(true)) => node.additional = Some(Box::new(anything())),
        Some(_) if !node.properties.is_empty() => {
            return Err(refused(
                "additionalProperties and properties are mutually exclusive",
            ));
        }
        Some(each) => node.additional = Some(Box::new(read(each, &format!("{path}[*]"), left)?)),
    }
    if let Some(each) = map.get("items") {
        node.items = Some(Box::new(read(each, &format!("{path}[*]"), left)?));
    }
    Ok(node)
}

fn texts(list: Option<&Value>) -> Vec<String> {
    let list = list.and_then(Value::as_array).into_iter().flatten();
    list.filter_map(Value::as_str).map(str::to_owned).collect()
}

fn list_type(map: &Map<String, Value>) -> Option<ListType> {
    match map.get("x-kubernetes-list-type")?.as_str()? {
        "set" => Some(ListType::Set),
        "map" => Some(ListType::Map),
        _ => Some(ListType::Atomic),
    }
}

/// Nothing is known of it, and all of it stays.
fn anything() -> Node {
    Node {
        preserves_unknown: true,
        nullable: true,
        ..Node::default()
    }
}

fn kind(map: &Map<String, Value>) -> Result<Option<Kind>, &'static str> {
    if map.get("x-kubernetes-int-or-string") == Some(&Value::Bool(true)) {
        return Ok(Some(Kind::IntOrString));
    }
    Ok(Some(
        match map.get("type").and_then(Value::as_str).unwrap_or_default() {
            "object" => Kind::Object,
            "array" => Kind::Array,
            "string" => Kind::String,
            "integer" => Kind::Integer,
            "number" => Kind::Number,
            "boolean" => Kind::Boolean,
            // Whatever it is, it stays.
            "" if map.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(true)) => {
                return Ok(None);
            }
            "" => return Err("must have a type"),
            _ => return Err("has a type that there is not"),
        },
    ))
}
