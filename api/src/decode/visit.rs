//! The visitor that JSON, YAML and JSON values share: it walks the schema while the parser walks
//! the text.

mod free;

use std::{borrow::Cow, fmt};

use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor,
};
use serde_json::{Map, Value};

use super::scalar;
use crate::{
    schema::{Element, Field, FieldKind, Type},
    status::quote,
};

/// Upstream stops collecting here too.
const MAX_STRICT_ERRORS: usize = 100;

/// Why a body was not decoded.
#[derive(Debug)]
pub(super) enum Failure {
    /// It is not JSON or YAML at all.
    Syntax(String),
    /// It holds a value of this type where an object must be.
    NoObject(&'static str),
    /// It is not in the format that its content type says.
    Raw(String),
    /// A field does not fit its type.
    Mismatch(String),
}

enum Step {
    Field(&'static str),
    Index(usize),
    Key(String),
}

/// Where the visitor is, and what it found on the way.
pub(super) struct Context {
    path: Vec<Step>,
    collect: bool,
    /// Unknown and duplicate fields.
    pub(super) strict: Vec<String>,
    /// The first value that does not fit its type.
    pub(super) mismatch: Option<String>,
    pub(super) no_object: Option<&'static str>,
}

impl Context {
    pub(super) fn new(collect: bool) -> Self {
        Self {
            path: Vec::new(),
            collect,
            strict: Vec::new(),
            mismatch: None,
            no_object: None,
        }
    }

    pub(super) fn failure(&mut self, otherwise: String) -> Failure {
        match (self.no_object, self.mismatch.take()) {
            (Some(value), _) => Failure::NoObject(value),
            (None, Some(text)) => Failure::Mismatch(text),
            (None, None) => Failure::Mismatch(otherwise),
        }
    }

    fn strict(&mut self, what: &str, key: &str) {
        if !self.collect || self.strict.len() >= MAX_STRICT_ERRORS {
            return;
        }
        let mut path = String::new();
        for step in &self.path {
            match step {
                Step::Field(name) => push_name(&mut path, name),
                Step::Key(name) => push_name(&mut path, name),
                Step::Index(i) => path.push_str(&format!("[{i}]")),
            }
        }
        push_name(&mut path, key);
        let text = format!("{what} field {}", quote(&path));
        if !self.strict.contains(&text) {
            self.strict.push(text);
        }
    }

    /// Remembers that a value does not fit, in Go's words.
    fn misfit<E: Error>(&mut self, value: &str, owner: Type, kind: FieldKind) -> E {
        let names: Vec<&str> = self
            .path
            .iter()
            .filter_map(|s| match s {
                Step::Field(name) => Some(*name),
                _ => None,
            })
            .collect();
        let go = scalar::go_type(kind);
        let (owner, path) = (owner.short_name(), names.join("."));
        let text = format!(
            "json: cannot unmarshal {value} into Go struct field {owner}.{path} of type {go}"
        );
        self.fail(text)
    }

