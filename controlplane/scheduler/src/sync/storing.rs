//! Claims, volumes and what CSI drivers say, of which nothing is held but what the plugins about
//! volumes read.

use std::{collections::BTreeMap, sync::Arc};

use coracle_api::volume::{BIND_COMPLETED, BOUND_BY_CONTROLLER, SELECTED_NODE, STORAGE};
use coracle_client::{
    cache::Change,
    informers::{Informers, Kind},
};
use k8s_openapi::{
    api::{
        core::v1::{
            CSIPersistentVolumeSource, PersistentVolume, PersistentVolumeClaim,
            PersistentVolumeClaimSpec, PersistentVolumeClaimStatus, PersistentVolumeSpec,
            PersistentVolumeStatus,
        },
        storage::v1::{
            CSIDriver, CSIDriverSpec, CSINode, CSIStorageCapacity, StorageClass, VolumeAttachment,
            VolumeAttachmentSpec,
        },
    },
    apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::ObjectMeta},
};

use super::{Inbox, SyncEvent};
use crate::storage::StorageObject;

/// The annotations of claims and volumes that are read.
const READ: [&str; 4] = [
    BIND_COMPLETED,
    BOUND_BY_CONTROLLER,
    SELECTED_NODE,
    "volume.beta.kubernetes.io/storage-class",
];

/// Adds the informers of all that has to do with volumes.
pub(super) fn follow(informers: Informers, inbox: &Arc<Inbox>) -> Informers {
    let mut informers = informers
        .trim(trim_claim)
        .trim(trim_volume)
        .trim(trim_class)
        .trim(|node: &mut CSINode| named(&mut node.metadata))
        .trim(trim_driver)
        .trim(|capacity: &mut CSIStorageCapacity| named(&mut capacity.metadata))
        .trim(trim_attachment);
    tell(&mut informers, inbox, StorageObject::Claim);
    tell(&mut informers, inbox, StorageObject::Volume);
    tell(&mut informers, inbox, StorageObject::Class);
    tell(&mut informers, inbox, StorageObject::CsiNode);
    tell(&mut informers, inbox, StorageObject::CsiDriver);
    tell(&mut informers, inbox, StorageObject::Capacity);
    tell(&mut informers, inbox, StorageObject::Attachment);
    informers
}

fn tell<K: Kind>(informers: &mut Informers, inbox: &Arc<Inbox>, of: fn(Arc<K>) -> StorageObject) {
    let inbox = inbox.clone();
    informers.of().on_change(move |change: &Change<'_, K>| {
        inbox.put(match change {
            Change::Added(now) | Change::Updated { new: now, .. } => {
                SyncEvent::StorageApplied(of((*now).clone()))
            }
            Change::Deleted(gone) => SyncEvent::StorageGone(of((*gone).clone())),
        });
    });
}

/// Leaves what names an object.
fn named(metadata: &mut ObjectMeta) {
    let whole = std::mem::take(metadata);
    *metadata = ObjectMeta {
        name: whole.name,
        namespace: whole.namespace,
        uid: whole.uid,
        resource_version: whole.resource_version,
        deletion_timestamp: whole.deletion_timestamp,
        ..ObjectMeta::default()
    };
}

fn read(annotations: Option<BTreeMap<String, String>>) -> Option<BTreeMap<String, String>> {
    let mut annotations = annotations?;
    annotations.retain(|name, _| READ.contains(&name.as_str()));
    (!annotations.is_empty()).then_some(annotations)
}

fn storage_alone(amounts: &mut Option<BTreeMap<String, Quantity>>) {
    if let Some(amounts) = amounts {
        amounts.retain(|name, _| name == STORAGE);
    }
}

fn trim_claim(claim: &mut PersistentVolumeClaim) {
    let annotations = read(claim.metadata.annotations.take());
    let owners = claim.metadata.owner_references.take();
    named(&mut claim.metadata);
    claim.metadata.annotations = annotations;
    claim.metadata.owner_references = owners.map(|mut owners| {
        owners.retain(|owner| owner.controller == Some(true));
        owners
    });
    let spec = claim.spec.take().unwrap_or_default();
    let mut resources = spec.resources.unwrap_or_default();
    resources.limits = None;
    storage_alone(&mut resources.requests);
    claim.spec = Some(PersistentVolumeClaimSpec {
        access_modes: spec.access_modes,
        resources: Some(resources),
        selector: spec.selector,
        storage_class_name: spec.storage_class_name,
        volume_attributes_class_name: spec.volume_attributes_class_name,
        volume_mode: spec.volume_mode,
        volume_name: spec.volume_name,
        ..PersistentVolumeClaimSpec::default()
    });
    let phase = claim.status.take().and_then(|status| status.phase);
    claim.status = Some(PersistentVolumeClaimStatus {
        phase,
        ..PersistentVolumeClaimStatus::default()
    });
}

