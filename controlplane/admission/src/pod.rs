//! What the plugins for pods share, with that for nodes.

use coracle_registry::fill;
use serde_json::Value;

use crate::attributes::Attributes;

/// The spec of the pod that is made or changed; `None` if the write is about something else.
pub(crate) fn spec_mut<'a>(attributes: &'a mut Attributes<'_>) -> Option<&'a mut Value> {
    if !attributes.is_core("pods") {
        return None;
    }
    attributes
        .object_mut()
        .get_mut("spec")
        .filter(|spec| spec.is_object())
}

/// Appends to a list that may be absent.
pub(crate) fn push(object: &mut Value, list: &str, item: Value) {
    fill::value(object, list, Vec::<Value>::new());
    if let Some(list) = object[list].as_array_mut() {
        list.push(item);
    }
}
