//! When the Jobs of a CronJob are due, and were. Pure.
//!
//! Source: `pkg/controller/cronjob/utils.go` (mostRecentScheduleTime, nextScheduleTime,
//! nextScheduleTimeDuration), `cronjob_controllerv2.go` (formatSchedule) at v1.37.

use std::time::Duration;

use coracle_api::cron::{self, ParseError, Schedule};
use jiff::{SignedDuration, Timestamp, tz::TimeZone};
use k8s_openapi::api::batch::v1::CronJob;

/// How much later than a Job is due it is looked at: clocks differ a little.
const DELTA: Duration = Duration::from_millis(100);
/// More missed times than this are told of.
const MANY: i64 = 100;

/// The schedule of a CronJob, and the zone whose clock it goes by.
pub(super) struct Due {
    schedule: Schedule,
    zone: TimeZone,
}

/// How many Jobs there might have been since the last one, beyond one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Missed {
    None,
    Few,
    Many,
}

/// What was due last.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Latest {
    /// From when on it was looked for.
    pub(super) since: Timestamp,
    pub(super) time: Option<Timestamp>,
    pub(super) missed: Missed,
}

/// The schedule can be read, and is never due: a 31st of February.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("time difference between two schedules is less than 1 second")]
pub(super) struct NeverDue;

impl Due {
    /// `local` is the zone of those that name none. A zone that is not known is as good as none:
    /// the CronJob is told of it before.
    pub(super) fn of(cron_job: &CronJob, local: &TimeZone) -> Result<Self, ParseError> {
        let spec = &cron_job.spec;
        let named = spec.time_zone.as_deref();
        let zone = named.and_then(|name| cron::zone(name).ok());
        Ok(Self {
            schedule: Schedule::parse(&spec.schedule)?,
            zone: zone.unwrap_or_else(|| local.clone()),
        })
    }

    fn next(&self, after: Timestamp) -> Option<Timestamp> {
        self.schedule.next(after, &self.zone)
    }

    /// What of `cron_job` was due last, and is not made yet. With its deadline nothing is looked
    /// for that is too late.
    fn latest(
        &self,
        cron_job: &CronJob,
        now: Timestamp,
        with_deadline: bool,
    ) -> Result<Latest, NeverDue> {
        let since = since(cron_job, now, with_deadline);
        let latest = |time, missed| Latest {
            since,
            time,
            missed,
        };
        let first = self.next(since).ok_or(NeverDue)?;
        if now < first {
            return Ok(latest(None, Missed::None));
        }
        let second = self.next(first).ok_or(NeverDue)?;
        if now < second {
            return Ok(latest(Some(first), Missed::None));
        }
        let step = second.duration_since(first).as_secs();
        let passed = now.duration_since(first).as_secs();
        // Counted as if all steps were as long as the first, which they need not be.
        let count = passed / step.max(1) + 1;
        let jump = SignedDuration::from_secs((count - 2) * step);
        let mut from = first.checked_add(jump).map_err(|_| NeverDue)?;
        let mut time = None;
        while let Some(next) = self.next(from).filter(|next| *next <= now) {
            (from, time) = (next, Some(next));
        }
        let missed = if count > MANY {
            Missed::Many
        } else {
            Missed::Few
        };
        Ok(latest(time, missed))
    }

    /// The Job that is to be made now, if one is, and how many were missed.
    pub(super) fn unmet(
        &self,
        cron_job: &CronJob,
        now: Timestamp,
    ) -> Result<Option<(Timestamp, Missed)>, NeverDue> {
        let latest = self.latest(cron_job, now, true)?;
        Ok(latest.time.map(|time| (time, latest.missed)))
    }

    /// How long until the next Job is due; `None` if none ever is.
    pub(super) fn until_next(&self, cron_job: &CronJob, now: Timestamp) -> Option<Duration> {
        let from = match self.latest(cron_job, now, false) {
            Err(NeverDue) => now,
            Ok(latest) => match (latest.time, latest.missed) {
                (Some(time), _) => time,
                (None, Missed::None) => latest.since,
                (None, _) => now,
            },
        };
        let left = self.next(from)?.duration_since(now);
        Some(Duration::try_from(left).unwrap_or_default() + DELTA)
    }
}

/// What is due after this has not been made: the last one, or else when the CronJob was.
fn since(cron_job: &CronJob, now: Timestamp, with_deadline: bool) -> Timestamp {
    let last = cron_job
        .status
        .as_ref()
        .and_then(|status| status.last_schedule_time.as_ref());
    let created = cron_job.metadata.creation_timestamp.as_ref();
    let since = last
        .or(created)
        .map_or(Timestamp::UNIX_EPOCH, |time| time.0);
    let deadline = cron_job.spec.starting_deadline_seconds;
    match deadline.filter(|_| with_deadline) {
        Some(seconds) => now
            .checked_sub(SignedDuration::from_secs(seconds))
            .map_or(since, |earliest| earliest.max(since)),
        None => since,
    }
}
