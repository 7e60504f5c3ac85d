//! The visitor that JSON, YAML and JSON values share: it walks the schema while the parser walks
//! the text.
//!
//! There is a copy of it for each kind of schema ([`Place`]): built-in types and those that came at
//! run time are read in one pass alike.

mod context;
mod free;
mod key;
mod place;

pub(super) use self::{
    context::{Context, Failure},
    place::Place,
};

use std::{borrow::Cow, collections::BTreeSet, fmt};

use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor,
};
use serde_json::{Map, Value};

use self::{
    context::{Misfit, Path, Step},
    free::AnySeed,
    key::Key,
    place::Part,
};
use super::scalar::{Read, Unfit};
use crate::schema::Members;

/// Reads an object.
pub(super) struct ObjectSeed<'c, T> {
    pub(super) context: &'c mut Context,
    pub(super) place: T,
}

impl<'de, T: Place> DeserializeSeed<'de> for ObjectSeed<'_, T> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, T: Place> Visitor<'de> for ObjectSeed<'_, T> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, access: A) -> Result<Value, A::Error> {
        read_struct(self.context, None, self.place, access)
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

impl<T> ObjectSeed<'_, T> {
    fn no_object<E: Error>(self, value: &'static str) -> Result<Value, E> {
        self.context.no_object = Some(value);
        Err(E::custom("an object must be here"))
    }
}

/// Which members of a struct were there already.
#[derive(Default)]
struct Seen {
    /// By ordinal.
    numbered: u128,
    /// Without one, and not kept.
    dropped: BTreeSet<String>,
}

impl Seen {
    /// Whether a member with an ordinal was there, which it now is.
    fn again(&mut self, ordinal: u8) -> bool {
        let bit = 1 << (ordinal & 127);
        let again = self.numbered & bit != 0;
        self.numbered |= bit;
        again
    }
}

fn read_struct<'de, T: Place, A: MapAccess<'de>>(
    context: &mut Context,
    path: Option<&Path<'_>>,
    place: T,
    mut access: A,
) -> Result<Value, A::Error> {
    let mut map = Map::new();
    let mut seen = Seen::default();
    while let Some(Key(key)) = access.next_key::<Key<'de>>()? {
        let member = place.member(&key);
        let is_again = match member.and_then(Place::ordinal) {
            Some(ordinal) => seen.again(ordinal),
            None => T::IS_UNSTRUCTURED && (map.contains_key(&*key) || seen.dropped.contains(&*key)),
        };
        if is_again {
            context.strict("duplicate", path, &key);
        }
        let inner = Path {
            parent: path,
            step: place.step(&key),
        };
        let Some(member) = member else {
            if T::IS_UNSTRUCTURED && context.collects {
                access.next_value_seed(AnySeed::new(context, &inner))?;
                seen.dropped.insert(key.clone().into_owned());
            } else {
                access.next_value::<IgnoredAny>()?;
            }
            context.strict("unknown", path, &key);
            continue;
        };
        let seed = ValueSeed {
            context: &mut *context,
            path: &inner,
            place: member,
        };
        match access.next_value_seed(seed)? {
            Some(value) if !member.is_unset(&value) => {
                map.insert(key.into_owned(), value);
            }
            // A null or a zero after a value of the same name: the last one counts.
            _ => {
                map.remove(&*key);
                if T::IS_UNSTRUCTURED && member.ordinal().is_none() {
                    seen.dropped.insert(key.into_owned());
                }
            }
        }
    }
    Ok(Value::Object(map))
}

/// Reads the value of a place; `None` if it is as good as absent.
struct ValueSeed<'c, T> {
    context: &'c mut Context,
    path: &'c Path<'c>,
    place: T,
}

