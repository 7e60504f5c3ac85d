//! Values: of JSON that is borrowed, or made by an expression.
//!
//! What comes from an object is looked at where it is; nothing is copied to evaluate an expression
//! over it. Clones are cheap.

pub mod json;

use std::{any::Any, borrow::Cow, collections::BTreeMap, fmt, sync::Arc};

use serde_json::Value as Json;

use crate::{schema::DeclType, types::Type};

/// A value.
#[derive(Debug, Clone)]
pub enum Value<'v> {
    /// `null`
    Null,
    /// `true`
    Bool(bool),
    /// `-1`
    Int(i64),
    /// `1u`
    Uint(u64),
    /// `1.5`
    Double(f64),
    /// `'a'`
    String(Text<'v>),
    /// `b'a'`
    Bytes(Arc<[u8]>),
    /// `[a]`
    List(List<'v>),
    /// `{a: b}`, or an object.
    Map(Map<'v>),
    /// A moment.
    Timestamp(Timestamp),
    /// Nanoseconds.
    Duration(i64),
    /// `int`
    Type(Type),
    /// `optional.of(a)` or `optional.none()`
    Optional(Option<Arc<Value<'v>>>),
    /// What has functions of its own.
    Opaque(Arc<dyn Opaque>),
}

/// A moment between the years 1 and 9999.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp {
    /// Since 1970.
    pub seconds: i64,
    /// After the second.
    pub nanos: u32,
}

/// A text.
#[derive(Clone)]
pub enum Text<'v> {
    /// Part of an object.
    Borrowed(&'v str),
    /// Made by an expression.
    Owned(Arc<str>),
}

/// A list.
#[derive(Debug, Clone)]
pub enum List<'v> {
    /// Part of an object, with the list's type.
    Json(&'v [Json], &'v DeclType),
    /// Made by an expression.
    Owned(Arc<Vec<Value<'v>>>),
}

/// A map or an object.
#[derive(Debug, Clone)]
pub enum Map<'v> {
    /// Part of an object, with its type.
    Json(&'v serde_json::Map<String, Json>, &'v DeclType),
    /// Made by an expression.
    Owned(Arc<BTreeMap<Key<'v>, Value<'v>>>),
    /// Made by an expression as an object of a type.
    Object(Arc<str>, Arc<BTreeMap<Key<'v>, Value<'v>>>),
}

/// A key of a map.
#[derive(Debug, Clone)]
pub enum Key<'v> {
    /// `true`
    Bool(bool),
    /// `1` or `1u`: the same key.
    Int(i128, bool),
    /// `'a'`
    String(Text<'v>),
}

/// A value of a type that expressions cannot look into but through functions.
pub trait Opaque: fmt::Debug + Send + Sync {
    /// The type's name.
    fn type_name(&self) -> &'static str;
    /// Whether both are the same value.
    fn equals(&self, other: &dyn Opaque) -> bool;
    /// What it counts in the cost of calls.
    fn size(&self) -> Option<u64> {
        None
    }
    /// Itself.
    fn as_any(&self) -> &dyn Any;
}

/// Why an evaluation has no value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EvalError(Arc<(Cow<'static, str>, bool)>);

impl EvalError {
    /// An error that `&&`, `||` and the conditional may leave aside.
    pub fn new(message: impl Into<Cow<'static, str>>) -> Self {
        Self(Arc::new((message.into(), false)))
    }

    /// An error that ends the evaluation.
    pub(crate) fn cancelled(message: &'static str) -> Self {
        Self(Arc::new((message.into(), true)))
    }

    pub(crate) fn no_such_overload() -> Self {
        Self::new("no such overload")
    }

    pub(crate) fn no_such_key(key: impl fmt::Display) -> Self {
        Self::new(format!("no such key: {key}"))
    }

    /// Whether the evaluation was ended by its budget or from outside.
    pub fn is_cancelled(&self) -> bool {
        self.0.1
    }
}

impl std::error::Error for EvalError {}

impl fmt::Display for EvalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.0)
    }
}

/// A value, or why there is none.
pub type Evaluated<'v> = Result<Value<'v>, EvalError>;

// === impl Text ===

impl std::ops::Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Self::Borrowed(text) => text,
            Self::Owned(text) => text,
        }
    }
}

impl fmt::Debug for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

// === impl Value ===

