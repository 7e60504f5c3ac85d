//! Roles, impersonation, reviews and certificates, as users with few rights meet them.

mod certificates;
mod reviews;

use std::sync::Arc;

use coracle_auth::user::UserInfo;
use http::Request;
use serde_json::{Value, json};

use super::raw::{PODS, Raw, pod};
use crate::{ApiServer, testing};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

struct World {
    server: Arc<ApiServer>,
    admin: Raw,
}

impl World {
    async fn new() -> Self {
        let server = testing::server().await;
        let admin = Raw::of(&server, UserInfo::master("admin"));
        Self { server, admin }
    }

    fn user(&self, name: &str) -> Raw {
        Raw::of(&self.server, UserInfo::new(name, &[]))
    }

    async fn grant(&self, user: &str, rules: Value) {
        let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": format!("of-{user}")}, "rules": rules});
        let (code, answer) = self.admin.post(&format!("{RBAC}/clusterroles"), role).await;
        assert_eq!(code, 201, "{answer}");
        let (code, answer) = self
            .admin
            .post(
                &format!("{RBAC}/clusterrolebindings"),
                binding(user, &format!("of-{user}")),
            )
            .await;
        assert_eq!(code, 201, "{answer}");
    }
}

fn binding(user: &str, role: &str) -> Value {
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": format!("{user}-{role}")},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}]})
}

fn role(rules: Value) -> Value {
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "r"}, "rules": rules})
}

#[tokio::test]
async fn nobody_grants_what_they_do_not_hold() {
    let world = World::new().await;
    // Not `*`: the verbs of granting are left out.
    let rbac = json!({"verbs": ["get", "create", "update", "patch"], "apiGroups": ["rbac.authorization.k8s.io"],
        "resources": ["roles", "rolebindings", "clusterrolebindings", "clusterroles"]});
    let pods = json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]});
    world.grant("alice", json!([rbac, pods])).await;
    let alice = world.user("alice");
    let roles = format!("{RBAC}/namespaces/default/roles");
    let (code, answer) = alice.post(&roles, role(json!([pods]))).await;
    assert_eq!(code, 201, "{answer}");
    let more = json!([{"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"]}]);
    let (code, answer) = alice.put(&format!("{roles}/r"), role(more)).await;
    assert_eq!(
        (code, answer["message"].as_str().unwrap()),
        (
            403,
            "roles.rbac.authorization.k8s.io \"r\" is forbidden: user \"alice\" (groups=[\"system:authenticated\"]) is \
             attempting to grant RBAC permissions not currently held:\n{APIGroups:[\"\"], Resources:[\"pods\"], \
             Verbs:[\"list\"]}"
        )
    );
    let bindings = format!("{RBAC}/clusterrolebindings");
    for (role, expect) in [("view", 403), ("of-alice", 201), ("nowhere", 404)] {
        let (code, answer) = alice.post(&bindings, binding("bob", role)).await;
        assert_eq!(code, expect, "{role}: {answer}");
    }
    let (code, answer) = alice
        .merge(
            &format!("{bindings}/bob-of-alice"),
            json!({"metadata": {"labels": {"a": "b"}}}),
        )
        .await;
    assert_eq!(code, 200, "{answer}");
    // Who may bind a role gives it without holding it.
    let bind = json!({"verbs": ["bind"], "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles"],
        "resourceNames": ["view"]});
    world.grant("carol", json!([bind, rbac])).await;
    let carol = world.user("carol");
    for (role, expect) in [("view", 201), ("edit", 403)] {
        let (code, answer) = carol.post(&bindings, binding("dave", role)).await;
        assert_eq!(code, expect, "{role}: {answer}");
    }
    let aggregated = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "x"},
        "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}});
    let (code, answer) = alice
        .post(&format!("{RBAC}/clusterroles"), aggregated)
        .await;
    assert_eq!(code, 403);
    assert!(
        answer["message"]
            .as_str()
            .unwrap()
            .ends_with("must have cluster-admin privileges to use the aggregationRule")
    );
}

