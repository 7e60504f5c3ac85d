//! All rules of a schema, where they stand in it.

use std::{cell::Cell, collections::BTreeMap, rc::Rc, sync::Arc};

use coracle_cel::schema::{DeclKind, DeclType, DeclTypes, decl_type, escape};
use coracle_structural::rules::has_validations;
use serde_json::Value;

use super::rule::{MOST_PATTERNS, Rule, Typed};
use crate::value::{items, string};

/// A part of a schema with rules, its own or of what is in it.
pub(super) struct Node {
    /// As the schema says; empty if it does not.
    pub(super) kind: String,
    /// `None` if expressions cannot see what the schema describes.
    pub(super) of: Option<Arc<DeclType>>,
    pub(super) rules: Vec<Rule>,
    /// Whether it has rules of its own, compiled or not.
    pub(super) is_ruled: bool,
    pub(super) properties: BTreeMap<String, Node>,
    pub(super) additional: Option<Box<Node>>,
    pub(super) items: Option<Box<Node>>,
    pub(super) elements: Elements,
    pub(super) default: Option<Value>,
    /// The most values it has of each schema in it; `None` if there is no bound.
    pub(super) most: Option<u64>,
}

/// Which elements of a list are the same as before.
pub(super) enum Elements {
    /// Those with the same keys.
    Keys(Vec<String>),
    /// None.
    Apart,
}

/// `None` if there are no rules.
pub(super) fn read(schema: &Value) -> Option<Node> {
    if !has_validations(schema) {
        return None;
    }
    let room = Rc::new(Cell::new(MOST_PATTERNS));
    node(schema, typed(schema, true, room).as_ref())
}

fn typed(schema: &Value, is_root: bool, room: Rc<Cell<usize>>) -> Option<Typed> {
    let of = decl_type(schema, "self", is_root)?;
    let types = Arc::new(DeclTypes::new([&of]));
    Some(Typed { of, types, room })
}

fn node(schema: &Value, typed: Option<&Typed>) -> Option<Node> {
    let mut node = Node {
        kind: string(&schema["type"]).to_owned(),
        of: typed.map(|typed| Arc::clone(&typed.of)),
        rules: Vec::new(),
        is_ruled: !items(&schema["x-kubernetes-validations"]).is_empty(),
        properties: BTreeMap::new(),
        additional: None,
        items: None,
        elements: elements(schema),
        default: schema
            .get("default")
            .filter(|default| !default.is_null())
            .cloned(),
        most: most(schema),
    };
    let rules = items(&schema["x-kubernetes-validations"]);
    if let Some(typed) = typed {
        node.rules = rules
            .iter()
            .map(|rule| Rule::read(rule, schema, typed))
            .collect();
    }
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let of = typed.and_then(|typed| field(&typed.of, name));
        if let Some(child) = child(property, typed, of) {
            node.properties.insert(name.clone(), child);
        }
    }
    let below = |name: &str| {
        let schema = schema.get(name).filter(|schema| schema.is_object())?;
        let of = typed.and_then(|typed| match &typed.of.kind {
            DeclKind::List { element: of, .. } | DeclKind::Map { value: of } => Some(of.clone()),
            _ => None,
        });
        child(schema, typed, of).map(Box::new)
    };
    (node.items, node.additional) = (below("items"), below("additionalProperties"));
    let is_used = node.is_ruled
        || !node.properties.is_empty()
        || node.items.is_some()
        || node.additional.is_some();
    is_used.then_some(node)
}

/// Its type is part of its parent's; what has a name that expressions cannot write has its own.
fn child(schema: &Value, parent: Option<&Typed>, of: Option<Arc<DeclType>>) -> Option<Node> {
    let own = match (parent, of) {
        (Some(parent), Some(of)) => Some(Typed {
            of,
            types: Arc::clone(&parent.types),
            room: Rc::clone(&parent.room),
        }),
        (parent, _) => {
            let fresh = || Rc::new(Cell::new(MOST_PATTERNS));
            let room = parent.map_or_else(fresh, |parent| Rc::clone(&parent.room));
            typed(
                schema,
                schema["x-kubernetes-embedded-resource"] == true,
                room,
            )
        }
    };
    node(schema, own.as_ref())
}

fn field(of: &DeclType, name: &str) -> Option<Arc<DeclType>> {
    let DeclKind::Object { fields, .. } = &of.kind else {
        return None;
    };
    let field = fields.get(&*escape(name)?)?;
    Some(Arc::clone(&field.of))
}

fn elements(schema: &Value) -> Elements {
    match schema["x-kubernetes-list-type"].as_str() {
        Some("map") => {
            let keys = items(&schema["x-kubernetes-list-map-keys"]).iter();
            Elements::Keys(keys.map(|key| string(key).to_owned()).collect())
        }
        _ => Elements::Apart,
    }
}

fn most(schema: &Value) -> Option<u64> {
    let bound = |name: &str| {
        let bound = schema[name].as_i64()?;
        Some(u64::try_from(bound).unwrap_or(0))
    };
    match string(&schema["type"]) {
        "object" if schema["additionalProperties"].is_object() => bound("maxProperties"),
        "array" => bound("maxItems"),
        _ => Some(1),
    }
}
