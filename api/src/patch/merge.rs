//! JSON merge patch, RFC 7386.

use serde_json::{Map, Value};

use super::read_object;
use crate::status::Status;

/// Applies the merge patch in `patch` (the bytes of the request body) to `object`.
///
/// # Errors
/// 400 for a body that is no JSON object.
pub fn apply(object: &Value, patch: &[u8]) -> Result<Value, Status> {
    Ok(merge(object.clone(), Value::Object(read_object(patch)?)))
}

/// Merges `patch` into `target`: null removes, objects merge, everything else replaces.
#[must_use]
pub fn merge(target: Value, patch: Value) -> Value {
    let Value::Object(patch) = patch else {
        return patch;
    };
    let mut target = match target {
        Value::Object(map) => map,
        _ => Map::new(),
    };
    for (key, value) in patch {
        if value.is_null() {
            target.remove(&key);
        } else {
            let old = target.remove(&key).unwrap_or(Value::Null);
            target.insert(key, merge(old, value));
        }
    }
    Value::Object(target)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn the_examples_of_the_rfc_hold() {
        let table = [
            (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
            (
                json!({"a": "b"}),
                json!({"b": "c"}),
                json!({"a": "b", "b": "c"}),
            ),
            (json!({"a": "b"}), json!({"a": null}), json!({})),
            (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "c"}), json!({"a": ["b"]}), json!({"a": ["b"]})),
            (
                json!({"a": {"b": "c"}}),
                json!({"a": {"b": "d", "c": null}}),
                json!({"a": {"b": "d"}}),
            ),
            (
                json!({"a": [{"b": "c"}]}),
                json!({"a": [1]}),
                json!({"a": [1]}),
            ),
            (
                json!({"e": null}),
                json!({"a": 1}),
                json!({"e": null, "a": 1}),
            ),
            (
                json!({}),
                json!({"a": {"bb": {"ccc": null}}}),
                json!({"a": {"bb": {}}}),
            ),
        ];
        for (target, patch, expect) in table {
            assert_eq!(
                apply(&target, patch.to_string().as_bytes()).expect("a patch"),
                expect
            );
        }
    }

    #[test]
    fn what_is_no_object_is_refused() {
        let error = apply(&json!({}), b"[]").expect_err("an array");
        assert_eq!(
            (
                error.code,
                error
                    .message
                    .starts_with("error decoding patch: json: cannot unmarshal array")
            ),
            (400, true)
        );
        let error = apply(&json!({}), b"{").expect_err("half an object");
        assert_eq!(
            error.message,
            "error decoding patch: unexpected end of JSON input"
        );
    }

    #[test]
    fn numbers_do_not_drift_from_read_to_read() {
        for number in [
            "41e63",
            "0.1",
            "1.7976931348623157e308",
            "123456789.987654321",
            "9007199254740993",
        ] {
            let once =
                apply(&json!({}), format!(r#"{{"a": {number}}}"#).as_bytes()).expect("a patch");
            let again: Value = serde_json::from_str(&once.to_string()).expect("its own text");
            assert_eq!(again, once, "{number}");
        }
    }

    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            "[a-c]".prop_map(Value::from)
        ];
        leaf.prop_recursive(3, 12, 3, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                proptest::collection::btree_map("[a-c]", inner, 0..3)
                    .prop_map(|m| Value::Object(m.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn a_patch_applied_twice_is_applied_once(target in values(), patch in values()) {
            let once = merge(target, patch.clone());
            prop_assert_eq!(merge(once.clone(), patch), once);
        }
    }
}
