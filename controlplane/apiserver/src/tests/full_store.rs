//! A store that has no room for what does not make any.

use std::sync::Arc;

use coracle_store::testing::FailingBackend;
use serde_json::json;

use super::raw::{CONFIG_MAPS, PODS, Raw, config_map, pod};
use crate::{testing, user::UserInfo};

fn leases(namespace: &str) -> String {
    format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases")
}

#[tokio::test]
async fn what_makes_room_may_use_the_reserve() {
    let store = Arc::new(FailingBackend::default());
    let admin = Raw::of(
        &testing::server_over(Arc::clone(&store) as _).await,
        UserInfo::component("test"),
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

    let (code, refused) = admin.post(CONFIG_MAPS, config_map("new")).await;
    assert_eq!(
        (code, &refused["message"]),
        (
            500,
            &json!("no space left on the disk of /full: delete objects, or free space")
        )
    );
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    let message = json!({"status": {"message": "told"}});
    let [kept, held, graceful] = [
        format!("{CONFIG_MAPS}/kept"),
        format!("{CONFIG_MAPS}/held"),
        format!("{PODS}/graceful"),
    ];
    assert_eq!(admin.merge(&kept, label.clone()).await.0, 500);
    assert_eq!(
        admin
            .merge(&format!("{PODS}/running/status"), message.clone())
            .await
            .0,
        500
    );
    // Heartbeats are nodes' alone.
    let renewal = json!({"spec": {"renewTime": "2030-01-01T00:00:00.000000Z"}});
    assert_eq!(
        admin
            .merge(
                &format!("{}/n1", leases("kube-node-lease")),
                renewal.clone()
            )
            .await
            .0,
        200
    );
    assert_eq!(
        admin
            .merge(&format!("{}/n1", leases("default")), renewal)
            .await
            .0,
        500
    );
    // A deletion with all that comes before its end, and nothing besides.
    assert_eq!(
        admin
            .delete(&format!("{CONFIG_MAPS}/gone"), json!({}))
            .await
            .0,
        200
    );
    assert_eq!(admin.delete(&held, json!({})).await.0, 200);
    assert_eq!(
        admin.merge(&held, label).await.0,
        500,
        "what goes is not for keeping things"
    );
    assert_eq!(
        admin
            .merge(&held, json!({"metadata": {"finalizers": null}}))
            .await
            .0,
        200
    );
    assert_eq!(admin.delete(&graceful, json!({})).await.0, 200);
    assert_eq!(
        admin.merge(&format!("{graceful}/status"), message).await.0,
        200
    );
    assert_eq!(
        admin
            .delete(&graceful, json!({"gracePeriodSeconds": 0}))
            .await
            .0,
        200
    );
    assert_eq!(
        admin.delete("/api/v1/namespaces/foo", json!({})).await.0,
        200
    );
    let finalized = json!({"metadata": {"name": "foo"}, "spec": {"finalizers": []}});
    assert_eq!(
        admin
            .put("/api/v1/namespaces/foo/finalize", finalized)
            .await
            .0,
        200
    );
    for path in [&held, &graceful, "/api/v1/namespaces/foo"] {
        assert_eq!(admin.get(path).await.0, 404, "{path}");
    }
}
