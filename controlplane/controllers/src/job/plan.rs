//! What a Job should do next, as pure functions of the Job, its pods and the clock: `tracking`
//! counts, `conditions` decides, `scale` makes more of them or fewer.
//!
//! Source: `pkg/controller/job/job_controller.go` (syncJob) at v1.37.

use std::{sync::Arc, time::Duration};

use k8s_openapi::{
    api::batch::v1::{Job, JobSpec, JobStatus},
    apimachinery::pkg::apis::meta::v1::Time,
};

use super::{
    conditions::{self, Decision},
    observed::{Observed, Running},
    scale::scale,
    tracking::{self, BURST, Tally, number},
};
use crate::pod::Pod;

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

/// The fields of a Job that are set and that nothing here asks about: it may run on where it should
/// fail, or the other way.
pub(super) fn not_honoured(job: &Job) -> impl Iterator<Item = &'static str> + use<> {
    let set = job.spec.as_ref().map_or([false; 4], |spec| {
        [
            spec.pod_failure_policy.is_some(),
            spec.success_policy.is_some(),
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
    let mut status = job.status.clone().unwrap_or_default();
    let suspended = spec.suspend == Some(true);
    if status.start_time.is_none() && !suspended {
        status.start_time = Some(Time(seen.now));
    }
    conditions::note_suspension(&mut status, suspended, seen.now);

    let running = seen.running();
    let (completed, release) = tracking::count(spec, seen.pods, &mut status);
    let tally = Tally::of(&status);
    let decision = conditions::decide(spec, &mut status, &tally, &running, seen.now);
    let mut plan = Plan {
        release,
        ..Plan::default()
    };
    let some_active = || running.active.iter().take(BURST).cloned().collect();
    if job.metadata.deletion_timestamp.is_some() {
        plan.release = tracking::held(seen.pods).cloned().collect();
    } else if let Some(decision) = decision {
        let failing = decision == Decision::Fails;
        tracking::give_up_rest(seen.pods, failing, &mut status, &mut plan.release);
        plan.delete = some_active();
    } else if suspended {
        plan.dismiss = some_active();
    } else {
        let scale = scale(spec, seen, &running, &completed, tally.succeeded);
        (plan.create, plan.dismiss, plan.again) = (scale.create, scale.surplus, scale.wait);
    }

    show_running(&running, &mut status);
    let is_over = running.is_empty() && plan.release.is_empty() && tally.uncounted == 0;
    if decision.is_some() && is_over {
        conditions::finish(&mut status, seen.now);
    }
    if decision.is_none()
        && !suspended
        && let Some(left) = conditions::until_deadline(spec, &status, seen.now)
    {
        plan.again = Some(plan.again.map_or(left, |again| again.min(left)));
    }
    plan.status = status;
    plan
}

fn show_running(running: &Running, status: &mut JobStatus) {
    status.active = number(running.active.len());
    status.ready = Some(i32::try_from(running.ready()).unwrap_or(i32::MAX));
    status.terminating = Some(i32::try_from(running.terminating).unwrap_or(i32::MAX));
}
