//! What is applied is admitted and charged as what is written otherwise.

use super::*;

struct Bypass {
    server: Arc<ApiServer>,
    admin: Raw,
    node: Raw,
}

impl Bypass {
    /// A node, a pod bound to it and one bound to another.
    async fn new() -> Self {
        let server = testing::server().await;
        let admin = Raw::of(&server, UserInfo::master("admin"));
        for name in ["n1", "n2"] {
            let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
            assert_eq!(admin.post("/api/v1/nodes", node).await.0, 201);
            let mut pod = pod(&format!("on-{name}"));
            pod["spec"]["nodeName"] = name.into();
            assert_eq!(admin.post(PODS, pod).await.0, 201);
        }
        let node = Raw::of(&server, UserInfo::node("n1"));
        Self {
            server,
            admin,
            node,
        }
    }
}

/// Every way in which a node could give itself a label that is not its own to give.
#[tokio::test]
async fn no_format_passes_node_restriction_by() {
    let world = Bypass::new().await;
    const LABEL: &str = "node-restriction.kubernetes.io/trusted";
    let label = json!({"metadata": {"labels": {LABEL: "yes"}}});
    let mut config = label.clone();
    (
        config["apiVersion"],
        config["kind"],
        config["metadata"]["name"],
    ) = ("v1".into(), "Node".into(), "n1".into());
    let escaped = LABEL.replace('/', "~1");
    let operations = json!([{"op": "add", "path": "/metadata/labels", "value": {}},
        {"op": "add", "path": format!("/metadata/labels/{escaped}"), "value": "yes"}]);
    for (kind, body) in [
        (APPLY, &config),
        ("application/merge-patch+json", &label),
        ("application/strategic-merge-patch+json", &label),
        ("application/json-patch+json", &operations),
    ] {
        let url = "/api/v1/nodes/n1?fieldManager=m";
        let (code, answer) = world.node.send("PATCH", url, kind, body.to_string()).await;
        assert_eq!(code, 403, "{kind}: {answer}");
        assert!(
            answer["message"]
                .as_str()
                .unwrap()
                .contains("is not allowed to"),
            "{kind}: {answer}"
        );
    }
    let (_, mut node) = world.admin.get("/api/v1/nodes/n1").await;
    node["metadata"]["labels"] = json!({LABEL: "yes"});
    assert_eq!(
        world.node.put("/api/v1/nodes/n1", node.clone()).await.0,
        403
    );
    assert_eq!(world.node.put("/api/v1/nodes/n1/status", node).await.0, 403);
    let (code, _) = world
        .node
        .apply(
            "/api/v1/nodes/n9",
            "m",
            json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n9"}}),
        )
        .await;
    assert_eq!(code, 403, "another node, made by apply");
}

#[tokio::test]
async fn no_format_writes_the_status_of_a_foreign_pod() {
    let world = Bypass::new().await;
    let status = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "on-n2"}, "status": {"phase": "Failed"}});
    for kind in [
        APPLY,
        "application/merge-patch+json",
        "application/strategic-merge-patch+json",
    ] {
        let url = format!("{PODS}/on-n2/status?fieldManager=m");
        let (code, answer) = world
            .node
            .send("PATCH", &url, kind, status.to_string())
            .await;
        assert_eq!(code, 403, "{kind}: {answer}");
    }
    let (code, answer) = world
        .node
        .apply(&format!("{PODS}/on-n1/status"), "m", {
            let mut own = status.clone();
            own["metadata"]["name"] = "on-n1".into();
            own
        })
        .await;
    assert_eq!(
        (code, &answer["status"]["phase"]),
        (200, &json!("Failed")),
        "{answer}"
    );
}

#[tokio::test]
async fn applied_services_get_addresses_and_applied_objects_are_charged() {
    let raw = admin().await;
    let services = "/api/v1/namespaces/default/services";
    let service = |name: &str, spec: Value| json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec});
    let ports = json!({"ports": [{"port": 80}]});
    let (code, first) = raw
        .apply(&format!("{services}/a"), "m", service("a", ports.clone()))
        .await;
    let address = first["spec"]["clusterIP"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    assert_eq!(
        (code, address.starts_with("10.96.")),
        (201, true),
        "{first}"
    );
    let taken = json!({"ports": [{"port": 80}], "clusterIP": address});
    let (code, answer) = raw
        .apply(&format!("{services}/b"), "m", service("b", taken))
        .await;
    assert_eq!(code, 422, "{answer}");
    assert!(
        answer["message"]
            .as_str()
            .unwrap()
            .contains("provided IP is already allocated"),
        "{answer}"
    );
    let (code, again) = raw
        .apply(&format!("{services}/a"), "m", service("a", ports))
        .await;
    assert_eq!((code, &again["spec"]["clusterIP"]), (200, &json!(address)));
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"},
        "spec": {"hard": {"configmaps": "0"}}});
    let (_, mut quota) = raw
        .post("/api/v1/namespaces/default/resourcequotas", quota)
        .await;
    quota["status"] = json!({"hard": {"configmaps": "0"}, "used": {"configmaps": "0"}});
    raw.put("/api/v1/namespaces/default/resourcequotas/q/status", quota)
        .await;
    let (code, answer) = raw
        .apply(&format!("{CONFIG_MAPS}/a"), "m", data(json!({})))
        .await;
    assert_eq!(code, 403, "{answer}");
}

#[tokio::test]
async fn who_may_patch_but_not_create_makes_nothing_by_apply() {
    let world = Bypass::new().await;
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "r"},
        "rules": [{"verbs": ["patch", "get"], "apiGroups": [""], "resources": ["configmaps"]}]});
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "r"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "r"},
        "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "alice"}]});
    world
        .admin
        .post(&format!("{rbac}/clusterroles"), role)
        .await;
    world
        .admin
        .post(&format!("{rbac}/clusterrolebindings"), binding)
        .await;
    let alice = Raw::of(&world.server, UserInfo::new("alice", &[]));
    let (code, answer) = alice
        .apply(&format!("{CONFIG_MAPS}/a"), "m", data(json!({})))
        .await;
    assert_eq!(code, 403, "{answer}");
    assert!(
        answer["message"]
            .as_str()
            .unwrap()
            .contains("cannot create resource \"configmaps\""),
        "{answer}"
    );
    world.admin.post(CONFIG_MAPS, config_map("a")).await;
    assert_eq!(
        alice
            .apply(&format!("{CONFIG_MAPS}/a"), "m", data(json!({"z": "1"})))
            .await
            .0,
        200
    );
}
