//! How long a Job waits before it replaces a pod that failed. Pure.
//!
//! Source: `pkg/controller/job/backoff_utils.go` at v1.37.

use std::{sync::Arc, time::Duration};

use coracle_telemetry::ExponentialBackoff;
use k8s_openapi::{api::batch::v1::JobSpec, jiff::Timestamp};

use super::observed::{Observed, has_failed, uid};
use crate::{pod::Pod, pod_state};

/// Pause after a failure, doubled with each further one.
const BACKOFF_FIRST: Duration = Duration::from_secs(10);
const BACKOFF_CAP: Duration = Duration::from_secs(600);

/// How long to wait before a failed pod is replaced: longer with every failure since the last
/// success.
pub(super) fn backoff(spec: &JobSpec, seen: &Observed<'_>) -> Option<Duration> {
    let ended = |pod: &Arc<Pod>| finish_time(pod).unwrap_or(seen.now);
    let last_success = seen
        .pods
        .iter()
        .filter(|pod| pod_state::phase(pod) == "Succeeded")
        .map(ended)
        .max();
    let has_failed = |pod: &&Arc<Pod>| has_failed(spec, pod) && !seen.dismissed.contains(uid(pod));
    let failures: Vec<Timestamp> = seen.pods.iter().filter(has_failed).map(ended).collect();
    let recent = failures
        .iter()
        .filter(|at| last_success.is_none_or(|success| **at > success))
        .count();
    let last = failures.into_iter().max().filter(|_| recent > 0)?;
    let pause = ExponentialBackoff::new(BACKOFF_FIRST, BACKOFF_CAP)
        .after(u32::try_from(recent - 1).unwrap_or(u32::MAX));
    let until = last.checked_add(pause).ok()?;
    Duration::try_from(until.duration_since(seen.now))
        .ok()
        .filter(|left| !left.is_zero())
}

/// When the last container ended, or else when the pod was told to go: its deletion timestamp is
/// the end of its grace.
fn finish_time(pod: &Pod) -> Option<Timestamp> {
    let statuses = pod
        .status
        .iter()
        .flat_map(|status| status.container_statuses.iter().flatten());
    let ended = statuses.filter_map(|status| {
        status
            .state
            .as_ref()?
            .terminated
            .as_ref()?
            .finished_at
            .as_ref()
    });
    let told = || {
        let grace =
            u64::try_from(pod.metadata.deletion_grace_period_seconds.unwrap_or(0)).unwrap_or(0);
        pod.metadata
            .deletion_timestamp
            .as_ref()?
            .0
            .checked_sub(Duration::from_secs(grace))
            .ok()
    };
    ended.map(|time| time.0).max().or_else(told)
}
