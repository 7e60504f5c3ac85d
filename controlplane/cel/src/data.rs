//! Values of JSON, by the types that schemas give it.
//!
//! Source: `k8s.io/apiserver/pkg/cel/common/values.go`.

use base64::Engine as _;
use serde_json::Value as Json;

use crate::{
    schema::{DeclKind, DeclType},
    time,
    value::{EvalError, Evaluated, List, Map, Text, Value},
};

impl DeclType {
    /// A value of this type, from JSON.
    ///
    /// # Errors
    /// When the JSON is of another type.
    pub fn value<'v>(&'v self, json: &'v Json) -> Evaluated<'v> {
        match (&self.kind, json) {
            (_, Json::Null) if self.nullable => Ok(Value::Null),
            (_, Json::Null) => Err(EvalError::new(
                "invalid data, got null for schema with nullable=false",
            )),
            (DeclKind::Dyn, json) => Ok(self.dynamic(json)),
            (DeclKind::IntOrString, Json::String(_) | Json::Number(_)) if !json.is_f64() => {
                Ok(self.dynamic(json))
            }
            (DeclKind::Bool, Json::Bool(bool)) => Ok(Value::Bool(*bool)),
            (DeclKind::Int, Json::Number(number)) => match number.as_i64() {
                Some(int) => Ok(Value::Int(int)),
                None => Err(self.wrong(json)),
            },
            (DeclKind::Double, Json::Number(number)) => {
                Ok(Value::Double(number.as_f64().unwrap_or(f64::NAN)))
            }
            (DeclKind::String, Json::String(text)) => Ok(Value::String(Text::Borrowed(text))),
            (DeclKind::Bytes | DeclKind::Timestamp | DeclKind::Duration, Json::String(text)) => {
                self.formatted(text)
            }
            (DeclKind::List { .. }, Json::Array(items)) => Ok(Value::List(List::Json(items, self))),
            (DeclKind::Map { .. } | DeclKind::Object { .. }, Json::Object(map)) => {
                Ok(Value::Map(Map::Json(map, self)))
            }
            _ => Err(self.wrong(json)),
        }
    }

    /// A text that stands for something else.
    fn formatted<'v>(&self, text: &str) -> Evaluated<'v> {
        let (value, format) = match self.kind {
            DeclKind::Bytes => {
                let bytes = base64::engine::general_purpose::STANDARD.decode(text);
                let value = bytes.ok().map(|bytes| Value::Bytes(bytes.into()));
                (value, "byte formatted string")
            }
            DeclKind::Duration => (time::duration(text).map(Value::Duration), "duration"),
            _ => {
                let moment = time::date_or_time(text);
                (moment.map(Value::Timestamp), "date-time formatted string")
            }
        };
        value.ok_or_else(|| EvalError::new(format!("Invalid {format} {text}")))
    }

    /// JSON as what it looks like.
    fn dynamic<'v>(&'v self, json: &'v Json) -> Value<'v> {
        match json {
            Json::Null => Value::Null,
            Json::Bool(bool) => Value::Bool(*bool),
            Json::Number(number) => match number.as_i64() {
                Some(int) => Value::Int(int),
                None => Value::Double(number.as_f64().unwrap_or(f64::NAN)),
            },
            Json::String(text) => Value::String(Text::Borrowed(text)),
            Json::Array(items) => Value::List(List::Json(items, self)),
            Json::Object(map) => Value::Map(Map::Json(map, self)),
        }
    }

    /// In upstream's words, with Go's names of types.
    fn wrong(&self, json: &Json) -> EvalError {
        let found = match json {
            Json::Null => "<nil>",
            Json::Bool(_) => "bool",
            Json::Number(number) if number.is_f64() => "float64",
            Json::Number(_) => "int64",
            Json::String(_) => "string",
            Json::Array(_) => "[]interface {}",
            Json::Object(_) => "map[string]interface {}",
        };
        let expected = match self.kind {
            DeclKind::Bool => "bool",
            DeclKind::Int => "int",
            DeclKind::Double => "float",
            DeclKind::List { .. } => {
                return EvalError::new(
                    "invalid data, expected an array for the provided schema with type=array",
                );
            }
            DeclKind::Map { .. } | DeclKind::Object { .. } => {
                return EvalError::new(
                    "invalid data, expected a map for the provided schema with type=object",
                );
            }
            DeclKind::IntOrString => {
                return EvalError::new(
                    "invalid data, expected XIntOrString value to be either a string or integer",
                );
            }
            _ => "string",
        };
        EvalError::new(format!("invalid data, expected {expected}, got {found}"))
    }
}
