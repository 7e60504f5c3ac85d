//! What a Node becomes as it is made.

use serde_json::{Value, json};

use super::World;

#[tokio::test]
async fn a_new_node_takes_no_pods_before_it_is_ready() {
    let world = World::new().await;
    let (_, node) = world.admin.get("/api/v1/nodes/evil").await;
    let not_ready = json!([{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]);
    assert_eq!(node["spec"]["taints"], not_ready);
    // It is taken away later, and nothing brings it back.
    let path = "/api/v1/nodes/evil";
    let untaint = json!({"spec": {"taints": null}});
    assert_eq!(world.admin.merge(path, untaint).await.0, 200);
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    let (code, node) = world.admin.merge(path, label).await;
    assert_eq!((code, &node["spec"]["taints"]), (200, &Value::Null));
}
