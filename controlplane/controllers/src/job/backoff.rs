//! How long a Job waits before it replaces a pod that failed. Pure, but for the records that are
//! kept of all Jobs; they begin anew with the controller, from the pods that are there.
//!
//! Source: `pkg/controller/job/backoff_utils.go` at v1.37.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use coracle_telemetry::ExponentialBackoff;
use k8s_openapi::{
    api::batch::v1::{Job, JobSpec},
    jiff::Timestamp,
};
use parking_lot::Mutex;

use super::observed::{Observed, has_failed, uid};
use crate::{
    pod::{ContainerStatus, Pod},
    pod_state,
};

/// Pause after a failure, doubled with each further one.
const BACKOFF_FIRST: Duration = Duration::from_secs(10);
const BACKOFF_CAP: Duration = Duration::from_secs(600);

/// The failures of a Job since its last success, also those of pods that are gone: an evicted pod
/// is deleted at once. Failures that the policy ignores are among them: what fails at once would be
/// tried again at once.
#[derive(Debug, Default, Clone)]
pub(super) struct Record {
    failures: u32,
    last_failure: Option<Timestamp>,
    last_success: Option<Timestamp>,
    /// Uids of those of the failed pods that are still there.
    counted: HashSet<String>,
}

impl Record {
    /// What is known once `seen` is: each pod counts once, however often it is seen.
    pub(super) fn after(&self, spec: &JobSpec, seen: &Observed<'_>) -> Self {
        let mut record = self.clone();
        let pods = || seen.pods.iter();
        let succeeded = pods().filter(|pod| pod_state::phase(pod) == "Succeeded");
        let success = succeeded.map(|pod| finish_time(pod)).max();
        if success > record.last_success {
            record = Self {
                last_success: success,
                ..Self::default()
            };
        }
        let there: HashSet<&str> = pods().map(|pod| uid(pod)).collect();
        record.counted.retain(|uid| there.contains(uid.as_str()));
        for pod in pods().filter(|pod| has_failed(spec, pod)) {
            let at = finish_time(pod);
            if seen.dismissed.contains(uid(pod))
                || record.last_success.is_some_and(|success| at <= success)
            {
                continue;
            }
            record.last_failure = record.last_failure.max(Some(at));
            if record.counted.insert(uid(pod).to_owned()) {
                record.failures = record.failures.saturating_add(1);
            }
        }
        record
    }
}

/// The records of all Jobs, by uid; nothing is left of one that is over or gone.
#[derive(Default)]
pub(super) struct Records(Mutex<HashMap<String, Record>>);

impl Records {
    pub(super) fn of(&self, job: &Job) -> Record {
        let records = self.0.lock();
        records.get(uid_of(job)).cloned().unwrap_or_default()
    }

    pub(super) fn keep(&self, job: &Job, record: Record) {
        if record.last_failure.is_some() || record.last_success.is_some() {
            self.0.lock().insert(uid_of(job).to_owned(), record);
        }
    }

    pub(super) fn forget(&self, job: &Job) {
        self.0.lock().remove(uid_of(job));
    }
}

fn uid_of(job: &Job) -> &str {
    job.metadata.uid.as_deref().unwrap_or_default()
}

/// How long to wait before a failed pod is replaced: longer with every failure since the last
/// success.
pub(super) fn backoff(spec: &JobSpec, seen: &Observed<'_>) -> Option<Duration> {
    let record = seen.record.after(spec, seen);
    remaining(record.failures, record.last_failure?, seen.now)
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
