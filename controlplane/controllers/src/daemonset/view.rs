//! What a DaemonSet's controller sees in one round: which nodes want a pod, and which pods are
//! there. Pure.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use k8s_openapi::{
    api::{
        apps::v1::{DaemonSet, RollingUpdateDaemonSet},
        core::v1::Node,
    },
    apimachinery::pkg::util::intstr::IntOrString,
    jiff::Timestamp,
};

use super::{
    node::{Demands, Place},
    pod::{is_updated, node_of},
};
use crate::{
    int_or_percent,
    pod::Pod,
    pod_state::{self, until_available},
};

/// What one round begins with.
pub(super) struct View<'a> {
    pub(super) ds: &'a DaemonSet,
    /// Of the current revision.
    pub(super) hash: &'a str,
    pub(super) now: Timestamp,
    /// By name.
    pub(super) nodes: BTreeMap<&'a str, OnNode<'a>>,
    /// Pods for nodes that are not there.
    pub(super) lost: Vec<&'a Arc<Pod>>,
}

/// One node.
pub(super) struct OnNode<'a> {
    pub(super) place: Place,
    /// The oldest first, and before that those that are bound.
    pub(super) pods: Vec<&'a Arc<Pod>>,
}

impl<'a> View<'a> {
    pub(super) fn new(
        (ds, hash): (&'a DaemonSet, &'a str),
        nodes: &'a [Arc<Node>],
        pods: &'a [Arc<Pod>],
        now: Timestamp,
    ) -> Self {
        let demands = Demands::of(ds);
        let on_node = |node: &'a Arc<Node>| {
            let name = node.metadata.name.as_deref().unwrap_or_default();
            let (place, pods) = (demands.place(node), Vec::new());
            (name, OnNode { place, pods })
        };
        let mut nodes: BTreeMap<_, _> = nodes.iter().map(on_node).collect();
        // One that has ended and is told to go may wait for its finalizers for long.
        let is_over = |pod: &Pod| pod_state::is_finished(pod) && pod_state::is_terminating(pod);
        let mut sorted: Vec<_> = pods.iter().filter(|pod| !is_over(pod)).collect();
        sorted.sort_by_cached_key(|pod| {
            let meta = &pod.metadata;
            let created = meta.creation_timestamp.as_ref().map(|time| time.0);
            (
                pod_state::node_name(pod).is_empty(),
                created,
                meta.name.clone(),
            )
        });
        let mut lost = Vec::new();
        for pod in sorted {
            match (node_of(pod), nodes.get_mut(node_of(pod))) {
                (_, Some(node)) => node.pods.push(pod),
                // One that was adopted may be for no node in particular: it counts when it is
                // bound.
                ("", None) => {}
                (_, None) => lost.push(pod),
            }
        }
        Self {
            ds,
            hash,
            now,
            nodes,
            lost,
        }
    }

    pub(super) fn is_updated(&self, pod: &Pod) -> bool {
        is_updated(self.ds, self.hash, pod)
    }

    pub(super) fn is_available(&self, pod: &Pod) -> bool {
        self.until_available(pod) == Some(Duration::ZERO)
    }

    pub(super) fn until_available(&self, pod: &Pod) -> Option<Duration> {
        let seconds = self.ds.spec.min_ready_seconds.unwrap_or(0);
        until_available(pod, seconds, self.now)
    }

    /// How many nodes want a pod.
    pub(super) fn desired(&self) -> i32 {
        let wanted = self.nodes.values().filter(|node| node.place == Place::Run);
        i32::try_from(wanted.count()).unwrap_or(i32::MAX)
    }

    /// Whether two pods may be on one node while one takes over from the other.
    pub(super) fn surges(&self) -> bool {
        self.max_surge(1) > 0
    }

    /// So many nodes of `desired` may have two pods.
    pub(super) fn max_surge(&self, desired: i32) -> i32 {
        self.scaled(desired, |rolling| rolling.max_surge.as_ref())
    }

    /// So many nodes of `desired` may be without an available pod.
    pub(super) fn max_unavailable(&self, desired: i32) -> i32 {
        self.scaled(desired, |rolling| rolling.max_unavailable.as_ref())
    }

    fn scaled(
        &self,
        desired: i32,
        field: impl Fn(&RollingUpdateDaemonSet) -> Option<&IntOrString>,
    ) -> i32 {
        let number = self.rolling().and_then(field);
        number.map_or(0, |number| int_or_percent::scaled(number, desired, true))
    }

    fn rolling(&self) -> Option<&RollingUpdateDaemonSet> {
        let strategy = self.ds.spec.update_strategy.as_ref()?;
        let rolls = strategy.type_.as_deref() == Some("RollingUpdate");
        strategy.rolling_update.as_ref().filter(|_| rolls)
    }

    /// Whether the controller replaces pods of an older template by itself.
    pub(super) fn rolls(&self) -> bool {
        self.rolling().is_some()
    }
}
