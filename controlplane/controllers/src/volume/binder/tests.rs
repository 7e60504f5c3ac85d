//! Upstream's cases: `pkg/controller/volume/persistentvolume/{binder,delete,recycle}_test.go` at
//! v1.37, by their numbers where they have one.

mod claims;
mod volumes;

use std::sync::Arc;

use k8s_openapi::api::{
    core::v1::{PersistentVolume, PersistentVolumeClaim},
    storage::v1::StorageClass,
};
use serde_json::{Value, json};

fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from.clone(),
    }
}

/// 1Gi of no class, which nobody has.
fn volume(name: &str, more: &Value) -> Arc<PersistentVolume> {
    let mut object = json!({
        "metadata": {"name": name},
        "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain"},
        "status": {"phase": "Available"},
    });
    merge(&mut object, more);
    serde_json::from_value(object).unwrap()
}

/// On 1Gi of no class.
fn claim(more: &Value) -> PersistentVolumeClaim {
    let mut object = json!({
        "metadata": {"name": "c", "namespace": "ns", "uid": "u"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        "status": {"phase": "Pending"},
    });
    merge(&mut object, more);
    serde_json::from_value(object).unwrap()
}

fn class(name: &str, more: &Value) -> Arc<StorageClass> {
    let mut object = json!({"metadata": {"name": name}, "provisioner": "example.com/disk",
        "volumeBindingMode": "Immediate"});
    merge(&mut object, more);
    serde_json::from_value(object).unwrap()
}

fn of(claim: &str, uid: &str) -> Value {
    json!({"spec": {"claimRef": {"name": claim, "namespace": "ns", "uid": uid}}})
}

fn annotated(name: &str) -> Value {
    json!({"metadata": {"annotations": {name: "yes"}}})
}
