//! The pure part of the Job controller.

use std::{collections::HashSet, time::Duration};

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::{backoff::Record, plan::*, *};

mod indexed;
mod per_index;
mod policies;
mod removal;

const NOW: i64 = 1_000_000;

fn at(ago: i64) -> String {
    Timestamp::from_second(NOW - ago).unwrap().to_string()
}

fn job(spec: Value, status: Value) -> Job {
    let mut spec = spec;
    spec["template"] = json!({"spec": {"containers": [{"name": "c"}], "restartPolicy": "Never"}});
    serde_json::from_value(
        json!({"metadata": {"name": "j", "uid": "j"}, "spec": spec, "status": status}),
    )
    .unwrap()
}

fn pod(name: &str, phase: &str) -> Arc<Pod> {
    pod_with(name, phase, json!({}))
}

fn pod_with(name: &str, phase: &str, metadata: Value) -> Arc<Pod> {
    let mut meta = json!({"name": name, "uid": name, "finalizers": [FINALIZER]});
    for (key, value) in metadata.as_object().unwrap() {
        meta[key] = value.clone();
    }
    let ended = json!({"name": "c", "image": "", "imageID": "", "ready": false, "restartCount": 0,
        "state": {"terminated": {"exitCode": 1, "finishedAt": at(5)}}});
    let statuses = if phase == "Failed" {
        json!([ended])
    } else {
        json!([])
    };
    Arc::new(
        serde_json::from_value(
            json!({"metadata": meta, "status": {"phase": phase, "containerStatuses": statuses}}),
        )
        .unwrap(),
    )
}

fn next(job: &Job, pods: &[Arc<Pod>]) -> Plan {
    next_after(job, pods, &HashSet::new())
}

fn next_after(job: &Job, pods: &[Arc<Pod>], dismissed: &HashSet<String>) -> Plan {
    plan(job, &observed(pods, dismissed, &Record::default()))
}

fn observed<'a>(
    pods: &'a [Arc<Pod>],
    dismissed: &'a HashSet<String>,
    record: &'a Record,
) -> Observed<'a> {
    let now = Timestamp::from_second(NOW).unwrap();
    Observed {
        pods,
        dismissed,
        record,
        now,
    }
}

fn indexes_of(plan: &Plan) -> Vec<Option<u32>> {
    plan.create.iter().map(|new| new.index).collect()
}

fn names(pods: &[Arc<Pod>]) -> Vec<&str> {
    pods.iter().map(|pod| name_of(pod)).collect()
}

fn conditions(status: &JobStatus) -> Vec<&str> {
    status
        .conditions
        .iter()
        .flatten()
        .filter(|c| c.status == "True")
        .map(|c| c.type_.as_str())
        .collect()
}

#[test]
fn no_more_pods_run_than_parallelism_and_missing_successes_ask_for() {
    // (completions, parallelism, succeeded already, active) -> (created, deleted)
    let table = [
        (Some(1), 1, 0, 0, (1, 0)),
        (Some(5), 2, 0, 0, (2, 0)),
        (Some(5), 2, 4, 0, (1, 0)),
        (Some(5), 2, 4, 2, (0, 1)),
        (Some(5), 3, 0, 2, (1, 0)),
        (Some(5), 1, 0, 3, (0, 2)),
        (None, 3, 0, 1, (2, 0)),
        (None, 3, 1, 2, (0, 0)),
        (Some(3), 0, 0, 2, (0, 2)),
    ];
    for (completions, parallelism, succeeded, active, (created, deleted)) in table {
        let spec = json!({"completions": completions, "parallelism": parallelism});
        let job = job(spec, json!({"startTime": at(60), "succeeded": succeeded}));
        let pods: Vec<_> = (0..active)
            .map(|n| pod(&format!("p{n}"), "Running"))
            .collect();
        let plan = next(&job, &pods);
        let case = format!("{completions:?} {parallelism} {succeeded} {active}");
        assert_eq!(
            (plan.create.len(), plan.dismiss.len()),
            (created, deleted),
            "{case}"
        );
        assert!(plan.delete.is_empty(), "{case}");
    }
}

