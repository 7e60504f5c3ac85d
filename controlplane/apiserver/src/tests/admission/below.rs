//! What is made below an object comes through admission as upstream shows it to its plugins: as a
//! create, complete, and not at all in a namespace that goes.

use coracle_admission::Operation;
use serde_json::{Value, json};

use super::{
    super::raw::PODS,
    SERVICES,
    recorder::{Recorder, TOKEN, binding, eviction, terminating_namespace, token_request, world},
};

#[tokio::test]
async fn what_is_made_below_an_object_is_a_create() {
    let (_server, alice, recorder) = world(Recorder::default()).await;
    for (path, body, code, resource, object, kind) in [
        (
            format!("{PODS}/web/binding?dryRun=All"),
            binding("web"),
            201,
            "pods/binding",
            "default/web",
            "Binding",
        ),
        (
            format!("{PODS}/web/binding"),
            binding("web"),
            201,
            "pods/binding",
            "default/web",
            "Binding",
        ),
        (
            TOKEN.to_owned(),
            token_request(),
            201,
            "serviceaccounts/token",
            "default/default",
            "TokenRequest",
        ),
        (
            format!("{PODS}/web/eviction"),
            eviction("web"),
            201,
            "pods/eviction",
            "default/web",
            "Eviction",
        ),
    ] {
        let response = alice
            .response("POST", &path, "application/json", body.to_string())
            .await;
        assert_eq!(response.status(), code, "{path}");
        assert_eq!(response.headers()["warning"], "299 - \"seen\"", "{path}");
        let (mutating, validating) = recorder.take();
        for looks in [&mutating, &validating] {
            let [look] = &looks[..] else {
                panic!("{path}: {looks:?}");
            };
            assert_eq!(
                (
                    look.operation,
                    &*look.resource,
                    &*look.object,
                    look.kind(),
                    &*look.user
                ),
                (Operation::Create, resource, object, kind, "alice")
            );
            assert_eq!(look.is_dry, path.ends_with("All"));
        }
    }
    let (_, bound) = alice.get(&format!("{PODS}/web")).await;
    assert_eq!(bound["spec"]["nodeName"], "n1", "{bound}");
}

#[tokio::test]
async fn who_validates_a_token_sees_all_that_will_be_in_it() {
    let (_server, alice, recorder) = world(Recorder::default()).await;
    assert_eq!(alice.post(TOKEN, token_request()).await.0, 201);
    let (mutating, validating) = recorder.take();
    assert_eq!(mutating[0].content["spec"]["expirationSeconds"], 3600);
    let seen = &validating[0].content;
    assert_eq!(
        (&seen["metadata"]["name"], &seen["spec"]["audiences"]),
        (
            &json!("default"),
            &json!(["https://kubernetes.default.svc.cluster.local"])
        ),
        "{seen}"
    );
    assert!(seen["status"]["token"].is_null(), "{seen}");
}

#[tokio::test]
async fn what_a_plugin_refuses_below_an_object_is_not_done() {
    for (subresource, method, path, body) in [
        (
            "binding",
            "POST",
            format!("{PODS}/web/binding"),
            binding("web"),
        ),
        ("token", "POST", TOKEN.to_owned(), token_request()),
        (
            "exec",
            "GET",
            format!("{PODS}/web/exec?command=ls&stdout=1"),
            Value::Null,
        ),
        ("proxy", "GET", format!("{PODS}/web/proxy/"), Value::Null),
    ] {
        let (_server, alice, _) = world(Recorder::refusing(subresource)).await;
        let (code, refused) = alice
            .send(method, &path, "application/json", body.to_string())
            .await;
        assert_eq!(code, 403, "{refused}");
        assert!(
            refused["message"]
                .as_str()
                .unwrap()
                .ends_with("is forbidden: nobody gets that"),
            "{refused}"
        );
        let (_, pod) = alice.get(&format!("{PODS}/web")).await;
        assert!(pod["spec"]["nodeName"].is_null(), "{pod}");
    }
}

#[tokio::test]
async fn who_validates_a_service_sees_its_addresses() {
    let (_server, alice, recorder) = world(Recorder::default()).await;
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"},
        "spec": {"type": "NodePort", "ports": [{"port": 80}]}});
    let (code, made) = alice.post(SERVICES, service).await;
    assert_eq!(code, 201, "{made}");
    let (mutating, validating) = recorder.take();
    assert!(mutating[0].content["spec"]["clusterIP"].is_null());
    let seen = &validating[0].content["spec"];
    for field in ["clusterIP", "clusterIPs", "ipFamilies"] {
        assert!(
            !seen[field].is_null() && seen[field] == made["spec"][field],
            "{field}: {seen}"
        );
    }
    assert_eq!(
        seen["ports"][0]["nodePort"],
        made["spec"]["ports"][0]["nodePort"]
    );
    let more = json!([{"name": "a", "port": 80}, {"name": "b", "port": 81}]);
    let (code, changed) = alice
        .merge(&format!("{SERVICES}/s"), json!({"spec": {"ports": more}}))
        .await;
    assert_eq!(code, 200, "{changed}");
    let (_, validating) = recorder.take();
    let seen = &validating[0].content["spec"]["ports"];
    assert!(seen[1]["nodePort"].is_number(), "{seen}");
    assert_eq!(*seen, changed["spec"]["ports"]);
}

#[tokio::test]
async fn nothing_is_made_below_what_is_in_a_namespace_that_goes() {
    let (_server, alice, _) = world(Recorder::default()).await;
    terminating_namespace(&alice).await;
    let (pods, accounts) = (
        "/api/v1/namespaces/n/pods",
        "/api/v1/namespaces/n/serviceaccounts",
    );
    for (path, body) in [
        (format!("{pods}/web/binding"), binding("web")),
        (format!("{pods}/web/eviction"), eviction("web")),
        (format!("{accounts}/default/token"), token_request()),
    ] {
        let (code, refused) = alice.post(&path, body).await;
        assert_eq!(code, 403, "{path}: {refused}");
        // By this `kubectl drain` knows that the pod goes anyway.
        assert_eq!(
            refused["details"]["causes"][0]["reason"], "NamespaceTerminating",
            "{refused}"
        );
    }
}
