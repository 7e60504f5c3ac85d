//! What a Job should do next, as pure functions of the Job, its pods and the clock.
//!
//! A pod counts once, although the counters and the pod's finalizer lie in two objects: its uid is
//! first written to `status.uncountedTerminatedPods`, then its finalizer goes, then the uid turns
//! into a number.
//!
//! ```text
//! running ──(enough successes)──> SuccessCriteriaMet ──(no pod is left running)──> Complete
//!    └──(too many failures, too late)──> FailureTarget ──(no pod is left running)──> Failed
//! ```
//!
//! Source: `pkg/controller/job/job_controller.go`, `backoff_utils.go` at v1.37.

use std::{collections::HashSet, sync::Arc, time::Duration};

use k8s_openapi::{
    api::batch::v1::{Job, JobCondition, JobSpec, JobStatus, UncountedTerminatedPods},
    apimachinery::pkg::apis::meta::v1::Time,
    jiff::Timestamp,
};

use super::{
    backoff::backoff,
    indexes::{self, Indexes},
};
use crate::{pod::Pod, pod_state};

/// Keeps a pod until it is counted.
pub(super) const FINALIZER: &str = "batch.kubernetes.io/job-tracking";
/// Most creates or deletes of one round, and most uids waiting to be counted.
const BURST: usize = 500;
/// What is known of a Job's pods; everything that was asked for earlier is among it.
pub(super) struct Observed<'a> {
    pub(super) pods: &'a [Arc<Pod>],
    /// Uids of pods that the Job itself has let go uncounted: their end is no failure.
    pub(super) dismissed: &'a HashSet<String>,
    pub(super) now: Timestamp,
}

/// The next step.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// One entry a pod to make; its completion index in an Indexed Job.
    pub(super) create: Vec<Option<u32>>,
    /// Pods of a Job that is decided; they are counted as the decision says.
    pub(super) delete: Vec<Arc<Pod>>,
    /// Pods that the Job does not want for now (suspended, scaled down, a second one of an index).
    /// Their finalizer goes first, so that their end is not counted as a failure.
    pub(super) dismiss: Vec<Arc<Pod>>,
    /// The status to write, before finalizers are taken. `active` does not yet contain `create` and
    /// `delete`.
    pub(super) status: JobStatus,
    /// Pods whose finalizer goes once the status is written.
    pub(super) release: Vec<Arc<Pod>>,
    /// When to look again although nothing happens.
    pub(super) again: Option<Duration>,
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

pub(super) fn has_finalizer(pod: &Pod) -> bool {
    pod.metadata
        .finalizers
        .iter()
        .flatten()
        .any(|finalizer| finalizer == FINALIZER)
}

/// The fields of a Job that are set and that nothing here asks about: it may run on where it should
/// fail, or the other way.
pub(super) fn not_honoured(job: &Job) -> impl Iterator<Item = &'static str> + use<> {
    let set = job.spec.as_ref().map_or([false; 4], |spec| {
        let policies = [
            spec.pod_failure_policy.is_some(),
            spec.success_policy.is_some(),
        ];
        [
            policies[0],
            policies[1],
            spec.backoff_limit_per_index.is_some(),
            spec.max_failed_indexes.is_some(),
        ]
    });
    let names = [
        "podFailurePolicy",
        "successPolicy",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ];
    names
        .into_iter()
        .zip(set)
        .filter(|(_, set)| *set)
        .map(|(name, _)| name)
}

