//! Values walked along the schema: their field sets, merging, and removal by field set.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

use super::set::Set;
use crate::schema::{Shape, Typed};

impl<T: Typed> Shape<T> {
    /// The shape that fits a value: a value of another JSON type than the schema's is a leaf.
    fn for_value(self, value: &Value) -> Self {
        match (self, value) {
            (Self::Struct(_) | Self::Map(_), Value::Object(_))
            | (Self::Set | Self::Keyed(..), Value::Array(_)) => self,
            _ => Self::Leaf,
        }
    }

    /// The shape of a member or element.
    fn child(self, key: &str) -> Self {
        match self {
            Self::Struct(ty) => {
                let member = ty.member(key.get(2..).unwrap_or(""));
                member.map_or(Self::Leaf, T::shape)
            }
            Self::Map(ty) | Self::Keyed(_, ty) => ty.shape(),
            _ => Self::Leaf,
        }
    }

    /// The path element of a list's element.
    fn element_key(self, item: &Value) -> String {
        let Self::Keyed(keys, ty) = self else {
            return format!("v:{item}");
        };
        let mut found = Map::new();
        T::each_key(keys, |key| {
            let value = item.get(key).cloned().or_else(|| default(ty, key));
            found.insert(key.to_owned(), value.unwrap_or(Value::Null));
        });
        format!("k:{}", Value::Object(found))
    }

    /// A key that an element has neither of itself nor by default.
    fn missing_key(self, item: &Value) -> Option<String> {
        let Self::Keyed(keys, ty) = self else {
            return None;
        };
        let mut missing = None;
        T::each_key(keys, |key| {
            if missing.is_none()
                && item.get(key).is_none_or(Value::is_null)
                && default(ty, key).is_none()
            {
                missing = Some(key.to_owned());
            }
        });
        missing
    }
}

/// What a member of a struct is if it is absent.
fn default<T: Typed>(ty: T, name: &str) -> Option<Value> {
    ty.member(name)?.default()
}

/// The members or elements of a value, by path element. Elements are indexed once: a list may have
/// 100,000 of them.
enum Children<'a> {
    None,
    Members(&'a Map<String, Value>),
    Elements(HashMap<String, &'a Value>),
}

impl<'a> Children<'a> {
    fn of<T: Typed>(value: Option<&'a Value>, shape: Shape<T>) -> Self {
        match (shape, value) {
            (Shape::Struct(_) | Shape::Map(_), Some(Value::Object(map))) => Self::Members(map),
            (Shape::Set | Shape::Keyed(..), Some(Value::Array(items))) => {
                // The first of several.
                Self::Elements(
                    items
                        .iter()
                        .rev()
                        .map(|item| (shape.element_key(item), item))
                        .collect(),
                )
            }
            _ => Self::None,
        }
    }

    fn get(&self, key: &str) -> Option<&'a Value> {
        match self {
            Self::None => None,
            Self::Members(map) => map.get(key.strip_prefix("f:")?),
            Self::Elements(items) => items.get(key).copied(),
        }
    }
}

/// The paths of a value.
pub(super) fn to_set<T: Typed>(value: &Value, shape: Shape<T>) -> Set {
    let children = match (shape.for_value(value), value) {
        (shape @ (Shape::Struct(_) | Shape::Map(_)), Value::Object(map)) => {
            let member = |(name, value): (&String, &Value)| {
                let key = format!("f:{name}");
                let mut inner = to_set(value, shape.child(&key));
                // Upstream does not own empty lists; owning them makes a second apply of one find
                // nothing to do.
                inner.own |= matches!(shape, Shape::Map(_)) || is_hollow(value);
                (!inner.is_empty()).then_some((key, inner))
            };
            map.iter().filter_map(member).collect()
        }
        (shape @ (Shape::Set | Shape::Keyed(..)), Value::Array(items)) => {
            let element = |item| {
                let key = shape.element_key(item);
                let inner = Set {
                    own: true,
                    ..to_set(item, shape.child(&key))
                };
                (key, inner)
            };
            items.iter().map(element).collect()
        }
        _ => {
            return Set {
                own: true,
                ..Set::default()
            };
        }
    };
    Set {
        own: false,
        children,
    }
}

