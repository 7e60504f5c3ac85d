//! What a pod's claims want of a node, looked up once for all nodes; or why no node will do.

use std::sync::Arc;

use coracle_api::{
    quantity::Quantity,
    selector::LabelSelector,
    volume::{
        BIND_COMPLETED, SELECTED_NODE, annotation, class_of_claim, requested, volume_of,
        waits_for_consumer,
    },
};
use coracle_client::cache::Key;
use k8s_openapi::api::{
    core::v1::{PersistentVolume, PersistentVolumeClaim},
    storage::v1::{CSIStorageCapacity, StorageClass},
};

use crate::{framework::Status, pod_info::PodInfo, storage::Storage};

/// What the claims of a pod want, as things are at the begin of an attempt.
#[derive(Debug, Default)]
pub(super) struct Wanted {
    /// The volumes of its bound claims; `None` for one that is not there.
    pub(super) bound: Vec<Option<Arc<PersistentVolume>>>,
    /// The claims that get a volume once the pod has a node, the smallest first: so the smallest
    /// volume that will do is left for the larger ones.
    pub(super) unbound: Vec<Unbound>,
}

/// A claim that waits for its first pod.
#[derive(Debug)]
pub(super) struct Unbound {
    pub(super) claim: Arc<PersistentVolumeClaim>,
    /// `None` if there is no such class.
    pub(super) class: Option<Arc<StorageClass>>,
    /// The volumes that it may have.
    pub(super) volumes: Vec<Arc<PersistentVolume>>,
    /// Where there is room for a new volume; `None` if whoever makes it does not say.
    pub(super) room: Option<Vec<Room>>,
}

/// Nodes from which a new volume of some size can be reached.
#[derive(Debug)]
pub(super) struct Room {
    /// `None` reaches no node.
    pub(super) nodes: Option<LabelSelector>,
    /// The largest size.
    pub(super) limit: Quantity,
}

impl Unbound {
    /// The node for which a volume is being made.
    pub(super) fn selected_node(&self) -> Option<&str> {
        annotation(&self.claim.metadata, SELECTED_NODE)
    }
}

impl Wanted {
    /// # Errors
    /// No node will do, in upstream's words, or what there is makes no sense.
    ///
    /// Source: `podHasPVCs` and `PreFilter` in `volume_binding.go`, `GetPodVolumeClaims` in
    /// `binder.go`, both in `pkg/scheduler/framework/plugins/volumebinding` at v1.37.
    pub(super) fn of(pod: &PodInfo, storage: &Storage) -> Result<Self, Status> {
        let claims = claims_of(pod, storage)?;
        let mut wanted = Self::default();
        for claim in claims {
            let (class, volume) = (storage.class(class_of_claim(claim)), volume_of(claim));
            if is_bound(claim) {
                let volume = storage.volumes().get(&Key::new("", volume));
                wanted.bound.push(volume.cloned());
                continue;
            }
            if let Some(class) = class.filter(|class| class.volume_binding_mode.is_none()) {
                let name = class.metadata.name.as_deref().unwrap_or_default();
                let reason = format!("VolumeBindingMode not set for StorageClass {name:?}");
                return Err(Status::error(reason));
            }
            // One that a user has given a volume is bound by the controller alone.
            if !volume.is_empty() || !class.is_some_and(|class| waits_for_consumer(class)) {
                let reason = "pod has unbound immediate PersistentVolumeClaims";
                return Err(Status::unresolvable(vec![reason.into()]));
            }
            wanted.unbound.push(unbound(claim, class, storage));
        }
        wanted
            .unbound
            .sort_by_cached_key(|unbound| requested(&unbound.claim));
        Ok(wanted)
    }
}

/// Whether a claim has its volume for good.
pub(super) fn is_bound(claim: &PersistentVolumeClaim) -> bool {
    !volume_of(claim).is_empty() && annotation(&claim.metadata, BIND_COMPLETED).is_some()
}

fn claims_of<'s>(
    pod: &PodInfo,
    storage: &'s Storage,
) -> Result<Vec<&'s Arc<PersistentVolumeClaim>>, Status> {
    let mut claims = Vec::with_capacity(pod.claims().len());
    for used in pod.claims() {
        let name = &used.name;
        let found = storage.claims().get(&Key::new(&*pod.namespace, &**name));
        let why_not = match found {
            None if used.is_ephemeral => Some(format!(
                "waiting for ephemeral volume controller to create the persistentvolumeclaim {name:?}"
            )),
            None => Some(format!("persistentvolumeclaim {name:?} not found")),
            Some(claim) if is_lost(claim) => Some(format!(
                "persistentvolumeclaim {name:?} bound to non-existent persistentvolume {:?}",
                volume_of(claim)
            )),
            Some(claim) if claim.metadata.deletion_timestamp.is_some() => {
                Some(format!("persistentvolumeclaim {name:?} is being deleted"))
            }
            Some(claim) if used.is_ephemeral && !is_owned_by(claim, pod) => Some(format!(
                "PVC {0}/{name} was not created for pod {0}/{1} (pod is not owner)",
                pod.namespace, pod.name
            )),
            Some(_) => None,
        };
        if let Some(reason) = why_not {
            return Err(Status::unresolvable(vec![reason.into()]));
        }
        claims.extend(found);
    }
    Ok(claims)
}

fn is_lost(claim: &PersistentVolumeClaim) -> bool {
    let status = claim.status.as_ref();
    status.is_some_and(|status| status.phase.as_deref() == Some("Lost"))
}

/// Source: `VolumeIsForPod` in `k8s.io/component-helpers/storage/ephemeral/ephemeral.go` at v1.37.
pub(in super::super) fn is_owned_by(claim: &PersistentVolumeClaim, pod: &PodInfo) -> bool {
    let owners = claim.metadata.owner_references.iter().flatten();
    let mut owners = owners.filter(|owner| owner.controller == Some(true));
    owners.next().is_some_and(|owner| owner.uid == *pod.uid.0)
}

fn unbound(
    claim: &Arc<PersistentVolumeClaim>,
    class: Option<&Arc<StorageClass>>,
    storage: &Storage,
) -> Unbound {
    let volumes = storage.volumes_for(&Key::of(&**claim), class_of_claim(claim));
    Unbound {
        claim: claim.clone(),
        class: class.cloned(),
        volumes,
        room: class.and_then(|class| room(class, storage)),
    }
}

/// Source: `hasEnoughCapacity` in `pkg/scheduler/framework/plugins/volumebinding/binder.go` at
/// v1.37.
fn room(class: &StorageClass, storage: &Storage) -> Option<Vec<Room>> {
    let driver = storage.csi_driver(&class.provisioner)?;
    if driver.spec.storage_capacity != Some(true) {
        return None;
    }
    let name = class.metadata.name.as_deref().unwrap_or_default();
    let room = storage.capacities(name).filter_map(|capacity| {
        let nodes = capacity.node_topology.as_ref();
        Some(Room {
            // One that cannot be meant reaches no node.
            nodes: nodes.and_then(|it| LabelSelector::from_object(&serde_json::json!(it)).ok()),
            limit: limit(capacity)?,
        })
    });
    Some(room.collect())
}

/// The size of the largest volume that there is room for.
pub(super) fn limit(capacity: &CSIStorageCapacity) -> Option<Quantity> {
    let limit = capacity.maximum_volume_size.as_ref();
    let limit = limit.or(capacity.capacity.as_ref())?;
    Quantity::parse(&limit.0).ok()
}
