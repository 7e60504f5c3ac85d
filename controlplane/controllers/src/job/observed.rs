//! What is seen of a Job's pods. Pure.

use std::{collections::HashSet, sync::Arc};

use k8s_openapi::{api::batch::v1::JobSpec, jiff::Timestamp};

use crate::{pod::Pod, pod_state};

/// What is known of a Job's pods; everything that was asked for earlier is among it.
pub(super) struct Observed<'a> {
    pub(super) pods: &'a [Arc<Pod>],
    /// Uids of pods that the Job itself has let go uncounted: their end is no failure.
    pub(super) dismissed: &'a HashSet<String>,
    pub(super) now: Timestamp,
}

/// The pods that have not ended.
pub(super) struct Running {
    pub(super) active: Vec<Arc<Pod>>,
    /// How many were told to end.
    pub(super) terminating: usize,
}

impl Observed<'_> {
    pub(super) fn running(&self) -> Running {
        let is_ending =
            |pod: &&Arc<Pod>| pod_state::is_terminating(pod) && !pod_state::is_finished(pod);
        let active = self.pods.iter().filter(|pod| pod_state::is_active(pod));
        Running {
            active: active.cloned().collect(),
            terminating: self.pods.iter().filter(is_ending).count(),
        }
    }
}

impl Running {
    pub(super) fn ready(&self) -> usize {
        let ready = self.active.iter().filter(|pod| pod_state::is_ready(pod));
        ready.count()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.active.is_empty() && self.terminating == 0
    }
}

pub(super) fn uid(pod: &Pod) -> &str {
    pod.metadata.uid.as_deref().unwrap_or_default()
}

pub(super) fn is_indexed(spec: &JobSpec) -> bool {
    spec.completion_mode.as_deref() == Some("Indexed")
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
