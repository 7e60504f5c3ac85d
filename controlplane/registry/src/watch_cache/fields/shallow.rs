//! What of an object's text nearly all fields are found in, without the rest of it becoming a tree:
//! `spec.nodeName` and `status.phase` are a few words of kilobytes.

use std::fmt;

use serde::{
    Deserializer,
    de::{DeserializeSeed, Error, IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Value};

/// The texts, numbers and flags of an object and of its members but for `metadata`; what lies
/// deeper, and lists, are `null` in it.
pub(super) fn shallow(json: &[u8]) -> Result<Value, serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    let object = Levels(2).deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(object)
}

/// Values that have so many levels of members, at most.
#[derive(Clone, Copy)]
struct Levels(u8);

impl<'de> DeserializeSeed<'de> for Levels {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Levels {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value of JSON")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut members: M) -> Result<Value, M::Error> {
        let Some(left) = self.0.checked_sub(1) else {
            while members.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            return Ok(Value::Null);
        };
        let mut object = Map::new();
        while let Some(name) = members.next_key::<String>()? {
            if self.0 == 2 && name == "metadata" {
                members.next_value::<IgnoredAny>()?;
                continue;
            }
            let value = members.next_value_seed(Levels(left))?;
            if !value.is_null() {
                object.insert(name, value);
            }
        }
        Ok(object.into())
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut items: S) -> Result<Value, S::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Value::Null)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Value, E> {
        Ok(text.into())
    }

    fn visit_bool<E: Error>(self, flag: bool) -> Result<Value, E> {
        Ok(flag.into())
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn two_levels_are_seen_and_the_metadata_is_not() {
        let object = json!({
            "kind": "Pod", "metadata": {"name": "a"}, "type": "Opaque", "items": [1, {"a": 2}],
            "spec": {"nodeName": "n\u{e9}\"1", "hostNetwork": true, "priority": -3, "weight": 2.5,
                "big": 18_446_744_073_709_551_615_u64, "none": null, "containers": [{"name": "c"}],
                "securityContext": {"runAsUser": 1}},
            "status": {}, "immutable": false,
        });
        let expect = json!({
            "kind": "Pod", "type": "Opaque",
            "spec": {"nodeName": "n\u{e9}\"1", "hostNetwork": true, "priority": -3, "weight": 2.5,
                "big": 18_446_744_073_709_551_615_u64},
            "status": {}, "immutable": false,
        });
        assert_eq!(shallow(object.to_string().as_bytes()).unwrap(), expect);
        for broken in [
            "",
            "{",
            r#"{"a":1}x"#,
            r#"{"a":{"b":[{]}}"#,
            r#"{"metadata":{"#,
        ] {
            assert!(shallow(broken.as_bytes()).is_err(), "{broken}");
        }
    }
}
