//! Removes from a value what its schema does not know. Bodies are pruned while they are decoded
//! (`decode::visit`); this is for what is stored.
//!
//! Source: `k8s.io/apiextensions-apiserver/pkg/apiserver/schema/{pruning/algorithm,
//! defaulting/prunenulls}.go` at v1.37.

use serde_json::Value;

use super::typed::{Members, Typed};

/// Removes what is not known here, and nulls that are no values.
pub(crate) fn prune<T: Typed>(place: T, value: &mut Value) {
    if place.is_free() {
        return;
    }
    match value {
        Value::Object(map) => match place.members() {
            Members::None => {}
            Members::Struct => map.retain(|name, value| {
                place.member(name).is_some_and(|member| {
                    prune(member, value);
                    !value.is_null() || member.keeps_null()
                })
            }),
            Members::Map(each) => map.values_mut().for_each(|value| prune(each, value)),
        },
        Value::Array(list) => {
            if let Some(element) = place.element() {
                list.iter_mut().for_each(|value| prune(element, value));
            }
        }
        _ => {}
    }
}
