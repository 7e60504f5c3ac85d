//! What single values become at a place of a schema, and what is told of those that do not fit.
//!
//! Values of built-in types come out in canonical form. What a schema that came at run time
//! describes stays as it is: whether it fits is for validation to say.

use std::borrow::Cow;

use serde_json::{Map, Number, Value};

use super::{
    super::scalar::{self, Read},
    context::{Fitting, Step},
};
use crate::schema::{NodeRef, TypeRef, Typed};

/// A place that bodies are decoded along.
pub(in crate::decode) trait Place: Typed {
    /// Whether upstream reads such an object as a tree of values first, and so tells of everything
    /// that stands twice in it.
    const IS_UNSTRUCTURED: bool;

    /// A small number that no other member of the same struct has, if there is one.
    fn ordinal(self) -> Option<u8>;

    /// How the path to a member here goes on.
    fn step(self, name: &str) -> Step<'_>;

    /// What a null is to a member; `None` is absent.
    fn null(self) -> Option<Value>;

    /// What a null is in a list or map.
    fn zero(self) -> Value;

    fn bool(self, value: bool) -> Read;
    fn int(self, value: i64) -> Read;
    fn uint(self, value: u64) -> Read;
    fn float(self, value: f64) -> Read;
    fn text(self, value: Cow<'_, str>) -> Read;

    /// Whether a member with this value is as good as absent.
    fn is_unset(self, value: &Value) -> bool;

    fn fitting(self) -> Fitting;

    /// For what must be known as a whole before it is refused.
    fn part(self) -> Part<Self>;
}

/// What of an object within another is told with its value.
pub(in crate::decode) enum Part<T> {
    /// Nothing.
    Plain,
    /// A text.
    Text,
    /// Metadata: a place of its own.
    Metadata(T),
}

impl Place for TypeRef {
    const IS_UNSTRUCTURED: bool = false;

    fn ordinal(self) -> Option<u8> {
        Some(TypeRef::ordinal(self))
    }

    fn step(self, name: &str) -> Step<'_> {
        Step::Field(name)
    }

    fn null(self) -> Option<Value> {
        None
    }

    fn zero(self) -> Value {
        scalar::zero(self.kind().element())
    }

    fn bool(self, value: bool) -> Read {
        scalar::from_bool(self.kind(), value)
    }

    fn int(self, value: i64) -> Read {
        scalar::from_i64(self.kind(), value)
    }

    fn uint(self, value: u64) -> Read {
        match i64::try_from(value) {
            Ok(value) => self.int(value),
            Err(_) => self.float(value as f64),
        }
    }

    fn float(self, value: f64) -> Read {
        scalar::from_f64(self.kind(), value)
    }

    fn text(self, value: Cow<'_, str>) -> Read {
        scalar::from_text(self.kind(), value)
    }

    fn is_unset(self, value: &Value) -> bool {
        TypeRef::is_unset(self, value)
    }

    fn fitting(self) -> Fitting {
        Fitting {
            owner: self.owner().map(|ty| ty.short_name()),
            go_type: scalar::go_type(self.kind()),
            is_integer: scalar::is_integer(self.kind()),
        }
    }

    fn part(self) -> Part<Self> {
        Part::Plain
    }
}

impl Place for NodeRef<'_> {
    const IS_UNSTRUCTURED: bool = true;

    fn ordinal(self) -> Option<u8> {
        self.of_table().map(TypeRef::ordinal)
    }

    fn step(self, name: &str) -> Step<'_> {
        match self.of_table() {
            Some(_) => Step::Field(name),
            None => Step::Key(name),
        }
    }

    fn null(self) -> Option<Value> {
        match self.of_table() {
            // To Go it is metadata with nothing in it.
            Some(place) if place.is_root() => Some(Value::Object(Map::new())),
            Some(place) => Place::null(place),
            None => self.keeps_null().then_some(Value::Null),
        }
    }

    fn zero(self) -> Value {
        self.of_table().map_or(Value::Null, Place::zero)
    }

    fn bool(self, value: bool) -> Read {
        match self.of_table() {
            Some(place) => place.bool(value),
            None => Ok(Some(value.into())),
        }
    }

    fn int(self, value: i64) -> Read {
        match self.of_table() {
            Some(place) => place.int(value),
            None => Ok(Some(value.into())),
        }
    }

    fn uint(self, value: u64) -> Read {
        match self.of_table() {
            Some(place) => place.uint(value),
            None => Ok(Some(value.into())),
        }
    }

    fn float(self, value: f64) -> Read {
        match self.of_table() {
            Some(place) => place.float(value),
            // YAML has numbers that JSON has not.
            None => Ok(Some(
                Number::from_f64(value).map_or(Value::Null, Value::Number),
            )),
        }
    }

    fn text(self, value: Cow<'_, str>) -> Read {
        match self.of_table() {
            Some(place) => place.text(value),
            None => Ok(Some(value.into())),
        }
    }

    fn is_unset(self, value: &Value) -> bool {
        self.of_table().is_some_and(|place| place.is_unset(value))
    }

    fn fitting(self) -> Fitting {
        self.of_table().map_or_else(
            || Fitting {
                owner: None,
                go_type: "interface {}".to_owned(),
                is_integer: false,
            },
            Place::fitting,
        )
    }

    fn part(self) -> Part<Self> {
        match self.metadata_within() {
            Some(metadata) => Part::Metadata(metadata),
            None if self.is_text() => Part::Text,
            None => Part::Plain,
        }
    }
}
