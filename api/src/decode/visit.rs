//! The visitor that JSON, YAML and JSON values share: it walks the schema while the parser walks
//! the text.

mod context;
mod free;
mod key;

pub(super) use self::context::{Context, Failure};

use std::{borrow::Cow, fmt};

use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor,
};
use serde_json::{Map, Value};

use self::{context::Step, key::Key};
use super::scalar;
use crate::schema::{Element, Field, FieldKind, Type};

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
