//! What a node may change of a PersistentVolume: it takes the finalizer off one that was a
//! directory of its own, once that is removed. Pure; upstream's nodes write no volumes.

use coracle_api::{
    meta,
    volume::{PROVISIONED_BY, local_path},
};
use serde_json::Value;

/// Whether `node` may make `new` of `old`.
///
/// # Errors
/// Why not.
pub(super) fn check(node: &str, subresource: &str, new: &Value, old: &Value) -> Result<(), String> {
    if !subresource.is_empty() || !is_directory_of(node, old) {
        return Err(format!(
            "node {node:?} can only update persistent volumes that are directories of its own"
        ));
    }
    if meta::annotation(new, local_path::MADE).is_some() && but_for_made(new) == but_for_made(old) {
        return Ok(());
    }
    if meta::get_str(old, &["metadata", "deletionTimestamp"]).is_empty() {
        return Err(format!(
            "node {node:?} can only update persistent volumes that are being deleted"
        ));
    }
    if but_for_finalizer(new) == but_for_finalizer(old) {
        return Ok(());
    }
    Err(format!(
        "node {node:?} is not allowed to update persistent volumes but for taking off finalizer {:?}",
        local_path::FINALIZER
    ))
}

/// By what its provisioner has written. Where it is reached, by the label of a host's name, may be
/// something else than the name of the node, which may have changed since.
fn is_directory_of(node: &str, volume: &Value) -> bool {
    meta::label(volume, local_path::NODE) == Some(node)
        && meta::annotation(volume, PROVISIONED_BY) == Some(local_path::PROVISIONER)
}

fn but_for_made(volume: &Value) -> Value {
    let mut volume = volume.clone();
    for field in ["resourceVersion", "managedFields"] {
        meta::remove(&mut volume, &["metadata", field]);
    }
    meta::remove(&mut volume, &["metadata", "annotations", local_path::MADE]);
    volume
}

fn but_for_finalizer(volume: &Value) -> Value {
    let mut volume = volume.clone();
    let rest: Vec<Value> = meta::get_array(&volume, &["metadata", "finalizers"])
        .iter()
        .filter(|one| *one != local_path::FINALIZER)
        .cloned()
        .collect();
    volume["metadata"]["finalizers"] = rest.into();
    for field in ["resourceVersion", "managedFields"] {
        meta::remove(&mut volume, &["metadata", field]);
    }
    volume
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const HOSTNAME: &str = "kubernetes.io/hostname";

    fn volume(node: &str) -> Value {
        json!({
            "metadata": {
                "name": "pvc-1", "deletionTimestamp": "2026-01-01T00:00:00Z", "resourceVersion": "7",
                "labels": {local_path::NODE: node}, "annotations": {PROVISIONED_BY: local_path::PROVISIONER},
                "finalizers": ["kubernetes.io/pv-protection", local_path::FINALIZER],
            },
            "spec": {
                "local": {"path": "/var/lib/coracle/agent/storage/pvc-1_default_data"},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [
                    {"matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": [node]}]},
                ]}},
            },
        })
    }

    fn without(mut volume: Value, finalizer: &str) -> Value {
        let finalizers = volume["metadata"]["finalizers"].as_array_mut().unwrap();
        finalizers.retain(|one| one != finalizer);
        volume
    }

    #[test]
    fn a_node_takes_its_finalizer_off_its_directory() {
        let old = volume("n1");
        let mut new = without(old.clone(), local_path::FINALIZER);
        new["metadata"]["resourceVersion"] = "8".into();
        assert_eq!(check("n1", "", &new, &old), Ok(()));
        new["metadata"]["finalizers"] = json!(["kubernetes.io/pv-protection"]);
        assert_eq!(check("n1", "", &new, &old), Ok(()));
        let old = without(old, "kubernetes.io/pv-protection");
        let mut new = without(old.clone(), local_path::FINALIZER);
        assert_eq!(check("n1", "", &new, &old), Ok(()));
        meta::remove(&mut new, &["metadata", "finalizers"]);
        assert_eq!(check("n1", "", &new, &old), Ok(()));
    }

    #[test]
    fn nothing_else_is_changed_with_it() {
        let old = volume("n1");
        let new = without(old.clone(), local_path::FINALIZER);
        for (path, value) in [
            ("/spec/local/path", json!("/etc")),
            ("/spec/nodeAffinity/required/nodeSelectorTerms", json!([])),
            ("/metadata/labels", json!({})),
            ("/metadata/annotations", json!({"a": "b"})),
            ("/metadata/finalizers", json!([])),
            (
                "/metadata/finalizers",
                json!(["kubernetes.io/pv-protection", "mine"]),
            ),
            ("/metadata/deletionTimestamp", json!(null)),
        ] {
            let mut new = new.clone();
            *new.pointer_mut(path).unwrap() = value;
            let why = check("n1", "", &new, &old).unwrap_err();
            assert!(
                why.contains("is not allowed to update persistent volumes but for"),
                "{path}: {why}"
            );
        }
        let mut owned = new.clone();
        owned["metadata"]["ownerReferences"] = json!([{"uid": "u"}]);
        check("n1", "", &owned, &old).unwrap_err();
        check("n1", "status", &new, &old).unwrap_err();
    }

    #[test]
    fn a_node_says_once_that_it_has_made_its_directory() {
        let mut old = volume("n1");
        meta::remove(&mut old, &["metadata", "deletionTimestamp"]);
        let mut new = old.clone();
        new["metadata"]["annotations"][local_path::MADE] = "true".into();
        assert_eq!(check("n1", "", &new, &old), Ok(()));
        check("n2", "", &new, &old).unwrap_err();
        check("n1", "", &old, &new).unwrap_err();
        let mut more = new.clone();
        more["metadata"]["annotations"]["a"] = "b".into();
        check("n1", "", &more, &old).unwrap_err();
    }

    /// The label by which it is reached may have changed since it was made.
    #[test]
    fn a_host_of_another_name_is_no_hindrance() {
        let mut old = volume("n1");
        old["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"][0]["matchExpressions"][0]["values"] =
            json!(["host-1"]);
        let new = without(old.clone(), local_path::FINALIZER);
        assert_eq!(check("n1", "", &new, &old), Ok(()));
    }

    #[test]
    fn other_volumes_are_out_of_reach() {
        let take_off = |old: Value| {
            let new = without(old.clone(), local_path::FINALIZER);
            check("n1", "", &new, &old)
        };
        assert_eq!(take_off(volume("n1")), Ok(()));
        take_off(volume("n2")).unwrap_err();
        for (path, value) in [
            ("/metadata/labels", json!({local_path::NODE: "n2"})),
            (
                "/metadata/annotations",
                json!({PROVISIONED_BY: "example.org/other"}),
            ),
            ("/metadata/deletionTimestamp", json!(null)),
        ] {
            let mut old = volume("n1");
            *old.pointer_mut(path).unwrap() = value;
            take_off(old).unwrap_err();
        }
    }
}
