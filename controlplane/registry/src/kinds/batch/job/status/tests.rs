use serde_json::json;

use super::*;
use crate::{
    kinds::batch::job::Job,
    strategy::Strategy,
    testing::{created, with},
};

fn job() -> Value {
    let template =
        json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i:1"}]}});
    let job = json!({"metadata": {"name": "j", "uid": "u"}, "spec": {"template": template}});
    let mut job = created(&Job, job);
    job["status"] = json!({"startTime": "2026-01-01T00:00:10Z", "active": 1, "ready": 1});
    job
}

fn conditions(kinds: &[&str]) -> Value {
    let one = |kind: &&str| json!({"type": kind, "status": "True"});
    kinds.iter().map(one).collect()
}

/// What is wrong with a change of the status to this.
fn errors(old: &Value, change: &Value) -> String {
    let mut new = old.clone();
    for (field, value) in change.as_object().unwrap() {
        new = with(&new, &format!("/status/{field}"), value.clone());
    }
    let errors = Job.validate_status_update(&new, old);
    if errors.is_empty() {
        String::new()
    } else {
        errors.to_string()
    }
}

fn complete() -> Value {
    json!({"active": null, "ready": null, "succeeded": 1, "completionTime": "2026-01-01T00:01:00Z",
        "conditions": conditions(&["SuccessCriteriaMet", "Complete"])})
}

#[test]
fn an_end_says_one_thing_and_all_of_it() {
    let job = job();
    assert_eq!(errors(&job, &complete()), "");
    let check = |field: &str, value: Value, expected: &str| {
        let mut end = complete();
        end[field] = value;
        assert_eq!(errors(&job, &end), expected, "{end}");
    };
    let required =
        "status.completionTime: Required value: completionTime is required for Complete jobs";
    check("completionTime", Value::Null, required);
    check(
        "completionTime",
        json!("2026-01-01T00:00:09Z"),
        "status.completionTime: Invalid value: \"2026-01-01T00:00:09Z\": completionTime cannot be set before startTime",
    );
    check(
        "conditions",
        conditions(&["SuccessCriteriaMet"]),
        "status.completionTime: Invalid value: \"2026-01-01T00:01:00Z\": cannot set completionTime when there is no Complete=True condition",
    );
    check(
        "conditions",
        conditions(&["Complete"]),
        "status.conditions: Invalid value: cannot set Complete=True condition without the SuccessCriteriaMet=true condition",
    );
    check(
        "active",
        json!(1),
        "status.active: Invalid value: 1: active>0 is invalid for finished job",
    );
    check(
        "terminating",
        json!(1),
        "status.terminating: Invalid value: 1: terminating>0 is invalid for finished job",
    );
    check(
        "startTime",
        Value::Null,
        "[status.startTime: Required value: startTime is required for finished job, status.startTime: Required value: startTime cannot be removed for unsuspended job]",
    );
    check(
        "uncountedTerminatedPods",
        json!({"failed": ["a"]}),
        "status.uncountedTerminatedPods: Invalid value: {\"failed\":[\"a\"]}: uncountedTerminatedPods needs to be empty for finished job",
    );
    let failed =
        |kinds: &[&str]| json!({"active": null, "ready": null, "conditions": conditions(kinds)});
    assert_eq!(errors(&job, &failed(&["FailureTarget", "Failed"])), "");
    assert_eq!(
        errors(&job, &failed(&["Failed"])),
        "status.conditions: Invalid value: cannot set Failed=True condition without the FailureTarget=true condition"
    );
    assert_eq!(
        errors(&job, &failed(&["SuccessCriteriaMet", "FailureTarget"])),
        "status.conditions: Invalid value: cannot set SuccessCriteriaMet=True and FailureTarget=true conditions"
    );
}

#[test]
fn what_was_said_is_not_taken_back() {
    let mut done = job();
    for (field, value) in complete().as_object().unwrap() {
        done = with(&done, &format!("/status/{field}"), value.clone());
    }
    done["status"]["failed"] = json!(2);
    for (change, expected) in [
        (json!({"failed": 2}), ""),
        (
            json!({"failed": 1}),
            "status.failed: Invalid value: 1: cannot decrease the failed counter",
        ),
        (
            json!({"succeeded": 0}),
            "status.succeeded: Invalid value: 0: cannot decrease the succeeded counter",
        ),
        (
            json!({"completionTime": "2026-01-01T00:02:00Z"}),
            "status.completionTime: Invalid value: \"2026-01-01T00:02:00Z\": completionTime cannot be mutated",
        ),
        (
            json!({"startTime": "2026-01-01T00:00:11Z"}),
            "status.startTime: Required value: startTime cannot be removed for unsuspended job",
        ),
        (
            json!({"conditions": conditions(&["SuccessCriteriaMet"]), "completionTime": null}),
            "status.conditions: Invalid value: cannot disable the terminal Complete=True condition",
        ),
        (
            json!({"conditions": conditions(&["Complete"])}),
            "[status.conditions: Invalid value: cannot set Complete=True condition without the SuccessCriteriaMet=true condition, status.conditions: Invalid value: cannot disable the SuccessCriteriaMet=True condition]",
        ),
    ] {
        assert_eq!(errors(&done, &change), expected, "{change}");
    }
    let indexed = with(&done, "/spec/completionMode", json!("Indexed"));
    assert_eq!(
        errors(&indexed, &json!({"succeeded": 0})),
        "",
        "it was made smaller"
    );
}

#[test]
fn a_job_that_is_resumed_starts_anew() {
    let mut job = job();
    job["status"]["conditions"] = conditions(&["Suspended"]);
    let change = json!({"startTime": "2026-01-02T00:00:00Z", "conditions": []});
    assert_eq!(errors(&job, &change), "");
    let idle = with(
        &with(&job, "/spec/suspend", json!(true)),
        "/spec/completions",
        json!(0),
    );
    let idle = with(&idle, "/status/startTime", Value::Null);
    let mut end = complete();
    end["startTime"] = Value::Null;
    assert_eq!(errors(&idle, &end), "", "one that never starts");
}

#[test]
fn pods_and_indexes_are_those_that_the_job_has() {
    let job = job();
    for (change, expected) in [
        (
            json!({"ready": 2}),
            "status.ready: Invalid value: 2: cannot set more ready pods than active",
        ),
        (
            json!({"completedIndexes": "0"}),
            "status.completedIndexes: Invalid value: \"0\": cannot set non-empty completedIndexes when non-indexed completion mode",
        ),
        (
            json!({"failedIndexes": "0"}),
            "status.failedIndexes: Invalid value: \"0\": cannot set non-null failedIndexes when backoffLimitPerIndex is null",
        ),
        (
            json!({"uncountedTerminatedPods": {"succeeded": ["a", ""], "failed": ["a"]}}),
            "[status.uncountedTerminatedPods.succeeded[1]: Invalid value: \"\": must not be empty, status.uncountedTerminatedPods.failed[0]: Duplicate value: \"a\"]",
        ),
    ] {
        assert_eq!(errors(&job, &change), expected, "{change}");
    }
    let mut odd = job;
    odd["status"]["ready"] = json!(3);
    assert_eq!(
        errors(&odd, &json!({"failed": 1})),
        "",
        "what is there already may stay"
    );
}
