use super::*;
use crate::testing::{create_errors, created, update_errors, with};

fn job() -> Value {
    json!({"metadata": {"name": "j", "uid": "u"}, "spec": {"template": {
        "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i:1"}]}}}})
}

#[test]
fn a_minimal_job_gets_upstreams_defaults_and_selector() {
    let object = created(&Job, job());
    let spec = &object["spec"];
    assert_eq!(
        (
            &spec["completions"],
            &spec["parallelism"],
            &spec["backoffLimit"]
        ),
        (&json!(1), &json!(1), &json!(6))
    );
    assert_eq!(
        (&spec["completionMode"], &spec["suspend"]),
        (&json!("NonIndexed"), &json!(false))
    );
    assert_eq!(spec["podReplacementPolicy"], "TerminatingOrFailed");
    assert_eq!(spec["selector"], json!({"matchLabels": {UID_LABEL: "u"}}));
    let labels = json!({"controller-uid": "u", "job-name": "j", UID_LABEL: "u", NAME_LABEL: "j"});
    assert_eq!(spec["template"]["metadata"]["labels"], labels);
    assert_eq!(object["metadata"]["labels"], labels);
    assert_eq!(create_errors(&Job, job()), "");
    let parallel = created(&Job, with(&job(), "/spec/parallelism", json!(3)));
    assert!(parallel["spec"]["completions"].is_null(), "a work queue");
}

#[test]
fn jobs_are_checked() {
    let indexed = json!("Indexed");
    for (pointer, value, expect) in [
        (
            "/spec/template/spec/restartPolicy",
            json!("Always"),
            "spec.template.spec.restartPolicy: Required value: valid values: \"OnFailure\", \"Never\"",
        ),
        (
            "/spec/completions",
            json!(-1),
            "spec.completions: Invalid value: -1: must be greater than or equal to 0",
        ),
        (
            "/spec/completionMode",
            json!("x"),
            "spec.completionMode: Unsupported value: \"x\": supported values: \"Indexed\", \"NonIndexed\"",
        ),
        (
            "/spec/maxFailedIndexes",
            json!(1),
            "[spec.backoffLimitPerIndex: Required value: when maxFailedIndexes is specified, spec.maxFailedIndexes: Invalid value: 1: requires indexed completion mode]",
        ),
        (
            "/spec/selector",
            json!({"matchLabels": {"a": "b"}}),
            "[spec.selector: Invalid value: {\"matchLabels\":{\"a\":\"b\",\"batch.kubernetes.io/controller-uid\":\"u\"}}: `selector` not auto-generated, spec.template.metadata.labels: Invalid value: {\"batch.kubernetes.io/controller-uid\":\"u\",\"batch.kubernetes.io/job-name\":\"j\",\"controller-uid\":\"u\",\"job-name\":\"j\"}: `selector` does not match template `labels`]",
        ),
        (
            "/spec/podFailurePolicy",
            json!({"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [0]}}]}),
            "spec.podFailurePolicy.rules[0].onExitCodes.values[0]: Invalid value: 0: must not be 0 for the In operator",
        ),
        (
            "/spec/successPolicy",
            json!({}),
            "[spec.successPolicy: Invalid value: {}: requires indexed completion mode, spec.successPolicy.rules: Required value: at least one rules must be specified when the successPolicy is specified]",
        ),
    ] {
        assert_eq!(
            create_errors(&Job, with(&job(), pointer, value.clone())),
            expect,
            "{pointer} = {value}"
        );
    }
    let mut work_queue = with(&job(), "/spec/completionMode", indexed);
    work_queue["spec"]["parallelism"] = json!(2);
    assert_eq!(
        create_errors(&Job, work_queue),
        "spec.completions: Required value: when completion mode is Indexed"
    );
}

#[test]
fn a_success_policy_asks_for_indexes_of_the_job() {
    let mut indexed = with(&job(), "/spec/completionMode", json!("Indexed"));
    indexed["spec"]["completions"] = json!(5);
    indexed["spec"]["parallelism"] = json!(2);
    let at = "spec.successPolicy.rules[0]";
    for (rule, expect) in [
        (
            json!({"succeededIndexes": "0,2-4", "succeededCount": 2}),
            String::new(),
        ),
        (json!({"succeededCount": 5}), String::new()),
        (
            json!({"succeededCount": 6}),
            format!(
                "{at}.succeededCount: Invalid value: 6: must be less than or equal to 5 (the number of specified completions)"
            ),
        ),
        (
            json!({"succeededIndexes": "0,2", "succeededCount": 3}),
            format!(
                "{at}.succeededCount: Invalid value: 3: must be less than or equal to 2 (the number of indexes in the specified succeededIndexes field)"
            ),
        ),
        (
            json!({"succeededIndexes": "5"}),
            format!(
                "{at}.succeededIndexes: Invalid value: \"5\": error parsing succeededIndexes: too large index: \"5\""
            ),
        ),
    ] {
        let policy = json!({"rules": [rule]});
        let errors = create_errors(&Job, with(&indexed, "/spec/successPolicy", policy));
        assert_eq!(errors, expect, "{rule}");
    }
}

#[test]
fn only_speed_can_change() {
    let old = created(&Job, job());
    assert_eq!(
        update_errors(&Job, with(&old, "/spec/parallelism", json!(4)), &old),
        ""
    );
    assert_eq!(
        update_errors(&Job, with(&old, "/spec/suspend", json!(true)), &old),
        ""
    );
    let errors = update_errors(&Job, with(&old, "/spec/completions", json!(4)), &old);
    assert_eq!(
        errors,
        "spec.completions: Invalid value: 4: field is immutable"
    );
    let errors = update_errors(
        &Job,
        with(&old, "/spec/template/spec/containers/0/image", json!("x")),
        &old,
    );
    assert!(
        errors.starts_with("spec.template: Invalid value: ")
            && errors.ends_with(": field is immutable"),
        "{errors}"
    );
    let suspended = with(&old, "/spec/suspend", json!(true));
    let moved = with(
        &suspended,
        "/spec/template/spec/nodeSelector",
        json!({"a": "b"}),
    );
    assert_eq!(update_errors(&Job, moved, &suspended), "");
}

#[test]
fn a_finished_job_stays_finished() {
    let mut old = created(&Job, job());
    old["status"] = json!({"conditions": [{"type": "Complete", "status": "True"}]});
    let new = with(&old, "/status", json!({}));
    assert_eq!(
        Job.validate_status_update(&new, &old).to_string(),
        "status.conditions: Invalid value: cannot disable the terminal Complete=True condition"
    );
}

#[test]
fn rows_show_progress() {
    let mut object = created(&Job, job());
    object["status"] = json!({"succeeded": 1, "startTime": "1970-01-01T00:00:10Z",
        "completionTime": "1970-01-01T00:00:15Z", "conditions": [{"type": "Complete", "status": "True"}]});
    let selector = format!("{UID_LABEL}=u");
    assert_eq!(
        json!(Job.row(&object, 100)),
        json!([
            "j",
            "Complete",
            "1/1",
            "5s",
            "<unknown>",
            "c",
            "i:1",
            selector
        ])
    );
    let running =
        json!({"spec": {"parallelism": 3}, "status": {"startTime": "1970-01-01T00:00:10Z"}});
    let row = Job.row(&running, 100);
    assert_eq!(
        (&row[1], &row[2], &row[3]),
        (&json!("Running"), &json!("0/1 of 3"), &json!("90s"))
    );
}
