//! What a StatefulSet's controller sees in one round: a place for each ordinal, and who is in it.
//! Pure.

use std::{collections::BTreeMap, ops::Range, sync::Arc, time::Duration};

use k8s_openapi::{
    api::{
        apps::v1::{RollingUpdateStatefulSetStrategy, StatefulSet},
        core::v1::{PersistentVolumeClaim, PodTemplateSpec},
    },
    jiff::Timestamp,
};

use super::identity;
use crate::{
    int_or_percent,
    pod::Pod,
    pod_state::{self, until_available},
};

/// How a claim is found by its name.
pub(super) type FindClaim<'a> = &'a dyn Fn(&str) -> Option<Arc<PersistentVolumeClaim>>;

/// One template that pods are of.
#[derive(Clone, Copy)]
pub(super) struct Version<'a> {
    /// That of its ControllerRevision.
    pub(super) name: &'a str,
    pub(super) template: &'a PodTemplateSpec,
}

/// The templates that a set's pods are made by.
#[derive(Clone, Copy)]
pub(super) struct Versions<'a> {
    /// That from before the last change, until all pods are of the next.
    pub(super) current: Version<'a>,
    pub(super) update: Version<'a>,
}

/// What one round begins with.
pub(super) struct View<'a> {
    pub(super) set: &'a StatefulSet,
    pub(super) versions: Versions<'a>,
    pub(super) now: Timestamp,
    pub(super) claim: FindClaim<'a>,
    pods: BTreeMap<i64, &'a Arc<Pod>>,
}

/// An ordinal, and the pod that has it.
pub(super) type Place<'a> = (i64, Option<&'a Arc<Pod>>);

impl<'a> View<'a> {
    pub(super) fn new(
        (set, versions): (&'a StatefulSet, Versions<'a>),
        pods: &'a [Arc<Pod>],
        claim: FindClaim<'a>,
        now: Timestamp,
    ) -> Self {
        let with_ordinal = |pod: &'a Arc<Pod>| Some((identity::ordinal_in(set, pod)?.into(), pod));
        Self {
            set,
            versions,
            now,
            claim,
            pods: pods.iter().filter_map(with_ordinal).collect(),
        }
    }

    /// The ordinals that are asked for. Wider than the API's, so that there is one behind the last.
    pub(super) fn ordinals(&self) -> Range<i64> {
        let ordinals = self.set.spec.ordinals.as_ref();
        let start = i64::from(ordinals.and_then(|ordinals| ordinals.start).unwrap_or(0));
        start..(start + i64::from(self.wanted())).min(i64::from(i32::MAX) + 1)
    }

    /// How many pods are asked for.
    pub(super) fn wanted(&self) -> i32 {
        self.set.spec.replicas.unwrap_or(1)
    }

    /// All places that are asked for, from the first, with pods or without: there may be very many.
    pub(super) fn places(&self) -> impl DoubleEndedIterator<Item = Place<'a>> {
        self.ordinals()
            .map(|ordinal| (ordinal, self.pods.get(&ordinal).copied()))
    }

    /// The pods that have the places asked for, from the first.
    pub(super) fn replicas(&self) -> impl DoubleEndedIterator<Item = (i64, &'a Arc<Pod>)> {
        self.pods
            .range(self.ordinals())
            .map(|(ordinal, pod)| (*ordinal, *pod))
    }

    /// The pods that are too many, from the last.
    pub(super) fn condemned(&self) -> Vec<(i64, &'a Arc<Pod>)> {
        let wanted = self.ordinals();
        let pods = self.pods.iter().rev();
        pods.filter(|(ordinal, _)| !wanted.contains(ordinal))
            .map(|(ordinal, pod)| (*ordinal, *pod))
            .collect()
    }

    pub(super) fn pods(&self) -> impl Iterator<Item = &'a Arc<Pod>> {
        self.pods.values().copied()
    }

    /// Whether one pod waits for another, in the order of their ordinals.
    pub(super) fn is_ordered(&self) -> bool {
        self.set.spec.pod_management_policy.as_deref() != Some("Parallel")
    }

    /// How long until a pod counts as available, if it is on the way to it.
    pub(super) fn until_available(&self, pod: &Pod) -> Option<Duration> {
        let seconds = self.set.spec.min_ready_seconds.unwrap_or(0);
        until_available(pod, seconds, self.now)
    }

    pub(super) fn is_available(&self, pod: &Pod) -> bool {
        self.until_available(pod) == Some(Duration::ZERO)
    }

    /// Whether a pod serves and goes on to.
    pub(super) fn is_well(&self, pod: &Pod) -> bool {
        self.is_available(pod) && !pod_state::is_terminating(pod)
    }

    fn rolling(&self) -> Option<&'a RollingUpdateStatefulSetStrategy> {
        let strategy = self.set.spec.update_strategy.as_ref()?;
        strategy.rolling_update.as_ref().filter(|_| self.rolls())
    }

    /// Whether the controller replaces pods of an older template by itself.
    pub(super) fn rolls(&self) -> bool {
        let strategy = self.set.spec.update_strategy.as_ref();
        strategy.is_some_and(|strategy| strategy.type_.as_deref() == Some("RollingUpdate"))
    }

    /// Pods of lower ordinals stay as they are.
    pub(super) fn partition(&self) -> i64 {
        let partition = self.rolling().and_then(|rolling| rolling.partition);
        self.ordinals().start + i64::from(partition.unwrap_or(0))
    }

    /// So many pods may be missing while others are replaced.
    ///
    /// Source: getStatefulSetMaxUnavailable.
    pub(super) fn max_unavailable(&self) -> usize {
        let rolling = self.rolling();
        let number = rolling.and_then(|rolling| rolling.max_unavailable.as_ref());
        let number = number.map_or(1, |number| {
            int_or_percent::scaled(number, self.wanted(), false)
        });
        // A small percentage may come to none, and nothing would ever change.
        usize::try_from(number).unwrap_or(0).max(1)
    }

    /// The template by which the pod of an ordinal is made.
    ///
    /// Source: newVersionedStatefulSetPod.
    pub(super) fn version_for(&self, ordinal: i64) -> Version<'a> {
        let is_kept = match self.rolling() {
            Some(_) => ordinal < self.partition(),
            None if self.rolls() => {
                let status = self.set.status.as_ref();
                let current = status.and_then(|status| status.current_replicas);
                ordinal < self.ordinals().start + i64::from(current.unwrap_or(0))
            }
            None => false,
        };
        if is_kept {
            self.versions.current
        } else {
            self.versions.update
        }
    }
}
