//! Strategic merge patch: a merge patch that merges lists by key where the schema says so, with
//! directives.
//!
//! | directive | says |
//! |---|---|
//! | `$patch: replace` | this map, or the list it stands in, is the patch alone |
//! | `$patch: delete` | this map, or the list element with this merge key, goes |
//! | `$setElementOrder/<list>` | the order of the list's elements afterwards |
//! | `$deleteFromPrimitiveList/<list>` | these values go from the list |
//! | `$retainKeys` | other keys of this map go |
//!
//! Source: `k8s.io/apimachinery/pkg/util/strategicpatch/patch.go`.

mod list;

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::{does_not_fit, read_object};
use crate::{
    schema::{Element, Field, FieldKind, Type},
    status::Status,
};

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM_LIST: &str = "$deleteFromPrimitiveList/";
const ELEMENT_ORDER: &str = "$setElementOrder/";

/// Why a patch cannot be applied.
#[derive(Debug)]
enum PatchError {
    /// The patch is malformed: 400 with this text.
    Malformed(String),
    /// The patch does not fit the object: 422.
    Unfit,
}

/// What is known of the members of a map.
#[derive(Debug, Clone, Copy)]
enum Schema {
    /// The fields of a type.
    Object(Type),
    /// Free keys, values of one type.
    MapOf(Option<Type>),
}

impl Schema {
    fn field(self, key: &str) -> Option<Field> {
        match self {
            Self::Object(ty) => ty.field(key),
            Self::MapOf(_) => None,
        }
    }

    /// The schema of the map that is the value of `key`.
    fn of_value(self, key: &str) -> Self {
        match self {
            Self::Object(ty) => ty
                .field(key)
                .map_or(Self::MapOf(None), |field| of_field(&field)),
            Self::MapOf(Some(ty)) => Self::Object(ty),
            Self::MapOf(None) => self,
        }
    }
}

/// The schema of a field's value, or of its elements.
fn of_field(field: &Field) -> Schema {
    match field.kind {
        FieldKind::One(Element::Object(ty)) | FieldKind::List(Element::Object(ty)) => {
            Schema::Object(ty)
        }
        FieldKind::Map(Element::Object(ty)) => Schema::MapOf(Some(ty)),
        _ => Schema::MapOf(None),
    }
}

/// Applies the strategic merge patch in `patch` (the bytes of the request body) to `object`, which
/// is of type `ty`.
///
/// # Errors
/// 400 for a body that is no JSON object or has a wrong directive, 422 for one that does not fit
/// the object.
pub fn apply(ty: Type, object: &Value, patch: &[u8]) -> Result<Value, Status> {
    apply_value(ty, object, read_object(patch)?)
}

/// As [`apply`], with the patch already read.
///
/// # Errors
/// 400 for a wrong directive, 422 for a patch that does not fit the object.
pub fn apply_value(ty: Type, object: &Value, patch: Map<String, Value>) -> Result<Value, Status> {
    let Value::Object(object) = object else {
        return Err(does_not_fit());
    };
    merge_map(object.clone(), patch, Schema::Object(ty))
        .map(Value::Object)
        .map_err(|error| match error {
            PatchError::Malformed(text) => Status::bad_request(text),
            PatchError::Unfit => does_not_fit(),
        })
}

fn merge_map(
    mut original: Map<String, Value>,
    mut patch: Map<String, Value>,
    schema: Schema,
) -> Result<Map<String, Value>, PatchError> {
    if let Some(directive) = patch.remove(DIRECTIVE) {
        return match directive.as_str() {
            Some("replace") => Ok(patch),
            Some("delete") => Ok(Map::new()),
            Some("merge") | None => Err(unknown_directive(&directive, &patch)),
            Some(_) => Err(unknown_directive(&directive, &patch)),
        };
    }
    retain_keys(&mut original, &mut patch)?;
    merge_ordered_lists(&mut original, &mut patch, schema)?;
    for (key, value) in patch {
        merge_member(&mut original, key, value, schema)?;
    }
    Ok(original)
}

fn unknown_directive(directive: &Value, patch: &Map<String, Value>) -> PatchError {
    let directive = directive
        .as_str()
        .map_or_else(|| directive.to_string(), str::to_owned);
    let patch = Value::Object(patch.clone());
    PatchError::Malformed(format!("unknown patch type '{directive}' in map: {patch}"))
}

