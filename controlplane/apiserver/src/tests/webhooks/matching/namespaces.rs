//! Namespaces, and what is below them and below pods.

use super::*;

#[tokio::test]
async fn a_namespace_is_chosen_by_its_own_labels() {
    let (server, admin) = cluster().await;
    let hook = Hook::allowing().await;
    let chosen = json!({"namespaceSelector": {"matchLabels": {"a": "b"}},
        "rules": [rule("*", "", "v1", "namespaces")]});
    configure(
        &server,
        &admin,
        VALIDATING,
        "c",
        &[hook.webhook("v", chosen)],
    )
    .await;
    let namespace = |name: &str, labels: Value| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}});
    admin
        .post("/api/v1/namespaces", namespace("x", json!({})))
        .await;
    assert_eq!(hook.asked().len(), 0);
    admin
        .post("/api/v1/namespaces", namespace("y", json!({"a": "b"})))
        .await;
    let asked = hook.asked();
    assert_eq!(
        (&asked[0]["name"], &asked[0]["namespace"]),
        (&json!("y"), &json!("y"))
    );
    admin.delete("/api/v1/namespaces/y", json!({})).await;
    assert_eq!(hook.asked().len(), 2);
}

/// What is below a Namespace is in it, and what has no labels is never selected by them.
#[tokio::test]
async fn what_is_below_a_namespace_is_in_it_and_streams_have_no_labels() {
    let (server, admin) = cluster().await;
    for (name, labels) in [("x", json!({})), ("y", json!({"a": "b"}))] {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": name, "labels": labels}});
        assert_eq!(admin.post("/api/v1/namespaces", namespace).await.0, 201);
    }
    let own = Hook::allowing().await;
    let chosen = json!({"namespaceSelector": {"matchLabels": {"a": "b"}},
        "rules": [rule("*", "", "v1", "namespaces/*")]});
    let absent = json!({"matchExpressions": [{"key": "none", "operator": "DoesNotExist"}]});
    let streams = Hook::allowing().await;
    let unlabelled = json!({"objectSelector": absent,
        "rules": [rule("*", "", "v1", "pods/exec"), rule("*", "", "v1", "pods/eviction")]});
    let webhooks = [
        own.webhook("own", chosen),
        streams.webhook("streams", unlabelled),
    ];
    configure(&server, &admin, VALIDATING, "c", &webhooks).await;
    for name in ["x", "y"] {
        let path = format!("/api/v1/namespaces/{name}/status");
        let condition = json!({"type": "T", "status": "True", "lastTransitionTime": null});
        let (code, answer) = admin
            .merge(&path, json!({"status": {"conditions": [condition]}}))
            .await;
        assert_eq!(code, 200, "{answer}");
    }
    let asked = own.asked();
    assert_eq!(asked.len(), 1, "{asked:?}");
    assert_eq!(asked[0]["namespace"], "y");
    assert_eq!(admin.post(PODS, pod("p")).await.0, 201);
    admin.get(&format!("{PODS}/p/exec?command=sh")).await;
    assert_eq!(streams.asked().len(), 0);
    let eviction =
        json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}});
    admin.post(&format!("{PODS}/p/eviction"), eviction).await;
    assert_eq!(streams.asked().len(), 1);
}
