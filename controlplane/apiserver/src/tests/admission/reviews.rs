//! What is made and stored nowhere comes through admission all the same, as what its URL calls it.

use coracle_admission::Operation;
use serde_json::{Value, json};

use super::{
    super::raw::{PODS, Raw},
    recorder::{Recorder, binding, terminating_namespace, world},
};

const AUTHENTICATION: &str = "/apis/authentication.k8s.io/v1";
const AUTHORIZATION: &str = "/apis/authorization.k8s.io/v1";
const BINDINGS: &str = "/api/v1/namespaces/default/bindings";

fn local_reviews(namespace: &str) -> String {
    format!("{AUTHORIZATION}/namespaces/{namespace}/localsubjectaccessreviews")
}

/// Each path with a body, and what admission sees of it: resource and subresource, namespace and
/// name.
fn made() -> Vec<(String, Value, &'static str, &'static str)> {
    let review = |group: &str, kind: &str, spec: Value| json!({"apiVersion": format!("{group}/v1"), "kind": kind, "spec": spec});
    let of_access = |kind, spec| review("authorization.k8s.io", kind, spec);
    let of_identity = |kind, spec| review("authentication.k8s.io", kind, spec);
    let asked = json!({"verb": "get", "resource": "pods", "namespace": "default"});
    let about_bob = json!({"user": "bob", "resourceAttributes": asked});
    vec![
        (
            format!("{AUTHENTICATION}/selfsubjectreviews"),
            of_identity("SelfSubjectReview", json!({})),
            "selfsubjectreviews/",
            "/",
        ),
        (
            format!("{AUTHENTICATION}/tokenreviews"),
            of_identity("TokenReview", json!({"token": "t"})),
            "tokenreviews/",
            "/",
        ),
        (
            format!("{AUTHORIZATION}/subjectaccessreviews"),
            of_access("SubjectAccessReview", about_bob.clone()),
            "subjectaccessreviews/",
            "/",
        ),
        (
            format!("{AUTHORIZATION}/selfsubjectaccessreviews"),
            of_access(
                "SelfSubjectAccessReview",
                json!({"resourceAttributes": asked}),
            ),
            "selfsubjectaccessreviews/",
            "/",
        ),
        (
            format!("{AUTHORIZATION}/selfsubjectrulesreviews"),
            of_access("SelfSubjectRulesReview", json!({"namespace": "default"})),
            "selfsubjectrulesreviews/",
            "/",
        ),
        (
            local_reviews("default"),
            of_access("LocalSubjectAccessReview", about_bob),
            "localsubjectaccessreviews/",
            "default/",
        ),
        (
            BINDINGS.to_owned(),
            binding("web"),
            "bindings/",
            "default/web",
        ),
    ]
}

async fn post(raw: &Raw, path: &str, body: &Value) -> http::Response<kube::client::Body> {
    raw.response("POST", path, "application/json", body.to_string())
        .await
}

#[tokio::test]
async fn reviews_and_bindings_come_through_the_chain() {
    let (_server, alice, recorder) = world(Recorder::default()).await;
    for (path, body, resource, object) in made() {
        let response = post(&alice, &path, &body).await;
        assert_eq!(response.status(), 201, "{path}");
        assert_eq!(response.headers()["warning"], "299 - \"seen\"", "{path}");
        let (mutating, validating) = recorder.take();
        for looks in [&mutating, &validating] {
            let [look] = &looks[..] else {
                panic!("{path}: {looks:?}");
            };
            assert_eq!(
                (look.operation, &*look.resource, &*look.object),
                (Operation::Create, resource, object)
            );
            assert_eq!(
                (look.kind(), &*look.user),
                (body["kind"].as_str().unwrap(), "alice")
            );
            assert!(look.content["status"].is_null(), "{path}: not answered yet");
        }
    }
    let (_, bound) = alice.get(&format!("{PODS}/web")).await;
    assert_eq!(bound["spec"]["nodeName"], "n1", "{bound}");
}

#[tokio::test]
async fn what_a_plugin_refuses_is_not_answered() {
    let (_server, alice, _) = world(Recorder::refusing("")).await;
    for (path, body, ..) in made() {
        let (code, refused) = alice.post(&path, body).await;
        assert_eq!(code, 403, "{path}: {refused}");
        assert!(
            refused["message"]
                .as_str()
                .unwrap()
                .ends_with("is forbidden: nobody gets that"),
            "{refused}"
        );
    }
    let (_, pod) = alice.get(&format!("{PODS}/web")).await;
    assert!(pod["spec"]["nodeName"].is_null(), "{pod}");
}

#[tokio::test]
async fn a_dry_run_is_told_and_binds_nothing() {
    let (_server, alice, recorder) = world(Recorder::default()).await;
    for (path, body, ..) in made() {
        let path = format!("{path}?dryRun=All");
        assert_eq!(post(&alice, &path, &body).await.status(), 201, "{path}");
        let (_, validating) = recorder.take();
        assert!(validating[0].is_dry, "{path}");
    }
    let (_, pod) = alice.get(&format!("{PODS}/web")).await;
    assert!(pod["spec"]["nodeName"].is_null(), "{pod}");
}

#[tokio::test]
async fn a_namespace_that_goes_takes_bindings_no_more_and_tells_who_may_what() {
    let (_server, alice, _) = world(Recorder::default()).await;
    terminating_namespace(&alice).await;
    let bindings = "/api/v1/namespaces/n/bindings";
    let (code, refused) = alice.post(bindings, binding("web")).await;
    assert_eq!(code, 403, "{refused}");
    // Nor does it say whether a namespace is there.
    for name in ["n", "nowhere"] {
        let asked = json!({"verb": "get", "resource": "pods", "namespace": name});
        let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "LocalSubjectAccessReview",
            "spec": {"user": "bob", "resourceAttributes": asked}});
        let (code, answer) = alice.post(&local_reviews(name), review).await;
        assert_eq!((code, &answer["status"]["allowed"]), (201, &json!(false)));
    }
}
