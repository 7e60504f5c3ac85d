//! The pure part of the disruption controller.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::{plan::*, *};

const NOW: i64 = 1_000_000;

fn now() -> Timestamp {
    Timestamp::from_second(NOW).unwrap()
}

fn ago(seconds: i64) -> String {
    Timestamp::from_second(NOW - seconds).unwrap().to_string()
}

fn budget(spec: Value, status: Value) -> PodDisruptionBudget {
    let mut full = json!({"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0});
    full.as_object_mut()
        .unwrap()
        .extend(status.as_object().unwrap().clone());
    let metadata = json!({"name": "b", "namespace": "default", "generation": 2});
    serde_json::from_value(json!({"metadata": metadata, "spec": spec, "status": full})).unwrap()
}

fn pod(name: &str, ready: bool, going: bool) -> Arc<Pod> {
    let mut pod = json!({"metadata": {"name": name, "namespace": "default"},
        "status": {"conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" }}]}});
    if going {
        pod["metadata"]["deletionTimestamp"] = ago(1).into();
    }
    Arc::new(serde_json::from_value(pod).unwrap())
}

fn planned(budget: &PodDisruptionBudget, pods: &[Arc<Pod>], scale: i32) -> Plan {
    plan(&Observed {
        budget,
        pods,
        scale,
        now: now(),
    })
}

#[test]
fn budgets_allow_what_is_healthy_beyond_what_is_desired() {
    for (spec, ready, scale, expect) in [
        (json!({"minAvailable": 2}), 3, 0, [3, 3, 2, 1]),
        (json!({"minAvailable": 5}), 3, 0, [3, 3, 5, 0]),
        (json!({"minAvailable": "50%"}), 3, 5, [5, 3, 3, 0]),
        (json!({"minAvailable": "50%"}), 3, 3, [3, 3, 2, 1]),
        (json!({"maxUnavailable": 1}), 3, 3, [3, 3, 2, 1]),
        (json!({"maxUnavailable": 1}), 2, 3, [3, 2, 2, 0]),
        (json!({"maxUnavailable": 9}), 2, 3, [3, 2, 0, 2]),
        (json!({"maxUnavailable": "34%"}), 3, 3, [3, 3, 1, 2]),
        (json!({"minAvailable": 0}), 0, 0, [0, 0, 0, 0]),
    ] {
        let pods: Vec<_> = (0..ready)
            .map(|number| pod(&format!("p{number}"), true, false))
            .collect();
        let budget = budget(spec.clone(), json!({}));
        let status = planned(&budget, &pods, scale).status;
        let counts = [
            status.expected_pods,
            status.current_healthy,
            status.desired_healthy,
            status.disruptions_allowed,
        ];
        assert_eq!(counts, expect.map(Some), "{spec}");
        assert_eq!(status.observed_generation, Some(2));
        let condition = &status.conditions.unwrap()[0];
        let reason = if expect[3] > 0 {
            "SufficientPods"
        } else {
            "InsufficientPods"
        };
        assert_eq!(
            (condition.reason.as_str(), condition.observed_generation),
            (reason, Some(2)),
            "{spec}"
        );
    }
}

#[test]
fn pods_that_are_unready_or_going_or_evicted_are_not_healthy() {
    let pods = [
        pod("a", true, false),
        pod("b", false, false),
        pod("c", true, true),
        pod("d", true, false),
    ];
    let budget = budget(
        json!({"minAvailable": 0}),
        json!({"disruptedPods": {"d": ago(30), "gone": ago(1)}}),
    );
    let plan = planned(&budget, &pods, 0);
    assert_eq!(plan.status.current_healthy, Some(1));
    assert_eq!(
        plan.status
            .disrupted_pods
            .unwrap()
            .into_keys()
            .collect::<Vec<_>>(),
        ["d"]
    );
    assert_eq!(plan.again, Some(Duration::from_secs(90)));
    assert!(plan.overdue.is_empty());
}

#[test]
fn evicted_pod_that_stays_counts_again() {
    let budget = budget(
        json!({"minAvailable": 0}),
        json!({"disruptedPods": {"a": ago(121)}}),
    );
    let plan = planned(&budget, &[pod("a", true, false)], 0);
    assert_eq!(
        (
            plan.status.current_healthy,
            plan.status.disrupted_pods,
            plan.again
        ),
        (Some(1), None, None)
    );
    assert_eq!(plan.overdue.len(), 1);
}

#[test]
fn a_pod_is_a_target_for_two_minutes_unless_its_node_says_so() {
    for (phase, status, reason, seconds, expect) in [
        ("Running", "True", "EvictionByEvictionAPI", 20, Some(100)),
        ("Running", "True", "EvictionByEvictionAPI", 121, Some(0)),
        ("Running", "True", "TerminationByKubelet", 121, None),
        ("Running", "False", "", 121, None),
        ("Failed", "True", "EvictionByEvictionAPI", 121, None),
    ] {
        let condition = json!({"type": "DisruptionTarget", "status": status, "reason": reason, "lastTransitionTime": ago(seconds)});
        let pod: Pod =
            serde_json::from_value(json!({"status": {"phase": phase, "conditions": [condition]}}))
                .unwrap();
        assert_eq!(
            stale::time_left(&pod, now()),
            expect.map(Duration::from_secs),
            "{phase} {status} {reason}"
        );
    }
}

#[test]
fn a_second_look_changes_nothing() {
    let pods = [pod("a", true, false)];
    let mut budget = budget(json!({"minAvailable": 1}), json!({}));
    let first = planned(&budget, &pods, 0).status;
    budget.status = Some(first.clone());
    assert_eq!(planned(&budget, &pods, 0).status, first);
}

#[test]
fn a_failure_keeps_the_counts_and_allows_nothing() {
    let budget = budget(
        json!({}),
        json!({"disruptionsAllowed": 2, "currentHealthy": 3}),
    );
    let status = failed(&budget, "oh");
    assert_eq!(
        (status.disruptions_allowed, status.current_healthy),
        (Some(0), Some(3))
    );
    let condition = &status.conditions.unwrap()[0];
    assert_eq!(
        (condition.reason.as_str(), condition.message.as_str()),
        ("SyncFailed", "oh")
    );
}
