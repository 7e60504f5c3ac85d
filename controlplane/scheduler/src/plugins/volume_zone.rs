//! VolumeZone: a volume that is labelled with a zone or region is used by pods of that zone or
//! region.
//!
//! Source: `pkg/scheduler/framework/plugins/volumezone` at v1.37.

use std::{collections::BTreeSet, sync::Arc};

use coracle_api::volume::{class_of_claim, volume_of, waits_for_consumer};
use coracle_client::cache::Key;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};

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

/// The labels that count, each with the one that has come after it.
const LABELS: [(&str, &str); 4] = [
    (
        "failure-domain.beta.kubernetes.io/zone",
        "topology.kubernetes.io/zone",
    ),
    (
        "failure-domain.beta.kubernetes.io/region",
        "topology.kubernetes.io/region",
    ),
    ("topology.kubernetes.io/zone", "topology.kubernetes.io/zone"),
    (
        "topology.kubernetes.io/region",
        "topology.kubernetes.io/region",
    ),
];

#[derive(Clone)]
pub(super) struct VolumeZone {
    storage: Arc<SharedStorage>,
}

/// Where the volumes of a pod are.
struct Topologies(Vec<Topology>);

/// One of the labels of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Topology {
    label: &'static str,
    /// What it is called on nodes that do not have it under the same name.
    newer_label: &'static str,
    values: BTreeSet<String>,
}

impl VolumeZone {
    pub(super) fn new(storage: Arc<SharedStorage>) -> Self {
        Self { storage }
    }
}

impl Plugin for VolumeZone {
    fn name(&self) -> PluginName {
        PluginName::VolumeZone
    }
}

impl PreFilter for VolumeZone {
    fn pre_filter(
        &self,
        cycle: &mut CycleState,
        pod: &PodInfo,
        _: &Snapshot<'_>,
    ) -> (Option<NodeNames>, Status) {
        if pod.claims().is_empty() {
            return (None, Status::SKIP);
        }
        let status = match of_pod(pod, &self.storage.lock()) {
            Ok(topologies) if topologies.is_empty() => Status::SKIP,
            Ok(topologies) => {
                cycle.write(Topologies(topologies));
                Status::SUCCESS
            }
            Err(reason) => Status::unresolvable(vec![reason.into()]),
        };
        (None, status)
    }
}

impl Filter for VolumeZone {
    fn filter(&self, cycle: &CycleState, _: &PodInfo, node: &NodeInfo) -> Status {
        let Some(Topologies(topologies)) = cycle.read() else {
            return Status::SUCCESS;
        };
        // Nodes of a cluster in one zone may not say so.
        let says_where = LABELS
            .iter()
            .any(|(label, _)| node.labels.contains_key(*label));
        let is_there = |topology: &Topology| {
            let label = |label| node.labels.get(label);
            let value = label(topology.label).or_else(|| label(topology.newer_label));
            value.is_some_and(|value| topology.values.contains(value))
        };
        if !says_where || topologies.iter().all(is_there) {
            return Status::SUCCESS;
        }
        Status::unresolvable(vec!["node(s) had no available volume zone".into()])
    }
}

impl EnqueueExtensions for VolumeZone {
    fn events(&self) -> Actions {
        Actions::ADD_STORAGE_CLASS
            | Actions::ADD_NODE
            | Actions::UPDATE_NODE_LABEL
            | Actions::ADD_CLAIM
            | Actions::UPDATE_CLAIM
            | Actions::ADD_VOLUME
            | Actions::UPDATE_VOLUME
    }

    fn hint(&self, pod: &PodInfo, event: &ClusterEvent<'_>) -> QueueingHint {
        let ClusterEvent::StorageApplied { old, new } = event else {
            return QueueingHint::Queue;
        };
        let helps = match (old, new) {
            (_, StorageObject::Class(class)) => waits_for_consumer(class),
            (_, StorageObject::Claim(claim)) => {
                let key = Key::of(&**claim);
                pod.uses_claim(&key.namespace, &key.name)
            }
            (Some(StorageObject::Volume(old)), StorageObject::Volume(new)) => {
                of_volume(old) != of_volume(new)
            }
            _ => true,
        };
        helps.into()
    }
}

/// Where the bound volumes of a pod are.
///
/// # Errors
/// Why the pod cannot be anywhere, in upstream's words.
fn of_pod(pod: &PodInfo, storage: &Storage) -> Result<Vec<Topology>, String> {
    let mut topologies = Vec::new();
    // As upstream: those made from the pod are not looked at.
    for used in pod.claims().iter().filter(|claim| !claim.is_ephemeral) {
        let name = &used.name;
        let claim = storage.claims().get(&Key::new(&*pod.namespace, &**name));
        let claim = claim.ok_or_else(|| format!("persistentvolumeclaim {name:?} not found"))?;
        let volume = volume_of(claim);
        if volume.is_empty() {
            check_unbound(claim, storage)?;
            continue;
        }
        let found = storage.volumes().get(&Key::new("", volume));
        let found = found.ok_or_else(|| format!("persistentvolume {volume:?} not found"))?;
        topologies.extend(of_volume(found));
    }
    Ok(topologies)
}

/// Whether a claim without a volume gets one once its pod has a node.
fn check_unbound(claim: &PersistentVolumeClaim, storage: &Storage) -> Result<(), String> {
    let name = class_of_claim(claim);
    if name.is_empty() {
        return Err("PersistentVolumeClaim had no pv name and storageClass name".to_owned());
    }
    let class = storage.class(name);
    let class = class.ok_or_else(|| format!("storageclass.storage.k8s.io {name:?} not found"))?;
    if class.volume_binding_mode.is_none() {
        return Err(format!(
            "VolumeBindingMode not set for StorageClass {name:?}"
        ));
    }
    if !waits_for_consumer(class) {
        return Err("PersistentVolume had no name".to_owned());
    }
    Ok(())
}

/// Where a volume is, by its labels. One label may name several places, `a__b`; one that cannot be
/// read does not count.
///
/// Source: `getPVTopologies`, and `LabelZonesToSet` in `k8s.io/cloud-provider/volume/helpers` at
/// v1.37.
fn of_volume(volume: &PersistentVolume) -> Vec<Topology> {
    let labels = volume.metadata.labels.as_ref();
    let of_label = |(label, newer_label): &(&'static str, &'static str)| {
        let values: BTreeSet<String> = labels?
            .get(*label)?
            .split("__")
            .map(|value| value.trim().to_owned())
            .collect();
        (!values.contains("")).then_some(Topology {
            label,
            newer_label,
            values,
        })
    };
    LABELS.iter().filter_map(of_label).collect()
}

#[cfg(test)]
mod tests;
