//! Schemas that come at run time: structural ones, as a CustomResourceDefinition has them.
//!
//! A tree read once and then walked beside objects ([`NodeRef`]): what it does not know is pruned,
//! what is absent is defaulted, what does not fit is told. `apiVersion`, `kind` and `metadata` of
//! an object are every kind's.
//!
//! Not here yet: what values must be besides their type (formats, bounds, patterns, junctors), and
//! rules.
//!
//! Source: `k8s.io/apiextensions-apiserver/pkg/apiserver/schema/structural.go` at v1.37.

mod node_ref;
mod read;

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Map, Value};

pub use self::{
    node_ref::{Keys, NodeRef},
    read::ReadStructural,
};
use super::{ListType, defaulting, pruning};
use crate::status::FieldErrors;

/// A schema of a kind.
#[derive(Debug)]
pub struct Structural {
    root: Node,
    /// As it was given, for OpenAPI.
    published: Value,
}

/// What one value may be.
#[derive(Debug, Default)]
struct Node {
    /// Any, if it is not said.
    kind: Option<Kind>,
    properties: BTreeMap<String, Node>,
    /// Of each member of a map.
    additional: Option<Box<Node>>,
    /// Of each element of a list.
    items: Option<Box<Node>>,
    required: Vec<String>,
    default: Option<Value>,
    nullable: bool,
    /// What is not known stays.
    preserves_unknown: bool,
    /// A whole object, with metadata of its own.
    is_embedded: bool,
    /// Whether server-side apply owns and replaces a map or struct as a whole.
    is_atomic: bool,
    /// How a list merges in server-side apply.
    list: Option<ListType>,
    list_keys: Vec<String>,
}

/// The type of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
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

    /// Removes what the schema does not know.
    pub fn prune(&self, object: &mut Value) {
        pruning::prune(NodeRef::of(self), object);
    }

    /// Fills in what is absent and has a default. Idempotent.
    pub fn default(&self, object: &mut Value) {
        defaulting::default(NodeRef::of(self), object);
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

fn joined(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}

impl Node {
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
