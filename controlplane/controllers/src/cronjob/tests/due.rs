//! What was due last and is due next: upstream's `TestMostRecentScheduleTime` and
//! `TestNextScheduleTimeDuration`.

use std::time::Duration;

use super::*;
use crate::cronjob::due::{Missed, NeverDue};

/// So many minutes after the hour.
fn after(minutes: i64) -> jiff::Timestamp {
    at(HOUR) + jiff::SignedDuration::from_mins(minutes)
}

fn with(schedule: &str, created: i64, last: Option<i64>, deadline: Option<i64>) -> CronJob {
    let status = json!({"lastScheduleTime": last.map(after)});
    let spec = json!({"schedule": schedule, "startingDeadlineSeconds": deadline});
    let mut cron_job = cron_job(spec, status);
    let created = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(after(created));
    cron_job.metadata.creation_timestamp = Some(created);
    cron_job
}

fn due_of(cron_job: &CronJob) -> Due {
    Due::of(cron_job, &TimeZone::UTC).unwrap()
}

#[test]
fn the_last_time_that_was_missed_is_found() {
    let day = 24 * 60;
    let (few, many) = (Missed::Few, Missed::Many);
    let workdays = "30 6-16/4 * * 1-5";
    // (schedule, created, last, deadline, now) -> (found, missed); in minutes after the hour
    let table = [
        ("0 * * * *", 0, None, None, 0, None),
        ("0 * * * *", 0, None, None, 61, Some((60, Missed::None))),
        ("0 * * * *", 0, None, None, 301, Some((300, few))),
        ("0 * * * *", 0, Some(60), None, 61, None),
        (
            workdays,
            30,
            Some(30),
            None,
            31 * 60 + 10,
            Some((28 * 60 + 30, few)),
        ),
        // Steps that are unlike the first mislead, as they do upstream.
        (
            "30 10,11,12 * * 1-5",
            30,
            Some(30),
            None,
            30 * 60 + 30,
            None,
        ),
        (
            workdays,
            30,
            Some(30),
            None,
            96 * 60 + 31,
            Some((96 * 60 + 30, few)),
        ),
        (
            workdays,
            30,
            Some(30),
            None,
            42 * 60 + 31,
            Some((28 * 60 + 30, few)),
        ),
        (
            "@every 1h",
            0,
            Some(1),
            Some(7 * 86400),
            7 * day,
            Some((7 * day - 59, many)),
        ),
        (
            "0 * * * *",
            0,
            Some(0),
            Some(3600),
            7 * day,
            Some((7 * day, Missed::None)),
        ),
        ("0 0 * * 0", -600, None, None, 30, None),
    ];
    for (schedule, created, last, deadline, now, expect) in table {
        let cron_job = with(schedule, created, last, deadline);
        let unmet = due_of(&cron_job).unmet(&cron_job, after(now));
        let expect = expect.map(|(time, missed)| (after(time), missed));
        assert_eq!(unmet, Ok(expect), "{schedule} {created} {last:?} at {now}");
    }
    let rogue = with("59 23 31 2 *", 0, None, None);
    assert_eq!(due_of(&rogue).unmet(&rogue, after(60)), Err(NeverDue));
}

#[test]
fn the_next_look_is_a_little_after_the_next_time() {
    let table = [
        ("0 * * * *", 0, None, 10, Some(50)),
        ("0 * * * *", 0, None, 60, Some(60)),
        ("0 * * * *", 0, Some(0), 301, Some(59)),
        (
            "30 6-16/4 * * 1-5",
            30,
            Some(30),
            42 * 60 + 31,
            Some(49 * 60 + 59),
        ),
        // The clock was set back: it waits for what it has made.
        ("0 * * * *", 0, Some(120), 61, Some(119)),
        ("59 23 31 2 *", 0, None, 60, None),
    ];
    for (schedule, created, last, now, expect) in table {
        let cron_job = with(schedule, created, last, None);
        let wait = due_of(&cron_job).until_next(&cron_job, after(now));
        let expect = expect
            .map(|minutes: u64| Duration::from_secs(minutes * 60) + Duration::from_millis(100));
        assert_eq!(wait, expect, "{schedule} {last:?} at {now}");
    }
}
