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
    conditions::{self, Facts},
    indexes::{self, Indexes},
    observed::{Observed, Running, is_indexed},
    per_index::{self, Delayed},
    scale::{Done, NewPod, scale},
    tracking::{self, BURST, Fate, Tally, number},
};
use crate::pod::Pod;

/// The next step.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) create: Vec<NewPod>,
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

/// The indexes of an Indexed Job.
#[derive(Default)]
struct IndexesOfJob {
    completed: Option<Indexes>,
    /// Where each has a limit of its own.
    failed: Option<Indexes>,
    /// Those that need no more pods.
    settled: Indexes,
    delayed: Delayed,
}

impl IndexesOfJob {
    fn of(spec: &JobSpec, status: &JobStatus, seen: &Observed<'_>, running: &Running) -> Self {
        if !is_indexed(spec) {
            return Self::default();
        }
        let completed = tracking::completed(spec, status, seen.pods);
        if !per_index::is_used(spec) {
            return Self {
                settled: completed.clone(),
                completed: Some(completed),
                ..Self::default()
            };
        }
        let failed = per_index::failed_indexes(spec, status, seen.pods);
        let settled = completed.merged(&failed);
        let active = indexes::of_pods(running.active.iter().map(Arc::as_ref));
        Self {
            delayed: Delayed::of(spec, seen.pods, &settled, &active),
            completed: Some(completed),
            failed: Some(failed),
            settled,
        }
    }

    fn show(&self, status: &mut JobStatus) {
        let Some(completed) = &self.completed else {
            return;
        };
        status.succeeded = number(completed.len());
        status.completed_indexes = (!completed.is_empty()).then(|| completed.to_string());
        let failed = self.failed.as_ref().filter(|failed| !failed.is_empty());
        // The API leaves out what is empty: said again and again it would be written each time.
        status.failed_indexes = failed.map(Indexes::to_string);
    }
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
    if conditions::decided(&status).is_none() {
        conditions::note_suspension(&mut status, suspended, seen.now);
    }

    let running = seen.running();
    tracking::settle(seen.pods, &mut status);
    let indexes = IndexesOfJob::of(spec, &status, seen, &running);
    let tally = Tally::of(spec, seen.pods, &status, indexes.completed.as_ref());
    let facts = Facts {
        seen,
        running: &running,
        tally: &tally,
        completed: indexes.completed.as_ref(),
        failed: indexes.failed.as_ref(),
    };
    let decision = conditions::decide(spec, &mut status, &facts);
    let is_going = job.metadata.deletion_timestamp.is_some();
    let fate = Fate {
        decision,
        is_going,
        delayed: &indexes.delayed,
    };
    let mut plan = Plan {
        release: tracking::count(spec, seen.pods, &fate, &mut status),
        ..Plan::default()
    };
    indexes.show(&mut status);
    let some_active = || running.active.iter().take(BURST).cloned().collect();
    if is_going {
        // The pods go with it.
    } else if decision.is_some() {
        plan.delete = some_active();
    } else if suspended {
        plan.dismiss = some_active();
    } else {
        let done = Done {
            succeeded: tally.succeeded,
            settled: &indexes.settled,
            delayed: &indexes.delayed,
        };
        let scale = scale(spec, seen, &running, &done);
        (plan.create, plan.dismiss, plan.again) = (scale.create, scale.surplus, scale.wait);
    }

    show_running(&running, &mut status);
    let nothing_left = running.is_empty() && plan.release.is_empty();
    if decision.is_some() && nothing_left && tracking::uncounted(&status) == 0 {
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
    status.terminating = Some(i32::try_from(running.terminating.len()).unwrap_or(i32::MAX));
}
