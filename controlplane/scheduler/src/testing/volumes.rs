//! Claims, volumes and classes for the tests of the plugins about volumes.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::SeqCst},
};

use coracle_client::cache::Key;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use serde_json::{Value, json};

use super::pod_with;
use crate::{
    pod_info::PodInfo,
    storage::{SharedStorage, StorageObject},
};

/// What has to do with volumes, each object in a version of its own.
#[derive(Debug, Default)]
pub(crate) struct World {
    pub(crate) storage: Arc<SharedStorage>,
    versions: AtomicU64,
}

impl World {
    /// An object of the kind that is told by `of`.
    pub(crate) fn object<K: serde::de::DeserializeOwned>(
        &self,
        of: fn(Arc<K>) -> StorageObject,
        mut object: Value,
    ) -> StorageObject {
        let version = self.versions.fetch_add(1, SeqCst) + 1;
        object["metadata"]["resourceVersion"] = json!(version.to_string());
        of(Arc::new(serde_json::from_value(object).expect("an object")))
    }

    /// The same, as it is from now on.
    pub(crate) fn put<K: serde::de::DeserializeOwned>(
        &self,
        of: fn(Arc<K>) -> StorageObject,
        object: Value,
    ) {
        let object = self.object(of, object);
        self.storage.change(|storage| storage.apply(&object));
    }

    /// A class whose claims wait for their first pod.
    pub(crate) fn waiting_class(&self, name: &str, provisioner: &str) {
        self.class(json!({
            "metadata": {"name": name},
            "provisioner": provisioner,
            "volumeBindingMode": "WaitForFirstConsumer",
        }));
    }

    pub(crate) fn class(&self, class: Value) {
        self.put(StorageObject::Class, class);
    }

    /// A claim that is not bound.
    pub(crate) fn claim(&self, name: &str, class: &str, size: &str) {
        self.claim_with(name, json!({}), unbound(class, size));
    }

    /// A claim that is bound to a volume.
    pub(crate) fn bound_claim(&self, name: &str, volume: &str) {
        let metadata = json!({"annotations": {"pv.kubernetes.io/bind-completed": "yes"}});
        let mut spec = unbound("", "1Gi");
        spec["volumeName"] = json!(volume);
        self.claim_with(name, metadata, spec);
    }

    /// `metadata` is what it has beside its name.
    pub(crate) fn claim_with(&self, name: &str, mut metadata: Value, spec: Value) {
        metadata["name"] = json!(name);
        metadata["namespace"] = json!("default");
        metadata["uid"] = json!(format!("uid-of-{name}"));
        self.put(
            StorageObject::Claim,
            json!({"metadata": metadata, "spec": spec}),
        );
    }

    /// A volume that nobody has.
    pub(crate) fn volume(&self, name: &str, class: &str, size: &str, node: Option<&str>) {
        self.volume_with(name, free(class, size, node));
    }

    pub(crate) fn volume_with(&self, name: &str, spec: Value) {
        let phase = match spec["claimRef"].is_null() {
            true => "Available",
            false => "Bound",
        };
        let status = json!({"phase": phase});
        let object = json!({"metadata": {"name": name}, "spec": spec, "status": status});
        self.put(StorageObject::Volume, object);
    }

    /// A claim, as it will be.
    pub(crate) fn claim_now(&self, name: &str) -> Arc<PersistentVolumeClaim> {
        let storage = self.storage.lock();
        let claim = storage.claims().get(&Key::new("default", name));
        claim.expect("it is there").clone()
    }
}

/// The `spec` of a claim.
pub(crate) fn unbound(class: &str, size: &str) -> Value {
    json!({
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": class,
        "resources": {"requests": {"storage": size}},
    })
}

/// The `spec` of a volume that is on a node, or reached from everywhere.
pub(crate) fn free(class: &str, size: &str, node: Option<&str>) -> Value {
    let mut spec = json!({
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": class,
        "capacity": {"storage": size},
    });
    if let Some(node) = node {
        let on_node = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": [node]});
        spec["nodeAffinity"] =
            json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [on_node]}]}});
    }
    spec
}

/// A pod that uses these claims.
pub(crate) fn pod_using(name: &str, claims: &[&str]) -> PodInfo {
    let volume =
        |claim: &&str| json!({"name": claim, "persistentVolumeClaim": {"claimName": claim}});
    let volumes: Vec<Value> = claims.iter().map(volume).collect();
    pod_with(name, json!({"containers": [], "volumes": volumes}))
}
