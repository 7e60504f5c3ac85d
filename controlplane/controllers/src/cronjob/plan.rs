//! What a CronJob should do next, as pure functions of it, its Jobs and the clock.
//!
//! Source: `pkg/controller/cronjob/cronjob_controllerv2.go` (syncCronJob, cleanupFinishedJobs) at
//! v1.37.

use std::{collections::HashSet, sync::Arc, time::Duration};

use coracle_api::cron;
use jiff::{SignedDuration, Timestamp, tz::TimeZone};
use k8s_openapi::{
    api::{
        batch::v1::{CronJob, CronJobSpec, CronJobStatus, Job},
        core::v1::ObjectReference,
    },
    apimachinery::pkg::apis::meta::v1::Time,
};

use super::{
    due::{Due, Missed},
    job,
};
use crate::job::finished;

const DOCUMENTED: &str =
    "https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details";

/// What is known of a CronJob; everything that was done earlier is among it.
pub(super) struct Seen<'a> {
    /// Those that it controls.
    pub(super) jobs: &'a [Arc<Job>],
    /// Uids of Jobs that its status names as active and that are no more.
    pub(super) missing: &'a HashSet<String>,
    pub(super) now: Timestamp,
    /// The zone of schedules that name none.
    pub(super) local: &'a TimeZone,
}

/// An event.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) is_warning: bool,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

/// A Job to be made.
#[derive(Debug)]
pub(super) struct Start {
    pub(super) time: Time,
    pub(super) job: Job,
}

/// The next step.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// Jobs that are over and older than those that are kept.
    pub(super) remove: Vec<Arc<Job>>,
    pub(super) tell: Vec<Told>,
    pub(super) start: Option<Start>,
    /// Active Jobs that go before it starts; they are not in `status` any more.
    pub(super) replace: Vec<ObjectReference>,
    /// The status to write. `start` is not in it yet.
    pub(super) status: CronJobStatus,
    /// When to look again although nothing happens.
    pub(super) again: Option<Duration>,
}

impl Plan {
    fn normal(&mut self, reason: &'static str, message: String) {
        self.tell(false, reason, message);
    }

    fn warn(&mut self, reason: &'static str, message: String) {
        self.tell(true, reason, message);
    }

    fn tell(&mut self, is_warning: bool, reason: &'static str, message: String) {
        self.tell.push(Told {
            is_warning,
            reason,
            message,
        });
    }

    fn active(&mut self) -> &mut Vec<ObjectReference> {
        self.status.active.get_or_insert_default()
    }
}

/// The status, as it is compared: no Jobs are the same as none.
pub(super) fn status_of(cron_job: &CronJob) -> CronJobStatus {
    let mut status = cron_job.status.clone().unwrap_or_default();
    status.active = status.active.filter(|active| !active.is_empty());
    status
}

/// The active Jobs that are not among `jobs`.
pub(super) fn unseen<'a>(
    cron_job: &'a CronJob,
    jobs: &'a [Arc<Job>],
) -> impl Iterator<Item = &'a ObjectReference> {
    let status = cron_job.status.iter();
    let active = status.flat_map(|status| status.active.iter().flatten());
    active.filter(|active| !jobs.iter().any(|job| job.metadata.uid == active.uid))
}

/// Decides.
pub(super) fn plan(cron_job: &CronJob, seen: &Seen<'_>) -> Plan {
    let spec = &cron_job.spec;
    let mut plan = Plan {
        status: status_of(cron_job),
        remove: outdated(spec, seen.jobs),
        ..Plan::default()
    };
    note_jobs(&mut plan, seen);
    if cron_job.metadata.deletion_timestamp.is_none() {
        schedule(&mut plan, cron_job, spec, seen);
    }
    plan.status.active = plan.status.active.filter(|active| !active.is_empty());
    plan
}

/// The Jobs that have ended before the last few: of each kind of end as many are kept as the spec
/// says.
fn outdated(spec: &CronJobSpec, jobs: &[Arc<Job>]) -> Vec<Arc<Job>> {
    let limits = [
        ("Complete", spec.successful_jobs_history_limit),
        ("Failed", spec.failed_jobs_history_limit),
    ];
    let mut outdated = Vec::new();
    for (end, limit) in limits {
        let Some(limit) = limit else { continue };
        let ended =
            |job: &&Arc<Job>| job.metadata.deletion_timestamp.is_none() && ending(job) == Some(end);
        let mut ended: Vec<_> = jobs.iter().filter(ended).cloned().collect();
        // Those that never started are the newest.
        ended.sort_by_cached_key(|job| {
            let status = job.status.as_ref();
            let start = status.and_then(|status| Some(status.start_time.as_ref()?.0));
            (start.is_none(), start, job.metadata.name.clone())
        });
        let kept = usize::try_from(limit).unwrap_or(0);
        ended.truncate(ended.len().saturating_sub(kept));
        outdated.append(&mut ended);
    }
    outdated
}

