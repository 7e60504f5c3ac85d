use bytes::Bytes;
use serde_json::{Value, json};

use super::raw::{Raw, admin};

/// The warnings of an answer.
async fn warnings(raw: &Raw, method: &str, path: &str, body: Option<Value>) -> Vec<String> {
    let body = body.map_or(Bytes::new(), |body| Bytes::from(body.to_string()));
    let kind = if method == "PATCH" {
        "application/merge-patch+json"
    } else {
        "application/json"
    };
    let response = raw.response(method, path, kind, body).await;
    assert!(
        response.status().is_success(),
        "{method} {path}: {}",
        response.status()
    );
    response
        .headers()
        .get_all("warning")
        .iter()
        .map(|value| value.to_str().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn kinds_that_nobody_acts_on_are_warned_of_when_they_are_written() {
    let raw = admin().await;
    let schemas = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas";
    let schema = json!({"apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "FlowSchema",
        "metadata": {"name": "f"}, "spec": {"priorityLevelConfiguration": {"name": "p"}}});
    let said = warnings(&raw, "POST", schemas, Some(schema)).await;
    assert_eq!(
        said,
        ["299 - \"FlowSchema is not acted on by this cluster yet: requests are not queued by it\""]
    );
    assert!(warnings(&raw, "GET", schemas, None).await.is_empty());
}

/// As upstream: nothing is said of what holds.
#[tokio::test]
async fn policies_are_enforced_and_nobody_is_warned_of_them() {
    let raw = admin().await;
    let policies = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
    let policy = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "p"}, "spec": {"validations": [{"expression": "false"}], "matchConstraints": {
            "resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}]}}});
    let said = warnings(&raw, "POST", policies, Some(policy)).await;
    assert_eq!(said, [""; 0]);
}

#[tokio::test]
async fn network_policies_are_enforced_and_nobody_is_warned_of_them() {
    let raw = admin().await;
    let netpols = "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies";
    let netpol = json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "deny"},
        "spec": {"podSelector": {}}});
    let change = json!({"spec": {"policyTypes": ["Egress"]}});
    let one = format!("{netpols}/deny");
    for (method, path, body) in [("POST", netpols, netpol), ("PATCH", &one, change)] {
        let said = warnings(&raw, method, path, Some(body)).await;
        assert_eq!(said, [""; 0], "{method}");
    }
}

/// As users write them, and as controllers write them afterwards.
#[tokio::test]
async fn what_nobody_acts_on_is_warned_of_once_a_wish() {
    let raw = admin().await;
    let all = "/apis/apps/v1/namespaces/default/deployments";
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": {"metadata": {"labels": {"app": "web"}},
            "spec": {"hostUsers": false, "containers": [{"name": "c", "image": "i:1"}]}}}});
    let one = format!("{all}/web");
    let expect = [
        "299 - \"spec.template.spec.hostUsers false is refused by this cluster's nodes: they make no user namespaces yet, and the pod does not start\"",
    ];
    assert_eq!(warnings(&raw, "POST", all, Some(deployment)).await, expect);
    let silent = [
        (
            one.clone(),
            json!({"metadata": {"finalizers": ["a.example/b"]}}),
        ),
        (one.clone(), json!({"metadata": {"finalizers": null}})),
        (format!("{one}/status"), json!({"status": {"replicas": 0}})),
    ];
    for (path, change) in silent {
        let said = warnings(&raw, "PATCH", &path, Some(change)).await;
        assert!(said.is_empty(), "{path}: {said:?}");
    }
    for (path, replicas) in [(one.clone(), 3), (format!("{one}/scale"), 4)] {
        let change = json!({"spec": {"replicas": replicas}});
        let said = warnings(&raw, "PATCH", &path, Some(change)).await;
        assert_eq!(said, expect, "{path}");
    }
}

#[tokio::test]
async fn every_answer_about_endpoints_says_that_they_go_away() {
    let raw = admin().await;
    let expect =
        ["299 - \"v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice\""];
    for path in [
        "/api/v1/endpoints",
        "/api/v1/namespaces/default/endpoints/kubernetes",
    ] {
        assert_eq!(warnings(&raw, "GET", path, None).await, expect, "{path}");
    }
    assert!(
        warnings(&raw, "GET", "/api/v1/services", None)
            .await
            .is_empty()
    );
}