/// Whether every element of every list can be told from the others; what is wrong where, in
/// upstream's words.
pub(super) fn check<T: Typed>(value: &Value, shape: Shape<T>, path: &str) -> Result<(), String> {
    match (shape.for_value(value), value) {
        (shape @ (Shape::Struct(_) | Shape::Map(_)), Value::Object(map)) => {
            map.iter().try_for_each(|(name, value)| {
                let child = shape.child(&format!("f:{name}"));
                // Most of an object are leaves: no path is made for those.
                if matches!(child, Shape::Leaf) {
                    Ok(())
                } else {
                    check(value, child, &format!("{path}.{name}"))
                }
            })
        }
        (shape @ (Shape::Set | Shape::Keyed(..)), Value::Array(items)) => {
            let mut seen = HashSet::new();
            items.iter().enumerate().try_for_each(|(at, item)| {
                if let Some(key) = shape.missing_key(item) {
                    return Err(format!(
                        "{path}: element {at}: associative list with keys has an element that omits key field {key:?} \
                         (and doesn't have default value)"
                    ));
                }
                let key = shape.element_key(item);
                if seen.contains(&key) {
                    return Err(format!("{path}: duplicate entries for key {}", key.split_at(2).1));
                }
                check(item, shape.child(&key), &format!("{path}[{}]", key.split_at(2).1))?;
                seen.insert(key);
                Ok(())
            })
        }
        _ => Ok(()),
    }
}

/// The paths of lists, maps and structs that are written as a whole. Not along the members of maps,
/// as upstream.
pub(super) fn atomics<T: Typed>(
    value: &Value,
    shape: Shape<T>,
    path: &str,
    found: &mut Vec<String>,
) {
    match (shape, value) {
        (Shape::Leaf, Value::Object(_) | Value::Array(_)) => found.push(path.to_owned()),
        (shape @ Shape::Struct(_), Value::Object(map)) => {
            for (name, value) in map {
                let child = shape.child(&format!("f:{name}"));
                atomics(value, child, &format!("{path}.{name}"), found);
            }
        }
        (shape @ Shape::Keyed(..), Value::Array(items)) => {
            for (at, item) in items.iter().enumerate() {
                atomics(item, shape.child(""), &format!("{path}[{at}]"), found);
            }
        }
        _ => {}
    }
}

/// Merges `config` into `live`.
pub(super) fn merge<T: Typed>(live: Value, config: &Value, shape: Shape<T>) -> Value {
    match (shape.for_value(config), live, config) {
        (
            shape @ (Shape::Struct(_) | Shape::Map(_)),
            Value::Object(mut live),
            Value::Object(config),
        ) => {
            for (name, value) in config {
                let merged = match live.remove(name) {
                    Some(old) => merge(old, value, shape.child(&format!("f:{name}"))),
                    None => value.clone(),
                };
                live.insert(name.clone(), merged);
            }
            Value::Object(live)
        }
        (shape @ (Shape::Set | Shape::Keyed(..)), Value::Array(live), Value::Array(config)) => {
            Value::Array(merge_lists(live, config, shape))
        }
        (_, _, config) => config.clone(),
    }
}

/// Elements of both, in the order of `config`; those of `live` alone keep their places before,
/// between and after.
fn merge_lists<T: Typed>(live: Vec<Value>, config: &[Value], shape: Shape<T>) -> Vec<Value> {
    let keyed =
        |items: &[Value]| -> Vec<String> { items.iter().map(|i| shape.element_key(i)).collect() };
    let (live_keys, config_keys) = (keyed(&live), keyed(config));
    let named: HashSet<&str> = config_keys.iter().map(String::as_str).collect();
    let places: HashMap<&str, usize> = live_keys
        .iter()
        .enumerate()
        .rev()
        .map(|(at, key)| (key.as_str(), at))
        .collect();
    let mut out = Vec::with_capacity(live.len() + config.len());
    let (mut l, mut c) = (0, 0);
    while l < live.len() || c < config.len() {
        if l < live.len() && !named.contains(live_keys[l].as_str()) {
            out.push(live[l].clone());
            l += 1;
        } else if c < config.len() {
            let key = &config_keys[c];
            let old = places.get(key.as_str()).map(|at| live[*at].clone());
            out.push(match old {
                Some(old) => merge(old, &config[c], shape.child(key)),
                None => config[c].clone(),
            });
            if l < live.len() && live_keys[l] == *key {
                l += 1;
            }
            c += 1;
        } else {
            // It stands in the config's order already.
            l += 1;
        }
    }
    out
}

