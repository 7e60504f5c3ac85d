//! Fills in what is absent and has a default in the schema.
//!
//! Source: `k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting/algorithm.go` at v1.37.

use serde_json::Value;

use super::typed::{Members, Typed};

/// Fills in what is absent within. A null that may not be is as good as absent. Idempotent.
pub(crate) fn default<T: Typed>(place: T, value: &mut Value) {
    if place.is_free() {
        return;
    }
    match value {
        Value::Object(map) => {
            place.each_member(|name, member| {
                if !map.contains_key(name)
                    && let Some(default) = member.default()
                {
                    map.insert(name.to_owned(), default);
                }
            });
            for (name, value) in map {
                let member = match place.members() {
                    Members::None => None,
                    Members::Struct => place.member(name),
                    Members::Map(each) => Some(each),
                };
                if let Some(member) = member {
                    fill(member, value);
                }
            }
        }
        Value::Array(list) => {
            if let Some(element) = place.element() {
                list.iter_mut().for_each(|value| fill(element, value));
            }
        }
        _ => {}
    }
}

/// A value that is there.
fn fill<T: Typed>(place: T, value: &mut Value) {
    if value.is_null()
        && !place.is_nullable()
        && let Some(default) = place.default()
    {
        *value = default;
    }
    default(place, value);
}
