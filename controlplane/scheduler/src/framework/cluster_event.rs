//! What happens in the cluster and may let a pod fit that did not, and what plugins say about it.
//!
//! A parked pod is looked at for an event only if a plugin that has refused it has asked for events
//! of that sort, and is woken only if that plugin says that this one may help.
//!
//! Source: `ClusterEvent`, `QueueingHint` in `k8s.io/kube-scheduler/framework/types.go`,
//! `pkg/scheduler/framework/events.go` at v1.37.

use std::ops::BitOr;

use crate::{node_info::NodeInfo, pod_info::PodInfo, storage::StorageObject};

/// What has happened.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ClusterEvent<'a> {
    NodeAdded(&'a NodeInfo),
    NodeUpdated {
        /// Without the pods on it.
        old: &'a NodeInfo,
        new: &'a NodeInfo,
    },
    /// As it was, without the pods on it.
    NodeDeleted(&'a NodeInfo),
    /// A pod counts on a node.
    AssignedPodAdded(&'a PodInfo),
    AssignedPodUpdated {
        old: &'a PodInfo,
        new: &'a PodInfo,
    },
    /// A pod counts on its node no more.
    AssignedPodDeleted(&'a PodInfo),
    /// The pod that waits has changed itself.
    Updated {
        old: &'a PodInfo,
        new: &'a PodInfo,
    },
    /// The labels of a namespace are others than before.
    NamespaceLabelled,
    /// Something that has to do with volumes is new or has changed.
    StorageApplied {
        /// Of the same kind; `None` if it was not there.
        old: Option<&'a StorageObject>,
        new: &'a StorageObject,
    },
    /// Something that has to do with volumes is gone.
    StorageGone(&'a StorageObject),
}

/// Whether an event may let a pod fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QueueingHint {
    Skip,
    Queue,
}

impl From<bool> for QueueingHint {
    fn from(helps: bool) -> Self {
        if helps { Self::Queue } else { Self::Skip }
    }
}

/// Sorts of events.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Actions(u32);

impl Actions {
    pub(crate) const NONE: Self = Self(0);
    pub(crate) const ADD_NODE: Self = Self(1);
    pub(crate) const UPDATE_NODE_ALLOCATABLE: Self = Self(1 << 1);
    pub(crate) const UPDATE_NODE_LABEL: Self = Self(1 << 2);
    /// Or `spec.unschedulable`, which stands for a taint.
    pub(crate) const UPDATE_NODE_TAINT: Self = Self(1 << 3);
    pub(crate) const DELETE_NODE: Self = Self(1 << 4);
    pub(crate) const ADD_POD: Self = Self(1 << 5);
    pub(crate) const UPDATE_POD_LABEL: Self = Self(1 << 6);
    pub(crate) const UPDATE_POD_SCALE_DOWN: Self = Self(1 << 7);
    pub(crate) const UPDATE_POD_TOLERATION: Self = Self(1 << 8);
    pub(crate) const UPDATE_POD_GATES_ELIMINATED: Self = Self(1 << 9);
    pub(crate) const DELETE_POD: Self = Self(1 << 10);
    pub(crate) const UPDATE_NAMESPACE_LABEL: Self = Self(1 << 11);
    pub(crate) const ADD_CLAIM: Self = Self(1 << 12);
    pub(crate) const UPDATE_CLAIM: Self = Self(1 << 13);
    pub(crate) const ADD_VOLUME: Self = Self(1 << 14);
    pub(crate) const UPDATE_VOLUME: Self = Self(1 << 15);
    pub(crate) const ADD_STORAGE_CLASS: Self = Self(1 << 16);
    pub(crate) const UPDATE_STORAGE_CLASS: Self = Self(1 << 17);
    pub(crate) const ADD_CSI_NODE: Self = Self(1 << 18);
    pub(crate) const UPDATE_CSI_NODE: Self = Self(1 << 19);
    pub(crate) const UPDATE_CSI_DRIVER: Self = Self(1 << 20);
    pub(crate) const ADD_STORAGE_CAPACITY: Self = Self(1 << 21);
    pub(crate) const UPDATE_STORAGE_CAPACITY: Self = Self(1 << 22);
    pub(crate) const DELETE_VOLUME_ATTACHMENT: Self = Self(1 << 23);
    pub(crate) const UPDATE_NODE_FEATURES: Self = Self(1 << 24);

    /// Of what has happened.
    pub(crate) fn of(event: &ClusterEvent<'_>) -> Self {
        match event {
            ClusterEvent::NodeAdded(_) => Self::ADD_NODE,
            ClusterEvent::NodeUpdated { old, new } => of_node(old, new),
            ClusterEvent::NodeDeleted(_) => Self::DELETE_NODE,
            ClusterEvent::AssignedPodAdded(_) => Self::ADD_POD,
            ClusterEvent::AssignedPodUpdated { old, new } | ClusterEvent::Updated { old, new } => {
                of_pod(old, new)
            }
            ClusterEvent::AssignedPodDeleted(_) => Self::DELETE_POD,
            ClusterEvent::NamespaceLabelled => Self::UPDATE_NAMESPACE_LABEL,
            ClusterEvent::StorageApplied { old: None, new } => added(new),
            ClusterEvent::StorageApplied { old: Some(_), new } => updated(new),
            ClusterEvent::StorageGone(StorageObject::Attachment(_)) => {
                Self::DELETE_VOLUME_ATTACHMENT
            }
            // Of what else is gone nobody asks: it lets no pod fit.
            ClusterEvent::StorageGone(_) => Self::NONE,
        }
    }

    pub(crate) fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    fn when(self, holds: bool) -> Self {
        if holds { self } else { Self::NONE }
    }
}

impl BitOr for Actions {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

// Not the images: they say which of the nodes that fit is the best, and make no pod fit.
fn of_node(old: &NodeInfo, new: &NodeInfo) -> Actions {
    let allocatable = old.allocatable != new.allocatable || old.pods_max != new.pods_max;
    let taint = old.taints != new.taints || old.unschedulable != new.unschedulable;
    Actions::UPDATE_NODE_ALLOCATABLE.when(allocatable)
        | Actions::UPDATE_NODE_LABEL.when(old.labels != new.labels)
        | Actions::UPDATE_NODE_TAINT.when(taint)
        | Actions::UPDATE_NODE_FEATURES.when(old.declared_features != new.declared_features)
}

fn of_pod(old: &PodInfo, new: &PodInfo) -> Actions {
    Actions::UPDATE_POD_LABEL.when(old.labels != new.labels)
        | Actions::UPDATE_POD_SCALE_DOWN.when(new.requests.any_less_than(&old.requests))
        | Actions::UPDATE_POD_TOLERATION.when(old.tolerations != new.tolerations)
        | Actions::UPDATE_POD_GATES_ELIMINATED.when(old.is_gated && !new.is_gated)
}

fn added(object: &StorageObject) -> Actions {
    match object {
        StorageObject::Claim(_) => Actions::ADD_CLAIM,
        StorageObject::Volume(_) => Actions::ADD_VOLUME,
        StorageObject::Class(_) => Actions::ADD_STORAGE_CLASS,
        StorageObject::CsiNode(_) => Actions::ADD_CSI_NODE,
        StorageObject::Capacity(_) => Actions::ADD_STORAGE_CAPACITY,
        StorageObject::CsiDriver(_) | StorageObject::Attachment(_) => Actions::NONE,
    }
}

fn updated(object: &StorageObject) -> Actions {
    match object {
        StorageObject::Claim(_) => Actions::UPDATE_CLAIM,
        StorageObject::Volume(_) => Actions::UPDATE_VOLUME,
        StorageObject::Class(_) => Actions::UPDATE_STORAGE_CLASS,
        StorageObject::CsiNode(_) => Actions::UPDATE_CSI_NODE,
        StorageObject::CsiDriver(_) => Actions::UPDATE_CSI_DRIVER,
        StorageObject::Capacity(_) => Actions::UPDATE_STORAGE_CAPACITY,
        StorageObject::Attachment(_) => Actions::NONE,
    }
}
