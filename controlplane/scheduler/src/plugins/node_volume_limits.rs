//! NodeVolumeLimits: no more volumes of a CSI driver on a node than the driver says it can attach
//! there.
//!
//! Not here: volumes of in-tree plugins are not taken for those of the CSI drivers that have come
//! after them.
//!
//! Source: `pkg/scheduler/framework/plugins/nodevolumelimits` at v1.37.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use coracle_api::volume::{class_of_claim, volume_of};
use coracle_client::cache::Key;
use k8s_openapi::api::{core::v1::PersistentVolumeClaim, storage::v1::CSINode};

use super::volume_binding::is_owned_by;
use crate::{
    framework::{
        Actions, ClusterEvent, CycleState, EnqueueExtensions, Filter, NodeNames, Plugin,
        PluginName, PreFilter, QueueingHint, Status,
    },
    node_info::NodeInfo,
    pod_info::PodInfo,
    snapshot::Snapshot,
    storage::{SharedStorage, Storage, StorageObject},
};

#[derive(Clone)]
pub(super) struct NodeVolumeLimits {
    storage: Arc<SharedStorage>,
}

/// A volume of a CSI driver. One that is still to be made has its claim for a handle.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct CsiVolume {
    driver: String,
    handle: String,
}

/// What a pod wants to have attached.
struct Asked(HashSet<CsiVolume>);

impl NodeVolumeLimits {
    pub(super) fn new(storage: Arc<SharedStorage>) -> Self {
        Self { storage }
    }
}

impl Plugin for NodeVolumeLimits {
    fn name(&self) -> PluginName {
        PluginName::NodeVolumeLimits
    }
}

impl PreFilter for NodeVolumeLimits {
    fn pre_filter(
        &self,
        cycle: &mut CycleState,
        pod: &PodInfo,
        _: &Snapshot<'_>,
    ) -> (Option<NodeNames>, Status) {
        if pod.claims().is_empty() {
            return (None, Status::SKIP);
        }
        let storage = self.storage.lock();
        // Claims that are not there are VolumeBinding's to refuse.
        let asked: HashSet<CsiVolume> = match is_limited(&storage) {
            true => volumes_of(pod, &storage).collect(),
            false => HashSet::new(),
        };
        if asked.is_empty() {
            return (None, Status::SKIP);
        }
        cycle.write(Asked(asked));
        (None, Status::SUCCESS)
    }
}

impl Filter for NodeVolumeLimits {
    fn filter(&self, cycle: &CycleState, _: &PodInfo, node: &NodeInfo) -> Status {
        let Some(Asked(asked)) = cycle.read() else {
            return Status::SUCCESS;
        };
        let storage = self.storage.lock();
        let csi_node = storage.csi_node(&node.name).map(|node| &**node);
        let missing = asked.iter().find(|volume| {
            let driver = storage.csi_driver(&volume.driver);
            let is_required = driver
                .is_some_and(|driver| driver.spec.prevent_pod_scheduling_if_missing == Some(true));
            is_required && !has_driver(csi_node, &volume.driver)
        });
        if let Some(CsiVolume { driver, .. }) = missing {
            let reason = format!("{driver} CSI driver is not installed on the node");
            return Status::unschedulable(vec![reason.into()]);
        }
        let limits = limits(csi_node);
        if limits.is_empty() || fits(asked, &limits, node, &storage) {
            return Status::SUCCESS;
        }
        Status::unschedulable(vec!["node(s) exceed max volume count".into()])
    }
}

impl EnqueueExtensions for NodeVolumeLimits {
    fn events(&self) -> Actions {
        Actions::ADD_CSI_NODE
            | Actions::UPDATE_CSI_NODE
            | Actions::DELETE_POD
            | Actions::ADD_CLAIM
            | Actions::DELETE_VOLUME_ATTACHMENT
    }

    fn hint(&self, pod: &PodInfo, event: &ClusterEvent<'_>) -> QueueingHint {
        let helps = match event {
            ClusterEvent::AssignedPodDeleted(gone) => !gone.claims().is_empty(),
            ClusterEvent::StorageApplied { old, new } => match (old, new) {
                (Some(StorageObject::CsiNode(old)), StorageObject::CsiNode(new)) => {
                    allows_more(old, new)
                }
                (_, StorageObject::Claim(claim)) => {
                    let key = Key::of(&**claim);
                    pod.uses_claim(&key.namespace, &key.name)
                }
                _ => true,
            },
            ClusterEvent::StorageGone(_) => !pod.claims().is_empty(),
            _ => true,
        };
        helps.into()
    }
}

