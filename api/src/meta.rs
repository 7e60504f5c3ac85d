//! Accessors for the metadata of an object held as JSON, and the time formats of the API.
//!
//! Reading a member that is absent or of the wrong type gives the empty value, as Go's zero values
//! do.

use jiff::Timestamp;
use serde_json::{Map, Value};

use crate::resource::Gvk;

/// Where nodes keep their Leases, which tell that they live.
pub const NODE_LEASE_NAMESPACE: &str = "kube-node-lease";

/// `metadata.<key>` as text, `""` when absent.
#[must_use]
pub fn text<'a>(object: &'a Value, key: &str) -> &'a str {
    object
        .get("metadata")
        .and_then(|m| m.get(key))
        .and_then(Value::as_str)
        .unwrap_or("")
}

/// The value at a chain of member names, such as `get(pod, &["spec", "nodeName"])`.
#[must_use]
pub fn get<'a>(object: &'a Value, path: &[&str]) -> Option<&'a Value> {
    path.iter().try_fold(object, |value, key| value.get(*key))
}

/// The text at a chain of member names, `""` when absent or no text.
#[must_use]
pub fn get_str<'a>(object: &'a Value, path: &[&str]) -> &'a str {
    get(object, path).and_then(Value::as_str).unwrap_or("")
}

/// The integer at a chain of member names.
#[must_use]
pub fn get_i64(object: &Value, path: &[&str]) -> Option<i64> {
    get(object, path).and_then(Value::as_i64)
}

/// The elements of the array at a chain of member names; empty when absent or no array.
#[must_use]
pub fn get_array<'a>(object: &'a Value, path: &[&str]) -> &'a [Value] {
    get(object, path)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

/// Sets the value at a chain of member names and makes the objects on the way.
/// A member on the way that is no object is replaced.
pub fn set(object: &mut Value, path: &[&str], value: impl Into<Value>) {
    let mut at = object;
    for key in path {
        if !at.is_object() {
            *at = Value::Object(Map::new());
        }
        let Value::Object(map) = at else { return };
        at = map.entry(*key).or_insert(Value::Null);
    }
    *at = value.into();
}

/// Removes the value at a chain of member names and gives it back.
pub fn remove(object: &mut Value, path: &[&str]) -> Option<Value> {
    let (last, way) = path.split_last()?;
    let mut at = object;
    for key in way {
        at = at.get_mut(*key)?;
    }
    at.as_object_mut()?.remove(*last)
}

/// `metadata.name`
#[must_use]
pub fn name(object: &Value) -> &str {
    text(object, "name")
}

/// `metadata.generateName`
#[must_use]
pub fn generate_name(object: &Value) -> &str {
    text(object, "generateName")
}

/// `metadata.namespace`
#[must_use]
pub fn namespace(object: &Value) -> &str {
    text(object, "namespace")
}

/// `metadata.uid`
#[must_use]
pub fn uid(object: &Value) -> &str {
    text(object, "uid")
}

/// `metadata.resourceVersion`
#[must_use]
pub fn resource_version(object: &Value) -> &str {
    text(object, "resourceVersion")
}

/// `metadata.generation`, 0 when absent
#[must_use]
pub fn generation(object: &Value) -> i64 {
    get_i64(object, &["metadata", "generation"]).unwrap_or(0)
}

/// `apiVersion` and `kind`
#[must_use]
pub fn gvk(object: &Value) -> Gvk {
    Gvk::from_api_version(get_str(object, &["apiVersion"]), get_str(object, &["kind"]))
}

/// `metadata.labels`
#[must_use]
pub fn labels(object: &Value) -> Option<&Map<String, Value>> {
    get(object, &["metadata", "labels"]).and_then(Value::as_object)
}

/// One label.
#[must_use]
pub fn label<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    labels(object)?.get(key)?.as_str()
}

/// `metadata.annotations`
#[must_use]
pub fn annotations(object: &Value) -> Option<&Map<String, Value>> {
    get(object, &["metadata", "annotations"]).and_then(Value::as_object)
}

/// One annotation.
#[must_use]
pub fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    annotations(object)?.get(key)?.as_str()
}

/// The annotation of a mirror pod, which shows what a node runs from its own files.
pub const MIRROR: &str = "kubernetes.io/config.mirror";

/// Whether the pod is a mirror: it is what its node says that it is.
#[must_use]
pub fn is_mirror(pod: &Value) -> bool {
    annotation(pod, MIRROR).is_some()
}

/// `metadata.deletionTimestamp`
#[must_use]
pub fn deletion_timestamp(object: &Value) -> Option<&str> {
    get(object, &["metadata", "deletionTimestamp"]).and_then(Value::as_str)
}

