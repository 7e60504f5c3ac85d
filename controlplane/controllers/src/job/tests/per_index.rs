//! Jobs whose indexes have a limit each, in upstream's cases
//! (`TestSyncJobWithJobBackoffLimitPerIndex`, `TestGetPodsWithDelayedDeletionPerIndex`).

use super::*;
use crate::job::{
    indexes::INDEX,
    per_index::{FAILURES, Failures, IGNORED},
};

/// A pod of an index that had failed so often, and ended so many seconds ago if it has.
fn of_index(name: &str, phase: &str, index: u32, failures: u32, ago: i64, code: i32) -> Arc<Pod> {
    let annotations = json!({INDEX: index.to_string(), FAILURES: failures.to_string()});
    let ended =
        json!([{"name": "c", "state": {"terminated": {"exitCode": code, "finishedAt": at(ago)}}}]);
    let statuses = if phase == "Failed" { ended } else { json!([]) };
    let object = json!({"metadata": {"name": name, "uid": name, "finalizers": [FINALIZER], "annotations": annotations},
        "status": {"phase": phase, "containerStatuses": statuses}});
    Arc::new(serde_json::from_value(object).unwrap())
}

fn per_index(limit: i32, more: &Value) -> Job {
    let mut spec = json!({"completionMode": "Indexed", "completions": 2, "parallelism": 2,
        "backoffLimit": i32::MAX, "backoffLimitPerIndex": limit});
    for (key, value) in more.as_object().unwrap() {
        spec[key] = value.clone();
    }
    job(spec, json!({"startTime": at(60)}))
}

fn reason(status: &JobStatus) -> Option<&str> {
    condition(status, "FailureTarget")?.reason.as_deref()
}

#[test]
fn a_failed_pod_is_held_until_another_of_its_index_follows() {
    let mut job = per_index(1, &json!({}));
    let (failed, other) = (
        of_index("a", "Failed", 0, 0, 5, 1),
        of_index("b", "Running", 1, 0, 0, 0),
    );
    let plan = next(&job, &[failed.clone(), other.clone()]);
    assert_eq!((plan.create.len(), plan.release.len()), (0, 0));
    assert_eq!(plan.again, Some(Duration::from_secs(5)), "its back-off");
    assert_eq!(plan.status.failed_indexes, None);
    let failed = of_index("a", "Failed", 0, 0, 11, 1);
    let plan = next(&job, &[failed.clone(), other.clone()]);
    let failures = Failures {
        counted: 1,
        ignored: 0,
    };
    assert_eq!(plan.create.len(), 1);
    assert_eq!(
        (plan.create[0].index, plan.create[0].failures),
        (Some(0), Some(failures))
    );
    let made = template::pod(&job, plan.create[0])
        .metadata
        .annotations
        .unwrap();
    assert_eq!(
        (made.get(FAILURES).map(String::as_str), made.get(IGNORED)),
        (Some("1"), None)
    );
    // Now that it is told, the first is counted.
    let follows = of_index("c", "Running", 0, 1, 0, 0);
    let plan = next(&job, &[failed, other.clone(), follows]);
    assert_eq!((names(&plan.release), plan.create.len()), (vec!["a"], 0));
    job.status = Some(plan.status);
    // And the second time is once too often.
    let plan = next(&job, &[of_index("c", "Failed", 0, 1, 5, 1), other]);
    assert_eq!(plan.status.failed_indexes.as_deref(), Some("0"));
    assert_eq!((names(&plan.release), plan.create.len()), (vec!["c"], 0));
    assert_eq!((reason(&plan.status), plan.status.failed), (None, Some(1)));
}