    fn fail<E: Error>(&mut self, text: String) -> E {
        self.mismatch.get_or_insert(text);
        E::custom("a value does not fit its type")
    }
}

fn push_name(path: &mut String, name: &str) {
    if !path.is_empty() {
        path.push('.');
    }
    path.push_str(name);
}

/// Reads an object of a type; without one, whatever is in it.
pub(super) struct ObjectSeed<'c> {
    pub(super) context: &'c mut Context,
    pub(super) ty: Option<Type>,
}

impl<'de> DeserializeSeed<'de> for ObjectSeed<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ObjectSeed<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, access: A) -> Result<Value, A::Error> {
        match self.ty {
            Some(ty) => read_object(self.context, ty, access),
            None => free::read_object(self.context, access),
        }
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<Value, E> {
        self.no_object("bool")
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<Value, E> {
        self.no_object("number")
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<Value, E> {
        self.no_object("number")
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<Value, E> {
        self.no_object("number")
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<Value, E> {
        self.no_object("string")
    }

    /// `null` is an empty object to Go.
    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Object(Map::new()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, _: A) -> Result<Value, A::Error> {
        self.no_object("array")
    }
}

impl ObjectSeed<'_> {
    fn no_object<E: Error>(self, value: &'static str) -> Result<Value, E> {
        self.context.no_object = Some(value);
        Err(E::custom("an object must be here"))
    }
}

fn read_object<'de, A: MapAccess<'de>>(
    context: &mut Context,
    ty: Type,
    mut access: A,
) -> Result<Value, A::Error> {
    let mut map = Map::new();
    let mut seen = 0_u128;
    while let Some(Key(key)) = access.next_key::<Key<'de>>()? {
        let Some((index, field)) = ty.field_with_index(&key) else {
            access.next_value::<IgnoredAny>()?;
            context.strict("unknown", &key);
            continue;
        };
        if seen & (1 << (index & 127)) != 0 {
            context.strict("duplicate", &key);
        }
        seen |= 1 << (index & 127);
        context.path.push(Step::Field(field.json_name));
        let seed = FieldSeed {
            context: &mut *context,
            owner: ty,
            kind: field.kind,
        };
        let value = access.next_value_seed(seed)?;
        context.path.pop();
        match value {
            Some(value) if !is_unset(&field, &value) => {
                map.insert(key.into_owned(), value);
            }
            // A null or a zero after a value of the same name: the last one counts.
            _ => drop(map.remove(&*key)),
        }
    }
    Ok(Value::Object(map))
}

/// Whether Go could not tell the value from an absent one.
pub(super) fn is_unset(field: &Field, value: &Value) -> bool {
    match value {
        Value::String(text) => text.is_empty() && !field.required && !field.is_pointer(),
        Value::Number(n) => field.is_plain() && n.as_i64() == Some(0),
        Value::Bool(b) => !b && field.is_plain(),
        Value::Array(items) => items.is_empty() && !field.required,
        Value::Object(map) => {
            map.is_empty() && !field.required && matches!(field.kind, FieldKind::Map(_))
        }
        Value::Null => false,
    }
}

/// A key of a mapping. YAML's may be numbers and booleans: they become text.
struct Key<'a>(Cow<'a, str>);

impl<'de> Deserialize<'de> for Key<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(KeyVisitor)
    }
}

struct KeyVisitor;

impl<'de> Visitor<'de> for KeyVisitor {
    type Value = Key<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_borrowed_str<E: Error>(self, v: &'de str) -> Result<Self::Value, E> {
        Ok(Key(Cow::Borrowed(v)))
    }

    fn visit_str<E: Error>(self, v: &str) -> Result<Self::Value, E> {
        Ok(Key(Cow::Owned(v.to_owned())))
    }

    fn visit_string<E: Error>(self, v: String) -> Result<Self::Value, E> {
        Ok(Key(Cow::Owned(v)))
    }

    fn visit_bool<E: Error>(self, v: bool) -> Result<Self::Value, E> {
        Ok(Key(Cow::Owned(v.to_string())))
    }

    fn visit_i64<E: Error>(self, v: i64) -> Result<Self::Value, E> {
        Ok(Key(Cow::Owned(v.to_string())))
    }

    fn visit_u64<E: Error>(self, v: u64) -> Result<Self::Value, E> {
        Ok(Key(Cow::Owned(v.to_string())))
    }

    fn visit_f64<E: Error>(self, v: f64) -> Result<Self::Value, E> {
        Ok(Key(Cow::Owned(v.to_string())))
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(Key(Cow::Borrowed("null")))
    }
}

/// Reads the value of a field; `None` for null.
struct FieldSeed<'c> {
    context: &'c mut Context,
    owner: Type,
    kind: FieldKind,
}

impl FieldSeed<'_> {
    fn misfit<T, E: Error>(self, value: &str) -> Result<T, E> {
        Err(self.context.misfit(value, self.owner, self.kind))
    }

    fn scalar<E: Error>(
        self,
        read: Result<Option<Value>, scalar::Unfit>,
        value: &str,
    ) -> Result<Option<Value>, E> {
        match read {
            Ok(value) => Ok(value),
            Err(scalar::Unfit::Type) => self.misfit(value),
            Err(scalar::Unfit::Text(text)) => Err(self.context.fail(text)),
        }
    }
}