/// Whether the object is being deleted.
#[must_use]
pub fn is_terminating(object: &Value) -> bool {
    deletion_timestamp(object).is_some()
}

/// `metadata.finalizers`
#[must_use]
pub fn finalizers(object: &Value) -> Vec<&str> {
    get_array(object, &["metadata", "finalizers"])
        .iter()
        .filter_map(Value::as_str)
        .collect()
}

/// `metadata.ownerReferences`
#[must_use]
pub fn owner_references(object: &Value) -> &[Value] {
    get_array(object, &["metadata", "ownerReferences"])
}

/// The owner reference with `controller: true`.
#[must_use]
pub fn controller_of(object: &Value) -> Option<&Value> {
    owner_references(object)
        .iter()
        .find(|r| r.get("controller").and_then(Value::as_bool) == Some(true))
}

/// Sets `metadata.<key>`.
pub fn set_text(object: &mut Value, key: &str, value: impl Into<Value>) {
    set(object, &["metadata", key], value);
}

/// Sets one label.
pub fn set_label(object: &mut Value, key: &str, value: &str) {
    set(object, &["metadata", "labels", key], value);
}

/// Sets one annotation.
pub fn set_annotation(object: &mut Value, key: &str, value: &str) {
    set(object, &["metadata", "annotations", key], value);
}

/// Adds a finalizer unless it is there.
pub fn add_finalizer(object: &mut Value, finalizer: &str) {
    let mut all: Vec<Value> = get_array(object, &["metadata", "finalizers"]).to_vec();
    if !all.iter().any(|f| f == finalizer) {
        all.push(finalizer.into());
        set(object, &["metadata", "finalizers"], all);
    }
}

/// Removes a finalizer; the empty list goes too. Says whether it was there.
pub fn remove_finalizer(object: &mut Value, finalizer: &str) -> bool {
    let before = get_array(object, &["metadata", "finalizers"]);
    let left: Vec<Value> = before.iter().filter(|f| *f != finalizer).cloned().collect();
    let found = left.len() != before.len();
    if left.is_empty() {
        remove(object, &["metadata", "finalizers"]);
    } else if found {
        set(object, &["metadata", "finalizers"], left);
    }
    found
}

/// An owner reference to `owner`, as controller, blocking its deletion.
#[must_use]
pub fn controller_reference(owner: &Value) -> Value {
    serde_json::json!({
        "apiVersion": get_str(owner, &["apiVersion"]),
        "kind": get_str(owner, &["kind"]),
        "name": name(owner),
        "uid": uid(owner),
        "controller": true,
        "blockOwnerDeletion": true,
    })
}

/// This moment in the form of `metav1.Time`: `2026-01-02T03:04:05Z`.
#[must_use]
pub fn now() -> String {
    time(Timestamp::now())
}

/// A moment in the form of `metav1.Time`, cut to the second.
#[must_use]
pub fn time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// A moment in the form of `metav1.MicroTime`, always six digits.
#[must_use]
pub fn micro_time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

/// Reads either form, with any offset.
#[must_use]
pub fn parse_time(text: &str) -> Option<Timestamp> {
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn absent_members_read_as_empty() {
        let object = json!({"metadata": {"name": 5}});
        assert_eq!((name(&object), namespace(&object)), ("", ""));
        assert!(finalizers(&Value::Null).is_empty());
    }

    #[test]
    fn set_makes_the_way() {
        let mut object = json!({});
        set_label(&mut object, "a", "b");
        assert_eq!(object, json!({"metadata": {"labels": {"a": "b"}}}));
        assert_eq!(
            remove(&mut object, &["metadata", "labels", "a"]),
            Some(json!("b"))
        );
        assert_eq!(remove(&mut object, &["metadata", "x", "a"]), None);
    }

    #[test]
    fn finalizers_are_added_once_and_removed_whole() {
        let mut object = json!({});
        add_finalizer(&mut object, "x");
        add_finalizer(&mut object, "x");
        assert_eq!(finalizers(&object), ["x"]);
        assert!(remove_finalizer(&mut object, "x"));
        assert!(!remove_finalizer(&mut object, "x"));
        assert_eq!(object, json!({"metadata": {}}));
    }

    #[test]
    fn times_have_upstreams_form() {
        let at: Timestamp = "2026-01-02T03:04:05.000006999Z".parse().expect("a time");
        assert_eq!(time(at), "2026-01-02T03:04:05Z");
        assert_eq!(micro_time(at), "2026-01-02T03:04:05.000006Z");
        assert_eq!(parse_time("2026-01-02T04:04:05.000006999+01:00"), Some(at));
        assert_eq!(parse_time("yesterday"), None);
    }
}
