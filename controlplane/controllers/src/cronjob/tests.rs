//! The pure part of the CronJob controller, in upstream's cases (`TestControllerV2SyncCronJob`).

mod due;
mod steps;

use serde_json::{Value, json};

use super::{plan::*, *};

/// The hour of upstream's cases.
const HOUR: &str = "2016-05-19T10:00:00Z";

fn at(text: &str) -> jiff::Timestamp {
    text.parse().unwrap()
}

fn cron_job(spec: Value, status: Value) -> CronJob {
    let mut whole = json!({"schedule": "0 * * * *", "concurrencyPolicy": "Allow",
        "jobTemplate": {"metadata": {"labels": {"a": "b"}, "annotations": {"x": "y"}},
            "spec": {"template": {"spec": {"containers": [], "restartPolicy": "Never"}}}}});
    for (key, value) in spec.as_object().unwrap() {
        whole[key] = value.clone();
    }
    let metadata = json!({"name": "mycronjob", "namespace": "snazzycats", "uid": "u", "creationTimestamp": "2016-05-19T09:59:00Z"});
    serde_json::from_value(json!({"metadata": metadata, "spec": whole, "status": status})).unwrap()
}

/// A Job that the CronJob controls.
fn job(name: &str, condition: Option<&str>) -> Arc<Job> {
    let conditions = condition.map(|kind| json!([{"type": kind, "status": "True"}]));
    let ended = condition
        .filter(|kind| *kind == "Complete")
        .map(|_| "2016-05-19T09:30:00Z");
    let object = json!({"metadata": {"name": name, "namespace": "snazzycats", "uid": name},
        "status": {"conditions": conditions, "startTime": "2016-05-19T09:00:00Z", "completionTime": ended}});
    Arc::new(serde_json::from_value(object).unwrap())
}

fn active(name: &str) -> Value {
    json!([{"name": name, "namespace": "snazzycats", "uid": name}])
}

fn next(cron_job: &CronJob, jobs: &[Arc<Job>], now: &str) -> Plan {
    next_without(cron_job, jobs, now, &HashSet::new())
}

fn next_without(
    cron_job: &CronJob,
    jobs: &[Arc<Job>],
    now: &str,
    missing: &HashSet<String>,
) -> Plan {
    let seen = Seen {
        jobs,
        missing,
        now: at(now),
        local: &TimeZone::UTC,
    };
    plan(cron_job, &seen)
}

fn reasons(plan: &Plan) -> Vec<&str> {
    plan.tell.iter().map(|told| told.reason).collect()
}

fn started(plan: &Plan) -> Option<&str> {
    plan.start.as_ref()?.job.metadata.name.as_deref()
}

const JUST_BEFORE: &str = "2016-05-19T09:59:30Z";
const JUST_AFTER: &str = "2016-05-19T10:01:00Z";
const WEEK_AFTER: &str = "2016-05-26T10:00:00Z";
/// Of 10 o'clock, and of that a week later.
const NAME: &str = "mycronjob-24394200";
const NAME_OF_WEEK: &str = "mycronjob-24404280";

/// Spec, status, now, the Job that is made, the events, whether it is looked at again.
type Case<'a> = (
    Value,
    &'a Value,
    &'a str,
    Option<&'a str>,
    &'a [&'a str],
    bool,
);

