//! Looking into lists and maps, be they JSON or made by an expression.

use std::sync::Arc;

use serde_json::Value as Json;

use crate::{
    schema::{DeclKind, DeclType, find_field},
    value::{EvalError, Evaluated, Key, List, Map, Text, Value},
};

impl<'v> List<'v> {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Json(items, _) => items.len(),
            Self::Owned(items) => items.len(),
        }
    }

    /// An element, `None` beyond the end.
    pub(crate) fn get(&self, at: usize) -> Option<Evaluated<'v>> {
        match self {
            Self::Json(items, of) => items.get(at).map(|item| of.element().value(item)),
            Self::Owned(items) => items.get(at).cloned().map(Ok),
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Evaluated<'v>> + '_ {
        (0..self.len()).filter_map(|at| self.get(at))
    }

    /// All elements.
    pub(crate) fn to_vec(&self) -> Result<Vec<Value<'v>>, EvalError> {
        self.iter().collect()
    }
}

impl<'v> Map<'v> {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Json(map, _) => map.len(),
            Self::Owned(entries) | Self::Object(_, entries) => entries.len(),
        }
    }

    /// A field or the value of a key that is a text. A field that is null is not there.
    pub(crate) fn field(&self, name: &str) -> Option<Evaluated<'v>> {
        match self {
            Self::Json(map, of) => json_field(map, of, name),
            Self::Owned(entries) | Self::Object(_, entries) => {
                // What is looked up borrows `name` for less than the map borrows its keys.
                let entries: &std::collections::BTreeMap<Key<'_>, Value<'v>> = shorter(entries);
                entries
                    .get(&Key::String(Text::Borrowed(name)))
                    .cloned()
                    .map(Ok)
            }
        }
    }

    /// The value of a key.
    pub(crate) fn get(&self, key: &Value<'_>) -> Option<Evaluated<'v>> {
        match (self, key) {
            (_, Value::String(text)) => self.field(text),
            (Self::Owned(entries), Value::Double(double)) => {
                let whole = double.fract() == 0.0 && double.abs() < 1.9e19;
                #[expect(clippy::cast_possible_truncation, reason = "it was just bounded")]
                let key = Key::Int(*double as i128, false);
                let found = whole.then(|| entries.get(&key)).flatten();
                found.cloned().map(Ok)
            }
            (Self::Owned(entries), key) => {
                let key: Key<'_> = key.key()?;
                shorter(entries).get(&key).cloned().map(Ok)
            }
            _ => None,
        }
    }

    /// Keys in their order.
    pub(crate) fn keys(&self) -> Vec<Value<'v>> {
        match self {
            Self::Json(map, _) => {
                let keys = map.keys().map(|name| Value::String(Text::Borrowed(name)));
                keys.collect()
            }
            Self::Owned(entries) | Self::Object(_, entries) => {
                entries.keys().cloned().map(Value::from).collect()
            }
        }
    }
}

/// The same map, of keys that need not live as long.
fn shorter<'a, 'k, 'v: 'k>(
    entries: &'a Arc<std::collections::BTreeMap<Key<'v>, Value<'v>>>,
) -> &'a std::collections::BTreeMap<Key<'k>, Value<'v>> {
    entries
}

fn json_field<'v>(
    map: &'v serde_json::Map<String, Json>,
    of: &'v DeclType,
    name: &str,
) -> Option<Evaluated<'v>> {
    match &of.kind {
        DeclKind::Object { fields, .. } => {
            let field = find_field(fields, name)?;
            let value = map.get(&*field.json_name)?;
            (!value.is_null()).then(|| field.of.value(value))
        }
        DeclKind::Map { value: of, .. } => map.get(name).map(|value| of.value(value)),
        _ => map.get(name).map(|value| DeclType::any().value(value)),
    }
}
