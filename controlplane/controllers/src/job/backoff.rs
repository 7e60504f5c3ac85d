//! How long a Job waits before it replaces a pod that failed. Pure.
//!
//! Source: `pkg/controller/job/backoff_utils.go` at v1.37.

use std::time::Duration;

use coracle_telemetry::ExponentialBackoff;
use k8s_openapi::{api::batch::v1::JobSpec, jiff::Timestamp};

use super::observed::{Observed, has_failed, uid};
use crate::{
    pod::{ContainerStatus, Pod},
    pod_state,
};

/// Pause after a failure, doubled with each further one.
const BACKOFF_FIRST: Duration = Duration::from_secs(10);
const BACKOFF_CAP: Duration = Duration::from_secs(600);

/// How long to wait before a failed pod is replaced: longer with every failure since the last
/// success. Failures that the policy ignores are among them: what fails at once would be tried
/// again at once.
pub(super) fn backoff(spec: &JobSpec, seen: &Observed<'_>) -> Option<Duration> {
    let succeeded = seen
        .pods
        .iter()
        .filter(|pod| pod_state::phase(pod) == "Succeeded");
    let last_success = succeeded.map(|pod| finish_time(pod)).max();
    let has_failed = |pod: &Pod| has_failed(spec, pod) && !seen.dismissed.contains(uid(pod));
    let failed = seen.pods.iter().filter(|pod| has_failed(pod));
    let recent: Vec<Timestamp> = failed
        .map(|pod| finish_time(pod))
        .filter(|at| last_success.is_none_or(|success| *at > success))
        .collect();
    let last = recent.iter().max()?;
    remaining(
        u32::try_from(recent.len()).unwrap_or(u32::MAX),
        *last,
        seen.now,
    )
}

/// What is left of the pause after so many `failures`, of which the last was then.
pub(super) fn remaining(failures: u32, last: Timestamp, now: Timestamp) -> Option<Duration> {
    let backoff = ExponentialBackoff::new(BACKOFF_FIRST, BACKOFF_CAP);
    let pause = backoff.after(failures.checked_sub(1)?);
    let until = last.checked_add(pause).ok()?;
    let left = Duration::try_from(until.duration_since(now)).ok()?;
    (!left.is_zero()).then_some(left)
}

/// When a pod ended: its last container, or else when it was no longer ready, or was told to go;
/// its deletion timestamp is the end of its grace. Sidecars end last.
pub(super) fn finish_time(pod: &Pod) -> Timestamp {
    let created = || pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
    end_of_containers(pod)
        .or_else(|| unready_since(pod))
        .or_else(|| told_to_go(pod))
        .or_else(created)
        .unwrap_or(Timestamp::UNIX_EPOCH)
}

/// `None` as long as one of them has not ended.
fn end_of_containers(pod: &Pod) -> Option<Timestamp> {
    let status = pod.status.as_ref()?;
    let is_sidecar = |status: &&ContainerStatus| {
        let mut containers = pod.spec.iter().flat_map(|spec| &spec.init_containers);
        let mut sidecars = containers
            .by_ref()
            .flatten()
            .filter(|one| one.restart_policy.as_deref() == Some("Always"));
        status
            .name
            .as_deref()
            .is_some_and(|name| sidecars.any(|one| one.asks.name == name))
    };
    let all = status.container_statuses.iter().flatten();
    let sidecars = status.init_container_statuses.iter().flatten();
    let ends = all.chain(sidecars.filter(is_sidecar)).map(|container| {
        let ended = container.state.as_ref()?.terminated.as_ref()?;
        ended.finished_at.as_ref().map(|time| time.0)
    });
    ends.collect::<Option<Vec<_>>>()?.into_iter().max()
}

fn unready_since(pod: &Pod) -> Option<Timestamp> {
    let ready = pod_state::condition(pod, "Ready").filter(|ready| ready.status == "False")?;
    ready.last_transition_time.as_ref().map(|time| time.0)
}

fn told_to_go(pod: &Pod) -> Option<Timestamp> {
    let grace = pod.metadata.deletion_grace_period_seconds.unwrap_or(0);
    let end = pod.metadata.deletion_timestamp.as_ref()?.0;
    let grace = Duration::from_secs(u64::try_from(grace).unwrap_or(0));
    end.checked_sub(grace).ok()
}
