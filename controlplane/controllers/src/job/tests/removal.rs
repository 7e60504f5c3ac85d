//! Which pods go, in upstream's order of them (`ActivePods`).

use super::*;
use crate::job::{indexes::INDEX, removal::surplus};

/// One that has come further than those before it in this list.
fn ranked(stage: usize, name: &str, index: u32) -> Arc<Pod> {
    let mut object = json!({
        "metadata": {"name": name, "uid": name, "annotations": {INDEX: index.to_string()}, "creationTimestamp": at(100)},
        "spec": {"nodeName": "n"}, "status": {"phase": "Running", "containerStatuses": [{"name": "c", "restartCount": 0}]},
    });
    let ready = |ago| json!([{"type": "Ready", "status": "True", "lastTransitionTime": at(ago)}]);
    match stage {
        0 => {
            object["spec"] = json!({});
            object["status"]["phase"] = json!("Pending");
        }
        1 => object["status"]["phase"] = json!("Pending"),
        2 => object["status"]["phase"] = json!("Unknown"),
        3 => {}
        4 => object["status"]["conditions"] = ready(10),
        5 => {
            object["status"]["conditions"] = ready(20);
            object["status"]["containerStatuses"][0]["restartCount"] = json!(2);
        }
        6 => object["status"]["conditions"] = ready(20),
        _ => {
            object["status"]["conditions"] = ready(20);
            object["metadata"]["creationTimestamp"] = json!(at(200));
        }
    }
    Arc::new(serde_json::from_value(object).unwrap())
}

const STAGES: usize = 8;

#[test]
fn what_has_not_come_as_far_goes_first() {
    let spec = job(json!({}), json!({})).spec.unwrap();
    let pods: Vec<_> = (0..STAGES)
        .map(|stage| ranked(stage, &stage.to_string(), 0))
        .collect();
    for count in 0..=STAGES {
        let mut shuffled = pods.clone();
        shuffled.reverse();
        let gone = surplus(&spec, &shuffled, count);
        assert_eq!(names(&gone), names(&pods[..count]));
    }
}

/// Upstream's `TestAppendDuplicatedIndexPodsForRemoval`.
#[test]
fn of_an_index_the_pod_stays_that_has_come_furthest() {
    let spec = json!({"completionMode": "Indexed", "completions": 4});
    let spec = job(spec, json!({})).spec.unwrap();
    let mut pods = vec![
        ranked(6, "a0", 0),
        ranked(0, "b0", 0),
        ranked(3, "a1", 1),
        ranked(4, "b1", 1),
        ranked(1, "a2", 2),
        ranked(7, "outside", 4),
    ];
    let mut unmarked = Pod::clone(&ranked(7, "unmarked", 0));
    unmarked.metadata.annotations = None;
    pods.push(Arc::new(unmarked));
    let gone = surplus(&spec, &pods, 0);
    assert_eq!(names(&gone), ["outside", "unmarked", "b0", "a1"]);
    let gone = surplus(&spec, &pods, 5);
    assert_eq!(names(&gone)[4..], ["a2"]);
}
