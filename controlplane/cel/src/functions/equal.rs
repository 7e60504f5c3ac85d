//! Equality of values of any type.

use std::collections::BTreeMap;

use crate::{
    meter::Meter,
    schema::{DeclKind, DeclType, ListKind},
    value::{EvalError, Key, List, Map, Value},
};

/// Whether two values are equal. Numbers of different types are compared as numbers; all else of
/// different types is unequal.
///
/// # Errors
/// When the meter ends the evaluation, or data is not of its schema's type.
pub(crate) fn equal(
    meter: &mut Meter<'_>,
    a: &Value<'_>,
    b: &Value<'_>,
) -> Result<bool, EvalError> {
    Ok(match (a, b) {
        (Value::Null, Value::Null) => true,
        (Value::Bool(a), Value::Bool(b)) => a == b,
        (Value::String(a), Value::String(b)) => **a == **b,
        (Value::Bytes(a), Value::Bytes(b)) => a == b,
        (Value::Timestamp(a), Value::Timestamp(b)) => a == b,
        (Value::Duration(a), Value::Duration(b)) => a == b,
        (Value::Type(a), Value::Type(b)) => a.runtime_name() == b.runtime_name(),
        (Value::Optional(Some(a)), Value::Optional(Some(b))) => equal(meter, a, b)?,
        (Value::Optional(a), Value::Optional(b)) => a.is_none() && b.is_none(),
        (Value::Opaque(a), Value::Opaque(b)) => a.equals(&**b),
        (Value::List(a), Value::List(b)) => lists(meter, a, b)?,
        (Value::Map(a), Value::Map(b)) => maps(meter, a, b)?,
        _ => super::numbers::order(a, b) == Some(std::cmp::Ordering::Equal),
    })
}

fn kind<'v>(list: &List<'v>) -> Option<&'v DeclType> {
    match list {
        List::Json(_, of) => Some(*of),
        List::Owned(_) => None,
    }
}

fn list_kind(of: Option<&DeclType>) -> &ListKind {
    match of.map(|of| &of.kind) {
        Some(DeclKind::List { list, .. }) => list,
        _ => &ListKind::Atomic,
    }
}

fn lists(meter: &mut Meter<'_>, a: &List<'_>, b: &List<'_>) -> Result<bool, EvalError> {
    if a.len() != b.len() {
        return Ok(false);
    }
    let of_a = list_kind(kind(a));
    let kind = match of_a {
        ListKind::Atomic => list_kind(kind(b)),
        other => other,
    };
    match kind {
        ListKind::Atomic => {
            for (a, b) in a.iter().zip(b.iter()) {
                meter.work(1)?;
                if !equal(meter, &a?, &b?)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        ListKind::Set => {
            for element in a.iter() {
                if !contains(meter, b, &element?)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        ListKind::Map(keys) => {
            let of = by_keys(b, keys)?;
            for element in a.iter() {
                let element = element?;
                meter.work(1)?;
                let same = match of.get(&identity(&element, keys)?) {
                    Some(other) => equal(meter, &element, other)?,
                    None => false,
                };
                if !same {
                    return Ok(false);
                }
            }
            Ok(true)
        }
    }
}

/// Whether a list has an element.
pub(crate) fn contains(
    meter: &mut Meter<'_>,
    list: &List<'_>,
    value: &Value<'_>,
) -> Result<bool, EvalError> {
    for element in list.iter() {
        meter.work(1)?;
        if equal(meter, &element?, value)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// What tells an element of a list apart from others: the values of its keys.
fn identity<'v>(element: &Value<'v>, keys: &[String]) -> Result<Vec<Option<Key<'v>>>, EvalError> {
    let Value::Map(map) = element else {
        return Err(EvalError::no_such_overload());
    };
    let part = |key: &String| {
        let escaped = crate::schema::escape(key).unwrap_or_else(|| key.clone());
        let value = match map {
            // A name that cannot be written in an expression still identifies.
            Map::Json(json, _) => return Ok(json.get(key).and_then(json_key)),
            _ => map.field(&escaped),
        };
        Ok(value.transpose()?.and_then(|value| value.key()))
    };
    keys.iter().map(part).collect()
}

fn json_key(json: &serde_json::Value) -> Option<Key<'_>> {
    DeclType::any().value(json).ok()?.key()
}

type ByKeys<'v> = BTreeMap<Vec<Option<Key<'v>>>, Value<'v>>;

fn by_keys<'v>(list: &List<'v>, keys: &[String]) -> Result<ByKeys<'v>, EvalError> {
    let identified = list.iter().map(|element| {
        let element = element?;
        Ok((identity(&element, keys)?, element))
    });
    identified.collect()
}

fn maps(meter: &mut Meter<'_>, a: &Map<'_>, b: &Map<'_>) -> Result<bool, EvalError> {
    if a.len() != b.len() {
        return Ok(false);
    }
    if let (Map::Json(a, of_a), Map::Json(b, of_b)) = (a, b)
        && std::ptr::eq(*of_a, *of_b)
        && matches!(of_a.kind, DeclKind::Object { .. } | DeclKind::Dyn)
    {
        return json_maps(meter, (a, b), of_a);
    }
    for key in a.keys() {
        meter.work(1)?;
        let same = match (a.get(&key), b.get(&key)) {
            (Some(a), Some(b)) => equal(meter, &a?, &b?)?,
            (None, None) => true,
            _ => false,
        };
        if !same {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Two objects of one type: what the schema does not know is compared too.
fn json_maps(
    meter: &mut Meter<'_>,
    (a, b): (
        &serde_json::Map<String, serde_json::Value>,
        &serde_json::Map<String, serde_json::Value>,
    ),
    of: &DeclType,
) -> Result<bool, EvalError> {
    let known: BTreeMap<&str, &DeclType> = match &of.kind {
        DeclKind::Object { fields, .. } => fields
            .values()
            .map(|field| (&*field.json_name, &*field.of))
            .collect(),
        _ => BTreeMap::new(),
    };
    for (name, value) in a {
        meter.work(1)?;
        let Some(other) = b.get(name) else {
            return Ok(false);
        };
        let of = known.get(&**name).copied().unwrap_or(DeclType::any());
        if !equal(meter, &of.value(value)?, &of.value(other)?)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// What an element of a list that is made is worth in elements that are looked at: lists that are
/// doubled over and over are to end before they fill the memory.
const KEPT: usize = 8;

/// One list after the other; by a schema's kind of list, what is in both is there once.
pub(crate) fn join<'v>(
    meter: &mut Meter<'_>,
    a: &List<'v>,
    b: &List<'v>,
) -> Result<Vec<Value<'v>>, EvalError> {
    // Unlike what is only walked, this is kept.
    meter.work((a.len() + b.len()).saturating_mul(KEPT))?;
    let mut joined = a.to_vec()?;
    match list_kind(kind(a)) {
        ListKind::Atomic => joined.extend(b.to_vec()?),
        ListKind::Set => {
            for element in b.iter() {
                let element = element?;
                if !contains(meter, a, &element)? {
                    joined.push(element);
                }
            }
        }
        ListKind::Map(keys) => {
            let mut places = BTreeMap::new();
            for (at, element) in joined.iter().enumerate() {
                places.insert(identity(element, keys)?, at);
            }
            for element in b.iter() {
                let element = element?;
                match places.get(&identity(&element, keys)?) {
                    Some(at) => joined[*at] = element,
                    None => joined.push(element),
                }
            }
        }
    }
    Ok(joined)
}