/// Decides. The Job is not finished.
pub(super) fn plan(job: &Job, seen: &Observed<'_>) -> Plan {
    let empty = JobSpec::default();
    let spec = job.spec.as_ref().unwrap_or(&empty);
    let mut plan = Plan {
        status: job.status.clone().unwrap_or_default(),
        ..Plan::default()
    };
    let suspended = spec.suspend == Some(true);
    if plan.status.start_time.is_none() && !suspended {
        plan.status.start_time = Some(Time(seen.now));
    }
    note_suspension(&mut plan.status, suspended, seen.now);

    let active: Vec<Arc<Pod>> = seen
        .pods
        .iter()
        .filter(|pod| pod_state::is_active(pod))
        .cloned()
        .collect();
    let terminating = seen
        .pods
        .iter()
        .filter(|pod| pod_state::is_terminating(pod) && !pod_state::is_finished(pod))
        .count();
    let completed = count(spec, seen, &mut plan);
    let tally = Tally::of(&plan.status);

    // Once decided it stays so, whatever happens to the pods that are still there.
    if condition(&plan.status, "FailureTarget").is_none()
        && condition(&plan.status, "SuccessCriteriaMet").is_none()
    {
        if let Some((reason, message)) =
            failure(spec, &plan.status, tally.failed, &active, seen.now)
        {
            set(
                &mut plan.status,
                "FailureTarget",
                "True",
                reason,
                message,
                seen.now,
            );
        } else if succeeded(spec, tally.succeeded, active.len() + terminating) {
            let message = "Reached expected number of succeeded pods";
            set(
                &mut plan.status,
                "SuccessCriteriaMet",
                "True",
                "CompletionsReached",
                message,
                seen.now,
            );
        }
    }
    let failing = condition(&plan.status, "FailureTarget").is_some();
    let decided = failing || condition(&plan.status, "SuccessCriteriaMet").is_some();
    if decided && job.metadata.deletion_timestamp.is_none() {
        give_up_rest(seen, failing, &mut plan);
    }
    if job.metadata.deletion_timestamp.is_some() {
        plan.release = seen
            .pods
            .iter()
            .filter(|pod| has_finalizer(pod))
            .cloned()
            .collect();
    } else if decided {
        plan.delete = active.iter().take(BURST).cloned().collect();
    } else if suspended {
        plan.dismiss = active.iter().take(BURST).cloned().collect();
    } else {
        scale(
            spec,
            &active,
            terminating,
            &completed,
            tally.succeeded,
            seen,
            &mut plan,
        );
    }

    let ready = active.iter().filter(|pod| pod_state::is_ready(pod)).count();
    plan.status.active = number(active.len());
    plan.status.ready = Some(i32::try_from(ready).unwrap_or(i32::MAX));
    plan.status.terminating = Some(i32::try_from(terminating).unwrap_or(i32::MAX));
    if decided
        && active.is_empty()
        && terminating == 0
        && plan.release.is_empty()
        && tally.uncounted == 0
    {
        finish(&mut plan.status, seen.now);
    }
    if let Some(left) = until_deadline(spec, &plan.status, seen.now)
        && !decided
        && !suspended
    {
        plan.again = Some(plan.again.map_or(left, |again| again.min(left)));
    }
    plan
}

/// Numbers of ended pods, those that wait to be counted included.
struct Tally {
    succeeded: usize,
    failed: usize,
    uncounted: usize,
}

impl Tally {
    fn of(status: &JobStatus) -> Self {
        let waiting = |uids: Option<&Vec<String>>| uids.map_or(0, Vec::len);
        let uncounted = status.uncounted_terminated_pods.as_ref();
        let succeeded = waiting(uncounted.and_then(|both| both.succeeded.as_ref()));
        let failed = waiting(uncounted.and_then(|both| both.failed.as_ref()));
        let counted = |number: Option<i32>| usize::try_from(number.unwrap_or(0)).unwrap_or(0);
        Self {
            succeeded: counted(status.succeeded) + succeeded,
            failed: counted(status.failed) + failed,
            uncounted: succeeded + failed,
        }
    }
}

fn number(count: usize) -> Option<i32> {
    (count > 0).then(|| i32::try_from(count).unwrap_or(i32::MAX))
}

pub(super) fn uid(pod: &Pod) -> &str {
    pod.metadata.uid.as_deref().unwrap_or_default()
}

pub(super) fn is_indexed(spec: &JobSpec) -> bool {
    spec.completion_mode.as_deref() == Some("Indexed")
}

/// A pod that is going counts as failed at once, unless only failed pods are replaced.
pub(super) fn has_failed(spec: &JobSpec, pod: &Pod) -> bool {
    match pod_state::phase(pod) {
        "Failed" => true,
        "Succeeded" => false,
        _ => {
            spec.pod_replacement_policy.as_deref() != Some("Failed")
                && pod_state::is_terminating(pod)
        }
    }
}

