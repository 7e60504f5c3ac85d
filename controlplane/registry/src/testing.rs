//! A registry in memory, and what the tests of the kinds share.

pub mod minimal;

use std::sync::Arc;

use coracle_api::status::FieldErrors;
use coracle_store::{Backend, memory::MemoryBackend};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::{
    fill,
    resource::Registry,
    store::Store,
    strategy::{BuiltIn, Strategy},
    value::{items, string},
};

/// The store and the registry over an empty backend in memory.
///
/// # Panics
/// If they cannot start.
pub async fn started() -> (Store, Registry) {
    let backend: Arc<dyn Backend> = Arc::new(MemoryBackend::new());
    let (registry, cache) = Registry::start(&backend, CancellationToken::new())
        .await
        .expect("an empty registry");
    (Store { backend, cache }, registry)
}

/// The object with its defaults.
pub fn defaulted(strategy: &dyn Strategy, mut object: Value) -> Value {
    strategy.default(&mut object);
    object
}

/// What a create makes of the object.
pub fn created(strategy: &dyn BuiltIn, object: Value) -> Value {
    let mut object = defaulted(strategy, object);
    if strategy.resource().plural == "pods" {
        admit(&mut object["spec"]);
    }
    strategy.prepare_for_create(&mut object);
    object
}

/// What admission adds to each pod that says nothing of it: an account, a priority, how long it
/// stays on a lost node.
fn admit(spec: &mut Value) {
    if !spec.is_object() {
        return;
    }
    fill::text(spec, "serviceAccountName", "default");
    spec["serviceAccount"] = spec["serviceAccountName"].clone();
    fill::number(spec, "priority", 0);
    fill::text(spec, "preemptionPolicy", "PreemptLowerPriority");
    for key in [
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    ] {
        if !items(&spec["tolerations"])
            .iter()
            .any(|toleration| string(&toleration["key"]) == key)
        {
            fill::value(spec, "tolerations", Vec::<Value>::new());
            let toleration = json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300});
            spec["tolerations"]
                .as_array_mut()
                .into_iter()
                .for_each(|list| list.push(toleration.clone()));
        }
    }
}

/// What is wrong with a new object; empty if nothing.
pub fn create_errors(strategy: &dyn BuiltIn, object: Value) -> String {
    text(&strategy.validate_create(&created(strategy, object)))
}

/// What an update makes of the object.
pub fn updated(strategy: &dyn Strategy, new: Value, old: &Value) -> Value {
    let mut new = defaulted(strategy, new);
    strategy.prepare_for_update(&mut new, old);
    new
}

/// What is wrong with an update; empty if nothing.
pub fn update_errors(strategy: &dyn Strategy, new: Value, old: &Value) -> String {
    text(&strategy.validate_update(&updated(strategy, new, old), old))
}

/// A copy of `base` with `value` at a JSON pointer such as `/spec/containers/0/image`; `null`
/// removes.
///
/// # Panics
/// If there is no such place.
pub fn with(base: &Value, pointer: &str, value: Value) -> Value {
    let mut object = base.clone();
    let (parent, last) = pointer
        .rsplit_once('/')
        .expect("a JSON pointer has a slash");
    let mut at = &mut object;
    for step in parent.split('/').skip(1) {
        at = match step.parse::<usize>() {
            Ok(index) => &mut at[index],
            Err(_) => &mut at[step],
        };
    }
    match at {
        Value::Array(list) => {
            let index: usize = last.parse().expect("an index of a list");
            if index == list.len() {
                list.push(value)
            } else {
                list[index] = value
            }
        }
        _ if value.is_null() => {
            at.as_object_mut()
                .expect("the parent is an object")
                .remove(last);
        }
        _ => at[last] = value,
    }
    object
}

fn text(errors: &FieldErrors) -> String {
    if errors.is_empty() {
        String::new()
    } else {
        errors.to_string()
    }
}
