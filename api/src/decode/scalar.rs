//! Single values: from what stands in a body to what is stored, in canonical form.

use std::borrow::Cow;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Number, Value};

use crate::{
    meta,
    quantity::Quantity,
    schema::{Element, FieldKind},
    status::quote,
};

/// Why a value does not fit.
#[derive(Debug)]
pub(super) enum Unfit {
    /// It has another JSON type.
    Type,
    /// Its text is malformed.
    Text(String),
}

/// A value, or none where it stands for an absent one.
pub(super) type Read = Result<Option<Value>, Unfit>;

pub(super) fn is_integer(kind: FieldKind) -> bool {
    matches!(kind, FieldKind::One(Element::Int32 | Element::Int64))
}

/// What Go has for a null in a list or map.
pub(super) fn zero(element: Element) -> Value {
    match element {
        Element::Object(_) => Value::Object(serde_json::Map::new()),
        Element::Bool => false.into(),
        Element::Int32 | Element::Int64 | Element::Double | Element::IntOrString => 0.into(),
        Element::Quantity => "0".into(),
        Element::String | Element::Bytes => "".into(),
        Element::StringList => Value::Array(Vec::new()),
        _ => Value::Null,
    }
}

/// The name of a field's type in Go, as far as the table knows it: named strings and maps are their
/// plain types here.
pub(super) fn go_type(kind: FieldKind) -> String {
    let element = match kind.element() {
        Element::Object(ty) => {
            let package = ty.name().rsplit('.').nth(1).unwrap_or("v1");
            format!("{package}.{}", ty.short_name())
        }
        Element::Bool => "bool".to_owned(),
        Element::Int32 => "int32".to_owned(),
        Element::Int64 => "int64".to_owned(),
        Element::Double => "float64".to_owned(),
        Element::String => "string".to_owned(),
        Element::Bytes => "[]uint8".to_owned(),
        Element::Time => "v1.Time".to_owned(),
        Element::MicroTime => "v1.MicroTime".to_owned(),
        Element::Quantity => "resource.Quantity".to_owned(),
        Element::IntOrString => "intstr.IntOrString".to_owned(),
        Element::StringList => "[]string".to_owned(),
        _ => "interface {}".to_owned(),
    };
    match kind {
        FieldKind::One(_) => element,
        FieldKind::List(_) => format!("[]{element}"),
        FieldKind::Map(_) => format!("map[string]{element}"),
    }
}

pub(super) fn from_bool(kind: FieldKind, v: bool) -> Read {
    match kind {
        FieldKind::One(Element::Bool | Element::SchemaOrBool) => Ok(Some(v.into())),
        FieldKind::One(Element::IntOrString) => go_value("bool", "int32"),
        FieldKind::One(Element::Time | Element::MicroTime) => go_value("bool", "string"),
        FieldKind::One(Element::Quantity) => quantity(if v { "true" } else { "false" }),
        _ => Err(Unfit::Type),
    }
}

pub(super) fn from_i64(kind: FieldKind, v: i64) -> Read {
    match kind {
        FieldKind::One(Element::Int64 | Element::Double) => Ok(Some(v.into())),
        FieldKind::One(Element::Int32) if i32::try_from(v).is_ok() => Ok(Some(v.into())),
        FieldKind::One(Element::IntOrString) if i32::try_from(v).is_ok() => Ok(Some(v.into())),
        FieldKind::One(Element::IntOrString) => go_value(&format!("number {v}"), "int32"),
        FieldKind::One(Element::Quantity) => quantity(&v.to_string()),
        FieldKind::One(Element::Time | Element::MicroTime) => go_value("number", "string"),
        _ => Err(Unfit::Type),
    }
}

pub(super) fn from_f64(kind: FieldKind, v: f64) -> Read {
    match kind {
        FieldKind::One(Element::Double) => Ok(Number::from_f64(v).map(Value::Number)),
        FieldKind::One(Element::IntOrString) => go_value(&format!("number {v}"), "int32"),
        FieldKind::One(Element::Quantity) => quantity(&v.to_string()),
        FieldKind::One(Element::Time | Element::MicroTime) => go_value("number", "string"),
        _ => Err(Unfit::Type),
    }
}

pub(super) fn from_text(kind: FieldKind, v: Cow<'_, str>) -> Read {
    match kind {
        FieldKind::One(Element::String | Element::IntOrString) => {
            Ok(Some(Value::String(v.into_owned())))
        }
        FieldKind::One(Element::Quantity) => quantity(&v),
        FieldKind::One(Element::Time) => time(&v, false),
        FieldKind::One(Element::MicroTime) => time(&v, true),
        FieldKind::One(Element::Bytes) => bytes(v),
        _ => Err(Unfit::Type),
    }
}

/// A time in canonical form; the zero time and an empty text are absent.
pub(super) fn time(text: &str, micro: bool) -> Read {
    if text.is_empty() || text == "0001-01-01T00:00:00Z" {
        return Ok(None);
    }
    let Some(at) = meta::parse_time(text) else {
        let layout = if micro {
            "2006-01-02T15:04:05.000000Z07:00"
        } else {
            "2006-01-02T15:04:05Z07:00"
        };
        let text = quote(text);
        return Err(Unfit::Text(format!(
            "parsing time {text} as \"{layout}\": cannot parse {text} as \"2006\""
        )));
    };
    Ok(Some(Value::String(if micro {
        meta::micro_time(at)
    } else {
        meta::time(at)
    })))
}

/// A quantity in canonical form.
pub(super) fn quantity(text: &str) -> Read {
    match Quantity::parse(text.trim()) {
        Ok(q) => Ok(Some(Value::String(q.to_string()))),
        Err(error) => Err(Unfit::Text(error.to_string())),
    }
}

fn bytes(text: Cow<'_, str>) -> Read {
    // Go skips line breaks.
    let text = if text.contains(['\n', '\r']) {
        Cow::Owned(text.replace(['\n', '\r'], ""))
    } else {
        text
    };
    match STANDARD.decode(text.as_bytes()) {
        Ok(_) => Ok(Some(Value::String(text.into_owned()))),
        Err(error) => {
            let at = match error {
                base64::DecodeError::InvalidByte(at, _) => at,
                base64::DecodeError::InvalidLength(len) => len / 4 * 4,
                _ => text.len(),
            };
            Err(Unfit::Text(format!(
                "illegal base64 data at input byte {at}"
            )))
        }
    }
}

/// What a type with a reader of its own says: it does not know its field.
fn go_value(value: &str, ty: &str) -> Read {
    Err(Unfit::Text(format!(
        "json: cannot unmarshal {value} into Go value of type {ty}"
    )))
}
