//! A store that has no room for what does not make any.

use std::sync::Arc;

use coracle_store::testing::FailingBackend;
use serde_json::json;

use super::raw::{CONFIG_MAPS, PODS, Raw, config_map, pod};
use crate::{testing, user::UserInfo};

fn leases(namespace: &str) -> String {
    format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases")
}

/// A server with something of everything, whose store is full from now on.
async fn full() -> Raw {
    let store = Arc::new(FailingBackend::default());
    let admin = Raw::of(
        &testing::server_over(Arc::clone(&store) as _).await,
        UserInfo::master("test"),
    );
    let mut held = config_map("held");
    held["metadata"]["finalizers"] = json!(["example.com/a"]);
    for object in [config_map("kept"), config_map("gone"), held] {
        assert_eq!(admin.post(CONFIG_MAPS, object).await.0, 201);
    }
    for name in ["graceful", "running"] {
        let mut object = pod(name);
        object["spec"]["nodeName"] = "n1".into();
        assert_eq!(admin.post(PODS, object).await.0, 201);
    }
    let namespace = json!({"metadata": {"name": "foo"}});
    assert_eq!(admin.post("/api/v1/namespaces", namespace).await.0, 201);
    for namespace in ["kube-node-lease", "default"] {
        let lease = json!({"metadata": {"name": "n1"}, "spec": {"holderIdentity": "n1"}});
        assert_eq!(admin.post(&leases(namespace), lease).await.0, 201);
    }
    store.fill();
    admin
}

#[tokio::test]
async fn what_makes_room_may_use_the_reserve() {
    let admin = full().await;
    let (code, refused) = admin.post(CONFIG_MAPS, config_map("new")).await;
    assert_eq!(
        (code, &refused["message"]),
        (
            500,
            &json!("no space left on the disk of /full: delete objects, or free space")
        )
    );
    let [kept, gone, held] = ["kept", "gone", "held"].map(|name| format!("{CONFIG_MAPS}/{name}"));
    let [graceful, running] = ["graceful", "running"].map(|name| format!("{PODS}/{name}"));
    let [of_node, of_another] = ["kube-node-lease", "default"].map(leases);
    let foo = "/api/v1/namespaces/foo".to_owned();
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    let message = json!({"status": {"message": "told"}});
    let renewal = json!({"spec": {"renewTime": "2030-01-01T00:00:00.000000Z"}});
    let unheld = json!({"metadata": {"finalizers": null}});
    let finalized = json!({"metadata": {"name": "foo"}, "spec": {"finalizers": []}});
    for (method, path, body, expect) in [
        ("PATCH", kept, label.clone(), 500),
        ("PATCH", format!("{running}/status"), message.clone(), 500),
        // Heartbeats are nodes' alone.
        ("PATCH", format!("{of_node}/n1"), renewal.clone(), 200),
        ("PATCH", format!("{of_another}/n1"), renewal, 500),
        // A deletion with all that comes before its end, and nothing besides: what goes is not for
        // keeping things.
        ("DELETE", gone, json!({}), 200),
        ("DELETE", held.clone(), json!({}), 200),
        ("PATCH", held.clone(), label, 500),
        ("PATCH", held.clone(), unheld, 200),
        ("DELETE", graceful.clone(), json!({}), 200),
        ("PATCH", format!("{graceful}/status"), message, 200),
        (
            "DELETE",
            graceful.clone(),
            json!({"gracePeriodSeconds": 0}),
            200,
        ),
        ("DELETE", foo.clone(), json!({}), 200),
        ("PUT", format!("{foo}/finalize"), finalized, 200),
    ] {
        let (code, answer) = admin.write(method, &path, body).await;
        assert_eq!(code, expect, "{method} {path}: {answer}");
    }
    for path in [held, graceful, foo] {
        assert_eq!(admin.get(&path).await.0, 404, "{path}");
    }
}