/// Removes what `last` has and `owned` has not.
pub(super) fn remove_unowned<T: Typed>(
    value: &mut Value,
    shape: Shape<T>,
    last: &Set,
    owned: &Set,
) {
    match (shape, value) {
        (Shape::Struct(_) | Shape::Map(_), Value::Object(map)) => {
            for (key, last) in last.children.iter() {
                let Some(name) = key.strip_prefix("f:") else {
                    continue;
                };
                let Some(child) = map.get_mut(name) else {
                    continue;
                };
                if !stays(child, shape.child(key), last, owned.children.get(key)) {
                    map.remove(name);
                }
            }
        }
        (Shape::Set | Shape::Keyed(..), Value::Array(items)) => items.retain_mut(|item| {
            let key = shape.element_key(item);
            let Some(last) = last.children.get(&key) else {
                return true;
            };
            stays(item, shape.child(&key), last, owned.children.get(&key))
        }),
        _ => {}
    }
}

/// Removes inside of a member or element; whether it itself stays.
fn stays<T: Typed>(child: &mut Value, shape: Shape<T>, last: &Set, owned: Option<&Set>) -> bool {
    let Some(owned) = owned else { return false };
    let was_empty = is_hollow(child);
    remove_unowned(child, shape, last, owned);
    was_empty || !is_hollow(child) || !owned.is_empty()
}

fn is_hollow(value: &Value) -> bool {
    value.as_object().is_some_and(Map::is_empty) || value.as_array().is_some_and(Vec::is_empty)
}

/// The paths of `all`, the set of `new`, where `old` has nothing or another value.
pub(super) fn changed<T: Typed>(all: &Set, old: &Value, new: &Value, shape: Shape<T>) -> Set {
    let (old, new) = (
        Children::of(Some(old), shape),
        Children::of(Some(new), shape),
    );
    let difference = |(key, inner): (&String, &Set)| {
        let difference = match (old.get(key), new.get(key)) {
            (Some(old), Some(new)) if old == new => return None,
            (Some(old), Some(new)) if !inner.children.is_empty() => {
                changed(inner, old, new, shape.child(key))
            }
            _ => inner.clone(),
        };
        (!difference.is_empty()).then(|| (key.clone(), difference))
    };
    Set {
        own: false,
        children: all.children.iter().filter_map(difference).collect(),
    }
}

/// Whether both have the same value at a path.
pub(super) fn is_same_at<T: Typed>(a: &Value, b: &Value, shape: Shape<T>, path: &[String]) -> bool {
    let (mut a, mut b, mut shape) = (a, b, shape);
    for key in path {
        let (of_a, of_b) = (Children::of(Some(a), shape), Children::of(Some(b), shape));
        let (Some(next_a), Some(next_b)) = (of_a.get(key), of_b.get(key)) else {
            return false;
        };
        (a, b, shape) = (next_a, next_b, shape.child(key));
    }
    a == b
}

/// Calls `found` with every leaf that `theirs` and `mine` share and that is not the same in `live`
/// and `merged`.
pub(super) fn clashes<T: Typed>(
    theirs: &Set,
    mine: &Set,
    values: (Option<&Value>, Option<&Value>),
    shape: Shape<T>,
    path: &mut Vec<String>,
    found: &mut impl FnMut(&[String]),
) {
    if values.0 == values.1 {
        return;
    }
    if theirs.own && mine.children.is_empty() {
        // Of a map or list that stays, only elements can have gone, and who removes its own is in
        // nobody's way.
        if matches!(shape, Shape::Leaf) || values.0.is_none() {
            found(path);
        }
        return;
    }
    let (live, merged) = (Children::of(values.0, shape), Children::of(values.1, shape));
    for (key, theirs) in theirs.children.iter() {
        let Some(mine) = mine.children.get(key) else {
            continue;
        };
        let values = (live.get(key), merged.get(key));
        path.push(key.clone());
        clashes(theirs, mine, values, shape.child(key), path, found);
        path.pop();
    }
}