impl<'v> Value<'v> {
    /// A text of its own.
    pub fn string(text: impl Into<Arc<str>>) -> Self {
        Self::String(Text::Owned(text.into()))
    }

    /// A list of its own.
    pub fn list(elements: Vec<Value<'v>>) -> Self {
        Self::List(List::Owned(Arc::new(elements)))
    }

    /// An optional with a value.
    pub fn some(value: Value<'v>) -> Self {
        Self::Optional(Some(Arc::new(value)))
    }

    pub(crate) fn opaque(value: impl Opaque + 'static) -> Self {
        Self::Opaque(Arc::new(value))
    }

    /// The opaque value, if it is of that type.
    pub(crate) fn downcast<T: 'static>(&self) -> Result<&T, EvalError> {
        match self {
            Self::Opaque(opaque) => opaque.as_any().downcast_ref(),
            _ => None,
        }
        .ok_or_else(EvalError::no_such_overload)
    }

    pub(crate) fn as_str(&self) -> Result<&str, EvalError> {
        match self {
            Self::String(text) => Ok(text),
            _ => Err(EvalError::no_such_overload()),
        }
    }

    pub(crate) fn as_int(&self) -> Result<i64, EvalError> {
        match self {
            Self::Int(int) => Ok(*int),
            _ => Err(EvalError::no_such_overload()),
        }
    }

    pub(crate) fn as_list(&self) -> Result<&List<'v>, EvalError> {
        match self {
            Self::List(list) => Ok(list),
            _ => Err(EvalError::no_such_overload()),
        }
    }

    /// What it counts in the cost of calls: characters, bytes, elements or entries, else 1.
    pub fn size(&self) -> u64 {
        let size = match self {
            Self::String(text) => text.chars().count(),
            Self::Bytes(bytes) => bytes.len(),
            Self::List(list) => list.len(),
            Self::Map(map) => map.len(),
            Self::Opaque(opaque) => return opaque.size().unwrap_or(1),
            _ => 1,
        };
        size as u64
    }

    /// Its type, without the types of what is in it.
    pub fn type_of(&self) -> Type {
        match self {
            Self::Null => Type::Null,
            Self::Bool(_) => Type::Bool,
            Self::Int(_) => Type::Int,
            Self::Uint(_) => Type::Uint,
            Self::Double(_) => Type::Double,
            Self::String(_) => Type::String,
            Self::Bytes(_) => Type::Bytes,
            Self::List(_) => Type::list(Type::Dyn),
            Self::Map(Map::Object(name, _)) => Type::Object(name.clone()),
            Self::Map(Map::Json(_, of)) if of.object_name().is_some() => of.checked(),
            Self::Map(_) => Type::map(Type::Dyn, Type::Dyn),
            Self::Timestamp(_) => Type::Timestamp,
            Self::Duration(_) => Type::Duration,
            Self::Type(_) => Type::Type(None),
            Self::Optional(_) => Type::optional(Type::Dyn),
            Self::Opaque(opaque) => crate::types::parse(opaque.type_name()),
        }
    }

    /// As a key of a map.
    pub(crate) fn key(&self) -> Option<Key<'v>> {
        match self {
            Self::Bool(bool) => Some(Key::Bool(*bool)),
            Self::Int(int) => Some(Key::Int(i128::from(*int), false)),
            Self::Uint(uint) => Some(Key::Int(i128::from(*uint), true)),
            Self::String(text) => Some(Key::String(text.clone())),
            _ => None,
        }
    }
}

// === impl Key ===

impl Key<'_> {
    fn rank(&self) -> (u8, i128, &str) {
        match self {
            Self::Bool(bool) => (0, i128::from(*bool), ""),
            Self::Int(int, _) => (1, *int, ""),
            Self::String(text) => (2, 0, text),
        }
    }
}

impl PartialEq for Key<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.rank() == other.rank()
    }
}

impl Eq for Key<'_> {}

impl PartialOrd for Key<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Key<'_> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.rank().cmp(&other.rank())
    }
}

impl<'v> From<Key<'v>> for Value<'v> {
    fn from(key: Key<'v>) -> Self {
        match key {
            Key::Bool(bool) => Self::Bool(bool),
            Key::Int(int, true) => Self::Uint(u64::try_from(int).unwrap_or_default()),
            Key::Int(int, false) => Self::Int(i64::try_from(int).unwrap_or_default()),
            Key::String(text) => Self::String(text),
        }
    }
}
