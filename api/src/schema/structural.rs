//! Schemas that come at run time: structural ones, as a CustomResourceDefinition has them.
//!
//! A tree read once and then walked beside objects: what it does not know is pruned, what is absent
//! is defaulted, what does not fit is told. `apiVersion`, `kind` and `metadata` of an object are
//! every kind's and not looked at here.
//!
//! Not here yet: what values must be besides their type (formats, bounds, patterns, junctors), and
//! rules.
//!
//! Source: `k8s.io/apiextensions-apiserver/pkg/apiserver/schema/{structural,pruning,defaulting}` at
//! v1.37.

mod read;

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Map, Value};

pub use self::read::ReadStructural;
use super::{ListType, Type};
use crate::status::FieldErrors;

/// What is known of the objects of a kind.
#[derive(Debug, Clone)]
pub enum Schema {
    /// A type of the table.
    BuiltIn(Type),
    /// It came at run time.
    Structural(Arc<Structural>),
}

impl Schema {
    /// The type of the table, if it is one.
    #[must_use]
    pub fn built_in(&self) -> Option<Type> {
        match self {
            Self::BuiltIn(ty) => Some(*ty),
            Self::Structural(_) => None,
        }
    }

    /// What came at run time, if it did.
    #[must_use]
    pub fn structural(&self) -> Option<&Arc<Structural>> {
        match self {
            Self::BuiltIn(_) => None,
            Self::Structural(schema) => Some(schema),
        }
    }
}

/// A schema of a kind.
#[derive(Debug)]
pub struct Structural {
    pub(crate) root: Node,
    /// As it was given, for OpenAPI.
    published: Value,
}

/// What one value may be.
#[derive(Debug, Default)]
pub(crate) struct Node {
    /// Any, if it is not said.
    pub(crate) kind: Option<Kind>,
    pub(crate) properties: BTreeMap<String, Node>,
    /// Of each member of a map.
    pub(crate) additional: Option<Box<Node>>,
    /// Of each element of a list.
    pub(crate) items: Option<Box<Node>>,
    pub(crate) required: Vec<String>,
    pub(crate) default: Option<Value>,
    pub(crate) nullable: bool,
    /// What is not known stays.
    pub(crate) preserves_unknown: bool,
    /// A whole object, with metadata of its own.
    pub(crate) is_embedded: bool,
    /// Whether server-side apply owns and replaces a map or struct as a whole.
    pub(crate) is_atomic: bool,
    /// How a list merges in server-side apply.
    pub(crate) list: Option<ListType>,
    pub(crate) list_keys: Vec<String>,
}

/// What is not described and stays.
pub(crate) static FREE: Node = Node {
    kind: None,
    properties: BTreeMap::new(),
    additional: None,
    items: None,
    required: Vec::new(),
    default: None,
    nullable: true,
    preserves_unknown: true,
    is_embedded: false,
    is_atomic: false,
    list: None,
    list_keys: Vec::new(),
};

/// The type of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
    IntOrString,
}

/// Members that every object has, whatever its schema says.
const OF_EVERY_OBJECT: [&str; 3] = ["apiVersion", "kind", "metadata"];

impl Structural {
    /// Reads an `openAPIV3Schema`.
    ///
    /// # Errors
    /// What of it is not structural, or nested too deep: permanent.
    pub fn read(schema: &Value) -> Result<Arc<Self>, ReadStructural> {
        Ok(Arc::new(Self {
            root: read::node(schema, "")?,
            published: schema.clone(),
        }))
    }

    /// As it was given.
    #[must_use]
    pub fn published(&self) -> &Value {
        &self.published
    }

    /// Removes what the schema does not know; the paths of that.
    pub fn prune(&self, object: &mut Value) -> Vec<String> {
        let mut unknown = Vec::new();
        let Some(map) = object.as_object_mut() else {
            return unknown;
        };
        let held = hold(map);
        self.root.prune_map(map, "", &mut unknown);
        map.extend(held);
        unknown
    }

    /// Fills in what is absent and has a default. Idempotent.
    pub fn default(&self, object: &mut Value) {
        let Some(map) = object.as_object_mut() else {
            return;
        };
        let held = hold(map);
        self.root.fill_map(map);
        map.extend(held);
    }