impl<T: Place> ValueSeed<'_, T> {
    fn misfit<V, E: Error>(self, value: Misfit) -> Result<V, E> {
        let fitting = self.place.fitting();
        Err(self.context.misfit(Some(self.path), fitting, value))
    }

    fn scalar<E: Error>(self, read: Read, value: Misfit) -> Result<Option<Value>, E> {
        match read {
            Ok(value) => Ok(value),
            Err(Unfit::Type) => self.misfit(value),
            Err(Unfit::Text(text)) => Err(self.context.fail(text)),
        }
    }

    /// Reads what is told as a whole if it does not fit.
    fn read_part<E: Error>(self, value: Value, part: Part<T>) -> Result<Option<Value>, E> {
        let (context, path) = (self.context, Some(self.path));
        match part {
            Part::Text if !value.is_string() => {
                Err(context.invalid(path, &value, "must be a string"))
            }
            Part::Metadata(place) => {
                let seed = ValueSeed {
                    context: &mut *context,
                    path: self.path,
                    place,
                };
                let read = seed.deserialize(&value);
                read.map_err(|_| {
                    let why = context.mismatch.take().unwrap_or_default();
                    context.invalid(path, &value, &why)
                })
            }
            Part::Text | Part::Plain => Ok(Some(value)),
        }
    }
}

impl<'de, T: Place> DeserializeSeed<'de> for ValueSeed<'_, T> {
    type Value = Option<Value>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Option<Value>, D::Error> {
        let part = self.place.part();
        if matches!(part, Part::Plain) && !self.place.is_free() {
            return deserializer.deserialize_any(self);
        }
        let value = if T::IS_UNSTRUCTURED {
            AnySeed::new(&mut *self.context, self.path).deserialize(deserializer)?
        } else {
            Value::deserialize(deserializer)?
        };
        match (value, part) {
            (Value::Null, Part::Plain) => Ok(self.place.null()),
            (value, part) => self.read_part(value, part),
        }
    }
}

impl<'de, T: Place> Visitor<'de> for ValueSeed<'_, T> {
    type Value = Option<Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value of the field's type")
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(self.place.null())
    }

    fn visit_bool<E: Error>(self, v: bool) -> Result<Self::Value, E> {
        let read = self.place.bool(v);
        self.scalar(read, Misfit::Other("bool"))
    }

    fn visit_i64<E: Error>(self, v: i64) -> Result<Self::Value, E> {
        let read = self.place.int(v);
        self.scalar(read, Misfit::Int(v))
    }

    fn visit_u64<E: Error>(self, v: u64) -> Result<Self::Value, E> {
        let read = self.place.uint(v);
        let value = i64::try_from(v).map_or(Misfit::Float(v as f64), Misfit::Int);
        self.scalar(read, value)
    }

    fn visit_f64<E: Error>(self, v: f64) -> Result<Self::Value, E> {
        let read = self.place.float(v);
        self.scalar(read, Misfit::Float(v))
    }

    fn visit_str<E: Error>(self, v: &str) -> Result<Self::Value, E> {
        let read = self.place.text(Cow::Borrowed(v));
        self.scalar(read, Misfit::Other("string"))
    }

    fn visit_string<E: Error>(self, v: String) -> Result<Self::Value, E> {
        let read = self.place.text(Cow::Owned(v));
        self.scalar(read, Misfit::Other("string"))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Self::Value, A::Error> {
        let Some(element) = self.place.element() else {
            return self.misfit(Misfit::Other("array"));
        };
        let mut items = Vec::new();
        loop {
            let inner = Path {
                parent: Some(self.path),
                step: Step::Index(items.len()),
            };
            let seed = ValueSeed {
                context: &mut *self.context,
                path: &inner,
                place: element,
            };
            match access.next_element_seed(seed)? {
                Some(item) => items.push(item.unwrap_or_else(|| element.zero())),
                None => return Ok(Some(Value::Array(items))),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Self::Value, A::Error> {
        let each = match self.place.members() {
            Members::None => return self.misfit(Misfit::Other("object")),
            Members::Struct => {
                return read_struct(self.context, Some(self.path), self.place, access).map(Some);
            }
            Members::Map(each) => each,
        };
        let mut map = Map::new();
        while let Some(Key(key)) = access.next_key::<Key<'de>>()? {
            if map.contains_key(&*key) {
                self.context.strict("duplicate", Some(self.path), &key);
            }
            let inner = Path {
                parent: Some(self.path),
                step: Step::Key(&key),
            };
            let seed = ValueSeed {
                context: &mut *self.context,
                path: &inner,
                place: each,
            };
            let value = access.next_value_seed(seed)?;
            map.insert(key.into_owned(), value.unwrap_or_else(|| each.zero()));
        }
        Ok(Some(Value::Object(map)))
    }
}
