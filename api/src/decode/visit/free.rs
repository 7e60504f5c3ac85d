//! Values without a type: all of them stays, and what stands twice is told.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use super::{
    context::{Context, Path, Step},
    key::Key,
};

/// Reads any value.
pub(super) struct AnySeed<'c> {
    context: &'c mut Context,
    path: &'c Path<'c>,
}

impl<'c> AnySeed<'c> {
    pub(super) fn new(context: &'c mut Context, path: &'c Path<'c>) -> Self {
        Self { context, path }
    }
}

impl<'de> DeserializeSeed<'de> for AnySeed<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for AnySeed<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, v: bool) -> Result<Value, E> {
        Ok(v.into())
    }

    fn visit_i64<E: Error>(self, v: i64) -> Result<Value, E> {
        Ok(v.into())
    }

    fn visit_u64<E: Error>(self, v: u64) -> Result<Value, E> {
        Ok(v.into())
    }

    fn visit_f64<E: Error>(self, v: f64) -> Result<Value, E> {
        // YAML has numbers that JSON has not.
        Ok(Number::from_f64(v).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E: Error>(self, v: &str) -> Result<Value, E> {
        Ok(v.into())
    }

    fn visit_string<E: Error>(self, v: String) -> Result<Value, E> {
        Ok(v.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(Key(key)) = access.next_key::<Key<'de>>()? {
            if map.contains_key(&*key) {
                self.context.strict("duplicate", Some(self.path), &key);
            }
            let inner = Path {
                parent: Some(self.path),
                step: Step::Key(&key),
            };
            let value = access.next_value_seed(AnySeed::new(&mut *self.context, &inner))?;
            map.insert(key.into_owned(), value);
        }
        Ok(Value::Object(map))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        loop {
            let inner = Path {
                parent: Some(self.path),
                step: Step::Index(items.len()),
            };
            match access.next_element_seed(AnySeed::new(&mut *self.context, &inner))? {
                Some(item) => items.push(item),
                None => return Ok(Value::Array(items)),
            }
        }
    }
}