impl<'de> DeserializeSeed<'de> for FieldSeed<'_> {
    type Value = Option<Value>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Option<Value>, D::Error> {
        if let FieldKind::One(element) = self.kind
            && scalar::is_free_form(element)
        {
            let value = Value::deserialize(deserializer)?;
            return Ok((!value.is_null()).then_some(value));
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for FieldSeed<'_> {
    type Value = Option<Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value of the field's type")
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_bool<E: Error>(self, v: bool) -> Result<Self::Value, E> {
        let read = scalar::from_bool(self.kind, v);
        self.scalar(read, "bool")
    }

    fn visit_i64<E: Error>(self, v: i64) -> Result<Self::Value, E> {
        let read = scalar::from_i64(self.kind, v);
        let text = if scalar::is_integer(self.kind) {
            format!("number {v}")
        } else {
            "number".to_owned()
        };
        self.scalar(read, &text)
    }

    fn visit_u64<E: Error>(self, v: u64) -> Result<Self::Value, E> {
        match i64::try_from(v) {
            Ok(v) => self.visit_i64(v),
            Err(_) => self.visit_f64(v as f64),
        }
    }

    fn visit_f64<E: Error>(self, v: f64) -> Result<Self::Value, E> {
        let read = scalar::from_f64(self.kind, v);
        let text = if scalar::is_integer(self.kind) {
            format!("number {v}")
        } else {
            "number".to_owned()
        };
        self.scalar(read, &text)
    }

    fn visit_str<E: Error>(self, v: &str) -> Result<Self::Value, E> {
        let read = scalar::from_text(self.kind, Cow::Borrowed(v));
        self.scalar(read, "string")
    }

    fn visit_string<E: Error>(self, v: String) -> Result<Self::Value, E> {
        let read = scalar::from_text(self.kind, Cow::Owned(v));
        self.scalar(read, "string")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Self::Value, A::Error> {
        let element = match self.kind {
            FieldKind::List(element) => element,
            FieldKind::One(Element::StringList) => Element::String,
            FieldKind::One(Element::SchemaOrArray | Element::SchemaOrStringArray) => Element::Json,
            _ => return self.misfit("array"),
        };
        let mut items = Vec::new();
        loop {
            self.context.path.push(Step::Index(items.len()));
            let seed = FieldSeed {
                context: &mut *self.context,
                owner: self.owner,
                kind: FieldKind::One(element),
            };
            let Some(item) = access.next_element_seed(seed)? else {
                break;
            };
            self.context.path.pop();
            items.push(item.unwrap_or_else(|| scalar::zero(element)));
        }
        self.context.path.pop();
        Ok(Some(Value::Array(items)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Self::Value, A::Error> {
        let element = match self.kind {
            FieldKind::One(Element::Object(ty)) => {
                return read_object(self.context, ty, access).map(Some);
            }
            FieldKind::One(
                Element::SchemaOrArray | Element::SchemaOrBool | Element::SchemaOrStringArray,
            ) => Element::Json,
            FieldKind::Map(element) => element,
            _ => return self.misfit("object"),
        };
        let mut map = Map::new();
        while let Some(Key(key)) = access.next_key::<Key<'de>>()? {
            if map.contains_key(&*key) {
                self.context.strict("duplicate", &key);
            }
            self.context.path.push(Step::Key(key.clone().into_owned()));
            let seed = FieldSeed {
                context: &mut *self.context,
                owner: self.owner,
                kind: FieldKind::One(element),
            };
            let value = access.next_value_seed(seed)?;
            self.context.path.pop();
            map.insert(
                key.into_owned(),
                value.unwrap_or_else(|| scalar::zero(element)),
            );
        }
        Ok(Some(Value::Object(map)))
    }
}
