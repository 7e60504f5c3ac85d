//! What a Job's conditions say: whether it is decided, and whether it is over. Pure.
//!
//! ```text
//! running ──(enough successes)──> SuccessCriteriaMet ──(no pod is left running)──> Complete
//!    └──(too many failures, too late)──> FailureTarget ──(no pod is left running)──> Failed
//! ```
//!
//! Source: `pkg/controller/job/job_controller.go` (syncJob, enactJobFinished) at v1.37.

use std::{sync::Arc, time::Duration};

use k8s_openapi::{
    api::batch::v1::{Job, JobCondition, JobSpec, JobStatus},
    apimachinery::pkg::apis::meta::v1::Time,
    jiff::Timestamp,
};

use super::{observed::Running, tracking::Tally};
use crate::pod::Pod;

/// What was decided about a Job, whose pods may still be running.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Decision {
    Fails,
    Succeeds,
}

/// The true condition of type `kind`.
pub(super) fn condition<'a>(status: &'a JobStatus, kind: &str) -> Option<&'a JobCondition> {
    status
        .conditions
        .iter()
        .flatten()
        .find(|condition| condition.type_ == kind && condition.status == "True")
}

/// The condition that says that the Job is over.
pub(super) fn finished(job: &Job) -> Option<&JobCondition> {
    let status = job.status.as_ref()?;
    condition(status, "Complete").or_else(|| condition(status, "Failed"))
}

/// Decides, and puts that into the conditions. Once decided it stays so, whatever happens to the
/// pods that are still there.
pub(super) fn decide(
    spec: &JobSpec,
    status: &mut JobStatus,
    tally: &Tally,
    running: &Running,
    now: Timestamp,
) -> Option<Decision> {
    if condition(status, "FailureTarget").is_some() {
        Some(Decision::Fails)
    } else if condition(status, "SuccessCriteriaMet").is_some() {
        Some(Decision::Succeeds)
    } else if let Some((reason, message)) =
        failure(spec, status, tally.failed, &running.active, now)
    {
        set(status, "FailureTarget", "True", (reason, message), now);
        Some(Decision::Fails)
    } else if has_succeeded(spec, tally.succeeded, running) {
        let message = "Reached expected number of succeeded pods";
        let why = ("CompletionsReached", message);
        set(status, "SuccessCriteriaMet", "True", why, now);
        Some(Decision::Succeeds)
    } else {
        None
    }
}

/// Why the Job cannot succeed any more: a reason and a message.
fn failure(
    spec: &JobSpec,
    status: &JobStatus,
    failed: usize,
    active: &[Arc<Pod>],
    now: Timestamp,
) -> Option<(&'static str, &'static str)> {
    let limit = usize::try_from(spec.backoff_limit.unwrap_or(6)).unwrap_or(0);
    let template = spec.template.spec.as_ref();
    let on_failure = template.and_then(|pod| pod.restart_policy.as_deref()) == Some("OnFailure");
    let restarts: usize = if on_failure {
        active.iter().map(|pod| restarts(pod)).sum()
    } else {
        0
    };
    if failed > limit || (restarts > 0 && restarts >= limit) {
        return Some((
            "BackoffLimitExceeded",
            "Job has reached the specified backoff limit",
        ));
    }
    let over = spec.suspend != Some(true)
        && until_deadline(spec, status, now).is_some_and(|left| left.is_zero());
    over.then_some((
        "DeadlineExceeded",
        "Job was active longer than specified deadline",
    ))
}

fn restarts(pod: &Pod) -> usize {
    let Some(status) = pod.status.as_ref() else {
        return 0;
    };
    let all = status
        .init_container_statuses
        .iter()
        .flatten()
        .chain(status.container_statuses.iter().flatten());
    all.map(|container| usize::try_from(container.restart_count).unwrap_or(0))
        .sum()
}

/// Whether enough pods have succeeded. Without `completions` one success is enough, and the others
/// may still end.
fn has_succeeded(spec: &JobSpec, succeeded: usize, running: &Running) -> bool {
    match spec.completions {
        Some(wanted) => succeeded >= usize::try_from(wanted).unwrap_or(0),
        None => succeeded > 0 && running.is_empty(),
    }
}

/// Time left of `activeDeadlineSeconds`; zero when it is over, `None` without a deadline.
pub(super) fn until_deadline(
    spec: &JobSpec,
    status: &JobStatus,
    now: Timestamp,
) -> Option<Duration> {
    let limit = Duration::from_secs(u64::try_from(spec.active_deadline_seconds?).ok()?);
    let end = status.start_time.as_ref()?.0.checked_add(limit).ok()?;
    Some(Duration::try_from(end.duration_since(now)).unwrap_or(Duration::ZERO))
}

/// Time until a finished Job is to be deleted; `None` if it stays.
pub(super) fn until_expiry(job: &Job, now: Timestamp) -> Option<Duration> {
    let ttl = u64::try_from(job.spec.as_ref()?.ttl_seconds_after_finished?).ok()?;
    let ended = finished(job)?.last_transition_time.as_ref()?.0;
    let end = ended.checked_add(Duration::from_secs(ttl)).ok()?;
    Some(Duration::try_from(end.duration_since(now)).unwrap_or(Duration::ZERO))
}

/// Records `suspend` in the conditions; a Job that goes on starts anew.
pub(super) fn note_suspension(status: &mut JobStatus, suspended: bool, now: Timestamp) {
    let before = condition(status, "Suspended").is_some();
    if suspended && !before {
        let why = ("JobSuspended", "Job suspended");
        set(status, "Suspended", "True", why, now);
    } else if !suspended && before {
        let why = ("JobResumed", "Job resumed");
        set(status, "Suspended", "False", why, now);
        status.start_time = Some(Time(now));
    }
}

/// Turns the decision into the end.
pub(super) fn finish(status: &mut JobStatus, now: Timestamp) {
    let ends = [
        ("FailureTarget", "Failed"),
        ("SuccessCriteriaMet", "Complete"),
    ];
    for (decision, end) in ends {
        let Some(decided) = condition(status, decision).cloned() else {
            continue;
        };
        let reason = decided.reason.unwrap_or_default();
        let message = decided.message.unwrap_or_default();
        set(status, end, "True", (&reason, &message), now);
        if end == "Complete" {
            status.completion_time = Some(Time(now));
        }
        return;
    }
}

/// Replaces a condition; it is given its reason and its message.
fn set(
    status: &mut JobStatus,
    kind: &str,
    value: &str,
    (reason, message): (&str, &str),
    now: Timestamp,
) {
    let conditions = status.conditions.get_or_insert_default();
    conditions.retain(|condition| condition.type_ != kind);
    conditions.push(JobCondition {
        type_: kind.to_owned(),
        status: value.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_probe_time: Some(Time(now)),
        last_transition_time: Some(Time(now)),
    });
}