/// Each step of a pod's way into the counter, as if the controller died after it.
#[test]
fn a_pod_is_counted_once_whenever_the_controller_stops() {
    let mut job = job(
        json!({"completions": 2, "parallelism": 1}),
        json!({"startTime": at(60)}),
    );
    let ended = [pod("a", "Succeeded")];
    let plan = next(&job, &ended);
    assert_eq!(names(&plan.release), ["a"]);
    let waiting = plan.status.uncounted_terminated_pods.clone().unwrap();
    assert_eq!(
        (plan.status.succeeded, waiting.succeeded),
        (None, Some(vec!["a".to_owned()]))
    );
    // The status is written, the finalizer is not taken yet.
    job.status = Some(plan.status);
    let again = next(&job, &ended);
    assert_eq!(Some(&again.status), job.status.as_ref());
    assert_eq!(names(&again.release), ["a"]);
    // The finalizer is taken; the pod is there, or gone.
    for pods in [
        vec![pod_with("a", "Succeeded", json!({"finalizers": []}))],
        vec![],
    ] {
        let after = next(&job, &pods);
        assert_eq!(after.status.succeeded, Some(1));
        assert_eq!(
            after
                .status
                .uncounted_terminated_pods
                .clone()
                .unwrap()
                .succeeded,
            Some(vec![])
        );
        assert!(after.release.is_empty());
        assert_eq!(after.create.len(), 1, "the second");
    }
}

#[test]
fn enough_successes_complete_the_job_once_nothing_runs() {
    let mut job = job(
        json!({"completions": 1, "parallelism": 1}),
        json!({"startTime": at(60)}),
    );
    let plan = next(&job, &[pod("a", "Succeeded"), pod("extra", "Running")]);
    assert_eq!(conditions(&plan.status), ["SuccessCriteriaMet"]);
    assert_eq!(names(&plan.delete), ["extra"]);
    job.status = Some(plan.status);
    let going = pod_with(
        "extra",
        "Running",
        json!({"finalizers": [], "deletionTimestamp": at(0)}),
    );
    let plan = next(&job, &[going]);
    assert_eq!(conditions(&plan.status), ["SuccessCriteriaMet"]);
    assert_eq!(
        (plan.status.succeeded, plan.status.terminating),
        (Some(1), Some(1))
    );
    job.status = Some(plan.status);
    let plan = next(&job, &[]);
    assert_eq!(conditions(&plan.status), ["SuccessCriteriaMet", "Complete"]);
    assert_eq!((plan.status.succeeded, plan.status.failed), (Some(1), None));
    assert!(plan.status.completion_time.is_some());
}

#[test]
fn too_many_failures_or_too_much_time_fail_the_job() {
    let table = [
        (
            json!({"backoffLimit": 0}),
            vec![pod("a", "Failed")],
            Some("BackoffLimitExceeded"),
        ),
        (json!({"backoffLimit": 1}), vec![pod("a", "Failed")], None),
        (
            json!({"backoffLimit": 1}),
            vec![pod("a", "Failed"), pod("b", "Failed")],
            Some("BackoffLimitExceeded"),
        ),
        (
            json!({"activeDeadlineSeconds": 60}),
            vec![pod("a", "Running")],
            Some("DeadlineExceeded"),
        ),
        (
            json!({"activeDeadlineSeconds": 61}),
            vec![pod("a", "Running")],
            None,
        ),
    ];
    for (mut spec, pods, reason) in table {
        spec["completions"] = json!(3);
        spec["parallelism"] = json!(1);
        let mut job = job(spec.clone(), json!({"startTime": at(60)}));
        let plan = next(&job, &pods);
        let target = condition(&plan.status, "FailureTarget");
        assert_eq!(
            target.and_then(|target| target.reason.as_deref()),
            reason,
            "{spec}"
        );
        if reason.is_some() {
            assert!(plan.create.is_empty(), "{spec}");
            job.status = Some(plan.status);
            let plan = next(&job, &[]);
            assert_eq!(
                conditions(&plan.status),
                ["FailureTarget", "Failed"],
                "{spec}"
            );
            assert_eq!(
                plan.status.failed,
                Some(i32::try_from(pods.len()).unwrap()),
                "{spec}"
            );
        }
    }
}

