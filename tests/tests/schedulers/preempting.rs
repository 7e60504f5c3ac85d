//! Room that others have.

use std::collections::BTreeMap;

use coracle_tests::{
    cluster::Cluster,
    is_root_or_skip,
    kubectl::{Kubectl, PATIENCE},
    wait,
};
use serde_json::Value;

/// Of three ReplicaSets each asks for room that those below it have.
#[test]
fn replica_sets_of_higher_priority_take_the_room_of_others() {
    if !is_root_or_skip() {
        return;
    }
    let cluster = Cluster::up(&[]);
    let kubectl = cluster.kubectl();
    let free = free_milli_cpu(&kubectl, &kubectl.json("pods"));
    let tenth = free.values().sum::<i64>() / 10;
    for (name, priority, replicas, tenths) in
        [("low", 1, 5, 2), ("mid", 2, 2, 4), ("high", 3, 1, 4)]
    {
        let cpu = tenth * tenths;
        kubectl.apply(&replica_set(name, priority, replicas, cpu));
        runs(
            &kubectl,
            name,
            replicas.min(if name == "low" { 5 } else { 2 }),
        );
    }
    // One of each: nobody has ended for less, and the others wait for the room they had.
    for name in ["low", "mid", "high"] {
        runs(&kubectl, name, 1);
    }
    let victims = "get events --field-selector reason=Preempted -o name";
    assert_eq!(kubectl.ok(victims).lines().count(), 5, "four low, one mid");
    let waiting = kubectl.ok("get pods -l app=low --field-selector status.phase=Pending -o name");
    assert_eq!(waiting.lines().count(), 4, "{waiting}");
}

fn replica_set(name: &str, priority: u32, replicas: usize, milli_cpu: i64) -> String {
    format!(
        r#"
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {{name: {name}}}
value: {priority}
---
apiVersion: apps/v1
kind: ReplicaSet
metadata: {{name: {name}}}
spec:
  replicas: {replicas}
  selector: {{matchLabels: {{app: {name}}}}}
  template:
    metadata: {{labels: {{app: {name}}}}}
    spec:
      priorityClassName: {name}
      terminationGracePeriodSeconds: 0
      containers: [{{name: c, image: busybox, imagePullPolicy: IfNotPresent, command: [sleep, "3600"], resources: {{requests: {{cpu: {milli_cpu}m}}}}}}]
"#
    )
}

/// Waits until so many pods of the application run.
fn runs(kubectl: &Kubectl, app: &str, count: usize) {
    wait::until("pods to run", PATIENCE, || {
        let pods = kubectl.json(&format!("pods -l app={app}"));
        let pods = pods["items"].as_array().cloned().unwrap_or_default();
        let is_running = |pod: &&Value| {
            pod["status"]["phase"] == "Running" && pod["metadata"]["deletionTimestamp"].is_null()
        };
        match pods.iter().filter(is_running).count() {
            running if running == count => Ok(()),
            running => Err(format!("{running} of {count} {app}")),
        }
    });
}

/// What is left of each node's CPU, by what is asked for on it.
pub(super) fn free_milli_cpu(kubectl: &Kubectl, pods: &Value) -> BTreeMap<String, i64> {
    let milli = |text: &Value| -> i64 {
        let text = text.as_str().unwrap_or("0");
        match text.strip_suffix('m') {
            Some(milli) => milli.parse().expect("a number"),
            None => text.parse::<i64>().expect("a number") * 1000,
        }
    };
    let nodes = kubectl.json("nodes");
    let nodes = nodes["items"].as_array().into_iter().flatten();
    let mut free: BTreeMap<String, i64> = nodes
        .map(|node| {
            let name = node["metadata"]["name"].as_str().unwrap_or_default();
            (
                name.to_owned(),
                milli(&node["status"]["allocatable"]["cpu"]),
            )
        })
        .collect();
    for pod in pods["items"].as_array().into_iter().flatten() {
        let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
        if let Some(free) = free.get_mut(node) {
            *free -= milli(&pod["spec"]["containers"][0]["resources"]["requests"]["cpu"]);
        }
    }
    free
}
