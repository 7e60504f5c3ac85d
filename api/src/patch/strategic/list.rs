//! The lists of a strategic merge patch: merged by key or value, then put in order.
//!
//! Elements are found by [`Places`], never by search: a list may have 100,000 of them.

use std::collections::{HashMap, HashSet};

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
        return Ok(without(original, &patch));
    }
    let Some(field) = field.filter(|f| f.has_patch_strategy("merge")) else {
        return Ok(patch.into_iter().filter_map(plain).collect());
    };
    if original.iter().chain(&patch).any(Value::is_array) {
        return Err(PatchError::Unfit);
    }
    let maps = original
        .iter()
        .chain(&patch)
        .filter(|v| v.is_object())
        .count();
    if maps == 0 {
        return merge_values(original, patch);
    }
    if maps < original.len() + patch.len() {
        return Err(PatchError::Unfit);
    }
    let Some(key) = field.patch_merge_key else {
        return Err(PatchError::Unfit);
    };
    merge_maps(original, patch, key, of_field(field))
}

/// A list of single values: the union, each once.
fn merge_values(original: Vec<Value>, patch: Vec<Value>) -> Result<Vec<Value>, PatchError> {
    let mut seen = HashSet::new();
    let all = original.iter().chain(&patch);
    let merged = all
        .filter(|item| seen.insert(item.to_string()))
        .cloned()
        .collect();
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
    let mut gone = HashSet::new();
    for element in patch {
        let Value::Object(mut element) = element else {
            return Err(PatchError::Unfit);
        };
        match element.remove(DIRECTIVE) {
            None => elements.push(element),
            Some(directive) => match directive.as_str() {
                Some("replace") => replace = true,
                Some("delete") => {
                    gone.insert(text(element.get(key).ok_or(PatchError::Unfit)?));
                }
                _ => return Err(unknown_directive(&directive, &element)),
            },
        }
    }
    if replace {
        return Ok(elements
            .into_iter()
            .filter_map(|e| plain(Value::Object(e)))
            .collect());
    }
    if !gone.is_empty() {
        original.retain(|old| !old.get(key).is_some_and(|old| gone.contains(&text(old))));
    }
    let mut merged = original.clone();
    let mut places = Places::of(&merged, Some(key));
    let mut patch_order = Vec::with_capacity(elements.len());
    for element in elements {
        let id = element.get(key).ok_or(PatchError::Unfit)?.clone();
        match places.0.get(&text(&id)) {
            Some(&at) => {
                let Value::Object(old) = merged[at].take() else {
                    return Err(PatchError::Unfit);
                };
                merged[at] = Value::Object(merge_map(old, element, schema)?);
            }
            None => {
                if let Some(new) = plain(Value::Object(element)) {
                    // Without the key it is found by nobody, and refused below.
                    if let Some(id) = new.get(key) {
                        places.0.insert(text(id), merged.len());
                    }
                    merged.push(new);
                }
            }
        }
        patch_order.push(Value::Object(Map::from_iter([(key.to_owned(), id)])));
    }
    order(merged, &patch_order, &original, Some(key))
}

/// Without these.
pub(super) fn without(mut list: Vec<Value>, gone: &[Value]) -> Vec<Value> {
    let gone: HashSet<String> = gone.iter().map(Value::to_string).collect();
    list.retain(|item| !gone.contains(&item.to_string()));
    list
}

/// How a value of a merge key is compared: by its text, as upstream does.
fn text(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

/// Where elements stand in a list, by key or by value; the first of several.
struct Places<'a>(HashMap<String, usize>, Option<&'a str>);

impl<'a> Places<'a> {
    fn of(list: &[Value], key: Option<&'a str>) -> Self {
        let mut places = Self(HashMap::with_capacity(list.len()), key);
        for (at, item) in list.iter().enumerate() {
            if let Some(id) = places.id(item) {
                places.0.entry(id).or_insert(at);
            }
        }
        places
    }

    fn id(&self, item: &Value) -> Option<String> {
        match self.1 {
            Some(key) => item.get(key).map(text),
            None => Some(item.to_string()),
        }
    }

    fn get(&self, item: &Value) -> Option<usize> {
        self.0.get(&self.id(item)?).copied()
    }
}

/// Puts a merged list in order: elements that the patch names follow `patch_order`, the others keep
/// the order of `server_order`, and the two are interleaved as they stood in `server_order`.
pub(super) fn order(
    merged: Vec<Value>,
    patch_order: &[Value],
    server_order: &[Value],
    key: Option<&str>,
) -> Result<Vec<Value>, PatchError> {
    if let Some(key) = key
        && merged
            .iter()
            .chain(patch_order)
            .any(|item| item.get(key).is_none())
    {
        return Err(PatchError::Unfit);
    }
    let (in_patch, in_server) = (Places::of(patch_order, key), Places::of(server_order, key));
    // With their places: in the patch or nowhere, and in the server's list.
    let placed = merged
        .into_iter()
        .map(|item| (in_patch.get(&item), in_server.get(&item), item));
    let (mut named, mut others): (Vec<_>, Vec<_>) = placed.partition(|(named, ..)| named.is_some());
    named.sort_by_key(|(at, ..)| *at);
    others.sort_by_key(|(_, at, _)| at.unwrap_or(usize::MAX));
    let mut out = Vec::with_capacity(named.len() + others.len());
    let (mut named, mut others) = (named.into_iter().peekable(), others.into_iter().peekable());
    loop {
        let take_other = match (others.peek(), named.peek()) {
            (Some((_, other, _)), Some((_, name, _))) => {
                matches!((other, name), (Some(other), Some(name)) if other < name)
            }
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (None, None) => return Ok(out),
        };
        out.extend(
            if take_other {
                others.next()
            } else {
                named.next()
            }
            .map(|(.., item)| item),
        );
    }
}

/// Checks that the elements of a patch stand in the order that its directive gives.
pub(super) fn check_order(
    patch: &[Value],
    order: &[Value],
    key: Option<&str>,
) -> Result<(), PatchError> {
    let mut last = 0;
    let places = Places::of(order, key);
    for item in patch.iter().filter(|item| item.get(DIRECTIVE).is_none()) {
        match places.get(item) {
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