/// Turns uids of pods without finalizer into numbers and puts newly ended pods among the uids;
/// gives the indexes that are complete.
fn count(spec: &JobSpec, seen: &Observed<'_>, plan: &mut Plan) -> Indexes {
    let held: HashSet<&str> = seen
        .pods
        .iter()
        .filter(|pod| has_finalizer(pod))
        .map(|pod| uid(pod))
        .collect();
    let mut waiting = plan
        .status
        .uncounted_terminated_pods
        .take()
        .unwrap_or_default();
    let settle = |uids: &mut Option<Vec<String>>, total: &mut Option<i32>| {
        let uids = uids.get_or_insert_default();
        let before = uids.len();
        uids.retain(|uid| held.contains(uid.as_str()));
        if uids.len() < before {
            *total = number(usize::try_from(total.unwrap_or(0)).unwrap_or(0) + before - uids.len());
        }
    };
    settle(&mut waiting.succeeded, &mut plan.status.succeeded);
    settle(&mut waiting.failed, &mut plan.status.failed);
    let mut completed =
        Indexes::parse(plan.status.completed_indexes.as_deref().unwrap_or_default());
    for pod in seen.pods.iter().filter(|pod| has_finalizer(pod)) {
        let succeeded = pod_state::phase(pod) == "Succeeded";
        if !succeeded && !has_failed(spec, pod) {
            continue;
        }
        let full = waiting.succeeded.iter().flatten().count()
            + waiting.failed.iter().flatten().count()
            >= BURST;
        // A completed index needs no uid: counted twice it is still one.
        match indexes::of_pod(pod).filter(|_| succeeded && is_indexed(spec)) {
            Some(index) => completed.insert(index),
            None if full => continue,
            None => add(
                if succeeded {
                    &mut waiting.succeeded
                } else {
                    &mut waiting.failed
                },
                uid(pod),
            ),
        }
        plan.release.push(pod.clone());
    }
    if is_indexed(spec) {
        completed.cut(spec.completions.unwrap_or(0));
        plan.status.succeeded = number(completed.len());
        plan.status.completed_indexes = (!completed.is_empty()).then(|| completed.to_string());
    }
    plan.status.uncounted_terminated_pods = Some(waiting);
    completed
}

fn add(uids: &mut Option<Vec<String>>, uid: &str) {
    let uids = uids.get_or_insert_default();
    if !uids.iter().any(|known| known == uid) {
        uids.push(uid.to_owned());
    }
}

/// The Job is decided: the pods that are still running need not be kept, and count as failed if the
/// Job failed.
fn give_up_rest(seen: &Observed<'_>, failing: bool, plan: &mut Plan) {
    let waiting: &mut UncountedTerminatedPods = plan
        .status
        .uncounted_terminated_pods
        .get_or_insert_default();
    for pod in seen.pods.iter().filter(|pod| has_finalizer(pod)) {
        if plan.release.iter().any(|known| uid(known) == uid(pod)) || plan.release.len() >= BURST {
            continue;
        }
        if failing {
            add(&mut waiting.failed, uid(pod));
        }
        plan.release.push(pod.clone());
    }
}

