//! Jobs each of whose indexes has to succeed.

use super::*;
use crate::job::{indexes::INDEX, scale::NewPod};

#[test]
fn every_index_is_worked_on_until_it_succeeds() {
    let spec = json!({"completions": 4, "parallelism": 3, "completionMode": "Indexed"});
    let job = job(spec, json!({"startTime": at(60), "completedIndexes": "1"}));
    let indexed = |name: &str, phase: &str, index: &str| {
        pod_with(name, phase, json!({"annotations": {INDEX: index}}))
    };
    let pods = [
        indexed("a", "Succeeded", "0"),
        indexed("b", "Running", "3"),
        indexed("twin", "Running", "3"),
    ];
    let plan = next(&job, &pods);
    assert_eq!(plan.status.completed_indexes.as_deref(), Some("0,1"));
    assert_eq!(plan.status.succeeded, Some(2));
    // First those go that are too many.
    assert_eq!((names(&plan.dismiss), plan.create.len()), (vec!["b"], 0));
    let plan = next(&job, &pods[..1]);
    assert_eq!(indexes_of(&plan), [Some(2), Some(3)]);
    let made = template::pod(&job, plan.create[0]);
    assert_eq!(made.metadata.generate_name.as_deref(), Some("j-2-"));
    assert_eq!(made.metadata.annotations.as_ref().unwrap().len(), 1);
    let variable = &made.spec.unwrap().containers[0].env.clone().unwrap()[0];
    assert_eq!(variable.name, "JOB_COMPLETION_INDEX");
}

#[test]
fn indexes_that_a_job_no_longer_has_complete_nothing() {
    let spec = json!({"completions": 2, "parallelism": 2, "completionMode": "Indexed"});
    let job = job(
        spec,
        json!({"startTime": at(60), "completedIndexes": "3,4", "succeeded": 2}),
    );
    let ended = pod_with("a", "Succeeded", json!({"annotations": {INDEX: "2"}}));
    let plan = next(&job, &[ended]);
    assert_eq!(
        (
            plan.status.completed_indexes.as_deref(),
            plan.status.succeeded
        ),
        (None, None)
    );
    assert_eq!(
        (conditions(&plan.status).len(), indexes_of(&plan)),
        (0, vec![Some(0), Some(1)])
    );
    assert_eq!(names(&plan.release), ["a"]);
}

#[test]
fn a_long_name_leaves_room_for_the_index() {
    let mut job = job(json!({"completionMode": "Indexed"}), json!({}));
    job.metadata.name = Some("a".repeat(60));
    let new = NewPod {
        index: Some(100),
        failures: None,
    };
    let name = template::pod(&job, new).metadata.generate_name.unwrap();
    assert_eq!(name, format!("{}-100-", "a".repeat(53)));
}

/// Parallelism, completions, active, terminating, completed; what is created.
type Case = (
    i32,
    i32,
    &'static [u32],
    &'static [u32],
    &'static str,
    &'static [u32],
);

/// Upstream's `TestFirstPendingIndexes`.
#[test]
fn the_first_indexes_are_worked_on_that_are_not_done() {
    let table: [Case; 6] = [
        (10, 5, &[], &[], "", &[0, 1, 2, 3, 4]),
        (3, 5, &[], &[], "", &[0, 1, 2]),
        (5, 5, &[], &[], "3", &[0, 1, 2, 4]),
        (7, 20, &[3, 5, 9], &[], "0,2,4-8", &[1, 10, 11, 12]),
        (5, 10, &[0], &[1, 2], "", &[3, 4]),
        (3, 100_000, &[], &[], "0-99997", &[99_998, 99_999]),
    ];
    for (parallelism, completions, active, terminating, completed, expect) in table {
        let spec = json!({"completions": completions, "parallelism": parallelism, "completionMode": "Indexed",
            "podReplacementPolicy": "Failed"});
        let status = json!({"startTime": at(60), "completedIndexes": completed});
        let annotated = |index: &u32| json!({INDEX: index.to_string()});
        let active = active.iter().map(|index| {
            let meta = json!({"annotations": annotated(index)});
            pod_with(&format!("a{index}"), "Running", meta)
        });
        let terminating = terminating.iter().map(|index| {
            let meta = json!({"annotations": annotated(index), "deletionTimestamp": at(0)});
            pod_with(&format!("t{index}"), "Running", meta)
        });
        let pods: Vec<_> = active.chain(terminating).collect();
        let plan = next(&job(spec, status), &pods);
        let expect: Vec<_> = expect.iter().copied().map(Some).collect();
        assert_eq!(indexes_of(&plan), expect, "{completions} {completed}");
    }
}