/// Whether any driver limits anything.
fn is_limited(storage: &Storage) -> bool {
    let mut drivers = storage.csi_drivers();
    storage.has_csi_nodes()
        || drivers.any(|driver| driver.spec.prevent_pod_scheduling_if_missing == Some(true))
}

/// Whether the node can attach what is asked for beside what it has or will have.
fn fits(
    asked: &HashSet<CsiVolume>,
    limits: &HashMap<&str, i64>,
    node: &NodeInfo,
    storage: &Storage,
) -> bool {
    let pods = node.pods.values();
    let of_pods: HashSet<CsiVolume> = pods.flat_map(|pod| volumes_of(pod, storage)).collect();
    // A volume may be attached still, or already, for a pod that is not here.
    let attached = attached(&node.name, storage).filter(|volume| !of_pods.contains(volume));
    let attached: HashSet<CsiVolume> = attached.collect();
    let mut counts: HashMap<&str, i64> = HashMap::new();
    for volume in of_pods.iter().chain(&attached) {
        *counts.entry(&volume.driver).or_default() += 1;
    }
    let mut more: HashMap<&str, i64> = HashMap::new();
    for volume in asked.difference(&of_pods) {
        *more.entry(&volume.driver).or_default() += 1;
    }
    more.into_iter().all(|(driver, count)| {
        let has = counts.get(driver).copied().unwrap_or(0);
        limits.get(driver).is_none_or(|limit| has + count <= *limit)
    })
}

/// The volumes of a pod's claims, as far as CSI drivers have to do with them.
fn volumes_of(pod: &PodInfo, storage: &Storage) -> impl Iterator<Item = CsiVolume> {
    pod.claims().iter().filter_map(|used| {
        let claim = storage
            .claims()
            .get(&Key::new(&*pod.namespace, &*used.name))?;
        if used.is_ephemeral && !is_owned_by(claim, pod) {
            return None;
        }
        volume_of_claim(claim, storage)
    })
}

fn volume_of_claim(claim: &PersistentVolumeClaim, storage: &Storage) -> Option<CsiVolume> {
    if let Some(volume) = storage.volumes().get(&Key::new("", volume_of(claim))) {
        let csi = volume.spec.as_ref()?.csi.as_ref()?;
        return Some(CsiVolume {
            driver: csi.driver.clone(),
            handle: csi.volume_handle.clone(),
        });
    }
    let class = storage.class(class_of_claim(claim))?;
    Some(CsiVolume {
        driver: class.provisioner.clone(),
        // No driver has such a one.
        handle: format!("\0{}", Key::of(claim)),
    })
}

fn attached(node: &str, storage: &Storage) -> impl Iterator<Item = CsiVolume> {
    storage.attachments(node).filter_map(|attachment| {
        let name = attachment.spec.source.persistent_volume_name.as_deref()?;
        let volume = storage.volumes().get(&Key::new("", name))?;
        let csi = volume.spec.as_ref()?.csi.as_ref()?;
        Some(CsiVolume {
            driver: attachment.spec.attacher.clone(),
            handle: csi.volume_handle.clone(),
        })
    })
}

fn has_driver(node: Option<&CSINode>, driver: &str) -> bool {
    let mut drivers = node.into_iter().flat_map(|node| &node.spec.drivers);
    drivers.any(|known| known.name == driver)
}

/// How many volumes of each driver the node can have.
fn limits(node: Option<&CSINode>) -> HashMap<&str, i64> {
    let drivers = node.into_iter().flat_map(|node| &node.spec.drivers);
    let limited = drivers.filter_map(|driver| {
        let limit = driver.allocatable.as_ref()?.count?;
        Some((&*driver.name, i64::from(limit)))
    });
    limited.collect()
}

/// Whether a driver has a higher limit than before.
fn allows_more(old: &CSINode, new: &CSINode) -> bool {
    let (old, new) = (limits(Some(old)), limits(Some(new)));
    new.into_iter()
        .any(|(driver, limit)| old.get(driver).is_none_or(|old| limit > *old))
}

#[cfg(test)]
mod tests;
