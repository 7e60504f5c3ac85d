//! How far the binding of a pod's volumes is, and whether it is still worth the wait.
//!
//! Source: `checkBindings` in `pkg/scheduler/framework/plugins/volumebinding/binder.go` at v1.37.

use coracle_api::{
    scheduling::NodeView,
    volume::{SELECTED_NODE, annotation, claim_of, node_affinity_matches, volume_of},
};
use coracle_client::cache::Key;
use k8s_openapi::api::core::v1::PersistentVolume;

use super::wanted::is_bound;
use crate::{
    pod_info::PodInfo,
    storage::{Storage, version},
};

/// What has been written for a pod, in the version that the API server has given it.
#[derive(Debug, Default)]
pub(super) struct Written {
    /// Volumes, each with the claim that it was given to.
    pub(super) matches: Vec<(Key, u64, Key)>,
    /// Claims for which a volume is made.
    pub(super) provisions: Vec<(Key, u64)>,
}

/// Why the volumes of a pod will not be bound for its node; the texts are upstream's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum CheckError {
    #[error("pod does not exist any more: pod {0:?} not found")]
    PodGone(String),
    #[error("failed to get node {0:?}: node {0:?} not found")]
    NodeGone(String),
    #[error("failed to check binding: persistentvolume {0:?} not found")]
    VolumeGone(String),
    #[error("failed to check binding: persistentvolumeclaim {0:?} not found")]
    ClaimGone(String),
    #[error("failed to check provisioning pvc: persistentvolumeclaim {0:?} not found")]
    ProvisionedClaimGone(String),
    /// By a controller that found that it cannot be.
    #[error("ClaimRef got reset for pv {0:?}")]
    Released(String),
    #[error(
        "pv {volume:?} node affinity doesn't match node {node:?}: no matching NodeSelectorTerms"
    )]
    Affinity { volume: String, node: String },
    /// Whoever makes volumes has taken the node's name from the claim.
    #[error("provisioning failed for PVC {0:?}")]
    Provisioning(String),
}

/// Whether all that was written for `pod` has led to bound claims. It looks at what has been seen,
/// not at what others assume meanwhile.
pub(super) fn is_complete(
    storage: &Storage,
    pod: &PodInfo,
    written: &Written,
) -> Result<bool, CheckError> {
    let binding = storage.bindings.get(&pod.uid);
    let binding = binding.filter(|binding| !binding.is_pod_gone);
    let binding = binding.ok_or_else(|| CheckError::PodGone(pod.name.clone()))?;
    let labels = binding.labels.as_ref();
    let labels = labels.ok_or_else(|| CheckError::NodeGone(binding.node.clone()))?;
    let node = NodeView {
        name: &binding.node,
        labels,
    };
    for (volume, version, claim) in &written.matches {
        if !is_match_complete(storage, node, (volume, *version), claim)? {
            return Ok(false);
        }
    }
    for (claim, version) in &written.provisions {
        if !is_provision_complete(storage, node, (claim, *version))? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn is_match_complete(
    storage: &Storage,
    node: NodeView<'_>,
    (key, written): (&Key, u64),
    claim: &Key,
) -> Result<bool, CheckError> {
    let volume = storage.volumes().seen(key);
    let volume = volume.ok_or_else(|| CheckError::VolumeGone(key.name.clone()))?;
    let claim = storage
        .claims()
        .seen(claim)
        .ok_or_else(|| CheckError::ClaimGone(claim.name.clone()))?;
    if version(&**volume) < written {
        // What was written is on its way here.
        return Ok(false);
    }
    check_affinity(volume, node)?;
    let uid = claim_of(volume).and_then(|reference| reference.uid.as_deref());
    if uid.is_none_or(str::is_empty) {
        return Err(CheckError::Released(key.name.clone()));
    }
    Ok(is_bound(claim))
}

fn is_provision_complete(
    storage: &Storage,
    node: NodeView<'_>,
    (key, written): (&Key, u64),
) -> Result<bool, CheckError> {
    let claim = storage.claims().seen(key);
    let claim = claim.ok_or_else(|| CheckError::ProvisionedClaimGone(key.name.clone()))?;
    if version(&**claim) < written {
        return Ok(false);
    }
    if annotation(&claim.metadata, SELECTED_NODE) != Some(node.name) {
        return Err(CheckError::Provisioning(key.name.clone()));
    }
    let volume = volume_of(claim);
    if !volume.is_empty() {
        let Some(volume) = storage.volumes().seen(&Key::new("", volume)) else {
            // It is on its way here, or the claim will be told that it is lost.
            return Ok(false);
        };
        check_affinity(volume, node)?;
    }
    Ok(is_bound(claim))
}

fn check_affinity(volume: &PersistentVolume, node: NodeView<'_>) -> Result<(), CheckError> {
    if node_affinity_matches(volume, node) {
        return Ok(());
    }
    Err(CheckError::Affinity {
        volume: volume.metadata.name.clone().unwrap_or_default(),
        node: node.name.to_owned(),
    })
}
