//! VolumeRestrictions: disks that a node mounts for one pod alone, and claims that one pod alone
//! may use in the whole cluster.
//!
//! Source: `pkg/scheduler/framework/plugins/volumerestrictions` at v1.37.

use std::sync::Arc;

use coracle_client::cache::Key;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;

use crate::{
    framework::{
        Actions, ClusterEvent, CycleState, EnqueueExtensions, Filter, NodeNames, Plugin,
        PluginName, PreFilter, QueueingHint, Status,
    },
    node_info::NodeInfo,
    pod_info::PodInfo,
    snapshot::Snapshot,
    storage::{SharedStorage, StorageObject},
};

#[derive(Clone)]
pub(super) struct VolumeRestrictions {
    storage: Arc<SharedStorage>,
}

/// A claim of the pod that one pod alone may use is in use.
struct InUse;

impl VolumeRestrictions {
    pub(super) fn new(storage: Arc<SharedStorage>) -> Self {
        Self { storage }
    }

    /// Whether a claim that one pod alone may use is used by a pod on a node.
    ///
    /// # Errors
    /// A claim is not there.
    fn is_in_use(&self, pod: &PodInfo, all: &Snapshot<'_>) -> Result<bool, Status> {
        if pod.claims().is_empty() {
            return Ok(false);
        }
        let (storage, mut is_in_use) = (self.storage.lock(), false);
        for used in pod.claims().iter().filter(|claim| !claim.is_ephemeral) {
            let claim = storage
                .claims()
                .get(&Key::new(&*pod.namespace, &*used.name));
            let Some(claim) = claim else {
                let reason = format!("persistentvolumeclaim {:?} not found", used.name);
                return Err(Status::unresolvable(vec![reason.into()]));
            };
            is_in_use |=
                is_for_one_pod(claim) && all.claim_uses().is_used(&pod.namespace, &used.name);
        }
        Ok(is_in_use)
    }
}

impl Plugin for VolumeRestrictions {
    fn name(&self) -> PluginName {
        PluginName::VolumeRestrictions
    }
}

impl PreFilter for VolumeRestrictions {
    fn pre_filter(
        &self,
        cycle: &mut CycleState,
        pod: &PodInfo,
        all: &Snapshot<'_>,
    ) -> (Option<NodeNames>, Status) {
        let status = match self.is_in_use(pod, all) {
            Ok(true) => {
                cycle.write(InUse);
                Status::SUCCESS
            }
            Ok(false) if pod.disks().is_empty() => Status::SKIP,
            Ok(false) => Status::SUCCESS,
            Err(status) => status,
        };
        (None, status)
    }
}

impl Filter for VolumeRestrictions {
    fn filter(&self, cycle: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Status {
        if node.pods.values().any(|placed| disks_conflict(pod, placed)) {
            return Status::unschedulable(vec!["node(s) had no available disk".into()]);
        }
        if cycle.read::<InUse>().is_some() {
            return Status::unschedulable(vec![
                "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"
                    .into(),
            ]);
        }
        Status::SUCCESS
    }

    fn depends_on_pods(&self) -> bool {
        true
    }
}

impl EnqueueExtensions for VolumeRestrictions {
    fn events(&self) -> Actions {
        Actions::DELETE_POD | Actions::ADD_NODE | Actions::ADD_CLAIM
    }

    fn hint(&self, pod: &PodInfo, event: &ClusterEvent<'_>) -> QueueingHint {
        let helps = match event {
            ClusterEvent::AssignedPodDeleted(gone) => {
                let is_shared = |used: &str| pod.uses_claim(&gone.namespace, used);
                gone.namespace == pod.namespace
                    && (disks_conflict(pod, gone)
                        || gone.claims().iter().any(|claim| is_shared(&claim.name)))
            }
            ClusterEvent::StorageApplied {
                new: StorageObject::Claim(claim),
                ..
            } => {
                let key = Key::of(&**claim);
                pod.uses_claim(&key.namespace, &key.name)
            }
            _ => true,
        };
        helps.into()
    }
}

fn disks_conflict(pod: &PodInfo, other: &PodInfo) -> bool {
    let mut disks = pod.disks().iter();
    disks.any(|disk| other.disks().iter().any(|taken| disk.conflicts(taken)))
}

fn is_for_one_pod(claim: &PersistentVolumeClaim) -> bool {
    let modes = claim
        .spec
        .as_ref()
        .and_then(|spec| spec.access_modes.as_ref());
    modes
        .into_iter()
        .flatten()
        .any(|mode| mode == "ReadWriteOncePod")
}

#[cfg(test)]
mod tests;