#[test]
fn indexes_that_have_failed_fail_the_job_once_all_are_over_or_too_many() {
    let failed = |index: u32| of_index(&format!("f{index}"), "Failed", index, 0, 5, 1);
    let done = |index: u32| of_index(&format!("s{index}"), "Succeeded", index, 0, 5, 0);
    let runs = |index: u32| of_index(&format!("r{index}"), "Running", index, 0, 5, 0);
    let table = [
        (json!({}), vec![failed(0), runs(1)], None, "0"),
        (
            json!({}),
            vec![failed(0), done(1)],
            Some("FailedIndexes"),
            "0",
        ),
        (
            json!({}),
            vec![failed(0), failed(1)],
            Some("FailedIndexes"),
            "0,1",
        ),
        (
            json!({"maxFailedIndexes": 0}),
            vec![failed(0), runs(1)],
            Some("MaxFailedIndexesExceeded"),
            "0",
        ),
        (
            json!({"maxFailedIndexes": 1}),
            vec![failed(0), runs(1)],
            None,
            "0",
        ),
        (
            json!({"backoffLimit": 0}),
            vec![failed(0), runs(1)],
            Some("BackoffLimitExceeded"),
            "0",
        ),
        (json!({}), vec![done(0), done(1)], None, ""),
    ];
    for (more, pods, expect, failed) in table {
        let plan = next(&per_index(0, &more), &pods);
        let case = format!("{more} {:?}", names(&pods));
        assert_eq!(reason(&plan.status), expect, "{case}");
        assert_eq!(
            plan.status.failed_indexes.as_deref().unwrap_or_default(),
            failed,
            "{case}"
        );
        assert_eq!(plan.create.len(), 0, "{case}");
    }
}

#[test]
fn a_policy_fails_an_index_or_lets_it_try_again_for_ever() {
    let rules = json!([
        {"action": "FailIndex", "onExitCodes": {"operator": "In", "values": [3]}},
        {"action": "Ignore", "onExitCodes": {"operator": "In", "values": [5]}},
    ]);
    let more = json!({"podFailurePolicy": {"rules": rules}, "podReplacementPolicy": "Failed"});
    let job = per_index(6, &more);
    let other = of_index("b", "Running", 1, 0, 0, 0);
    let plan = next(&job, &[of_index("a", "Failed", 0, 0, 60, 3), other.clone()]);
    assert_eq!(plan.status.failed_indexes.as_deref(), Some("0"));
    assert_eq!(plan.create.len(), 0);
    let plan = next(&job, &[of_index("a", "Failed", 0, 6, 6000, 5), other]);
    assert_eq!(plan.status.failed_indexes, None);
    let failures = Failures {
        counted: 6,
        ignored: 1,
    };
    assert_eq!(plan.create[0].failures, Some(failures));
    let made = template::pod(&job, plan.create[0])
        .metadata
        .annotations
        .unwrap();
    assert_eq!(made.get(IGNORED).map(String::as_str), Some("1"));
}

#[test]
fn each_index_waits_for_itself() {
    let job = per_index(6, &json!({"completions": 3, "parallelism": 3}));
    // (failures before, seconds since the end of the last) of indexes 0 and 1; 2 is new
    let table = [
        ((0, 5), (2, 5), vec![2], Some(5)),
        ((0, 10), (2, 39), vec![0, 2], Some(1)),
        ((0, 10), (2, 40), vec![0, 1, 2], None),
        ((5, 0), (5, 0), vec![2], Some(320)),
    ];
    for (first, second, expect, wait) in table {
        let pods = [
            of_index("a", "Failed", 0, first.0, first.1, 1),
            of_index("b", "Failed", 1, second.0, second.1, 1),
        ];
        let plan = next(&job, &pods);
        let made: Vec<_> = plan.create.iter().filter_map(|new| new.index).collect();
        assert_eq!(made, expect, "{first:?} {second:?}");
        assert_eq!(
            plan.again,
            wait.map(Duration::from_secs),
            "{first:?} {second:?}"
        );
    }
}

#[test]
fn of_several_failed_pods_the_last_is_held() {
    let job = per_index(6, &json!({"completions": 1, "parallelism": 1}));
    let pods = [
        of_index("first", "Failed", 0, 0, 300, 1),
        of_index("last", "Failed", 0, 2, 200, 1),
        of_index("second", "Failed", 0, 1, 250, 1),
    ];
    let plan = next(&job, &pods);
    assert_eq!(names(&plan.release), ["first", "second"]);
    assert_eq!(
        plan.create[0].failures.map(|failures| failures.counted),
        Some(3)
    );
}

#[test]
fn a_job_that_is_decided_holds_nothing_back() {
    let mut job = per_index(6, &json!({"activeDeadlineSeconds": 60}));
    let plan = next(&job, &[of_index("a", "Failed", 0, 0, 5, 1)]);
    assert_eq!(reason(&plan.status), Some("DeadlineExceeded"));
    assert_eq!(names(&plan.release), ["a"]);
    job.status = Some(plan.status);
    let status = next(&job, &[]).status;
    assert_eq!(
        (conditions(&status), status.failed),
        (vec!["FailureTarget", "Failed"], Some(1))
    );
}
