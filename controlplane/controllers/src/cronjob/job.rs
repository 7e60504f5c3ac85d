//! The Job of a CronJob, from its template. Pure.
//!
//! Source: `pkg/controller/cronjob/utils.go` (getJobFromTemplate2) at v1.37.

use coracle_api::cron;
use jiff::{Timestamp, tz::TimeZone};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use kube::api::ObjectMeta;

use crate::owner::controller_reference;

/// When a Job was due, by the clock of its CronJob's zone.
const SCHEDULED: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";

/// That of a minute, whoever makes it.
pub(super) fn name(cron_job: &CronJob, due: Timestamp) -> String {
    let name = cron_job.metadata.name.as_deref().unwrap_or_default();
    format!("{name}-{}", due.as_second().div_euclid(60))
}

/// The Job that is due then.
pub(super) fn job(cron_job: &CronJob, due: Timestamp) -> Job {
    let template = cron_job.spec.job_template.clone();
    let meta = template.metadata.unwrap_or_default();
    let named = cron_job.spec.time_zone.as_deref();
    // UTC where none is named, whatever the schedule goes by.
    let zone = cron::zone(named.unwrap_or_default()).unwrap_or(TimeZone::UTC);
    let mut annotations = meta.annotations.unwrap_or_default();
    annotations.insert(SCHEDULED.to_owned(), rfc3339(due, zone));
    Job {
        metadata: ObjectMeta {
            namespace: cron_job.metadata.namespace.clone(),
            name: Some(name(cron_job, due)),
            labels: meta.labels,
            annotations: Some(annotations),
            owner_references: Some(vec![controller_reference(cron_job)]),
            ..ObjectMeta::default()
        },
        spec: template.spec,
        status: None,
    }
}

/// As Go writes it: `Z` for an offset of zero.
fn rfc3339(at: Timestamp, zone: TimeZone) -> String {
    let at = at.to_zoned(zone);
    let format = match at.offset().seconds() {
        0 => "%Y-%m-%dT%H:%M:%SZ",
        _ => "%Y-%m-%dT%H:%M:%S%:z",
    };
    at.strftime(format).to_string()
}