#[test]
fn a_job_that_is_due_is_made_unless_something_is_against_it() {
    let (none, ran) = (
        json!({}),
        json!({"lastScheduleTime": "2016-05-19T09:00:00Z"}),
    );
    let runs = json!({"lastScheduleTime": "2016-05-19T09:00:00Z", "active": active("prior")});
    let done = json!({"lastScheduleTime": HOUR});
    let policy = |policy: &str| json!({"concurrencyPolicy": policy});
    let deadline = |seconds: u32| json!({"startingDeadlineSeconds": seconds});
    let table: Vec<Case<'_>> = vec![
        (json!({}), &none, JUST_BEFORE, None, &[], true),
        (json!({}), &none, JUST_AFTER, Some(NAME), &[], true),
        (json!({}), &none, HOUR, Some(NAME), &[], true),
        (
            json!({"suspend": true}),
            &none,
            JUST_AFTER,
            None,
            &[],
            false,
        ),
        (
            json!({"schedule": "obvious error schedule"}),
            &none,
            JUST_AFTER,
            None,
            &["UnparseableSchedule"],
            false,
        ),
        (
            json!({"schedule": "59 23 31 2 *"}),
            &none,
            JUST_AFTER,
            None,
            &["InvalidSchedule"],
            false,
        ),
        (
            json!({"schedule": "TZ=UTC 0 * * * *"}),
            &none,
            JUST_AFTER,
            Some(NAME),
            &["UnsupportedSchedule"],
            true,
        ),
        (
            json!({"timeZone": "Mars/Base"}),
            &none,
            JUST_AFTER,
            None,
            &["UnknownTimeZone"],
            false,
        ),
        (
            json!({"timeZone": "America/New_York"}),
            &none,
            JUST_AFTER,
            Some(NAME),
            &[],
            true,
        ),
        // Half an hour off: not due there.
        (
            json!({"timeZone": "Asia/Kolkata"}),
            &none,
            JUST_AFTER,
            None,
            &[],
            true,
        ),
        // Nothing is looked for that far back: nothing is missed.
        (deadline(10), &none, JUST_AFTER, None, &[], true),
        (
            deadline(1_000_000),
            &none,
            JUST_AFTER,
            Some(NAME),
            &[],
            true,
        ),
        (json!({}), &ran, JUST_BEFORE, None, &[], true),
        (json!({}), &ran, JUST_AFTER, Some(NAME), &[], true),
        (json!({}), &done, JUST_AFTER, None, &[], true),
        (
            json!({}),
            &ran,
            WEEK_AFTER,
            Some(NAME_OF_WEEK),
            &["TooManyMissedTimes"],
            true,
        ),
        (
            deadline(7200),
            &ran,
            WEEK_AFTER,
            Some(NAME_OF_WEEK),
            &[],
            true,
        ),
        (
            deadline(1_000_000),
            &ran,
            WEEK_AFTER,
            Some(NAME_OF_WEEK),
            &["TooManyMissedTimes"],
            true,
        ),
        (policy("Allow"), &runs, JUST_AFTER, Some(NAME), &[], true),
        (
            policy("Forbid"),
            &runs,
            JUST_AFTER,
            None,
            &["JobAlreadyActive"],
            true,
        ),
        (policy("Replace"), &runs, JUST_AFTER, Some(NAME), &[], true),
        (policy("Forbid"), &runs, JUST_BEFORE, None, &[], true),
        (policy("Replace"), &runs, JUST_BEFORE, None, &[], true),
        (policy("Forbid"), &ran, JUST_AFTER, Some(NAME), &[], true),
    ];
    for (spec, status, now, made, told, again) in table {
        let case = format!("{spec} {status} at {now}");
        let is_active = status.get("active").is_some();
        let jobs: Vec<_> = is_active.then(|| job("prior", None)).into_iter().collect();
        let plan = next(&cron_job(spec.clone(), status.clone()), &jobs, now);
        assert_eq!(
            (started(&plan), reasons(&plan)),
            (made, told.to_vec()),
            "{case}"
        );
        assert_eq!(plan.again.is_some(), again, "{case}");
        let replaces = spec["concurrencyPolicy"] == "Replace" && made.is_some();
        assert_eq!(plan.replace.len(), usize::from(replaces), "{case}");
        let left = plan.status.active.map_or(0, |active| active.len());
        assert_eq!(left, usize::from(is_active && !replaces), "{case}");
    }
}

#[test]
fn a_job_is_named_and_marked_by_its_time() {
    let mut cron_job = cron_job(json!({}), json!({}));
    let made = |cron_job: &CronJob| job::job(cron_job, at(HOUR)).metadata;
    let meta = made(&cron_job);
    assert_eq!(meta.name.as_deref(), Some(NAME));
    let owner = &meta.owner_references.unwrap()[0];
    assert_eq!(
        (&*owner.kind, &*owner.api_version, owner.controller),
        ("CronJob", "batch/v1", Some(true))
    );
    assert_eq!(
        meta.labels.unwrap(),
        [("a".to_owned(), "b".to_owned())].into()
    );
    let scheduled = "batch.kubernetes.io/cronjob-scheduled-timestamp";
    let annotations = meta.annotations.unwrap();
    assert_eq!((&*annotations["x"], &*annotations[scheduled]), ("y", HOUR));
    for (zone, expect) in [
        ("America/New_York", "2016-05-19T06:00:00-04:00"),
        ("Asia/Kolkata", "2016-05-19T15:30:00+05:30"),
        ("Etc/UTC", HOUR),
    ] {
        cron_job.spec.time_zone = Some(zone.to_owned());
        assert_eq!(made(&cron_job).annotations.unwrap()[scheduled], expect);
    }
}