fn ending(job: &Job) -> Option<&str> {
    finished(job).map(|condition| condition.type_.as_str())
}

/// Takes from the active Jobs those that have ended or are gone, and notes the last success.
fn note_jobs(plan: &mut Plan, seen: &Seen<'_>) {
    let gone: HashSet<_> = plan
        .remove
        .iter()
        .map(|job| job.metadata.uid.clone())
        .collect();
    plan.active().retain(|active| !gone.contains(&active.uid));
    for job in seen.jobs {
        let name = job.metadata.name.as_deref().unwrap_or_default();
        let is_active = plan
            .active()
            .iter()
            .any(|active| active.uid == job.metadata.uid);
        match ending(job) {
            None if !is_active => {
                let message =
                    format!("Saw a job that the controller did not create or forgot: {name}");
                plan.warn("UnexpectedJob", message);
            }
            None => {}
            Some(end) => {
                if is_active {
                    plan.active()
                        .retain(|active| active.uid != job.metadata.uid);
                    let message = format!("Saw completed job: {name}, condition: {end}");
                    plan.normal("SawCompletedJob", message);
                }
                note_success(&mut plan.status, job, end);
            }
        }
    }
    let is_missing = |active: &ObjectReference| {
        let uid = active.uid.as_deref().unwrap_or_default();
        seen.missing.contains(uid)
    };
    for active in plan
        .active()
        .extract_if(.., |active| is_missing(active))
        .collect::<Vec<_>>()
    {
        let name = active.name.unwrap_or_default();
        plan.normal("MissingJob", format!("Active job went missing: {name}"));
    }
}

fn note_success(status: &mut CronJobStatus, job: &Job, end: &str) {
    let ended = job
        .status
        .as_ref()
        .and_then(|status| status.completion_time.clone());
    if end == "Complete" && ended > status.last_successful_time {
        status.last_successful_time = ended;
    }
}

/// Whether a Job is due, and what there is against it.
fn schedule(plan: &mut Plan, cron_job: &CronJob, spec: &CronJobSpec, seen: &Seen<'_>) {
    if let Some(zone) = &spec.time_zone
        && let Err(why) = cron::zone(zone)
    {
        let message = format!("invalid timeZone: {zone:?}: {why}");
        return plan.warn("UnknownTimeZone", message);
    }
    if spec.suspend == Some(true) {
        return;
    }
    let text = &spec.schedule;
    if text.contains("TZ") {
        let message = format!(
            "CRON_TZ or TZ used in schedule {text:?} is not officially supported, see {DOCUMENTED}"
        );
        plan.warn("UnsupportedSchedule", message);
    }
    let due = match Due::of(cron_job, seen.local) {
        Ok(due) => due,
        Err(why) => {
            let message = format!("unparseable schedule: {text:?} : {why}");
            return plan.warn("UnparseableSchedule", message);
        }
    };
    let unmet = match due.unmet(cron_job, seen.now) {
        Ok(unmet) => unmet,
        Err(why) => {
            let message = format!("invalid schedule: {text} : {why}");
            return plan.warn("InvalidSchedule", message);
        }
    };
    plan.again = due.until_next(cron_job, seen.now);
    if let Some((time, missed)) = unmet {
        if missed == Missed::Many {
            let message = "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew";
            plan.warn("TooManyMissedTimes", message.to_owned());
        }
        start(plan, cron_job, spec, time, seen.now);
    }
}

fn start(plan: &mut Plan, cron_job: &CronJob, spec: &CronJobSpec, due: Timestamp, now: Timestamp) {
    let latest = spec
        .starting_deadline_seconds
        .and_then(|seconds| due.checked_add(SignedDuration::from_secs(seconds)).ok());
    if latest.is_some_and(|latest| latest < now) {
        let at = due.to_zoned(TimeZone::UTC);
        let at = at.strftime("%a, %d %b %Y %H:%M:%S %z");
        let message = format!("Missed scheduled time to start a job: {at}");
        return plan.warn("MissSchedule", message);
    }
    let (name, time) = (job::name(cron_job, due), Time(due));
    let is_active = plan
        .active()
        .iter()
        .any(|active| active.name.as_ref() == Some(&name));
    if is_active || plan.status.last_schedule_time.as_ref() == Some(&time) {
        return;
    }
    match spec.concurrency_policy.as_deref() {
        Some("Forbid") if !plan.active().is_empty() => {
            let message = "Not starting job because prior execution is running and concurrency policy is Forbid";
            return plan.normal("JobAlreadyActive", message.to_owned());
        }
        Some("Replace") => plan.replace = std::mem::take(plan.active()),
        _ => {}
    }
    plan.start = Some(Start {
        time,
        job: job::job(cron_job, due),
    });
}