fn trim_volume(volume: &mut PersistentVolume) {
    let annotations = read(volume.metadata.annotations.take());
    let labels = volume.metadata.labels.take();
    named(&mut volume.metadata);
    (volume.metadata.annotations, volume.metadata.labels) = (annotations, labels);
    let mut spec = volume.spec.take().unwrap_or_default();
    storage_alone(&mut spec.capacity);
    let csi = spec.csi.map(|csi| CSIPersistentVolumeSource {
        driver: csi.driver,
        volume_handle: csi.volume_handle,
        ..CSIPersistentVolumeSource::default()
    });
    volume.spec = Some(PersistentVolumeSpec {
        access_modes: spec.access_modes,
        capacity: spec.capacity,
        claim_ref: spec.claim_ref,
        csi,
        node_affinity: spec.node_affinity,
        storage_class_name: spec.storage_class_name,
        volume_attributes_class_name: spec.volume_attributes_class_name,
        volume_mode: spec.volume_mode,
        ..PersistentVolumeSpec::default()
    });
    let phase = volume.status.take().and_then(|status| status.phase);
    volume.status = Some(PersistentVolumeStatus {
        phase,
        ..PersistentVolumeStatus::default()
    });
}

fn trim_class(class: &mut StorageClass) {
    named(&mut class.metadata);
    (class.parameters, class.mount_options) = (None, None);
}

fn trim_driver(driver: &mut CSIDriver) {
    named(&mut driver.metadata);
    let spec = std::mem::take(&mut driver.spec);
    driver.spec = CSIDriverSpec {
        prevent_pod_scheduling_if_missing: spec.prevent_pod_scheduling_if_missing,
        storage_capacity: spec.storage_capacity,
        ..CSIDriverSpec::default()
    };
}

fn trim_attachment(attachment: &mut VolumeAttachment) {
    named(&mut attachment.metadata);
    attachment.status = None;
    let spec = std::mem::take(&mut attachment.spec);
    attachment.spec = VolumeAttachmentSpec {
        attacher: spec.attacher,
        node_name: spec.node_name,
        ..VolumeAttachmentSpec::default()
    };
    attachment.spec.source.persistent_volume_name = spec.source.persistent_volume_name;
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// What is left of an object.
    fn trimmed<K: Kind + serde::Serialize>(trim: fn(&mut K), object: Value) -> Value {
        let mut object: K = serde_json::from_value(object).expect("an object");
        trim(&mut object);
        serde_json::to_value(object).expect("JSON")
    }

    #[test]
    fn of_claims_and_volumes_only_what_is_read_is_held() {
        let metadata = |annotation: &str| json!({"name": "n", "uid": "u", "resourceVersion": "1", "annotations": {annotation: "yes"}});
        let mut whole = metadata(BIND_COMPLETED);
        whole["labels"] = json!({"a": "b"});
        whole["finalizers"] = json!(["kubernetes.io/pvc-protection"]);
        whole["annotations"]["volume.kubernetes.io/storage-provisioner"] = json!("p");
        let spec = json!({"volumeName": "v", "resources": {"requests": {"storage": "1Gi"}}});
        let claim = json!({
            "metadata": whole,
            "spec": spec,
            "status": {"phase": "Bound", "capacity": {"storage": "1Gi"}},
        });
        assert_eq!(
            trimmed(trim_claim, claim),
            json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata(BIND_COMPLETED), "spec": spec,
                "status": {"phase": "Bound"}})
        );
        let csi = json!({"driver": "d", "volumeHandle": "h", "fsType": "ext4", "volumeAttributes": {"a": "b"}});
        let volume = json!({
            "metadata": metadata(BOUND_BY_CONTROLLER),
            "spec": {"capacity": {"storage": "1Gi"}, "csi": csi, "nfs": {"server": "s", "path": "/"}},
            "status": {"phase": "Bound", "message": "m"},
        });
        assert_eq!(
            trimmed(trim_volume, volume),
            json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": metadata(BOUND_BY_CONTROLLER),
                "spec": {"capacity": {"storage": "1Gi"}, "csi": {"driver": "d", "volumeHandle": "h"}},
                "status": {"phase": "Bound"}})
        );
    }
}
