use serde_json::{Value, json};

use super::Pod;
use crate::strategy::Strategy;

const NOW: i64 = 1_000_000;

/// READY, STATUS and RESTARTS of a pod.
fn cells(pod: &Value) -> [String; 3] {
    let row = Pod.row(pod, NOW);
    [1, 2, 3].map(|index| row[index].as_str().unwrap().to_owned())
}

fn check(spec: Value, status: Value, expect: [&str; 3]) {
    assert_eq!(
        cells(&json!({"metadata": {"name": "p"}, "spec": spec, "status": status})),
        expect,
        "{status}"
    );
}

fn two() -> Value {
    json!({"containers": [{"name": "a"}, {"name": "b"}], "initContainers": [{"name": "i"}, {"name": "j"}]})
}

#[test]
fn phases_are_shown_until_containers_say_more() {
    check(two(), json!({"phase": "Pending"}), ["0/2", "Pending", "0"]);
    check(
        two(),
        json!({"phase": "Failed", "reason": "Evicted"}),
        ["0/2", "Evicted", "0"],
    );
    let gated = json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]});
    check(two(), gated, ["0/2", "SchedulingGated", "0"]);
}

#[test]
fn init_containers_are_counted() {
    let waiting = json!({"name": "j", "state": {"waiting": {"reason": "PodInitializing"}}});
    let done =
        json!({"name": "i", "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}});
    check(
        two(),
        json!({"phase": "Pending", "initContainerStatuses": [done, waiting]}),
        ["0/2", "Init:1/2", "0"],
    );
    for (state, expect) in [
        (
            json!({"terminated": {"exitCode": 1, "reason": "Error"}}),
            "Init:Error",
        ),
        (json!({"terminated": {"exitCode": 3}}), "Init:ExitCode:3"),
        (
            json!({"terminated": {"exitCode": 137, "signal": 9}}),
            "Init:Signal:9",
        ),
        (
            json!({"waiting": {"reason": "CrashLoopBackOff"}}),
            "Init:CrashLoopBackOff",
        ),
    ] {
        let status = json!({"phase": "Pending", "initContainerStatuses": [{"name": "i", "state": state, "restartCount": 2}]});
        check(two(), status, ["0/2", expect, "2"]);
    }
}

#[test]
fn containers_decide_the_status() {
    let running = json!({"name": "a", "ready": true, "state": {"running": {}}});
    for (other, status, ready) in [
        (
            json!({"ready": true, "state": {"running": {}}}),
            "Running",
            "2/2",
        ),
        (
            json!({"ready": false, "state": {"running": {}}}),
            "Running",
            "1/2",
        ),
        (
            json!({"state": {"waiting": {"reason": "CrashLoopBackOff"}}}),
            "CrashLoopBackOff",
            "1/2",
        ),
        (
            json!({"state": {"waiting": {"reason": "ContainerCreating"}}}),
            "ContainerCreating",
            "1/2",
        ),
        (
            json!({"state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}),
            "OOMKilled",
            "1/2",
        ),
        (
            json!({"state": {"terminated": {"exitCode": 2}}}),
            "ExitCode:2",
            "1/2",
        ),
        (
            json!({"state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}),
            "NotReady",
            "1/2",
        ),
    ] {
        check(
            json!({"containers": [{"name": "a"}, {"name": "b"}]}),
            json!({"phase": "Running", "containerStatuses": [running, other]}),
            [ready, status, "0"],
        );
    }
}

#[test]
fn restarts_say_when_the_last_was() {
    let status = json!({"phase": "Running", "containerStatuses": [{
        "restartCount": 2, "ready": true, "state": {"running": {}},
        "lastState": {"terminated": {"exitCode": 1, "finishedAt": "1970-01-12T13:41:40Z"}}}]});
    check(
        json!({"containers": [{"name": "a"}]}),
        status,
        ["1/1", "Running", "2 (5m ago)"],
    );
}

#[test]
fn sidecars_count_as_containers() {
    let spec = json!({"containers": [{"name": "a"}], "initContainers": [{"name": "s", "restartPolicy": "Always"}]});
    let status = json!({"phase": "Running",
        "initContainerStatuses": [{"name": "s", "started": true, "ready": true, "state": {"running": {}}}],
        "containerStatuses": [{"name": "a", "ready": true, "state": {"running": {}}}]});
    check(spec, status, ["2/2", "Running", "0"]);
}

#[test]
fn deleted_pods_are_terminating_unless_done() {
    let pod = |phase: &str, reason: &str| {
        json!({"metadata": {"deletionTimestamp": "2020-01-01T00:00:00Z"}, "spec": {"containers": [{}]},
            "status": {"phase": phase, "reason": reason}})
    };
    assert_eq!(cells(&pod("Running", ""))[1], "Terminating");
    assert_eq!(cells(&pod("Running", "NodeLost"))[1], "Unknown");
    assert_eq!(cells(&pod("Succeeded", ""))[1], "Succeeded");
}

#[test]
fn wide_cells_name_the_node_and_gates() {
    let pod = json!({"metadata": {"name": "p", "creationTimestamp": "1970-01-12T13:45:40Z"},
        "spec": {"nodeName": "n1", "readinessGates": [{"conditionType": "a/b"}, {"conditionType": "c/d"}]},
        "status": {"phase": "Running", "podIPs": [{"ip": "10.1.0.5"}], "conditions": [{"type": "a/b", "status": "True"}]}});
    assert_eq!(
        json!(Pod.row(&pod, NOW)),
        json!([
            "p", "0/0", "Running", "0", "60s", "10.1.0.5", "n1", "<none>", "1/2"
        ])
    );
}
