//! What a Job's conditions say: whether it is decided, and whether it is over. Pure.
//!
//! ```text
//! running ──(enough successes)──> SuccessCriteriaMet ──(no pod is left running)──> Complete
//!    └──(too many failures, too late)──> FailureTarget ──(no pod is left running)──> Failed
//! ```
//!
//! Source: `pkg/controller/job/job_controller.go` (syncJob, enactJobFinished) at v1.37.

use std::{borrow::Cow, sync::Arc, time::Duration};

use k8s_openapi::{
    api::batch::v1::{Job, JobCondition, JobSpec, JobStatus},
    apimachinery::pkg::apis::meta::v1::Time,
    jiff::Timestamp,
};

use super::{
    failure_policy::{self, Action},
    indexes::Indexes,
    observed::{Observed, Running, completions, has_failed, uid},
    success_policy,
    tracking::Tally,
};
use crate::pod::Pod;

/// What was decided about a Job, whose pods may still be running.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Decision {
    Fails,
    Succeeds,
}

/// What a decision is made of.
pub(super) struct Facts<'a> {
    pub(super) seen: &'a Observed<'a>,
    pub(super) running: &'a Running,
    pub(super) tally: &'a Tally,
    /// Of an Indexed Job: the indexes that are done.
    pub(super) completed: Option<&'a Indexes>,
    /// Of one with a limit per index: those that have failed.
    pub(super) failed: Option<&'a Indexes>,
}

/// Why a Job is over: a reason and a message.
type Why = (&'static str, Cow<'static, str>);

/// The true condition of type `kind`.
pub(super) fn condition<'a>(status: &'a JobStatus, kind: &str) -> Option<&'a JobCondition> {
    status
        .conditions
        .iter()
        .flatten()
        .find(|condition| condition.type_ == kind && condition.status == "True")
}

/// The condition that says that the Job is over.
pub(crate) fn finished(job: &Job) -> Option<&JobCondition> {
    let status = job.status.as_ref()?;
    condition(status, "Complete").or_else(|| condition(status, "Failed"))
}

/// What was decided already. It stays so, whatever happens to the pods that are still there.
pub(super) fn decided(status: &JobStatus) -> Option<Decision> {
    if condition(status, "SuccessCriteriaMet").is_some() {
        Some(Decision::Succeeds)
    } else {
        condition(status, "FailureTarget").map(|_| Decision::Fails)
    }
}

/// Decides, and puts that into the conditions.
pub(super) fn decide(
    spec: &JobSpec,
    status: &mut JobStatus,
    facts: &Facts<'_>,
) -> Option<Decision> {
    if let Some(before) = decided(status) {
        return Some(before);
    }
    let now = facts.seen.now;
    if let Some((reason, message)) = failure(spec, status, facts) {
        set(status, "FailureTarget", "True", (reason, &message), now);
        return Some(Decision::Fails);
    }
    let (reason, message) = success(spec, facts)?;
    set(
        status,
        "SuccessCriteriaMet",
        "True",
        (reason, &message),
        now,
    );
    Some(Decision::Succeeds)
}

/// Why the Job cannot succeed any more. What its pods have failed of comes before how many.
fn failure(spec: &JobSpec, status: &JobStatus, facts: &Facts<'_>) -> Option<Why> {
    if let Some(message) = policy_message(spec, facts.seen) {
        return Some(("PodFailurePolicy", message.into()));
    }
    if exceeds_limit(spec, facts) {
        let message = "Job has reached the specified backoff limit";
        return Some(("BackoffLimitExceeded", message.into()));
    }
    let left = until_deadline(spec, status, facts.seen.now);
    if spec.suspend != Some(true) && left.is_some_and(|left| left.is_zero()) {
        let message = "Job was active longer than specified deadline";
        return Some(("DeadlineExceeded", message.into()));
    }
    let failed = facts.failed?.len();
    let most = spec.max_failed_indexes.map(usize::try_from);
    if most.is_some_and(|most| most.is_ok_and(|most| failed > most)) {
        let message = "Job has exceeded the specified maximal number of failed indexes";
        return Some(("MaxFailedIndexesExceeded", message.into()));
    }
    let settled = failed + facts.completed.map_or(0, Indexes::len);
    let all = usize::try_from(completions(spec)).unwrap_or(usize::MAX);
    let message = "Job has failed indexes";
    (failed > 0 && settled >= all).then(|| ("FailedIndexes", message.into()))
}

/// The first failed pod that is to fail the Job, in words. Pods that the Job itself has ended, as
/// when it was suspended, fail nothing.
fn policy_message(spec: &JobSpec, seen: &Observed<'_>) -> Option<String> {
    spec.pod_failure_policy.as_ref()?;
    let failed = |pod: &&Arc<Pod>| has_failed(spec, pod) && !seen.dismissed.contains(uid(pod));
    let mut actions = seen
        .pods
        .iter()
        .filter(failed)
        .filter_map(|pod| failure_policy::action(spec, pod));
    actions.find_map(|action| match action {
        Action::FailJob(message) => Some(message),
        _ => None,
    })
}

fn exceeds_limit(spec: &JobSpec, facts: &Facts<'_>) -> bool {
    let limit = usize::try_from(spec.backoff_limit.unwrap_or(6)).unwrap_or(0);
    let template = spec.template.spec.as_ref();
    let on_failure = template.and_then(|pod| pod.restart_policy.as_deref()) == Some("OnFailure");
    let unended = facts
        .running
        .active
        .iter()
        .chain(&facts.running.terminating);
    let restarts: usize = match on_failure {
        true => unended.map(|pod| restarts(pod)).sum(),
        false => 0,
    };
    facts.tally.failed > limit || (restarts > 0 && restarts >= limit)
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

/// Why the Job has succeeded, if it has. Without `completions` one success is enough, and the
/// others may still end.
fn success(spec: &JobSpec, facts: &Facts<'_>) -> Option<Why> {
    if let Some(message) = facts
        .completed
        .and_then(|done| success_policy::met(spec, done))
    {
        return Some(("SuccessPolicy", message.into()));
    }
    let succeeded = facts.tally.succeeded;
    let enough = match spec.completions {
        Some(wanted) => succeeded >= usize::try_from(wanted).unwrap_or(0),
        None => succeeded > 0 && facts.running.active.is_empty(),
    };
    let message = "Reached expected number of succeeded pods";
    enough.then(|| ("CompletionsReached", message.into()))
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
