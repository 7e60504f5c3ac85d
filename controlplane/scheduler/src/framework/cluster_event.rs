//! What happens in the cluster and may let a pod fit that did not, and what plugins say about it.
//!
//! A parked pod is looked at for an event only if a plugin that has refused it has asked for events
//! of that sort, and is woken only if that plugin says that this one may help.
//!
//! Source: `ClusterEvent`, `QueueingHint` in `k8s.io/kube-scheduler/framework/types.go`,
//! `pkg/scheduler/framework/events.go` at v1.37.

use std::ops::BitOr;

use crate::{node_info::NodeInfo, pod_info::PodInfo};

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
pub(crate) struct Actions(u16);

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
}

fn of_pod(old: &PodInfo, new: &PodInfo) -> Actions {
    Actions::UPDATE_POD_LABEL.when(old.labels != new.labels)
        | Actions::UPDATE_POD_SCALE_DOWN.when(new.requests.any_less_than(&old.requests))
        | Actions::UPDATE_POD_TOLERATION.when(old.tolerations != new.tolerations)
        | Actions::UPDATE_POD_GATES_ELIMINATED.when(old.is_gated && !new.is_gated)
}
