//! What is seen of a Job's pods. Pure.

use std::{collections::HashSet, sync::Arc};

use k8s_openapi::{api::batch::v1::JobSpec, jiff::Timestamp};

use super::{backoff::Record, indexes};
use crate::{pod::Pod, pod_state};

/// Keeps a pod until it is counted.
pub(super) const FINALIZER: &str = "batch.kubernetes.io/job-tracking";

/// What is known of a Job's pods; everything that was asked for earlier is among it.
pub(super) struct Observed<'a> {
    pub(super) pods: &'a [Arc<Pod>],
    /// Uids of pods that the Job itself has let go uncounted: their end is no failure.
    pub(super) dismissed: &'a HashSet<String>,
    /// The failures that were seen before.
    pub(super) record: &'a Record,
    pub(super) now: Timestamp,
}

/// The pods that have not ended.
pub(super) struct Running {
    pub(super) active: Vec<Arc<Pod>>,
    /// Those that were told to end.
    pub(super) terminating: Vec<Arc<Pod>>,
}

impl Observed<'_> {
    pub(super) fn running(&self) -> Running {
        let unfinished = self.pods.iter().filter(|pod| !pod_state::is_finished(pod));
        let (terminating, active) = unfinished
            .cloned()
            .partition(|pod| pod_state::is_terminating(pod));
        Running {
            active,
            terminating,
        }
    }
}

impl Running {
    pub(super) fn ready(&self) -> usize {
        let ready = self.active.iter().filter(|pod| pod_state::is_ready(pod));
        ready.count()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.active.is_empty() && self.terminating.is_empty()
    }
}

pub(super) fn uid(pod: &Pod) -> &str {
    pod.metadata.uid.as_deref().unwrap_or_default()
}

pub(super) fn has_finalizer(pod: &Pod) -> bool {
    pod.metadata
        .finalizers
        .iter()
        .flatten()
        .any(|finalizer| finalizer == FINALIZER)
}

/// The pods that are held until they are counted.
pub(super) fn held(pods: &[Arc<Pod>]) -> impl Iterator<Item = &Arc<Pod>> {
    pods.iter().filter(|pod| has_finalizer(pod))
}

pub(super) fn is_indexed(spec: &JobSpec) -> bool {
    spec.completion_mode.as_deref() == Some("Indexed")
}

/// How many indexes an Indexed Job has.
pub(super) fn completions(spec: &JobSpec) -> u32 {
    u32::try_from(spec.completions.unwrap_or(0)).unwrap_or(0)
}

/// The index that a pod works on, if the Job has it.
pub(super) fn index_of(spec: &JobSpec, pod: &Pod) -> Option<u32> {
    indexes::of_pod(pod).filter(|index| *index < completions(spec))
}

/// Whether anything may be counted of a pod: of an Indexed Job's only if it has an index of the
/// Job.
pub(super) fn is_valid(spec: &JobSpec, pod: &Pod) -> bool {
    !is_indexed(spec) || index_of(spec, pod).is_some()
}

/// Whether a place is free when its pod has ended, not when it was told to.
pub(super) fn replaces_failed_alone(spec: &JobSpec) -> bool {
    spec.pod_replacement_policy.as_deref() == Some("Failed")
}

/// A pod that is going counts as failed at once, unless only failed pods are replaced.
pub(super) fn has_failed(spec: &JobSpec, pod: &Pod) -> bool {
    match pod_state::phase(pod) {
        "Failed" => true,
        "Succeeded" => false,
        _ => !replaces_failed_alone(spec) && pod_state::is_terminating(pod),
    }
}