#[test]
fn a_failed_pod_is_replaced_later_and_later() {
    let spec = json!({"completions": 1, "parallelism": 1, "backoffLimit": 6});
    let job = job(spec, json!({"startTime": at(60)}));
    let plan = next(&job, &[pod("a", "Failed")]);
    assert_eq!(
        (plan.create.len(), plan.again),
        (0, Some(Duration::from_secs(5)))
    );
    let plan = next(&job, &[pod("a", "Failed"), pod("b", "Failed")]);
    assert_eq!(
        (plan.create.len(), plan.again),
        (0, Some(Duration::from_secs(15)))
    );
}

#[test]
fn a_failed_pod_holds_its_follower_back_when_it_is_gone() {
    let spec = json!({"completions": 3, "parallelism": 1, "backoffLimit": 6});
    let job = job(spec, json!({"startTime": at(60)}));
    let (spec, none) = (job.spec.as_ref().unwrap(), HashSet::new());
    let mut record = Record::default();
    let mut next = |pods: &[Arc<Pod>]| {
        let before = record.clone();
        let seen = observed(pods, &none, &before);
        record = before.after(spec, &seen);
        let plan = plan(&job, &seen);
        (plan.create.len(), plan.again.map(|again| again.as_secs()))
    };
    let failed = |name: &str| pod(name, "Failed");
    assert_eq!(next(&[failed("a")]), (0, Some(5)));
    assert_eq!(next(&[failed("a")]), (0, Some(5)), "it counts once");
    assert_eq!(next(&[]), (0, Some(5)), "it was evicted");
    assert_eq!(next(&[failed("b")]), (0, Some(15)));
    assert_eq!(next(&[]), (0, Some(15)));
    let ended = pod_with("c", "Succeeded", json!({"creationTimestamp": at(3)}));
    assert_eq!(next(&[ended]), (1, None), "a success ends it");
    assert_eq!(next(&[]), (1, None));
}

#[test]
fn a_suspended_job_has_no_pods_and_starts_anew() {
    let spec = json!({"completions": 1, "parallelism": 1, "suspend": true});
    let mut suspended = job(spec, json!({"startTime": at(60)}));
    let plan = next(&suspended, &[pod("a", "Running")]);
    assert_eq!(
        (names(&plan.dismiss), conditions(&plan.status)),
        (vec!["a"], vec!["Suspended"])
    );
    assert!(
        plan.delete.is_empty(),
        "with the finalizer on it it would count as failed"
    );
    suspended.status = Some(plan.status);
    suspended.spec.as_mut().unwrap().suspend = Some(false);
    let plan = next(&suspended, &[]);
    assert_eq!((plan.create.len(), conditions(&plan.status).len()), (1, 0));
    assert_eq!(plan.status.start_time.unwrap().0.as_second(), NOW);
}

/// A pod on its way out, as it is in the cache after its finalizer was taken and the delete was
/// answered.
#[test]
fn pods_that_the_job_lets_go_are_no_failures() {
    for suspend in [true, false] {
        let spec =
            json!({"completions": 1, "parallelism": 1, "backoffLimit": 0, "suspend": suspend});
        let job = job(spec, json!({"startTime": at(60)}));
        let going = json!({"deletionTimestamp": at(-30), "deletionGracePeriodSeconds": 30, "finalizers": []});
        let plan = next_after(
            &job,
            &[pod_with("a", "Running", going)],
            &["a".to_owned()].into(),
        );
        assert_eq!(
            condition(&plan.status, "FailureTarget"),
            None,
            "suspended: {suspend}"
        );
        assert_eq!(
            (plan.status.failed, plan.status.terminating),
            (None, Some(1)),
            "suspended: {suspend}"
        );
        assert_eq!(
            (plan.create.len(), plan.again),
            (usize::from(!suspend), None),
            "suspended: {suspend}"
        );
    }
}

#[test]
fn back_off_counts_from_when_a_pod_was_told_to_go() {
    let job = job(
        json!({"completions": 1, "parallelism": 1}),
        json!({"startTime": at(60)}),
    );
    let told = json!({"deletionTimestamp": at(-25), "deletionGracePeriodSeconds": 30});
    let plan = next(&job, &[pod_with("a", "Running", told)]);
    assert_eq!(
        (plan.create.len(), plan.again),
        (0, Some(Duration::from_secs(5)))
    );
}