/// Why the Job cannot succeed any more.
fn failure(
    spec: &JobSpec,
    status: &JobStatus,
    failed: usize,
    active: &[Arc<Pod>],
    now: Timestamp,
) -> Option<(&'static str, &'static str)> {
    let limit = usize::try_from(spec.backoff_limit.unwrap_or(6)).unwrap_or(0);
    let on_failure = spec
        .template
        .spec
        .as_ref()
        .and_then(|pod| pod.restart_policy.as_deref())
        == Some("OnFailure");
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
fn succeeded(spec: &JobSpec, succeeded: usize, running: usize) -> bool {
    match spec.completions {
        Some(wanted) => succeeded >= usize::try_from(wanted).unwrap_or(0),
        None => succeeded > 0 && running == 0,
    }
}

/// Time left of `activeDeadlineSeconds`; zero when it is over, `None` without a deadline.
fn until_deadline(spec: &JobSpec, status: &JobStatus, now: Timestamp) -> Option<Duration> {
    let limit = Duration::from_secs(u64::try_from(spec.active_deadline_seconds?).ok()?);
    let end = status.start_time.as_ref()?.0.checked_add(limit).ok()?;
    Some(Duration::try_from(end.duration_since(now)).unwrap_or(Duration::ZERO))
}

/// Makes as many pods run as should.
fn scale(
    spec: &JobSpec,
    active: &[Arc<Pod>],
    terminating: usize,
    completed: &Indexes,
    succeeded: usize,
    seen: &Observed<'_>,
    plan: &mut Plan,
) {
    let parallelism = usize::try_from(spec.parallelism.unwrap_or(1)).unwrap_or(0);
    let wanted = match spec.completions {
        Some(completions) => usize::try_from(completions)
            .unwrap_or(0)
            .saturating_sub(succeeded)
            .min(parallelism),
        // One success means that the work is done: those that run may end, and nobody follows them.
        None if succeeded > 0 => active.len().min(parallelism),
        None => parallelism,
    };
    let (surplus, kept) = match is_indexed(spec) {
        true => indexes::surplus(active, completed, spec.completions.unwrap_or(0), wanted),
        false => surplus(active, wanted),
    };
    // Under this policy a place is free when its pod has ended, not when it was told to.
    let replaced_late = spec.pod_replacement_policy.as_deref() == Some("Failed");
    let there = kept.len() + if replaced_late { terminating } else { 0 };
    plan.dismiss = surplus.into_iter().take(BURST).collect();
    let missing = wanted.saturating_sub(there).min(BURST);
    if missing == 0 {
        return;
    }
    match backoff(spec, seen) {
        Some(left) => plan.again = Some(left),
        None if is_indexed(spec) => {
            let free = indexes::missing(&kept, completed, spec.completions.unwrap_or(0));
            plan.create = free.take(missing).map(Some).collect();
        }
        None => plan.create = vec![None; missing],
    }
}

/// Those that are missed least, and the rest.
fn surplus(active: &[Arc<Pod>], wanted: usize) -> (Vec<Arc<Pod>>, Vec<Arc<Pod>>) {
    let mut ranked = active.to_vec();
    ranked.sort_by_cached_key(|pod| {
        let created = pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
        let running = pod_state::phase(pod) == "Running";
        (
            !pod_state::node_name(pod).is_empty(),
            running,
            pod_state::is_ready(pod),
            std::cmp::Reverse(created),
        )
    });
    let kept = ranked.split_off(ranked.len().saturating_sub(wanted));
    (ranked, kept)
}

/// Records `suspend` in the conditions; a Job that goes on starts anew.
fn note_suspension(status: &mut JobStatus, suspended: bool, now: Timestamp) {
    let before = condition(status, "Suspended").is_some();
    if suspended && !before {
        set(
            status,
            "Suspended",
            "True",
            "JobSuspended",
            "Job suspended",
            now,
        );
    } else if !suspended && before {
        set(
            status,
            "Suspended",
            "False",
            "JobResumed",
            "Job resumed",
            now,
        );
        status.start_time = Some(Time(now));
    }
}

/// Turns the decision into the end.
fn finish(status: &mut JobStatus, now: Timestamp) {
    let ends = [
        ("FailureTarget", "Failed"),
        ("SuccessCriteriaMet", "Complete"),
    ];
    for (decision, end) in ends {
        let Some(decided) = condition(status, decision).cloned() else {
            continue;
        };
        let (reason, message) = (
            decided.reason.unwrap_or_default(),
            decided.message.unwrap_or_default(),
        );
        set(status, end, "True", &reason, &message, now);
        if end == "Complete" {
            status.completion_time = Some(Time(now));
        }
        return;
    }
}

fn set(
    status: &mut JobStatus,
    kind: &str,
    value: &str,
    reason: &str,
    message: &str,
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

/// Time until a finished Job is to be deleted; `None` if it stays.
pub(super) fn until_expiry(job: &Job, now: Timestamp) -> Option<Duration> {
    let ttl = u64::try_from(job.spec.as_ref()?.ttl_seconds_after_finished?).ok()?;
    let ended = finished(job)?.last_transition_time.as_ref()?.0;
    let end = ended.checked_add(Duration::from_secs(ttl)).ok()?;
    Some(Duration::try_from(end.duration_since(now)).unwrap_or(Duration::ZERO))
}
