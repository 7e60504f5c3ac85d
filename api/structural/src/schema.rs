//! A schema as a tree: read once, never changed, walked beside values.
//!
//! What only describes is not in it; nor are defaults and what is kept, which are decoding's.
//! Formats that upstream does not check for a type are dropped, as upstream drops them. A schema
//! that breaks a rule of [`crate::rules`] is read as far as it makes sense.

use std::collections::{BTreeMap, HashSet};

use serde_json::{Map, Value};

use crate::{format::Format, pattern::Pattern};

/// Deeper than any schema that people write, and far from what a stack holds.
const LEVELS: usize = 64;
/// Choices that are gone through one by one.
const FEW_CHOICES: usize = 16;

/// What values a kind allows.
#[derive(Debug, Default)]
pub struct Schema {
    pub(crate) root: Node,
    /// How many schemas are alternatives, or in some: each is asked for a value anew.
    alternatives: usize,
}

/// Why a schema is not taken.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ReadSchema {
    /// Nested deeper than any that people write.
    #[error("schema is nested deeper than {LEVELS} levels")]
    Depth,
    /// A schema is an object.
    #[error("schema must be an object")]
    NoObject,
}

/// What one value may be.
#[derive(Debug, Default)]
pub(crate) struct Node {
    /// Any, if none is said.
    pub(crate) types: Vec<Type>,
    pub(crate) nullable: bool,
    /// As it was written; empty if nothing goes by it.
    pub(crate) format_name: String,
    /// Of strings.
    pub(crate) format: Option<Format>,
    pub(crate) pattern: Option<Pattern>,
    pub(crate) choices: Vec<Value>,
    /// All of them, if they are many and texts.
    pub(crate) choice_texts: HashSet<String>,
    pub(crate) number: NumberBounds,
    pub(crate) length: Bounds,
    pub(crate) items_count: Bounds,
    pub(crate) members_count: Bounds,
    pub(crate) required: Vec<String>,
    pub(crate) properties: BTreeMap<String, Node>,
    pub(crate) additional: Additional,
    pub(crate) items: Option<Box<Node>>,
    pub(crate) junctors: Option<Box<Junctors>>,
    pub(crate) list: ListKind,
    /// The whole map is one value: what is in it has no old counterpart.
    pub(crate) is_atomic_map: bool,
    /// A whole object, with a type of its own.
    pub(crate) is_embedded: bool,
}

/// Members that have no property.
#[derive(Debug, Default)]
pub(crate) enum Additional {
    #[default]
    Any,
    Forbidden,
    Of(Box<Node>),
}

#[derive(Debug, Default)]
pub(crate) struct Junctors {
    pub(crate) all_of: Vec<Node>,
    pub(crate) any_of: Vec<Node>,
    pub(crate) one_of: Vec<Node>,
    pub(crate) not: Option<Node>,
}

#[derive(Debug, Default)]
pub(crate) struct NumberBounds {
    pub(crate) min: Option<f64>,
    pub(crate) max: Option<f64>,
    pub(crate) excludes_min: bool,
    pub(crate) excludes_max: bool,
    pub(crate) multiple_of: Option<f64>,
    pub(crate) format: Option<NumberFormat>,
}

/// Which numbers a format has.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum NumberFormat {
    Int32,
    Int64,
    Float,
}

impl NumberFormat {
    /// Of a node of these types. A double is any number.
    fn named(types: &[Type], format: &str) -> Option<Self> {
        match (types, format) {
            ([Type::Integer], "int32") => Some(Self::Int32),
            ([Type::Integer], "int64") => Some(Self::Int64),
            ([Type::Number], "float") => Some(Self::Float),
            _ => None,
        }
    }
}

#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) min: Option<u64>,
    pub(crate) max: Option<u64>,
}

/// How elements of a list are told apart.
#[derive(Debug, Default, PartialEq)]
pub(crate) enum ListKind {
    /// They are not.
    #[default]
    Atomic,
    Set,
    Map(Vec<String>),
}

/// The type of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Type {
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
}

impl Schema {
    /// Reads an `openAPIV3Schema`.
    ///
    /// # Errors
    /// No object, or nested too deep: permanent.
    pub fn read(schema: &Value) -> Result<Self, ReadSchema> {
        let root = node(schema, LEVELS)?;
        let alternatives = root.alternatives(false);
        Ok(Self { root, alternatives })
    }

    /// At most about how many times a value of an object is looked at, where alternatives multiply
    /// that; else 0.
    #[must_use]
    pub fn labour(&self, object: &Value) -> usize {
        if self.alternatives == 0 {
            return 0;
        }
        self.alternatives.saturating_mul(count(object))
    }
}

impl Node {
    fn alternatives(&self, is_one: bool) -> usize {
        let below = self.properties.values().chain(self.items.as_deref());
        let below = below.chain(match &self.additional {
            Additional::Of(each) => Some(&**each),
            _ => None,
        });
        let below = below.map(|node| node.alternatives(is_one)).sum::<usize>();
        let within = self.junctors.as_deref().map_or(0, |junctors| {
            let Junctors {
                all_of,
                any_of,
                one_of,
                not,
            } = junctors;
            let all = all_of.iter().chain(any_of).chain(one_of).chain(not);
            all.map(|node| node.alternatives(true)).sum()
        });
        usize::from(is_one) + below + within
    }
}

