//! Upstream's conformance tests of policies, retold: those that no other test here asks.
//! `docs/conformance.md` says which test each one retells.

use super::*;

const APPS: &str = "/apis/apps/v1/namespaces/default";

fn workload(kind: &str, replicas: i64) -> Value {
    json!({"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "w"}, "spec": {"replicas": replicas,
        "selector": {"matchLabels": {"app": "w"}}, "template": {"metadata": {"labels": {"app": "w"}},
            "spec": {"containers": [{"name": "c", "image": "i"}]}}}})
}

/// About Deployments in one namespace: of two copies at least, or of an odd number.
#[tokio::test]
async fn deployments_are_held_against_expressions_and_other_kinds_are_not() {
    let deployments = format!("{APPS}/deployments");
    let in_default = json!({"matchResources": {"namespaceSelector": {
        "matchLabels": {"kubernetes.io/metadata.name": "default"}}}});
    let plain = json!({"validations": [
        {"expression": "object.spec.replicas > 1",
            "messageExpression": "'wants replicas > 1, got ' + object.spec.replicas"},
        {"expression": "namespaceObject.metadata.name == 'default'", "message": "another namespace"}]});
    let composed = json!({"variables": [
            {"name": "replicas", "expression": "object.spec.replicas"},
            {"name": "oddReplicas", "expression": "variables.replicas % 2 == 1"}],
        "validations": [{"expression": "variables.replicas > 1"}, {"expression": "variables.oddReplicas"}]});
    for (spec, refused_for, allowed) in [
        // A text and a number make no text: the expression itself is told.
        (plain, "failed expression: object.spec.replicas > 1", 2),
        (composed, "failed expression: variables.replicas > 1", 3),
    ] {
        let Cluster {
            admin,
            keeping: _keeping,
            ..
        } = cluster().await;
        validating(&admin, "apps/deployments", spec, in_default.clone()).await;
        let answer = refused(&admin, &deployments, &workload("Deployment", 1)).await;
        let found = (answer.code, &answer.body["reason"]);
        assert_eq!(found, (422, &json!("Invalid")));
        assert!(
            answer.message().ends_with(refused_for),
            "{}",
            answer.message()
        );
        made(&admin, &deployments, workload("Deployment", allowed)).await;
        made(
            &admin,
            &format!("{APPS}/replicasets"),
            workload("ReplicaSet", 1),
        )
        .await;
    }
}

#[tokio::test]
async fn deployments_are_changed_as_a_policy_says() {
    let Cluster {
        admin,
        keeping: _keeping,
        ..
    } = cluster().await;
    let annotated = "\n Object{\n  metadata: Object.metadata{\n   annotations: {\n    \"mutated-by\": \"admission-policy\"\n   }\n  }\n }";
    let spec = json!({"mutations": [apply(annotated), apply("Object{spec: Object.spec{replicas: 3}}"),
        patch("[JSONPatch{op: 'replace', path: '/spec/paused', value: true}]")]});
    let binding = json!({"matchResources": {"namespaceSelector": {
        "matchLabels": {"kubernetes.io/metadata.name": "default"}}}});
    mutating(&admin, "m", "apps/deployments", spec, binding).await;
    let deployments = format!("{APPS}/deployments");
    let annotation = |answer: &Answer| answer.body["metadata"]["annotations"]["mutated-by"].clone();
    let answer = until(&admin, &deployments, &workload("Deployment", 2), |answer| {
        annotation(answer) == "admission-policy"
    })
    .await;
    let spec = &answer.body["spec"];
    assert_eq!(
        (&spec["replicas"], &spec["paused"]),
        (&json!(3), &json!(true))
    );
    made(
        &admin,
        &format!("{APPS}/replicasets"),
        workload("ReplicaSet", 2),
    )
    .await;
    let (_, other) = admin.get(&format!("{APPS}/replicasets/w")).await;
    assert_eq!(other["metadata"]["annotations"], Value::Null);
}
