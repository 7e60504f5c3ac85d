//! What a webhook cannot make of a write, whatever it answers.

use serde_json::json;

use super::*;
use crate::tests::raw::Raw;

/// A webhook that makes this of what is written.
async fn patching(
    (server, admin): &(Arc<ApiServer>, Raw),
    about: (&str, &str),
    operations: Value,
) -> Hook {
    let hook = Hook::that(patch(operations)).await;
    let (operation, resource) = about;
    let rules = json!([{"operations": [operation], "apiGroups": ["*"], "apiVersions": ["*"],
        "resources": [resource]}]);
    let webhook = hook.webhook("a", json!({"rules": rules}));
    configure(server, admin, MUTATING, "m", &[webhook]).await;
    hook
}

#[tokio::test]
async fn a_new_object_stays_in_the_namespace_of_its_request() {
    let cluster = cluster().await;
    let to = json!([{"op": "add", "path": "/metadata/namespace", "value": "kube-system"}]);
    let _hook = patching(&cluster, ("CREATE", "configmaps"), to).await;
    let why =
        "the namespace of the provided object does not match the namespace sent on the request";
    let made = make(&cluster.1, CONFIG_MAPS, config_map("x")).await;
    assert_eq!(made, (400, why.to_owned()));
    let elsewhere = "/api/v1/namespaces/kube-system/configmaps/x";
    assert_eq!(cluster.1.get(elsewhere).await.0, 404);
}

#[tokio::test]
async fn a_new_object_has_the_identity_that_it_was_given() {
    let cluster = cluster().await;
    let past = "2001-01-01T00:00:00Z";
    let all = json!([
        {"op": "add", "path": "/metadata/uid", "value": "another"},
        {"op": "add", "path": "/metadata/creationTimestamp", "value": past},
        {"op": "add", "path": "/metadata/deletionTimestamp", "value": past},
        {"op": "add", "path": "/metadata/deletionGracePeriodSeconds", "value": 30},
        {"op": "add", "path": "/metadata/generation", "value": 7},
        {"op": "add", "path": "/data/by", "value": "hook"},
    ]);
    let _hook = patching(&cluster, ("CREATE", "configmaps"), all).await;
    let (code, made) = cluster.1.post(CONFIG_MAPS, config_map("x")).await;
    assert_eq!((code, &made["data"]["by"]), (201, &json!("hook")), "{made}");
    let is = &made["metadata"];
    assert_eq!(is["uid"].as_str().unwrap().len(), 36, "{is}");
    assert_ne!(is["creationTimestamp"], past);
    for field in [
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
    ] {
        assert_eq!(is[field], Value::Null, "{field}");
    }
}

#[tokio::test]
async fn a_subresource_of_a_running_pod_changes_no_more_than_its_part() {
    for (part, sent, of_it) in [
        (
            "ephemeralcontainers",
            json!({"spec": {"ephemeralContainers": [{"name": "e", "image": "sh"}]}}),
            "/spec/ephemeralContainers/0/name",
        ),
        (
            "resize",
            json!({"spec": {"containers": [{"name": "c", "image": "i",
                "resources": {"requests": {"cpu": "2m"}}}]}}),
            "/spec/containers/0/resources/requests/cpu",
        ),
    ] {
        let cluster = cluster().await;
        let mut running = pod("p");
        running["spec"]["containers"][0]["name"] = "c".into();
        running["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "1m"}});
        let (code, made) = cluster.1.post(PODS, running).await;
        assert_eq!(code, 201, "{made}");
        let more = json!([
            {"op": "add", "path": "/spec/containers/0/image", "value": "another"},
            {"op": "add", "path": "/spec/hostNetwork", "value": true},
            {"op": "add", "path": "/metadata/labels", "value": {"a": "b"}},
        ]);
        let resource = format!("pods/{part}");
        let hook = patching(&cluster, ("UPDATE", &resource), more).await;
        let path = format!("{PODS}/p/{part}");
        let (code, changed) = cluster.1.merge(&path, sent).await;
        assert_eq!((code, hook.asked().len()), (200, 1), "{changed}");
        assert!(changed.pointer(of_it).is_some(), "{changed}");
        assert_eq!(
            changed["spec"]["containers"][0]["image"],
            made["spec"]["containers"][0]["image"]
        );
        assert_eq!(changed["spec"]["hostNetwork"], Value::Null);
        assert_eq!(changed["metadata"]["labels"], made["metadata"]["labels"]);
    }
}

#[tokio::test]
async fn what_a_running_pod_has_stays_whatever_a_webhook_says() {
    let cluster = cluster().await;
    assert_eq!(cluster.1.post(PODS, pod("p")).await.0, 201);
    let path = format!("{PODS}/p/ephemeralcontainers");
    let first = json!({"spec": {"ephemeralContainers": [{"name": "a", "image": "sh"}]}});
    assert_eq!(cluster.1.merge(&path, first).await.0, 200);
    let none = json!([{"op": "remove", "path": "/spec/ephemeralContainers"}]);
    let _hook = patching(&cluster, ("UPDATE", "pods/ephemeralcontainers"), none).await;
    let (code, refused) = cluster.1.merge(&path, json!({"metadata": {}})).await;
    let why = refused["message"].as_str().unwrap_or_default();
    assert_eq!(code, 422, "{refused}");
    assert!(
        why.contains("existing ephemeral containers \"a\" may not be removed"),
        "{why}"
    );
}

#[tokio::test]
async fn the_options_of_a_stream_may_be_changed_and_stay_what_they_are() {
    for (change, expect) in [
        (
            json!({"path": "/command", "value": ["other"]}),
            json!(["other"]),
        ),
        (json!({"path": "/kind", "value": "Secret"}), Value::Null),
    ] {
        let cluster = cluster().await;
        let (server, admin) = &cluster;
        assert_eq!(admin.post(PODS, pod("p")).await.0, 201);
        let mut operation = change;
        operation["op"] = "add".into();
        let _hook = patching(&cluster, ("CONNECT", "pods/exec"), json!([operation])).await;
        let seeing = Hook::allowing().await;
        let rules = json!([{"operations": ["CONNECT"], "apiGroups": [""], "apiVersions": ["v1"],
            "resources": ["pods/exec"]}]);
        let webhook = seeing.webhook("v", json!({"rules": rules}));
        configure(server, admin, VALIDATING, "v", &[webhook]).await;
        let path = format!("{PODS}/p/exec?command=sh&stdout=true");
        let (code, answer) = admin.post(&path, json!({})).await;
        let seen = seeing.asked();
        let command = seen.first().map(|asked| asked["object"]["command"].clone());
        assert_eq!(command.unwrap_or_default(), expect, "{answer}");
        // The pod is on no node; what is of another kind is not taken.
        assert_eq!(code == 500, expect.is_null(), "{answer}");
    }
}
