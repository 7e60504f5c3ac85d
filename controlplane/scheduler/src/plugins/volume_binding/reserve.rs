//! What is assumed of claims and volumes once a pod has its node, and how it is given back.
//!
//! Source: `AssumePodVolumes`, `RevertAssumedPodVolumes` in
//! `pkg/scheduler/framework/plugins/volumebinding/binder.go`, `GetBindVolumeToClaim` in
//! `k8s.io/component-helpers/storage/volume/pv_helpers.go` at v1.37.

use std::sync::Arc;

use coracle_api::volume::{BOUND_BY_CONTROLLER, SELECTED_NODE, claim_of, is_bound_to};
use coracle_client::cache::Key;
use k8s_openapi::api::core::v1::{ObjectReference, PersistentVolume, PersistentVolumeClaim};

use super::find::Plan;
use crate::{
    node_info::NodeInfo,
    pod_info::PodInfo,
    storage::{AssumeError, Storage},
};

/// What has been assumed for a pod, and is to be written.
#[derive(Debug, Default)]
pub(super) struct Reserved {
    pub(super) matches: Vec<Match>,
    /// Claims for which a volume is to be made for the node.
    pub(super) provisions: Vec<Arc<PersistentVolumeClaim>>,
}

/// A volume that is given to a claim.
#[derive(Debug)]
pub(super) struct Match {
    pub(super) volume: Arc<PersistentVolume>,
    pub(super) claim: Key,
    /// Whether the volume is another than the API server has.
    pub(super) is_new: bool,
}

impl Reserved {
    /// Whether all claims were bound already.
    pub(super) fn is_empty(&self) -> bool {
        self.matches.is_empty() && self.provisions.is_empty()
    }
}

/// Assumes what was planned for `pod` on `node`.
///
/// # Errors
/// Something has changed since; then nothing is assumed.
pub(super) fn assume(
    storage: &mut Storage,
    plan: &Plan<'_>,
    pod: &PodInfo,
    node: &NodeInfo,
) -> Result<Reserved, AssumeError> {
    let mut reserved = Reserved::default();
    let assumed = assume_all(storage, plan, node, &mut reserved);
    if let Err(error) = assumed {
        give_back(storage, &reserved, pod);
        return Err(error);
    }
    if !reserved.is_empty() {
        storage.bindings.begin(&pod.uid, node);
    }
    Ok(reserved)
}

fn assume_all(
    storage: &mut Storage,
    plan: &Plan<'_>,
    node: &NodeInfo,
    reserved: &mut Reserved,
) -> Result<(), AssumeError> {
    for (volume, claim) in &plan.matches {
        let bound = bind(volume, claim);
        let is_new = bound != **volume;
        let volume = Arc::new(bound);
        if is_new {
            storage.assume_volume(volume.clone())?;
        }
        let claim = Key::of(*claim);
        reserved.matches.push(Match {
            volume,
            claim,
            is_new,
        });
    }
    for claim in &plan.provisions {
        let mut claim = (*claim).clone();
        let annotations = claim.metadata.annotations.get_or_insert_default();
        annotations.insert(SELECTED_NODE.to_owned(), node.name.clone());
        let claim = Arc::new(claim);
        storage.assume_claim(claim.clone())?;
        reserved.provisions.push(claim);
    }
    Ok(())
}

/// Takes back what still is only assumed. Idempotent.
pub(super) fn give_back(storage: &mut Storage, reserved: &Reserved, pod: &PodInfo) {
    for one in &reserved.matches {
        storage.restore_volume(&one.volume);
    }
    for claim in &reserved.provisions {
        storage.restore_claim(claim);
    }
    storage.bindings.end(&pod.uid);
}

/// The volume as it is once it is the claim's.
fn bind(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> PersistentVolume {
    let mut bound = volume.clone();
    // One that was kept for the claim by name alone gets its uid, and stays the user's choice.
    if !is_bound_to(volume, claim) {
        let annotations = bound.metadata.annotations.get_or_insert_default();
        annotations
            .entry(BOUND_BY_CONTROLLER.to_owned())
            .or_insert_with(|| "yes".to_owned());
    }
    let metadata = &claim.metadata;
    let is_whole = |reference: &ObjectReference| {
        (&reference.namespace, &reference.name, &reference.uid)
            == (&metadata.namespace, &metadata.name, &metadata.uid)
    };
    if !claim_of(volume).is_some_and(is_whole) {
        bound.spec.get_or_insert_default().claim_ref = Some(ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("PersistentVolumeClaim".to_owned()),
            name: metadata.name.clone(),
            namespace: metadata.namespace.clone(),
            uid: metadata.uid.clone(),
            resource_version: metadata.resource_version.clone(),
            field_path: None,
        });
    }
    bound
}
