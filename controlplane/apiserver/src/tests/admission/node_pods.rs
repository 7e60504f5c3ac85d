//! Pods as nodes may change them: their own, and mirror pods.

use coracle_auth::user::UserInfo;
use serde_json::{Value, json};

use super::{
    super::raw::{PODS, Raw, admin, pod},
    of,
};
use crate::testing;

#[tokio::test]
async fn a_node_ends_pods_of_its_own_alone() {
    let server = testing::server().await;
    let (raw, node) = (of(&server, "admin"), Raw::of(&server, UserInfo::node("n1")));
    for on in ["n1", "n2"] {
        let mut object = pod(on);
        object["spec"]["nodeName"] = on.into();
        assert_eq!(raw.post(PODS, object).await.0, 201);
    }
    let evict = |name: &str| {
        let eviction =
            json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}});
        (format!("{PODS}/{name}/eviction"), eviction)
    };
    let forbidden = "pods \"n2\" is forbidden: node";
    // Upstream quotes the node for the one and not for the other.
    let only = |node: &str, doing: &str| {
        format!("{forbidden} {node} can only {doing} pods with spec.nodeName set to itself")
    };
    let (path, eviction) = evict("n2");
    let (code, refused) = node.post(&path, eviction).await;
    assert_eq!(
        (code, refused["message"].as_str().unwrap()),
        (403, &*only("n1", "evict"))
    );
    let (code, refused) = node.delete(&format!("{PODS}/n2"), json!({})).await;
    assert_eq!(
        (code, refused["message"].as_str().unwrap()),
        (403, &*only("\"n1\"", "delete"))
    );
    assert_eq!(node.delete(&format!("{PODS}/none"), json!({})).await.0, 404);
    let (path, eviction) = evict("n1");
    assert_eq!(node.post(&path, eviction).await.0, 201);
    assert_eq!(
        node.delete(&format!("{PODS}/n1"), json!({"gracePeriodSeconds": 0}))
            .await
            .0,
        200
    );
}

#[tokio::test]
async fn a_mirror_pod_gets_no_account_and_may_not_ask_for_one() {
    let raw = admin().await;
    let mut object = pod("m");
    object["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "x"});
    object["spec"]["nodeName"] = "n1".into();
    object["spec"]["serviceAccountName"] = "default".into();
    let (code, refused) = raw.post(PODS, object.clone()).await;
    let why = "pods \"m\" is forbidden: a mirror pod may not reference service accounts";
    assert_eq!((code, &refused["message"]), (403, &json!(why)));
    object["spec"]["serviceAccountName"].take();
    let (code, made) = raw.post(PODS, object).await;
    assert_eq!(
        (code, &made["spec"]["serviceAccountName"]),
        (201, &Value::Null),
        "{made}"
    );
    assert!(made["spec"]["volumes"].is_null(), "no token either: {made}");
}