fn merge_member(
    original: &mut Map<String, Value>,
    key: String,
    value: Value,
    schema: Schema,
) -> Result<(), PatchError> {
    let deletes = key.starts_with(DELETE_FROM_LIST);
    let key = if deletes {
        key[DELETE_FROM_LIST.len()..].to_owned()
    } else {
        key
    };
    if value.is_null() {
        original.remove(&key);
        return Ok(());
    }
    let Some(old) = original.remove(&key) else {
        if deletes {
            return if value.is_array() {
                Ok(())
            } else {
                Err(bad_primitive_list())
            };
        }
        if let Some(value) = plain(value) {
            original.insert(key, value);
        }
        return Ok(());
    };
    let merged = match (old, value) {
        (Value::Object(old), Value::Object(value)) => {
            let replaces = schema
                .field(&key)
                .is_some_and(|f| f.has_patch_strategy("replace"));
            if replaces {
                Value::Object(value)
            } else {
                Value::Object(merge_map(old, value, schema.of_value(&key))?)
            }
        }
        (Value::Array(old), Value::Array(value)) => Value::Array(list::merge_field(
            old,
            value,
            schema.field(&key).as_ref(),
            deletes,
        )?),
        (_, value) if deletes => {
            return if value.is_array() {
                Ok(())
            } else {
                Err(bad_primitive_list())
            };
        }
        // As upstream: what is of another type is not merged but replaced.
        (_, value) => plain(value).unwrap_or(Value::Null),
    };
    original.insert(key, merged);
    Ok(())
}

fn bad_primitive_list() -> PatchError {
    PatchError::Malformed("invalid patch format of primitive list".to_owned())
}

/// Removes what `$retainKeys` does not list.
fn retain_keys(
    original: &mut Map<String, Value>,
    patch: &mut Map<String, Value>,
) -> Result<(), PatchError> {
    let Some(listed) = patch.remove(RETAIN_KEYS) else {
        return Ok(());
    };
    let bad = || PatchError::Malformed("invalid patch format of retainKeys".to_owned());
    let Value::Array(listed) = listed else {
        return Err(bad());
    };
    let listed: HashSet<&str> = listed.iter().filter_map(Value::as_str).collect();
    let is_listed = |key: &str| listed.contains(key);
    let mut kept = patch.iter().filter(|(key, value)| {
        !(value.is_null() || key.starts_with(DELETE_FROM_LIST) || key.starts_with(ELEMENT_ORDER))
    });
    if kept.any(|(key, _)| !is_listed(key)) {
        return Err(bad());
    }
    original.retain(|key, _| is_listed(key));
    Ok(())
}

/// Merges the lists that the patch orders, and takes them out of the patch.
fn merge_ordered_lists(
    original: &mut Map<String, Value>,
    patch: &mut Map<String, Value>,
    schema: Schema,
) -> Result<(), PatchError> {
    let directives: Vec<String> = patch
        .keys()
        .filter(|k| k.starts_with(ELEMENT_ORDER))
        .cloned()
        .collect();
    for directive in directives {
        let key = directive[ELEMENT_ORDER.len()..].to_owned();
        let Some(Value::Array(order)) = patch.remove(&directive) else {
            return Err(PatchError::Malformed(
                "invalid patch format of setElementOrder list".to_owned(),
            ));
        };
        let field = schema.field(&key);
        let merge_key = field.and_then(|f| f.patch_merge_key);
        let old = match original.get(&key) {
            Some(Value::Array(old)) => Some(old.clone()),
            Some(_) => return Err(PatchError::Unfit),
            None => None,
        };
        // A deletion list is merged first: it may stand before or after this directive.
        let deletion = format!("{DELETE_FROM_LIST}{key}");
        let new = match patch.remove(&key) {
            Some(Value::Array(new)) => Some(new),
            Some(Value::Null) | None => None,
            Some(_) => return Err(PatchError::Unfit),
        };
        if let Some(new) = &new {
            list::check_order(new, &order, merge_key)?;
        }
        let mut merged = match (old.clone(), new) {
            (Some(old), Some(new)) => list::merge_field(old, new, field.as_ref(), false)?,
            (Some(old), None) => old,
            (None, Some(new)) => new.into_iter().filter_map(plain).collect(),
            (None, None) => continue,
        };
        if let Some(Value::Array(gone)) = patch.remove(&deletion) {
            merged = list::without(merged, &gone);
        }
        let merged = list::order(merged, &order, &old.unwrap_or_default(), merge_key)?;
        original.insert(key, Value::Array(merged));
    }
    Ok(())
}

/// A patch value where the object has none: without directives and nulls; `None` for what only
/// deletes.
fn plain(value: Value) -> Option<Value> {
    match value {
        Value::Object(mut map) => {
            match map.remove(DIRECTIVE).as_ref().and_then(Value::as_str) {
                Some("delete") => return None,
                _ => {
                    map.remove(RETAIN_KEYS);
                }
            }
            let members = map.into_iter().filter(|(key, value)| {
                !(value.is_null()
                    || key.starts_with(DELETE_FROM_LIST)
                    || key.starts_with(ELEMENT_ORDER))
            });
            Some(Value::Object(
                members
                    .filter_map(|(key, value)| Some((key, plain(value)?)))
                    .collect(),
            ))
        }
        Value::Array(items) => Some(Value::Array(
            items.into_iter().filter_map(plain_element).collect(),
        )),
        other => Some(other),
    }
}

/// An element of a new list: one that holds nothing but a directive is none.
fn plain_element(item: Value) -> Option<Value> {
    let only_directive = item
        .as_object()
        .is_some_and(|m| m.len() == 1 && m.contains_key(DIRECTIVE));
    if only_directive { None } else { plain(item) }
}

#[cfg(test)]
mod tests;