    /// What does not fit.
    #[must_use]
    pub fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        if let Some(map) = object.as_object() {
            self.root.validate_map(map, "", true, &mut errors);
        }
        errors
    }
}

/// Takes out what every object has.
fn hold(map: &mut Map<String, Value>) -> Vec<(String, Value)> {
    OF_EVERY_OBJECT
        .iter()
        .filter_map(|name| map.remove_entry(*name))
        .collect()
}

fn joined(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}

impl Node {
    fn prune(&self, value: &mut Value, path: &str, unknown: &mut Vec<String>) {
        match value {
            Value::Object(map) if self.is_embedded => {
                let held = hold(map);
                self.prune_map(map, path, unknown);
                map.extend(held);
            }
            Value::Object(map) => self.prune_map(map, path, unknown),
            Value::Array(list) => {
                let Some(items) = &self.items else { return };
                for (at, item) in list.iter_mut().enumerate() {
                    items.prune(item, &format!("{path}[{at}]"), unknown);
                }
            }
            _ => {}
        }
    }

    fn prune_map(&self, map: &mut Map<String, Value>, path: &str, unknown: &mut Vec<String>) {
        map.retain(|name, value| {
            match self.properties.get(name).or(self.additional.as_deref()) {
                Some(node) => node.prune(value, &joined(path, name), unknown),
                None if self.preserves_unknown => {}
                None => {
                    unknown.push(joined(path, name));
                    return false;
                }
            }
            true
        });
    }

    fn fill(&self, value: &mut Value) {
        match value {
            Value::Object(map) => self.fill_map(map),
            Value::Array(list) => {
                let Some(items) = &self.items else { return };
                list.iter_mut().for_each(|item| items.fill(item));
            }
            _ => {}
        }
    }

    fn fill_map(&self, map: &mut Map<String, Value>) {
        for (name, node) in &self.properties {
            // A null that may not be is as good as absent where there is a default.
            let is_absent = map
                .get(name)
                .is_none_or(|value| value.is_null() && !node.nullable);
            if let Some(default) = node.default.as_ref().filter(|_| is_absent) {
                map.insert(name.clone(), default.clone());
            }
        }
        for (name, value) in map {
            if let Some(node) = self.properties.get(name).or(self.additional.as_deref()) {
                node.fill(value);
            }
        }
    }

    fn validate(&self, value: &Value, path: &str, errors: &mut FieldErrors) {
        if value.is_null() && self.nullable {
            return;
        }
        if let Some(kind) = self.kind.filter(|kind| !kind.fits(value)) {
            let found = kind_of(value);
            let detail = format!("{path} in body must be of type {}: {found:?}", kind.name());
            return errors.invalid(path, &found.into(), detail);
        }
        match value {
            Value::Object(map) => self.validate_map(map, path, self.is_embedded, errors),
            Value::Array(list) => {
                let Some(items) = &self.items else { return };
                for (at, item) in list.iter().enumerate() {
                    items.validate(item, &format!("{path}[{at}]"), errors);
                }
            }
            _ => {}
        }
    }

    fn validate_map(
        &self,
        map: &Map<String, Value>,
        path: &str,
        is_object: bool,
        errors: &mut FieldErrors,
    ) {
        for name in &self.required {
            if !map.contains_key(name) {
                errors.required(joined(path, name), "");
            }
        }
        for (name, value) in map {
            if is_object && OF_EVERY_OBJECT.contains(&name.as_str()) {
                continue;
            }
            if let Some(node) = self.properties.get(name).or(self.additional.as_deref()) {
                node.validate(value, &joined(path, name), errors);
            }
        }
    }
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Object => "object",
            Self::Array => "array",
            Self::String => "string",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Boolean => "boolean",
            Self::IntOrString => "integer,string",
        }
    }

    fn fits(self, value: &Value) -> bool {
        let is_whole = || {
            value.is_i64()
                || value.is_u64()
                || value.as_f64().is_some_and(|number| number.fract() == 0.0)
        };
        match self {
            Self::Object => value.is_object(),
            Self::Array => value.is_array(),
            Self::String => value.is_string(),
            Self::Integer => is_whole(),
            Self::Number => value.is_number(),
            Self::Boolean => value.is_boolean(),
            Self::IntOrString => value.is_string() || is_whole(),
        }
    }
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[cfg(test)]
mod tests;