/// Of values in a value.
fn count(value: &Value) -> usize {
    1 + match value {
        Value::Array(list) => list.iter().map(count).sum(),
        Value::Object(map) => map.values().map(count).sum(),
        _ => 0,
    }
}

impl Type {
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "object" => Self::Object,
            "array" => Self::Array,
            "string" => Self::String,
            "integer" => Self::Integer,
            "number" => Self::Number,
            "boolean" => Self::Boolean,
            _ => return None,
        })
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Object => "object",
            Self::Array => "array",
            Self::String => "string",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Boolean => "boolean",
        }
    }
}

fn choice_texts(choices: &[Value]) -> HashSet<String> {
    if choices.len() <= FEW_CHOICES {
        return HashSet::new();
    }
    let texts = choices.iter().map(|one| one.as_str().map(str::to_owned));
    texts.collect::<Option<_>>().unwrap_or_default()
}

/// The texts of a list.
pub(crate) fn texts(list: Option<&Value>) -> Vec<String> {
    let list = list.and_then(Value::as_array).into_iter().flatten();
    list.filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Whether a member is `true`.
pub(crate) fn flag(schema: &Value, name: &str) -> bool {
    schema[name] == true
}

fn node(schema: &Value, levels: usize) -> Result<Node, ReadSchema> {
    let left = levels.checked_sub(1).ok_or(ReadSchema::Depth)?;
    let map = schema.as_object().ok_or(ReadSchema::NoObject)?;
    let types = types(schema);
    let format_name = kept_format(&types, schema["format"].as_str().unwrap_or_default());
    let number_format = NumberFormat::named(&types, format_name);
    let mut node = Node {
        format: Format::named(format_name),
        format_name: format_name.to_owned(),
        types,
        nullable: flag(schema, "nullable"),
        pattern: schema["pattern"]
            .as_str()
            .filter(|text| !text.is_empty())
            .map(Pattern::new),
        choice_texts: choice_texts(schema["enum"].as_array().map_or(&[], Vec::as_slice)),
        choices: schema["enum"].as_array().cloned().unwrap_or_default(),
        number: NumberBounds {
            min: schema["minimum"].as_f64(),
            max: schema["maximum"].as_f64(),
            excludes_min: flag(schema, "exclusiveMinimum"),
            excludes_max: flag(schema, "exclusiveMaximum"),
            multiple_of: schema["multipleOf"].as_f64(),
            format: number_format,
        },
        length: bounds(map, "minLength", "maxLength"),
        items_count: bounds(map, "minItems", "maxItems"),
        members_count: bounds(map, "minProperties", "maxProperties"),
        required: texts(map.get("required")),
        list: list_kind(schema),
        is_atomic_map: schema["x-kubernetes-map-type"] == "atomic",
        is_embedded: flag(schema, "x-kubernetes-embedded-resource"),
        ..Node::default()
    };
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let property = self::node(property, left)?;
        node.properties.insert(name.clone(), property);
    }
    node.additional = match map.get("additionalProperties") {
        None | Some(Value::Null | Value::Bool(true)) => Additional::Any,
        Some(Value::Bool(false)) => Additional::Forbidden,
        Some(each) => Additional::Of(Box::new(self::node(each, left)?)),
    };
    if let Some(each) = map.get("items").filter(|items| items.is_object()) {
        node.items = Some(Box::new(self::node(each, left)?));
    }
    node.junctors = junctors(schema, left)?;
    Ok(node)
}

fn junctors(schema: &Value, levels: usize) -> Result<Option<Box<Junctors>>, ReadSchema> {
    let all = |name: &str| -> Result<Vec<Node>, ReadSchema> {
        let list = schema[name].as_array().into_iter().flatten();
        list.map(|one| node(one, levels)).collect()
    };
    let not = schema.get("not").filter(|not| not.is_object());
    let junctors = Junctors {
        all_of: all("allOf")?,
        any_of: all("anyOf")?,
        one_of: all("oneOf")?,
        not: not.map(|not| node(not, levels)).transpose()?,
    };
    let is_empty = junctors.all_of.is_empty()
        && junctors.any_of.is_empty()
        && junctors.one_of.is_empty()
        && junctors.not.is_none();
    Ok((!is_empty).then(|| Box::new(junctors)))
}

fn types(schema: &Value) -> Vec<Type> {
    if flag(schema, "x-kubernetes-int-or-string") {
        return vec![Type::Integer, Type::String];
    }
    let named = schema["type"].as_str().and_then(Type::named);
    named.into_iter().collect()
}

/// The format, if it is one that is checked for this type; else nothing.
fn kept_format<'a>(types: &[Type], format: &'a str) -> &'a str {
    let is_kept = match types {
        [Type::Integer] => matches!(format, "int32" | "int64"),
        [Type::Number] => matches!(format, "float" | "double"),
        [] | [Type::String] | [_, _] => Format::is_known(format),
        _ => false,
    };
    if is_kept { format } else { "" }
}

fn bounds(map: &Map<String, Value>, min: &str, max: &str) -> Bounds {
    let number = |name: &str| map.get(name).and_then(Value::as_u64);
    Bounds {
        min: number(min),
        max: number(max),
    }
}

fn list_kind(schema: &Value) -> ListKind {
    match schema["x-kubernetes-list-type"].as_str() {
        Some("set") => ListKind::Set,
        Some("map") => ListKind::Map(texts(schema.get("x-kubernetes-list-map-keys"))),
        _ => ListKind::Atomic,
    }
}