#[test]
fn what_becomes_of_its_jobs_is_noted() {
    let status = json!({"lastScheduleTime": HOUR, "active": active("prior")});
    let cron_job = cron_job(json!({}), status);
    let plan = next(&cron_job, &[job("prior", Some("Complete"))], JUST_AFTER);
    assert_eq!(
        plan.tell[0].message,
        "Saw completed job: prior, condition: Complete"
    );
    assert_eq!(plan.status.active, None);
    let success = plan.status.last_successful_time.unwrap();
    assert_eq!(success.0, at("2016-05-19T09:30:00Z"));
    let plan = next(&cron_job, &[job("prior", Some("Failed"))], JUST_AFTER);
    assert_eq!(
        plan.tell[0].message,
        "Saw completed job: prior, condition: Failed"
    );
    assert_eq!(
        (plan.status.last_successful_time, plan.status.active),
        (None, None)
    );
    // One of `kubectl create job --from`, say.
    let plan = next(
        &cron_job,
        &[job("prior", None), job("by-hand", None)],
        JUST_AFTER,
    );
    assert_eq!(
        plan.tell[0].message,
        "Saw a job that the controller did not create or forgot: by-hand"
    );
    assert_eq!(plan.status, status_of(&cron_job));
    // Its end counts, too.
    let plan = next(
        &cron_job,
        &[job("prior", None), job("by-hand", Some("Complete"))],
        JUST_AFTER,
    );
    assert_eq!(
        (
            reasons(&plan).len(),
            plan.status.last_successful_time.is_some()
        ),
        (0, true)
    );
    // Not seen, and gone only if the server says so.
    let plan = next(&cron_job, &[], JUST_AFTER);
    assert_eq!(plan.status, status_of(&cron_job));
    let plan = next_without(&cron_job, &[], JUST_AFTER, &["prior".to_owned()].into());
    assert_eq!(plan.tell[0].message, "Active job went missing: prior");
    assert_eq!(plan.status.active, None);
}

#[test]
fn of_jobs_that_are_over_the_last_few_are_kept() {
    let ended = |name: &str, kind: &str, start: Option<&str>| {
        let mut ended = Job::clone(&job(name, Some(kind)));
        let status = ended.status.as_mut().unwrap();
        status.start_time =
            start.map(|start| k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at(start)));
        Arc::new(ended)
    };
    let jobs = [
        ended("s3", "Complete", Some("2016-05-19T08:00:00Z")),
        ended("s1", "Complete", Some("2016-05-19T05:00:00Z")),
        ended("s2b", "Complete", Some("2016-05-19T06:00:00Z")),
        ended("s2a", "Complete", Some("2016-05-19T06:00:00Z")),
        ended("never-started", "Failed", None),
        ended("f1", "Failed", Some("2016-05-19T04:00:00Z")),
        job("runs", None),
    ];
    let names = |limits: Value| {
        let cron_job = cron_job(
            limits,
            json!({"lastScheduleTime": HOUR, "active": active("runs")}),
        );
        let plan = next(&cron_job, &jobs, JUST_AFTER);
        let names = plan.remove.iter().map(|job| job.name_any());
        names.collect::<Vec<_>>().join(" ")
    };
    let limits = |successful: Value, failed: Value| json!({"successfulJobsHistoryLimit": successful, "failedJobsHistoryLimit": failed});
    assert_eq!(names(limits(json!(3), json!(1))), "s1 f1");
    assert_eq!(names(limits(json!(1), json!(2))), "s1 s2a s2b");
    assert_eq!(
        names(limits(json!(0), json!(0))),
        "s1 s2a s2b s3 f1 never-started"
    );
    assert_eq!(names(limits(Value::Null, Value::Null)), "");
}

#[test]
fn a_cron_job_that_goes_makes_nothing() {
    let mut cron_job = cron_job(json!({}), json!({"active": active("prior")}));
    cron_job.metadata.deletion_timestamp = cron_job.metadata.creation_timestamp.clone();
    let plan = next(&cron_job, &[job("prior", Some("Complete"))], JUST_AFTER);
    assert_eq!((started(&plan), plan.again), (None, None));
    assert_eq!(reasons(&plan), ["SawCompletedJob"]);
}
