//! Types as the checker knows them, and how they are written.

use std::{fmt, sync::Arc};

/// A type.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Type {
    /// Anything; checked when it is evaluated.
    Dyn,
    /// What follows an error, so that it is told once.
    Error,
    /// `null`
    Null,
    /// `true`
    Bool,
    /// 64 bits with a sign.
    Int,
    /// 64 bits without a sign.
    Uint,
    /// 64 bits with a point.
    Double,
    /// Text.
    String,
    /// Bytes.
    Bytes,
    /// A moment.
    Timestamp,
    /// A length of time.
    Duration,
    /// Of elements.
    List(Arc<Type>),
    /// Of keys and values.
    Map(Arc<(Type, Type)>),
    /// With fields that a [`crate::env::Types`] knows.
    Object(Arc<str>),
    /// With functions, and no fields.
    Opaque(Arc<str>, Arc<[Type]>),
    /// The type of a type.
    Type(Option<Arc<Type>>),
    /// Stands for a type in a declaration.
    Param(Arc<str>),
}

/// The name of the type of optional values.
pub(crate) const OPTIONAL: &str = "optional_type";

impl Type {
    /// `list(element)`
    pub fn list(element: Self) -> Self {
        Self::List(Arc::new(element))
    }

    /// `map(key, value)`
    pub fn map(key: Self, value: Self) -> Self {
        Self::Map(Arc::new((key, value)))
    }

    /// `optional_type(value)`
    pub fn optional(value: Self) -> Self {
        Self::Opaque(OPTIONAL.into(), [value].into())
    }

    /// An object's type by its name.
    pub fn object(name: &str) -> Self {
        Self::Object(name.into())
    }

    /// The type of the type.
    pub fn of(self) -> Self {
        Self::Type(Some(Arc::new(self)))
    }

    /// What an optional may hold.
    pub(crate) fn optional_value(&self) -> Option<&Self> {
        match self {
            Self::Opaque(name, params) if **name == *OPTIONAL => params.first(),
            _ => None,
        }
    }

    /// The name of the type itself, as `type(value)` prints it.
    pub fn runtime_name(&self) -> &str {
        match self {
            Self::Dyn => "dyn",
            Self::Error => "error",
            Self::Null => "null_type",
            Self::Bool => "bool",
            Self::Int => "int",
            Self::Uint => "uint",
            Self::Double => "double",
            Self::String => "string",
            Self::Bytes => "bytes",
            Self::Timestamp => "google.protobuf.Timestamp",
            Self::Duration => "google.protobuf.Duration",
            Self::List(_) => "list",
            Self::Map(_) => "map",
            Self::Object(name) | Self::Opaque(name, _) | Self::Param(name) => name,
            Self::Type(_) => "type",
        }
    }

    pub(crate) fn is_dyn(&self) -> bool {
        matches!(self, Self::Dyn | Self::Error)
    }

    /// With each part, from outside in; what `change` returns takes its place.
    pub(crate) fn replace(&self, change: &mut impl FnMut(&Self) -> Option<Self>) -> Self {
        if let Some(changed) = change(self) {
            return changed;
        }
        match self {
            Self::List(element) => Self::list(element.replace(change)),
            Self::Map(entry) => {
                let key = entry.0.replace(change);
                Self::map(key, entry.1.replace(change))
            }
            Self::Opaque(name, params) => {
                let params = params.iter().map(|param| param.replace(change)).collect();
                Self::Opaque(name.clone(), params)
            }
            Self::Type(Some(of)) => Self::Type(Some(Arc::new(of.replace(change)))),
            other => other.clone(),
        }
    }

    /// Whether it has something that is yet to be found.
    pub(crate) fn has_params(&self) -> bool {
        match self {
            Self::Param(_) => true,
            Self::List(element) => element.has_params(),
            Self::Map(entry) => entry.0.has_params() || entry.1.has_params(),
            Self::Opaque(_, params) => params.iter().any(Self::has_params),
            Self::Type(Some(of)) => of.has_params(),
            _ => false,
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Error => f.write_str("!error!"),
            Self::Null => f.write_str("null"),
            Self::Timestamp => f.write_str("timestamp"),
            Self::Duration => f.write_str("duration"),
            Self::List(element) => write!(f, "list({element})"),
            Self::Map(entry) => write!(f, "map({}, {})", entry.0, entry.1),
            Self::Opaque(name, params) if !params.is_empty() => {
                write!(f, "{name}({})", Joined(params))
            }
            Self::Type(Some(of)) => write!(f, "type({of})"),
            other => f.write_str(other.runtime_name()),
        }
    }
}

/// Knows the fields of objects' types.
pub trait Types: Send + Sync + fmt::Debug {
    /// The type of a field.
    ///
    /// Shape: both names as expressions write them.
    fn field(&self, type_name: &str, field: &str) -> Option<Type>;

    /// Whether expressions may make values of a type: `Type{field: value}`.
    fn constructible(&self, type_name: &str) -> bool {
        let _ = type_name;
        false
    }
}

/// Types with commas between.
pub(crate) struct Joined<'a>(pub(crate) &'a [Type]);

impl fmt::Display for Joined<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, of) in self.0.iter().enumerate() {
            write!(f, "{}{of}", if at > 0 { ", " } else { "" })?;
        }
        Ok(())
    }
}

/// Reads a type as declarations write it: `list(A)`, `map(string, int)`, `optional(A)`; one capital
/// letter stands for any type, and names with a dot or a capital are objects or opaque types.
pub(crate) fn parse(text: &str) -> Type {
    let (name, params) = match text.split_once('(') {
        Some((name, rest)) => (name, rest.strip_suffix(')').unwrap_or(rest)),
        None => (text, ""),
    };
    let params: Vec<Type> = split(params).into_iter().map(parse).collect();
    match (name, &*params) {
        ("dyn", _) => Type::Dyn,
        ("null", _) => Type::Null,
        ("bool", _) => Type::Bool,
        ("int", _) => Type::Int,
        ("uint", _) => Type::Uint,
        ("double", _) => Type::Double,
        ("string", _) => Type::String,
        ("bytes", _) => Type::Bytes,
        ("timestamp", _) => Type::Timestamp,
        ("duration", _) => Type::Duration,
        ("list", [element]) => Type::list(element.clone()),
        ("map", [key, value]) => Type::map(key.clone(), value.clone()),
        ("optional", [value]) => Type::optional(value.clone()),
        ("type", [of]) => of.clone().of(),
        (name, _) if name.len() == 1 => Type::Param(name.into()),
        ("net.IP" | "net.CIDR", _) => Type::Opaque(name.into(), [].into()),
        (name, _) => Type::object(name),
    }
}

/// At commas that are in no parentheses.
pub(crate) fn split(text: &str) -> Vec<&str> {
    let (mut depth, mut start, mut parts) = (0, 0, Vec::new());
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(text[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    let last = text[start..].trim();
    if !last.is_empty() {
        parts.push(last);
    }
    parts
}
