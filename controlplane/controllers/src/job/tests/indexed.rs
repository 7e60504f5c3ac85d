//! Jobs each of whose indexes has to succeed.

use super::*;
use crate::job::indexes::Indexes;

#[test]
fn every_index_is_worked_on_until_it_succeeds() {
    let spec = json!({"completions": 4, "parallelism": 3, "completionMode": "Indexed"});
    let job = job(spec, json!({"startTime": at(60), "completedIndexes": "1"}));
    let indexed = |name: &str, phase: &str, index: &str| {
        pod_with(name, phase, json!({"annotations": {indexes::INDEX: index}}))
    };
    let pods = [
        indexed("a", "Succeeded", "0"),
        indexed("b", "Running", "3"),
        indexed("twin", "Running", "3"),
    ];
    let plan = next(&job, &pods);
    assert_eq!(plan.status.completed_indexes.as_deref(), Some("0,1"));
    assert_eq!(plan.status.succeeded, Some(2));
    assert_eq!(plan.create, [Some(2)]);
    assert_eq!(names(&plan.dismiss), ["twin"]);
    let made = template::pod(&job, Some(2));
    assert_eq!(made.metadata.generate_name.as_deref(), Some("j-2-"));
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
    let ended = pod_with(
        "a",
        "Succeeded",
        json!({"annotations": {indexes::INDEX: "2"}}),
    );
    let plan = next(&job, &[ended]);
    assert_eq!(
        (
            plan.status.completed_indexes.as_deref(),
            plan.status.succeeded
        ),
        (None, None)
    );
    assert_eq!(
        (conditions(&plan.status).len(), plan.create),
        (0, vec![Some(0), Some(1)])
    );
    assert_eq!(names(&plan.release), ["a"]);
}

#[test]
fn indexes_are_written_as_they_are_read() {
    for text in ["", "0", "0,1", "0-2", "1,3-5,7", "3,4,9-12"] {
        assert_eq!(Indexes::parse(text).to_string(), text);
    }
}
