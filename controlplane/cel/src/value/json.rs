//! Values as JSON: what mutations are made of.
//!
//! A value may be in itself many times; what it is written out as is bounded.
//!
//! Source: `k8s.io/apiserver/pkg/cel/mutation/dynamic/objects.go` at v1.37.

use std::sync::Arc;

use base64::Engine as _;
use serde_json::{Map as JsonMap, Number, Value as Json, json};

use super::{Key, Map, Value};
use crate::time;

/// The most bytes, as of a request.
const MOST_BYTES: usize = 3 << 20;
/// The largest whole number that every reader of JSON takes as it is.
const MOST_SAFE: u64 = (1 << 53) - 1;

/// How numbers are written that not every reader of JSON takes as they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Integers {
    /// As numbers.
    Numbers,
    /// As texts, as protocol buffers do.
    SafeNumbers,
}

impl Value<'_> {
    /// This value as JSON.
    ///
    /// The types of objects in an object must be named after the fields that they are in:
    /// `Object.spec` in a field `spec` of `Object`.
    ///
    /// # Errors
    /// What cannot be said in JSON, or does not fit, in upstream's words.
    pub fn to_json(&self, integers: Integers) -> Result<Json, String> {
        let mut writer = Writer {
            integers,
            left: MOST_BYTES,
            path: Vec::new(),
            misfits: Vec::new(),
        };
        let json = writer.value(self)?;
        if writer.misfits.is_empty() {
            return Ok(json);
        }
        Err(format!("type mismatch: {}", writer.misfits.join("\n")))
    }
}

struct Writer {
    integers: Integers,
    left: usize,
    /// The names that lead to an object; empty outside of objects.
    path: Vec<Arc<str>>,
    misfits: Vec<String>,
}

impl Writer {
    fn spend(&mut self, bytes: usize) -> Result<(), String> {
        self.left = self
            .left
            .checked_sub(bytes.saturating_add(2))
            .ok_or_else(|| {
                format!("the value is larger than {MOST_BYTES} bytes: make less of it")
            })?;
        Ok(())
    }

    fn value(&mut self, value: &Value<'_>) -> Result<Json, String> {
        self.spend(0)?;
        Ok(match value {
            Value::Null => Json::Null,
            Value::Bool(bool) => json!(bool),
            Value::Int(int) => self.number(int.unsigned_abs(), json!(int)),
            Value::Uint(uint) => self.number(*uint, json!(uint)),
            Value::Double(double) => double_json(*double)?,
            Value::String(text) => {
                self.spend(text.len())?;
                json!(&**text)
            }
            Value::Bytes(bytes) => {
                self.spend(bytes.len())?;
                json!(base64::engine::general_purpose::STANDARD.encode(bytes))
            }
            Value::Timestamp(moment) => json!(time::format_timestamp(*moment)),
            Value::Duration(nanos) => json!(time::format_duration(*nanos)),
            Value::List(list) => {
                let mut items = Vec::new();
                for item in list.iter() {
                    items.push(self.value(&item.map_err(|error| error.to_string())?)?);
                }
                Json::Array(items)
            }
            Value::Map(map) => self.map(map)?,
            Value::Optional(Some(value)) => self.value(value)?,
            Value::Optional(None) | Value::Type(_) | Value::Opaque(_) => {
                let of = value.type_of();
                return Err(format!("a value of type {of} cannot be said in JSON"));
            }
        })
    }

    fn number(&self, size: u64, number: Json) -> Json {
        if self.integers == Integers::SafeNumbers && size > MOST_SAFE {
            return json!(number.to_string());
        }
        number
    }

    fn map(&mut self, map: &Map<'_>) -> Result<Json, String> {
        let mut written = JsonMap::new();
        match map {
            Map::Json(..) => {
                for key in map.keys() {
                    let Some(value) = map.get(&key) else { continue };
                    let key = key.as_str().map_err(|error| error.to_string())?.to_owned();
                    let value = value.map_err(|error| error.to_string())?;
                    self.spend(key.len())?;
                    written.insert(key, self.value(&value)?);
                }
            }
            Map::Owned(entries) => {
                for (key, value) in &**entries {
                    let Key::String(key) = key else {
                        return Err(format!("map key {key:?} is not a string"));
                    };
                    self.spend(key.len())?;
                    written.insert(key.to_string(), self.value(value)?);
                }
            }
            // What a patch writes somewhere begins a path of its own.
            Map::Object(name, fields) if **name == *"JSONPatch" => {
                for (field, value) in &**fields {
                    let Key::String(field) = field else { continue };
                    self.spend(field.len())?;
                    let outer = std::mem::take(&mut self.path);
                    let value = self.value(value);
                    self.path = outer;
                    written.insert(field.to_string(), value?);
                }
            }
            Map::Object(name, fields) => {
                self.enter(name);
                for (field, value) in &**fields {
                    let Key::String(field) = field else { continue };
                    self.spend(field.len())?;
                    self.path.push((&**field).into());
                    let value = self.value(value);
                    self.path.pop();
                    written.insert(field.to_string(), value?);
                }
                if self.path.len() == 1 && *self.path[0] == **name {
                    self.path.clear();
                }
            }
        }
        Ok(Json::Object(written))
    }

    /// Holds the name of an object's type to the path that leads to it.
    fn enter(&mut self, name: &Arc<str>) {
        if self.path.is_empty() {
            self.path.push(Arc::clone(name));
            return;
        }
        let expected = self.path.join(".");
        if expected != **name {
            self.misfits.push(format!(
                "unexpected type name {name:?}, expected {expected:?}, which matches field name path from root Object type"
            ));
        }
    }
}

fn double_json(double: f64) -> Result<Json, String> {
    let is_whole = double.fract() == 0.0 && double.abs() <= 9_007_199_254_740_991.0;
    if is_whole {
        #[expect(clippy::cast_possible_truncation, reason = "it was just bounded")]
        return Ok(json!(double as i64));
    }
    Number::from_f64(double)
        .map(Json::Number)
        .ok_or_else(|| format!("{double} cannot be said in JSON"))
}
