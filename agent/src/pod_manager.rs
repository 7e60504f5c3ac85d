//! The pods this node is to run, by UID, with a copy on disk so that they start again without the
//! control plane.
//!
//! Owned by the sync loop. Copies are written by one task, the newest of each pod; they matter only
//! after a restart.

pub(crate) mod checkpoint;

use std::{collections::HashMap, sync::Arc};

use k8s_openapi::api::core::v1::Pod;
use parking_lot::RwLock;

use crate::{pod::PodExt, runtime::types::PodUid};

/// The desired pods, for whoever wants to read them: the sync loop writes.
pub(crate) type PodsView = Arc<RwLock<Vec<Arc<Pod>>>>;

/// Desired pods.
#[derive(Default)]
pub(crate) struct PodManager {
    pods: HashMap<PodUid, Arc<Pod>>,
}

impl PodManager {
    /// Takes a new or changed pod.
    pub(crate) fn apply(&mut self, pod: Arc<Pod>) {
        self.pods.insert(pod.uid(), pod);
    }

    /// Forgets a pod; returns it.
    pub(crate) fn remove(&mut self, uid: &PodUid) -> Option<Arc<Pod>> {
        self.pods.remove(uid)
    }

    /// All of them.
    pub(crate) fn pods(&self) -> impl Iterator<Item = &Arc<Pod>> {
        self.pods.values()
    }

    /// Whether the pod is known.
    pub(crate) fn has(&self, uid: &PodUid) -> bool {
        self.pods.contains_key(uid)
    }
}
