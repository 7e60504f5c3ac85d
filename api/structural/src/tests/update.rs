//! Updates: what was wrong before and is left alone is not told.

use serde_json::{Value, json};

use super::shown;
use crate::Schema;

fn told(schema: Value, old: Value, new: Value) -> Vec<String> {
    let schema =
        json!({"type": "object", "properties": {"x": schema, "other": {"type": "string"}}});
    let read = Schema::read(&schema).unwrap();
    let old = json!({"x": old});
    shown(read.validate_update(&json!({"x": new, "other": "changed"}), &old))
}

#[test]
fn what_is_left_as_it_was_is_not_told() {
    let number = json!({"type": "integer", "maximum": 5});
    assert!(told(number.clone(), json!(7), json!(7)).is_empty());
    let expect = ["x: Invalid value: 8: x in body should be less than or equal to 5"];
    assert_eq!(told(number, json!(7), json!(8)), expect);
}

#[test]
fn elements_are_the_same_if_their_keys_are() {
    let items = json!({"type": "object", "properties": {"n": {"type": "string"}, "v": {"type": "integer", "maximum": 5}}});
    let list = |kind: &str| {
        json!({"type": "array", "items": items, "x-kubernetes-list-type": kind,
            "x-kubernetes-list-map-keys": ["n"]})
    };
    let (old, new) = (
        json!([{"n": "a", "v": 9}]),
        json!([{"n": "b", "v": 1}, {"n": "a", "v": 9}]),
    );
    assert!(told(list("map"), old.clone(), new.clone()).is_empty());
    // Elements of other lists cannot be told apart.
    assert_eq!(told(list("atomic"), old, new).len(), 1);
}

#[test]
fn what_is_missing_is_told_where_something_changed() {
    let schema = json!({"type": "object", "required": ["a"],
        "properties": {"a": {"type": "string"}, "b": {"type": "string"}}});
    assert!(told(schema.clone(), json!({"b": "1"}), json!({"b": "1"})).is_empty());
    let found = told(schema, json!({"b": "1"}), json!({"b": "2"}));
    assert_eq!(found, ["x.a: Required value"]);
}

#[test]
fn alternatives_are_told_whole() {
    let schema = json!({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "allOf": [{"properties": {"a": {"maximum": 1}}}]});
    let found = told(schema, json!({"a": 2}), json!({"a": 2, "b": 1}));
    assert_eq!(
        found[0],
        "x.a: Invalid value: 2: x.a in body should be less than or equal to 1"
    );
}