#[tokio::test]
async fn impersonation_needs_the_right_to_it() {
    let world = World::new().await;
    world
        .admin
        .post(
            &format!("{RBAC}/clusterrolebindings"),
            binding("bob", "view"),
        )
        .await;
    let list = async |raw: &Raw, headers: &[(&str, &str)]| {
        let mut request = Request::get(PODS);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = raw
            .0
            .send(request.body(kube::client::Body::empty()).unwrap())
            .await
            .unwrap();
        let code = response.status().as_u16();
        let body = response.into_body().collect_bytes().await.unwrap();
        (code, serde_json::from_slice::<Value>(&body).unwrap())
    };
    assert_eq!(
        list(&world.admin, &[("Impersonate-User", "bob")]).await.0,
        200
    );
    let (code, answer) = list(
        &world.admin,
        &[("Impersonate-User", "carol"), ("Impersonate-Group", "dev")],
    )
    .await;
    assert_eq!(code, 403);
    assert!(
        answer["message"]
            .as_str()
            .unwrap()
            .contains("User \"carol\" cannot list"),
        "{answer}"
    );
    let (code, answer) = list(&world.user("alice"), &[("Impersonate-User", "bob")]).await;
    assert_eq!(
        (code, answer["message"].as_str().unwrap()),
        (
            403,
            "users \"bob\" is forbidden: User \"alice\" cannot impersonate resource \"users\" in API group \"\" at the \
             cluster scope"
        )
    );
    assert_eq!(
        list(&world.admin, &[("Impersonate-Group", "dev")]).await.0,
        500
    );
    let masters = [
        ("Impersonate-User", "bob"),
        ("Impersonate-Group", "system:masters"),
    ];
    let bob = json!([{"verbs": ["impersonate"], "apiGroups": [""], "resources": ["users"]}]);
    world.grant("erin", bob).await;
    assert_eq!(
        list(&world.user("erin"), &[("Impersonate-User", "bob")])
            .await
            .0,
        200
    );
    assert_eq!(list(&world.user("erin"), &masters).await.0, 403);
}

#[tokio::test]
async fn nodes_write_their_own_objects_alone() {
    let world = World::new().await;
    let node = Raw::of(&world.server, UserInfo::node("n1"));
    let make = |name: &str| json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
    assert_eq!(node.post("/api/v1/nodes", make("n1")).await.0, 201);
    assert_eq!(node.post("/api/v1/nodes", make("n2")).await.0, 403);
    world.admin.post("/api/v1/nodes", make("n2")).await;
    let status = json!({"status": {"conditions": []}});
    assert_eq!(
        node.merge("/api/v1/nodes/n1/status", status.clone())
            .await
            .0,
        200
    );
    let (code, answer) = node.merge("/api/v1/nodes/n2/status", status).await;
    assert_eq!(code, 403);
    assert!(
        answer["message"]
            .as_str()
            .unwrap()
            .contains("node \"n1\" is not allowed to modify node \"n2\""),
        "{answer}"
    );
    let lease = |name: &str| json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}, "spec": {}});
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
    assert_eq!(node.post(leases, lease("n1")).await.0, 201);
    assert_eq!(node.post(leases, lease("n2")).await.0, 403);
    for (name, on) in [("mine", "n1"), ("other", "n2")] {
        let mut pod = pod(name);
        pod["spec"]["nodeName"] = on.into();
        assert_eq!(world.admin.post(PODS, pod).await.0, 201);
    }
    let phase = json!({"status": {"phase": "Running"}});
    assert_eq!(
        node.merge(&format!("{PODS}/mine/status"), phase.clone())
            .await
            .0,
        200
    );
    assert_eq!(
        node.merge(&format!("{PODS}/other/status"), phase).await.0,
        403
    );
    let now = json!({"gracePeriodSeconds": 0});
    assert_eq!(
        node.delete(&format!("{PODS}/mine"), now.clone()).await.0,
        200
    );
    assert_eq!(node.delete(&format!("{PODS}/other"), now).await.0, 403);
}
