//! What each write of a binding changes, as merge patches; `None` where nothing differs. Pure.

use coracle_api::volume::{
    BIND_COMPLETED, BOUND_BY_CONTROLLER, annotation, capacity, claim_of, is_bound_to, storage,
    volume_of,
};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use serde_json::{Map, Value, json};

/// On a volume that is larger than its file system yet: what its claim has until that has grown.
const PRE_RESIZE_CAPACITY: &str = "volume.alpha.kubernetes.io/pre-resize-capacity";

/// Gives the volume to the claim. Whether the controller chose it stays known: only such a choice
/// is taken back altogether.
///
/// Source: `GetBindVolumeToClaim` in `k8s.io/component-helpers/storage/volume/pv_helpers.go` at
/// v1.37.
pub(super) fn volume(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Option<Value> {
    let mut patch = json!({});
    let meta = &claim.metadata;
    let is_given = claim_of(volume).is_some_and(|present| {
        (&present.name, &present.namespace, &present.uid)
            == (&meta.name, &meta.namespace, &meta.uid)
    });
    if !is_given {
        patch["spec"]["claimRef"] = json!({
            "kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": meta.namespace,
            "name": meta.name, "uid": meta.uid, "resourceVersion": meta.resource_version,
        });
    }
    if !is_bound_to(volume, claim) && annotation(&volume.metadata, BOUND_BY_CONTROLLER).is_none() {
        patch["metadata"]["annotations"][BOUND_BY_CONTROLLER] = "yes".into();
    }
    unless_empty(patch)
}

/// Gives the claim the volume, and notes that it was bound: from now on a volume that is missing is
/// one that was lost.
pub(super) fn claim(claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> Option<Value> {
    let mut patch = json!({});
    let annotations = &claim.metadata;
    let name = volume.metadata.name.as_deref().unwrap_or_default();
    if volume_of(claim) != name {
        patch["spec"]["volumeName"] = name.into();
        if annotation(annotations, BOUND_BY_CONTROLLER).is_none() {
            patch["metadata"]["annotations"][BOUND_BY_CONTROLLER] = "yes".into();
        }
    }
    if annotation(annotations, BIND_COMPLETED).is_none() {
        patch["metadata"]["annotations"][BIND_COMPLETED] = "yes".into();
    }
    unless_empty(patch)
}

/// Takes a volume back from its claim. One that its user keeps for the claim stays kept for the
/// next of that name.
pub(super) fn unbound(volume: &PersistentVolume) -> Value {
    if annotation(&volume.metadata, BOUND_BY_CONTROLLER).is_some() {
        json!({"spec": {"claimRef": null}, "metadata": {"annotations": {BOUND_BY_CONTROLLER: null}}})
    } else {
        json!({"spec": {"claimRef": {"uid": null}}})
    }
}

/// The phase of a volume.
pub(super) fn phase_of_volume(
    volume: &PersistentVolume,
    phase: &str,
    message: &str,
) -> Option<Value> {
    let present = volume.status.as_ref().and_then(|it| it.phase.as_deref());
    // `null` takes a message away that there was.
    let message = Some(message).filter(|message| !message.is_empty());
    (present != Some(phase)).then(|| json!({"status": {"phase": phase, "message": message}}))
}

/// The status of a claim: bound to `volume`, or in `phase` without one.
///
/// What a claim has is written as it becomes bound, and not again: it may be less than the volume
/// has while a file system grows.
pub(super) fn status_of_claim(
    claim: &PersistentVolumeClaim,
    phase: &str,
    volume: Option<&PersistentVolume>,
) -> Option<Value> {
    let empty = Default::default();
    let status = claim.status.as_ref().unwrap_or(&empty);
    let is_new = status.phase.as_deref() != Some(phase);
    let mut patch = Map::new();
    if is_new {
        patch.insert("phase".to_owned(), phase.into());
    }
    let spec = volume.and_then(|volume| volume.spec.as_ref());
    let modes = spec.and_then(|spec| spec.access_modes.as_ref());
    if status.access_modes.as_ref() != modes {
        patch.insert("accessModes".to_owned(), json!(modes));
    }
    match volume {
        None if status.capacity.is_some() => {
            patch.insert("capacity".to_owned(), Value::Null);
        }
        Some(volume) if is_new => {
            let before = annotation(&volume.metadata, PRE_RESIZE_CAPACITY);
            if let Some(before) = before {
                patch.insert("capacity".to_owned(), json!({"storage": before}));
            } else if storage(status.capacity.as_ref()) != Some(capacity(volume)) {
                let all = spec.and_then(|spec| spec.capacity.as_ref());
                patch.insert("capacity".to_owned(), json!(all));
            }
            let class = spec.and_then(|spec| spec.volume_attributes_class_name.as_ref());
            let is_first = status.phase.as_deref() == Some("Pending") && phase == "Bound";
            // Afterwards it is a resizer's, which may be changing it.
            if is_first && status.current_volume_attributes_class_name.as_ref() != class {
                patch.insert("currentVolumeAttributesClassName".to_owned(), json!(class));
            }
        }
        _ => {}
    }
    (!patch.is_empty()).then(|| json!({"status": patch}))
}

fn unless_empty(patch: Value) -> Option<Value> {
    patch
        .as_object()
        .is_some_and(|patch| !patch.is_empty())
        .then_some(patch)
}
