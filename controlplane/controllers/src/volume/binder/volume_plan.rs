//! What has to be done about a volume. Pure.
//!
//! Source: `syncVolume`, `reclaimVolume`, `isVolumeReleased` in
//! `pkg/controller/volume/persistentvolume/pv_controller.go` at v1.37.

use coracle_api::volume::{
    MIGRATED_TO, PROVISIONED_BY, annotation, claim_of, modes_differ, volume_of,
};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};

/// The one thing that is done about a volume now.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum VolumePlan {
    /// Is in this phase.
    Phase(&'static str),
    /// Its claim has to be looked at, which will be bound to it.
    WakeClaim,
    /// It and its claim are told that they can never be bound to each other.
    Mismatch,
    /// It is of no use to its claim any more.
    Release(Reclaim),
    /// Its claim has another: it is free again.
    Unbind,
}

/// What follows from a volume's policy once it is released.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Reclaim {
    /// It stays, or somebody else will delete it.
    Leave,
    /// Cannot be done: why, for an event of this reason.
    Fail {
        reason: &'static str,
        message: String,
    },
}

/// `claim` is the one that the volume was given to, by its uid: `None` only if the API server says
/// that there is none.
pub(super) fn plan(volume: &PersistentVolume, claim: Option<&PersistentVolumeClaim>) -> VolumePlan {
    // A reference without a uid keeps it for a claim to come.
    if claim_of(volume)
        .is_none_or(|reference| reference.uid.as_deref().unwrap_or_default().is_empty())
    {
        return VolumePlan::Phase("Available");
    }
    let Some(claim) = claim else {
        return VolumePlan::Release(reclaim(volume));
    };
    match volume_of(claim) {
        "" if modes_differ(volume, claim) => VolumePlan::Mismatch,
        "" => VolumePlan::WakeClaim,
        name if Some(name) == volume.metadata.name.as_deref() => VolumePlan::Phase("Bound"),
        // It was made for this claim: nobody else will want it.
        _ if annotation(&volume.metadata, PROVISIONED_BY).is_some()
            && policy(volume) == "Delete" =>
        {
            VolumePlan::Release(reclaim(volume))
        }
        _ => VolumePlan::Unbind,
    }
}

/// Whether it is known already that a volume is released.
pub(super) fn is_released(volume: &PersistentVolume) -> bool {
    let phase = volume.status.as_ref().and_then(|it| it.phase.as_deref());
    matches!(phase, Some("Released" | "Failed"))
}

fn policy(volume: &PersistentVolume) -> &str {
    let spec = volume.spec.as_ref();
    spec.and_then(|spec| spec.persistent_volume_reclaim_policy.as_deref())
        .unwrap_or("Retain")
}

fn reclaim(volume: &PersistentVolume) -> Reclaim {
    let name = volume.metadata.name.as_deref().unwrap_or_default();
    match policy(volume) {
        "Retain" => Reclaim::Leave,
        _ if annotation(&volume.metadata, MIGRATED_TO).is_some_and(|to| !to.is_empty()) => {
            Reclaim::Leave
        }
        "Delete" if is_deleted_by_another(volume) => Reclaim::Leave,
        "Delete" => Reclaim::Fail {
            reason: "VolumeFailedDelete",
            message: format!(
                "error getting deleter volume plugin for volume {name:?}: no deletable volume plugin matched"
            ),
        },
        "Recycle" => Reclaim::Fail {
            reason: "VolumeFailedRecycle",
            message: "No recycler plugin found for the volume!".to_owned(),
        },
        _ => Reclaim::Fail {
            reason: "VolumeUnknownReclaimPolicy",
            message: "Volume has unrecognized PersistentVolumeReclaimPolicy".to_owned(),
        },
    }
}

/// By who has made it, or by the driver of its storage.
fn is_deleted_by_another(volume: &PersistentVolume) -> bool {
    let made_by = annotation(&volume.metadata, PROVISIONED_BY).unwrap_or_default();
    if !made_by.is_empty() {
        return !made_by.starts_with("kubernetes.io/");
    }
    volume.spec.as_ref().is_some_and(|spec| spec.csi.is_some())
}
