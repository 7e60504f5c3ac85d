//! What the tests of the kinds share. Built for tests alone.

use serde_json::Value;

use super::strategy::Strategy;
use crate::admission::new_pod::Surroundings;

/// The object with its defaults.
pub(crate) fn defaulted(strategy: &dyn Strategy, mut object: Value) -> Value {
    strategy.default(&mut object);
    object
}

/// What a create makes of the object.
pub(crate) fn created(strategy: &dyn Strategy, object: Value) -> Value {
    let mut object = defaulted(strategy, object);
    if strategy.resource().plural == "pods" {
        // A priority that is no class's is refused elsewhere.
        let _ = Surroundings::default().add(&mut object);
    }
    strategy.prepare_for_create(&mut object);
    object
}

/// What is wrong with a new object; empty if nothing.
pub(crate) fn create_errors(strategy: &dyn Strategy, object: Value) -> String {
    text(&strategy.validate(&created(strategy, object)))
}

/// What an update makes of the object.
pub(crate) fn updated(strategy: &dyn Strategy, new: Value, old: &Value) -> Value {
    let mut new = defaulted(strategy, new);
    strategy.prepare_for_update(&mut new, old);
    new
}

/// What is wrong with an update; empty if nothing.
pub(crate) fn update_errors(strategy: &dyn Strategy, new: Value, old: &Value) -> String {
    text(&strategy.validate_update(&updated(strategy, new, old), old))
}

/// A copy of `base` with `value` at a JSON pointer such as `/spec/containers/0/image`; `null` removes.
pub(crate) fn with(base: &Value, pointer: &str, value: Value) -> Value {
    let mut object = base.clone();
    let (parent, last) = pointer.rsplit_once('/').expect("a JSON pointer has a slash");
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
            if index == list.len() { list.push(value) } else { list[index] = value }
        }
        _ if value.is_null() => {
            at.as_object_mut().expect("the parent is an object").remove(last);
        }
        _ => at[last] = value,
    }
    object
}

fn text(errors: &coracle_api::status::FieldErrors) -> String {
    if errors.is_empty() { String::new() } else { errors.to_string() }
}
