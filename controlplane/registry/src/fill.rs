//! Filling in what an object leaves out, in the ways that Go's zero values and pointers do.
//!
//! Values of the wrong type are left alone: the decoder has refused them before.

use serde_json::{Map, Value};

/// Sets a text field that is absent, null or empty.
pub fn text(object: &mut Value, key: &str, default: &str) {
    if object
        .get(key)
        .is_none_or(|value| value.is_null() || value == "")
    {
        set(object, key, default.into());
    }
}

/// Sets a field that is absent or null.
pub fn value(object: &mut Value, key: &str, default: impl Into<Value>) {
    if object.get(key).is_none_or(Value::is_null) {
        set(object, key, default.into());
    }
}

/// Sets a number that is absent, null or zero.
pub fn number(object: &mut Value, key: &str, default: i64) {
    if object
        .get(key)
        .is_none_or(|value| value.is_null() || value == 0)
    {
        set(object, key, default.into());
    }
}

/// Sets a field to an empty object if it is absent or null.
pub fn object(parent: &mut Value, key: &str) {
    value(parent, key, Map::new());
}

/// Calls `act` on a field that is an object.
pub fn within(parent: &mut Value, key: &str, act: impl FnOnce(&mut Value)) {
    if let Some(child) = parent.get_mut(key).filter(|child| child.is_object()) {
        act(child);
    }
}

/// Calls `act` on every element of a list field.
pub fn each(parent: &mut Value, key: &str, act: impl FnMut(&mut Value)) {
    if let Some(list) = parent.get_mut(key).and_then(Value::as_array_mut) {
        list.iter_mut().for_each(act);
    }
}

fn set(object: &mut Value, key: &str, value: Value) {
    if let Some(map) = object.as_object_mut() {
        map.insert(key.to_owned(), value);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_is_missing_is_filled() {
        let mut object = json!({"a": "", "b": "x", "c": null, "d": 0, "e": 5});
        text(&mut object, "a", "1");
        text(&mut object, "b", "1");
        value(&mut object, "c", true);
        number(&mut object, "d", 3);
        number(&mut object, "e", 3);
        value(&mut object, "f", false);
        assert_eq!(
            object,
            json!({"a": "1", "b": "x", "c": true, "d": 3, "e": 5, "f": false})
        );
    }
}
