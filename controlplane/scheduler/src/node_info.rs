//! A Node with the sum of the pods on it.

use std::collections::{BTreeMap, HashMap};

use coracle_api::scheduling::HostPort;
use k8s_openapi::api::core::v1::{Node, Taint};

use crate::pod_info::{PodInfo, PodUid, Resources};

/// See the module. Kept current by [`crate::cache::Cache`] alone.
#[derive(Debug, Clone, Default)]
pub(crate) struct NodeInfo {
    pub(crate) name: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) taints: Vec<Taint>,
    pub(crate) unschedulable: bool,
    pub(crate) allocatable: Resources,
    pub(crate) pods_max: i64,
    /// Image name to size in bytes.
    pub(crate) images: HashMap<String, i64>,
    pub(crate) requested: Resources,
    pub(crate) nonzero: Resources,
    pub(crate) pods: HashMap<PodUid, PlacedPod>,
    /// Whether the Node object exists; pods may be seen before it.
    pub(crate) known: bool,
}

/// What a pod takes on its node.
#[derive(Debug, Clone)]
pub(crate) struct PlacedPod {
    requests: Resources,
    nonzero: Resources,
    pub(crate) host_ports: Vec<HostPort>,
}

impl NodeInfo {
    /// Takes over a new state of the Node object. Says whether anything that matters for placing has changed.
    pub(crate) fn set_node(&mut self, node: &Node) -> bool {
        let spec = node.spec.clone().unwrap_or_default();
        let status = node.status.clone().unwrap_or_default();
        let allocatable = status.allocatable.unwrap_or_default();
        let mut next = Self {
            name: node.metadata.name.clone().unwrap_or_default(),
            labels: node.metadata.labels.clone().unwrap_or_default(),
            taints: spec.taints.unwrap_or_default(),
            unschedulable: spec.unschedulable.unwrap_or(false),
            allocatable: Resources::from_list(&allocatable),
            pods_max: allocatable.get("pods").and_then(|quantity| quantity.0.parse().ok()).unwrap_or(0),
            images: status
                .images
                .into_iter()
                .flatten()
                .flat_map(|image| {
                    let size = image.size_bytes.unwrap_or(0);
                    image.names.into_iter().flatten().map(move |name| (name, size))
                })
                .collect(),
            known: true,
            ..Self::default()
        };
        // Not the images: they say which of the nodes that fit is the best, and make no pod fit.
        let changed = !self.known
            || next.labels != self.labels
            || next.taints != self.taints
            || next.unschedulable != self.unschedulable
            || next.allocatable != self.allocatable
            || next.pods_max != self.pods_max;
        next.requested = std::mem::take(&mut self.requested);
        next.nonzero = std::mem::take(&mut self.nonzero);
        next.pods = std::mem::take(&mut self.pods);
        *self = next;
        changed
    }

    pub(crate) fn add_pod(&mut self, pod: &PodInfo) {
        self.remove_pod(&pod.uid);
        self.requested.add(&pod.requests);
        self.nonzero.add(&pod.nonzero);
        let placed = PlacedPod {
            requests: pod.requests.clone(),
            nonzero: pod.nonzero.clone(),
            host_ports: pod.host_ports.clone(),
        };
        self.pods.insert(pod.uid.clone(), placed);
    }

    pub(crate) fn remove_pod(&mut self, uid: &PodUid) -> bool {
        let Some(placed) = self.pods.remove(uid) else { return false };
        self.requested.subtract(&placed.requests);
        self.nonzero.subtract(&placed.nonzero);
        true
    }
}
