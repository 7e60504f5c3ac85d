//! Schemas that come at run time: structural ones, as a CustomResourceDefinition has them.
//!
//! A tree read once and then walked beside objects ([`NodeRef`]): what it does not know is pruned,
//! what is absent is defaulted, what does not fit is told. `apiVersion`, `kind` and `metadata` of
//! an object are every kind's.
//!
//! What values must be, besides being known, is `coracle_structural`'s: a tree of its own, with
//! formats, bounds, patterns and junctors. Not here: rules in CEL.
//!
//! Source: `k8s.io/apiextensions-apiserver/pkg/apiserver/schema/structural.go` at v1.37.

mod node_ref;
mod read;

use std::sync::{Arc, OnceLock};

use coracle_structural::{Violation, Violations, Wrong};
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
    /// As it was given, for OpenAPI: as text, which is a fifth of the tree.
    published: Box<str>,
    /// What values it allows.
    values: OnceLock<coracle_structural::Schema>,
}

/// What one value may be.
#[derive(Debug, Default)]
struct Node {
    /// Any, if it is not said.
    kind: Option<Kind>,
    properties: Properties,
    /// Of each member of a map.
    additional: Option<Box<Node>>,
    /// Of each element of a list.
    items: Option<Box<Node>>,
    default: Option<Box<Value>>,
    nullable: bool,
    /// What is not known stays.
    preserves_unknown: bool,
    /// A whole object, with metadata of its own.
    is_embedded: bool,
    /// Whether server-side apply owns and replaces a map or struct as a whole.
    is_atomic: bool,
    /// How a list merges in server-side apply.
    list: Option<ListType>,
    list_keys: Box<[String]>,
}

/// The fields of a struct, by their names: without room for more, for there are many kinds.
#[derive(Debug, Default)]
struct Properties(Box<[(Box<str>, Node)]>);

impl Properties {
    fn get(&self, name: &str) -> Option<&Node> {
        let place = self.0.binary_search_by(|(known, _)| (**known).cmp(name));
        place.ok().map(|place| &self.0[place].1)
    }

    fn iter(&self) -> impl Iterator<Item = (&str, &Node)> {
        self.0.iter().map(|(name, node)| (&**name, node))
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<(Box<str>, Node)> for Properties {
    fn from_iter<I: IntoIterator<Item = (Box<str>, Node)>>(fields: I) -> Self {
        let mut fields: Vec<_> = fields.into_iter().collect();
        fields.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        Self(fields.into())
    }
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
            published: schema.to_string().into(),
            values: OnceLock::new(),
        }))
    }

    /// As it was given, read anew each time: OpenAPI and whoever compiles it ask once.
    #[must_use]
    pub fn published(&self) -> Value {
        serde_json::from_str(&self.published).expect("it was written from a value")
    }

    /// Removes what the schema does not know.
    pub fn prune(&self, object: &mut Value) {
        pruning::prune(NodeRef::of(self), object);
    }

    /// Fills in what is absent and has a default. Idempotent.
    pub fn default(&self, object: &mut Value) {
        defaulting::default(NodeRef::of(self), object);
    }

    /// How much work it is to validate an object, if that is much more than to read it.
    #[must_use]
    pub fn labour(&self, object: &Value) -> usize {
        self.values().labour(object)
    }

    /// What does not fit.
    #[must_use]
    pub fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = field_errors(self.values().validate(object));
        errors.extend(field_errors(self.values().validate_embedded(object)));
        errors.extend(field_errors(self.values().validate_lists(object)));
        errors
    }

    /// What does not fit and was not so before. Lists are told of if they were in order.
    #[must_use]
    pub fn validate_update(&self, new: &Value, old: &Value) -> FieldErrors {
        let values = self.values();
        let mut errors = field_errors(values.validate_update(new, old));
        errors.extend(field_errors(values.validate_embedded(new)));
        if values.validate_lists(old).is_empty() {
            errors.extend(field_errors(values.validate_lists(new)));
        }
        errors
    }

    /// Calls `visit` with the path of each object within that says what it is, and with itself.
    pub fn each_embedded(&self, object: &Value, visit: &mut dyn FnMut(&str, &Map<String, Value>)) {
        self.values().each_embedded(object, visit);
    }

    /// Made when it is first asked: many kinds are served that nobody writes.
    fn values(&self) -> &coracle_structural::Schema {
        self.values.get_or_init(|| {
            // What was read as a tree here is not too deep there.
            coracle_structural::Schema::read(&self.published()).unwrap_or_default()
        })
    }
}

/// What was found, as it is answered.
#[must_use]
pub fn field_errors(found: Violations) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let more = found.more();
    for Violation { path, what } in found {
        match what {
            Wrong::Required { detail } => errors.required(path, detail),
            Wrong::Invalid { value, detail } => errors.invalid(path, &value, detail),
            Wrong::TypeInvalid { value, detail } => errors.type_invalid(path, &value, detail),
            Wrong::NotSupported { value, supported } => {
                let supported: Vec<&str> = supported.iter().map(String::as_str).collect();
                errors.not_supported(path, &value, &supported);
            }
            Wrong::TooLong { max } => errors.too_long(path, &Value::Null, max),
            Wrong::TooMany { actual, max } => errors.too_many(path, actual, max),
            Wrong::Duplicate { value } => errors.duplicate(path, &value),
            Wrong::Forbidden { detail } => errors.forbidden(path, detail),
        }
    }
    errors.count(more);
    errors
}

fn joined(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}

#[cfg(test)]
mod tests;
