//! Failure and success policies, in upstream's cases.

use super::*;
use crate::job::failure_policy::{self, Action};

fn failed(statuses: Value) -> Arc<Pod> {
    let mut object = json!({"metadata": {"namespace": "default", "name": "mypod", "uid": "u", "finalizers": [FINALIZER]},
        "status": statuses});
    object["status"]["phase"] = json!("Failed");
    Arc::new(serde_json::from_value(object).unwrap())
}

fn exited(name: &str, code: i32) -> Value {
    json!({"name": name, "state": {"terminated": {"exitCode": code, "finishedAt": at(5)}}})
}

fn fail_job(message: &str) -> Option<Action> {
    Some(Action::FailJob(message.to_owned()))
}

/// Upstream's `TestMatchPodFailurePolicy`.
#[test]
fn the_first_rule_that_matches_says_what_a_failure_is() {
    let codes = |action: &str, operator: &str, values: Value| json!({"action": action, "onExitCodes": {"operator": operator, "values": values}});
    let disrupted = |action: &str| json!({"action": action, "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]});
    let of = |name: &str, mut rule: Value| {
        rule["onExitCodes"]["containerName"] = json!(name);
        rule
    };
    let main = |code| json!({"containerStatuses": [exited("main", code)]});
    let init = |code| json!({"initContainerStatuses": [exited("init", code)]});
    let condition =
        |status: &str| json!({"conditions": [{"type": "DisruptionTarget", "status": status}]});
    let five = fail_job(
        "Container main for pod default/mypod failed with exit code 5 matching FailJob rule at index 0",
    );
    let table = [
        (json!([]), main(5), None),
        (json!([codes("Unknown", "In", json!([5]))]), main(5), None),
        (
            json!([codes("FailJob", "In", json!([5, 6]))]),
            main(5),
            five.clone(),
        ),
        (json!([codes("FailJob", "In", json!([6]))]), main(5), None),
        (
            json!([codes("FailJob", "NotIn", json!([6]))]),
            main(5),
            five,
        ),
        (
            json!([codes("FailJob", "NotIn", json!([5]))]),
            main(5),
            None,
        ),
        (
            json!([codes("FailJob", "NotIn", json!([5]))]),
            main(0),
            None,
        ),
        (json!([codes("FailJob", "Nor", json!([5]))]), main(5), None),
        (
            json!([codes("FailJob", "In", json!([5]))]),
            json!({"containerStatuses": [{"name": "main", "state": {"running": {}}}]}),
            None,
        ),
        (
            json!([
                codes("Ignore", "In", json!([5])),
                codes("FailJob", "In", json!([5]))
            ]),
            main(5),
            Some(Action::Ignore),
        ),
        (
            json!([
                codes("Count", "In", json!([1])),
                codes("FailIndex", "In", json!([5]))
            ]),
            main(5),
            Some(Action::FailIndex),
        ),
        (
            json!([codes("Count", "In", json!([5]))]),
            main(5),
            Some(Action::Count),
        ),
        (
            json!([of("init", codes("FailJob", "In", json!([5])))]),
            init(5),
            fail_job(
                "Container init for pod default/mypod failed with exit code 5 matching FailJob rule at index 0",
            ),
        ),
        (
            json!([of("other", codes("FailJob", "In", json!([5])))]),
            main(5),
            None,
        ),
        (
            json!([codes("Count", "In", json!([1])), disrupted("FailJob")]),
            condition("True"),
            fail_job(
                "Pod default/mypod has condition DisruptionTarget matching FailJob rule at index 1",
            ),
        ),
        (
            json!([disrupted("Ignore")]),
            condition("True"),
            Some(Action::Ignore),
        ),
        (json!([disrupted("Ignore")]), condition("False"), None),
        (
            json!([disrupted("FailIndex")]),
            condition("True"),
            Some(Action::FailIndex),
        ),
    ];
    for (rules, status, expect) in table {
        let case = format!("{rules} {status}");
        let job = job(json!({"podFailurePolicy": {"rules": rules}}), json!({}));
        let action = failure_policy::action(job.spec.as_ref().unwrap(), &failed(status));
        assert_eq!(action, expect, "{case}");
    }
}

fn with_policy(action: &str) -> Value {
    let rule = json!({"action": action, "onExitCodes": {"operator": "In", "values": [5]}});
    json!({"completions": 1, "parallelism": 1, "backoffLimit": 0, "podReplacementPolicy": "Failed",
        "podFailurePolicy": {"rules": [rule]}})
}

/// Upstream's `TestSyncJobWithJobPodFailurePolicy`.
#[test]
fn a_failure_fails_the_job_or_is_none() {
    let pods = [failed(json!({"containerStatuses": [exited("main", 5)]}))];
    let table = [
        ("FailJob", Some("PodFailurePolicy"), Some(1)),
        ("Ignore", None, None),
        ("Count", Some("BackoffLimitExceeded"), Some(1)),
    ];
    for (action, reason, counted) in table {
        let mut job = job(with_policy(action), json!({"startTime": at(60)}));
        let plan = next(&job, &pods);
        let target = condition(&plan.status, "FailureTarget");
        let said = target.and_then(|target| target.reason.as_deref());
        assert_eq!(said, reason, "{action}");
        assert_eq!(names(&plan.release), ["mypod"], "{action}");
        // The next pod of one that goes on waits nevertheless.
        assert_eq!(plan.again.is_some(), reason.is_none(), "{action}");
        job.status = Some(plan.status);
        let plan = next(&job, &[]);
        assert_eq!(plan.status.failed, counted, "{action}");
        let failed = condition(&plan.status, "Failed");
        assert_eq!(failed.is_some(), reason.is_some(), "{action}");
    }
}

#[test]
fn what_a_job_has_ended_itself_fails_it_by_no_policy() {
    let mut pod = Pod::clone(&failed(json!({"containerStatuses": [exited("main", 5)]})));
    pod.metadata.finalizers = None;
    let pods = [Arc::new(pod)];
    let job = job(with_policy("FailJob"), json!({"startTime": at(60)}));
    let plan = next_after(&job, &pods, &["u".to_owned()].into());
    assert_eq!(
        condition(&plan.status, "FailureTarget").and_then(|c| c.reason.as_deref()),
        None
    );
}

/// Upstream's `TestMatchSuccessPolicy`.
#[test]
fn some_successes_are_enough_by_a_success_policy() {
    let table = [
        (json!([{"succeededCount": 2}]), "0", None),
        (
            json!([{"succeededCount": 2}]),
            "0,3",
            Some("Matched rules at index 0"),
        ),
        (json!([{"succeededIndexes": "0-2"}]), "0,1", None),
        (
            json!([{"succeededIndexes": "0-2"}]),
            "0-2",
            Some("Matched rules at index 0"),
        ),
        (
            json!([{"succeededIndexes": "0-2"}]),
            "0-7",
            Some("Matched rules at index 0"),
        ),
        (
            json!([{"succeededIndexes": "0-4", "succeededCount": 2}]),
            "3-6",
            Some("Matched rules at index 0"),
        ),
        (
            json!([{"succeededIndexes": "0-4", "succeededCount": 3}]),
            "3-6",
            None,
        ),
        (
            json!([{"succeededIndexes": "0-2,5,7-9", "succeededCount": 4}]),
            "1-8",
            Some("Matched rules at index 0"),
        ),
        (json!([{"succeededIndexes": "nonsense"}]), "0-7", None),
        (json!([{"succeededCount": 0}]), "", None),
        (
            json!([{"succeededCount": 9}, {"succeededIndexes": "4"}]),
            "4",
            Some("Matched rules at index 1"),
        ),
    ];
    for (rules, completed, expect) in table {
        let case = format!("{rules} {completed}");
        let spec = json!({"completionMode": "Indexed", "completions": 10, "parallelism": 10,
            "successPolicy": {"rules": rules}});
        let job = job(
            spec,
            json!({"startTime": at(60), "completedIndexes": completed}),
        );
        let plan = next(&job, &[]);
        let met = condition(&plan.status, "SuccessCriteriaMet");
        let met = met.map(|met| {
            (
                met.reason.as_deref().unwrap(),
                met.message.as_deref().unwrap(),
            )
        });
        assert_eq!(
            met,
            expect.map(|message| ("SuccessPolicy", message)),
            "{case}"
        );
        assert_eq!(plan.create.is_empty(), expect.is_some(), "{case}");
    }
}

#[test]
fn what_still_runs_when_the_policy_is_met_is_no_failure() {
    let spec = json!({"completionMode": "Indexed", "completions": 2, "parallelism": 2,
        "successPolicy": {"rules": [{"succeededCount": 1}]}});
    let mut job = job(spec, json!({"startTime": at(60)}));
    let of = |name: &str, phase: &str| {
        pod_with(name, phase, json!({"annotations": {indexes::INDEX: name}}))
    };
    let plan = next(&job, &[of("0", "Succeeded"), of("1", "Running")]);
    assert_eq!(conditions(&plan.status), ["SuccessCriteriaMet"]);
    assert_eq!(
        (names(&plan.delete), names(&plan.release)),
        (vec!["1"], vec!["0", "1"])
    );
    job.status = Some(plan.status);
    let status = next(&job, &[]).status;
    assert_eq!(conditions(&status), ["SuccessCriteriaMet", "Complete"]);
    assert_eq!((status.succeeded, status.failed), (Some(1), None));
}
