//! The lists of a strategic merge patch: merged by key or value, then put in order.

use serde_json::{Map, Value};

use super::{DIRECTIVE, PatchError, Schema, merge_map, of_field, plain, unknown_directive};
use crate::schema::Field;

/// Merges the list `patch` into the list `original`, both values of `field`.
pub(super) fn merge_field(
    original: Vec<Value>,
    patch: Vec<Value>,
    field: Option<&Field>,
    deletes: bool,
) -> Result<Vec<Value>, PatchError> {
    if deletes {
        return Ok(original.into_iter().filter(|item| !patch.contains(item)).collect());
    }
    let Some(field) = field.filter(|f| f.has_patch_strategy("merge")) else {
        return Ok(patch.into_iter().filter_map(plain).collect());
    };
    if original.iter().chain(&patch).any(Value::is_array) {
        return Err(PatchError::Unfit);
    }
    let maps = original.iter().chain(&patch).filter(|v| v.is_object()).count();
    if maps == 0 {
        return merge_values(original, patch);
    }
    if maps < original.len() + patch.len() {
        return Err(PatchError::Unfit);
    }
    let Some(key) = field.patch_merge_key else { return Err(PatchError::Unfit) };
    merge_maps(original, patch, key, of_field(field))
}

/// A list of single values: the union, each once.
fn merge_values(original: Vec<Value>, patch: Vec<Value>) -> Result<Vec<Value>, PatchError> {
    let mut merged: Vec<Value> = Vec::with_capacity(original.len() + patch.len());
    for item in original.iter().chain(&patch) {
        if !merged.contains(item) {
            merged.push(item.clone());
        }
    }
    order(merged, &patch, &original, None)
}

fn merge_maps(
    mut original: Vec<Value>,
    patch: Vec<Value>,
    key: &str,
    schema: Schema,
) -> Result<Vec<Value>, PatchError> {
    let mut elements: Vec<Map<String, Value>> = Vec::with_capacity(patch.len());
    let mut replace = false;
    for element in patch {
        let Value::Object(mut element) = element else { return Err(PatchError::Unfit) };
        match element.remove(DIRECTIVE) {
            None => elements.push(element),
            Some(directive) => match directive.as_str() {
                Some("replace") => replace = true,
                Some("delete") => {
                    let gone = element.get(key).ok_or(PatchError::Unfit)?;
                    original.retain(|old| !same(old.get(key), Some(gone)));
                }
                _ => return Err(unknown_directive(&directive, &element)),
            },
        }
    }
    if replace {
        return Ok(elements.into_iter().filter_map(|e| plain(Value::Object(e))).collect());
    }
    let mut merged = original.clone();
    let mut patch_order = Vec::with_capacity(elements.len());
    for element in elements {
        let id = element.get(key).ok_or(PatchError::Unfit)?.clone();
        match merged.iter().position(|old| same(old.get(key), Some(&id))) {
            Some(at) => {
                let Value::Object(old) = merged[at].take() else { return Err(PatchError::Unfit) };
                merged[at] = Value::Object(merge_map(old, element, schema)?);
            }
            None => merged.extend(plain(Value::Object(element))),
        }
        patch_order.push(Value::Object(Map::from_iter([(key.to_owned(), id)])));
    }
    order(merged, &patch_order, &original, Some(key))
}

/// Whether two values of a merge key are one: by their text, as upstream compares them.
fn same(a: Option<&Value>, b: Option<&Value>) -> bool {
    match (a, b) {
        (Some(Value::String(a)), Some(Value::String(b))) => a == b,
        (Some(Value::String(text)), Some(other)) | (Some(other), Some(Value::String(text))) => {
            let other = other.to_string();
            other == *text
        }
        (Some(a), Some(b)) => a == b,
        _ => false,
    }
}

/// Where an element stands in a list, by key or by value.
fn position(list: &[Value], item: &Value, key: Option<&str>) -> Option<usize> {
    match key {
        Some(key) => list.iter().position(|other| same(other.get(key), item.get(key))),
        None => list.iter().position(|other| other == item),
    }
}

/// Puts a merged list in order: elements that the patch names follow `patch_order`, the others keep the order of
/// `server_order`, and the two are interleaved as they stood in `server_order`.
pub(super) fn order(
    merged: Vec<Value>,
    patch_order: &[Value],
    server_order: &[Value],
    key: Option<&str>,
) -> Result<Vec<Value>, PatchError> {
    if let Some(key) = key
        && merged.iter().chain(patch_order).any(|item| item.get(key).is_none())
    {
        return Err(PatchError::Unfit);
    }
    let (mut named, mut others): (Vec<Value>, Vec<Value>) =
        merged.into_iter().partition(|item| position(patch_order, item, key).is_some());
    named.sort_by_key(|item| position(patch_order, item, key));
    others.sort_by_key(|item| position(server_order, item, key).unwrap_or(usize::MAX));
    let mut out = Vec::with_capacity(named.len() + others.len());
    let (mut named, mut others) = (named.into_iter().peekable(), others.into_iter().peekable());
    loop {
        let take_other = match (others.peek(), named.peek()) {
            (Some(other), Some(name)) => {
                let places = (position(server_order, other, key), position(server_order, name, key));
                matches!(places, (Some(other), Some(name)) if other < name)
            }
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (None, None) => return Ok(out),
        };
        out.extend(if take_other { others.next() } else { named.next() });
    }
}

/// Checks that the elements of a patch stand in the order that its directive gives.
pub(super) fn check_order(patch: &[Value], order: &[Value], key: Option<&str>) -> Result<(), PatchError> {
    let mut last = 0;
    for item in patch.iter().filter(|item| item.get(DIRECTIVE).is_none()) {
        match position(order, item, key) {
            Some(at) if at >= last => last = at,
            _ => {
                let (patch, order) = (Value::from(patch), Value::from(order));
                return Err(PatchError::Malformed(format!(
                    "The order in patch list:\n{patch}\n doesn't match $setElementOrder list:\n{order}\n"
                )));
            }
        }
    }
    Ok(())
}
