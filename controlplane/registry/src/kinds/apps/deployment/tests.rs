use serde_json::json;

use super::*;
use crate::{
    kinds::apps::replicaset::ReplicaSet,
    testing::{create_errors, created, update_errors, updated, with},
};

fn deployment() -> Value {
    json!({"metadata": {"name": "web"}, "spec": {
        "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "nginx:1"}]}},
    }})
}

fn check(pointer: &str, value: Value, expect: &str) {
    assert_eq!(
        create_errors(&Deployment, with(&deployment(), pointer, value.clone())),
        expect,
        "{pointer} = {value}"
    );
}

#[test]
fn a_minimal_deployment_gets_upstreams_defaults() {
    let object = created(&Deployment, deployment());
    let spec = &object["spec"];
    assert_eq!(spec["replicas"], 1);
    assert_eq!(
        spec["strategy"],
        json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}})
    );
    assert_eq!(
        (
            &spec["revisionHistoryLimit"],
            &spec["progressDeadlineSeconds"]
        ),
        (&json!(10), &json!(600))
    );
    assert_eq!(spec["template"]["spec"]["restartPolicy"], "Always");
    // Only Pods get these.
    assert!(spec["template"]["spec"]["enableServiceLinks"].is_null());
    assert!(spec["template"]["spec"]["serviceAccountName"].is_null());
    assert_eq!(
        (&object["status"], &object["metadata"]["generation"]),
        (&json!({}), &json!(1))
    );
}

#[test]
fn deployments_are_checked() {
    check(
        "/spec/selector",
        Value::Null,
        "[spec.selector: Required value, spec.template.metadata.labels: Invalid value: {\"app\":\"web\"}: `selector` does not match template `labels`]",
    );
    check(
        "/spec/selector",
        json!({}),
        "spec.selector: Invalid value: {}: empty selector is invalid for deployment",
    );
    check(
        "/spec/selector/matchLabels",
        json!({"app": "x"}),
        "spec.template.metadata.labels: Invalid value: {\"app\":\"web\"}: `selector` does not match template `labels`",
    );
    check(
        "/spec/replicas",
        json!(-1),
        "spec.replicas: Invalid value: -1: must be greater than or equal to 0",
    );
    check(
        "/spec/template/spec/restartPolicy",
        json!("Never"),
        "spec.template.spec.restartPolicy: Unsupported value: \"Never\": supported values: \"Always\"",
    );
    check(
        "/spec/template/spec/containers",
        json!([]),
        "spec.template.spec.containers: Required value",
    );
    check(
        "/spec/template/spec/containers/0/image",
        json!(""),
        "spec.template.spec.containers[0].image: Required value",
    );
    check(
        "/spec/strategy",
        json!({"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 0}}),
        "spec.strategy.rollingUpdate.maxUnavailable: Invalid value: 0: may not be 0 when `maxSurge` is 0",
    );
    check(
        "/spec/strategy",
        json!({"rollingUpdate": {"maxUnavailable": "110%"}}),
        "spec.strategy.rollingUpdate.maxUnavailable: Invalid value: \"110%\": must not be greater than 100%",
    );
    check(
        "/spec/strategy",
        json!({"rollingUpdate": {"maxSurge": "a"}}),
        "spec.strategy.rollingUpdate.maxSurge: Invalid value: \"a\": a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')",
    );
    check(
        "/spec/strategy",
        json!({"type": "Recreate", "rollingUpdate": {}}),
        "spec.strategy.rollingUpdate: Forbidden: may not be specified when strategy `type` is 'Recreate'",
    );
    check("/spec/strategy", json!({"type": "Recreate"}), "");
    check(
        "/spec/progressDeadlineSeconds",
        json!(0),
        "spec.progressDeadlineSeconds: Invalid value: 0: must be greater than minReadySeconds",
    );
    check(
        "/spec/selector/matchExpressions",
        json!([{"key": "a", "operator": "In"}]),
        "[spec.selector.matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn', spec.selector: Invalid value: {\"matchExpressions\":[{\"key\":\"a\",\"operator\":\"In\"}],\"matchLabels\":{\"app\":\"web\"}}: invalid label selector]",
    );
}

#[test]
fn selectors_are_immutable() {
    for kind in [&Deployment as &dyn BuiltIn, &ReplicaSet] {
        let old = created(kind, deployment());
        let mut new = with(&old, "/spec/selector/matchLabels", json!({"b": "c"}));
        new["spec"]["template"]["metadata"]["labels"] = json!({"b": "c"});
        assert_eq!(
            update_errors(kind, new, &old),
            "spec.selector: Invalid value: {\"matchLabels\":{\"b\":\"c\"}}: field is immutable"
        );
    }
}

#[test]
fn generation_counts_spec_and_annotations() {
    let old = created(&Deployment, deployment());
    assert_eq!(
        updated(&Deployment, old.clone(), &old)["metadata"]["generation"],
        1
    );
    let annotated = with(&old, "/metadata/annotations", json!({"a": "b"}));
    assert_eq!(
        updated(&Deployment, annotated, &old)["metadata"]["generation"],
        2
    );
    let labelled = with(&old, "/metadata/labels", json!({"a": "b"}));
    assert_eq!(
        updated(&Deployment, labelled, &old)["metadata"]["generation"],
        1
    );
}

#[test]
fn status_counts_must_fit() {
    let old = created(&Deployment, deployment());
    let new = with(&old, "/status", json!({"replicas": 1, "readyReplicas": 2}));
    assert_eq!(
        Deployment.validate_status_update(&new, &old).to_string(),
        "status.readyReplicas: Invalid value: 2: cannot be greater than status.replicas"
    );
}

#[test]
fn rows_show_progress() {
    let mut object = created(&Deployment, with(&deployment(), "/spec/replicas", json!(3)));
    object["status"] = json!({"readyReplicas": 2, "updatedReplicas": 3, "availableReplicas": 2});
    assert_eq!(
        json!(Deployment.row(&object, 0)),
        json!(["web", "2/3", 3, 2, "<unknown>", "c", "nginx:1", "app=web"])
    );
    object["status"] = json!({"replicas": 3, "readyReplicas": 1});
    assert_eq!(
        json!(ReplicaSet.row(&object, 0)),
        json!(["web", 3, 3, 1, "<unknown>", "c", "nginx:1", "app=web"])
    );
    assert_eq!(ReplicaSet.field(&object, "status.replicas"), "3");
}
