//! Server-side apply over the wire, and that no way of writing passes admission by.

use std::sync::Arc;

use coracle_auth::user::UserInfo;
use serde_json::{Value, json};

use super::raw::{CONFIG_MAPS, PODS, Raw, admin, config_map, pod};
use crate::{ApiServer, testing};

const APPLY: &str = "application/apply-patch+yaml";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

impl Raw {
    async fn apply(&self, path: &str, manager: &str, config: Value) -> (u16, Value) {
        self.send(
            "PATCH",
            &format!("{path}?fieldManager={manager}"),
            APPLY,
            config.to_string(),
        )
        .await
    }

    async fn force(&self, path: &str, manager: &str, config: Value) -> (u16, Value) {
        self.send(
            "PATCH",
            &format!("{path}?fieldManager={manager}&force=true"),
            APPLY,
            config.to_string(),
        )
        .await
    }
}

fn data(data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data})
}

fn deployment(spec: Value) -> Value {
    let mut object = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
        "spec": {"selector": {"matchLabels": {"app": "d"}}, "template": {
            "metadata": {"labels": {"app": "d"}}, "spec": {"containers": [{"name": "c", "image": "nginx"}]}}}});
    for (field, value) in spec.as_object().unwrap() {
        object["spec"][field] = value.clone();
    }
    object
}

/// `manager operation subresource` of each entry, sorted.
fn managers(object: &Value) -> Vec<String> {
    let text = |entry: &Value, field: &str| entry[field].as_str().unwrap_or_default().to_owned();
    let entries = object["metadata"]["managedFields"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let mut managers: Vec<String> = entries
        .iter()
        .map(|entry| {
            format!(
                "{} {} {}",
                text(entry, "manager"),
                text(entry, "operation"),
                text(entry, "subresource")
            )
            .trim_end()
            .to_owned()
        })
        .collect();
    managers.sort();
    managers
}

/// What a manager owns.
fn fields_of<'a>(object: &'a Value, manager: &str) -> &'a Value {
    let entries = object["metadata"]["managedFields"].as_array().unwrap();
    &entries
        .iter()
        .find(|entry| entry["manager"] == manager)
        .unwrap()["fieldsV1"]
}

#[tokio::test]
async fn apply_makes_changes_and_removes() {
    let raw = admin().await;
    let path = format!("{CONFIG_MAPS}/a");
    let (code, made) = raw
        .apply(&path, "m", data(json!({"x": "1", "y": "2"})))
        .await;
    assert_eq!(
        (code, managers(&made)),
        (201, vec!["m Apply".to_owned()]),
        "{made}"
    );
    let (code, same) = raw
        .apply(&path, "m", data(json!({"x": "1", "y": "2"})))
        .await;
    assert_eq!(
        (code, &same["metadata"]),
        (200, &made["metadata"]),
        "nothing is written"
    );
    let (code, changed) = raw.apply(&path, "m", data(json!({"x": "3"}))).await;
    assert_eq!((code, &changed["data"]), (200, &json!({"x": "3"})));
    let (code, answer) = raw.apply(&path, "n", data(json!({"x": "4"}))).await;
    assert_eq!(
        (
            code,
            answer["message"].as_str().unwrap(),
            answer["details"]["causes"][0]["reason"].as_str().unwrap()
        ),
        (
            409,
            "Apply failed with 1 conflict: conflict with \"m\": .data.x",
            "FieldManagerConflict"
        ),
    );
    let (code, forced) = raw.force(&path, "n", data(json!({"x": "4"}))).await;
    assert_eq!((code, &forced["data"]["x"]), (200, &json!("4")));
    assert_eq!(managers(&forced), ["n Apply"]);
}

#[tokio::test]
async fn other_writes_own_what_they_change() {
    let raw = admin().await;
    let path = format!("{DEPLOYMENTS}/d");
    let made = raw
        .post(
            &format!("{DEPLOYMENTS}?fieldManager=creator"),
            deployment(json!({"replicas": 1})),
        )
        .await
        .1;
    assert_eq!(managers(&made), ["creator Update"], "{made}");
    let (_, scaled) = raw
        .send(
            "PATCH",
            &format!("{path}/scale?fieldManager=scaler"),
            "application/merge-patch+json",
            r#"{"spec":{"replicas":3}}"#,
        )
        .await;
    assert_eq!(scaled["spec"]["replicas"], 3, "{scaled}");
    let (_, object) = raw.get(&path).await;
    assert_eq!(
        managers(&object),
        ["creator Update", "scaler Update scale"],
        "{object}"
    );
    let (code, answer) = raw
        .apply(&path, "m", deployment(json!({"replicas": 2})))
        .await;
    assert_eq!(code, 409, "{answer}");
    assert!(
        answer["message"]
            .as_str()
            .unwrap()
            .contains("conflict with \"scaler\" with subresource \"scale\" using apps/v1"),
        "{answer}"
    );
    // What a client has not seen stays: an update without the list keeps it.
    let mut copy = object.clone();
    copy["metadata"]
        .as_object_mut()
        .unwrap()
        .remove("managedFields");
    copy["spec"]["paused"] = true.into();
    let (code, updated) = raw.put(&format!("{path}?fieldManager=editor"), copy).await;
    assert_eq!(code, 200, "{updated}");
    assert_eq!(
        managers(&updated),
        ["creator Update", "editor Update", "scaler Update scale"]
    );
}

#[tokio::test]
async fn status_is_owned_apart() {
    let raw = admin().await;
    let path = format!("{DEPLOYMENTS}/d");
    let mut config = deployment(json!({}));
    config["status"] = json!({"replicas": 7});
    let (code, made) = raw.apply(&path, "m", config.clone()).await;
    assert_eq!(
        (code, &made["status"]["replicas"]),
        (201, &Value::Null),
        "{made}"
    );
    let (code, answer) = raw.apply(&format!("{path}/status"), "c", config).await;
    assert_eq!(
        (code, &answer["status"]["replicas"]),
        (200, &json!(7)),
        "{answer}"
    );
    assert_eq!(managers(&answer), ["c Apply status", "m Apply"]);
    assert_eq!(
        fields_of(&answer, "c"),
        &json!({"f:status": {"f:replicas": {}}})
    );
    assert_eq!(answer["metadata"]["generation"], 1);
}

#[tokio::test]
async fn what_is_applied_to_a_subresource_of_a_pod_is_owned_there() {
    let raw = admin().await;
    let path = format!("{PODS}/p");
    let mut object = pod("p");
    object["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "100m"}});
    raw.post(&format!("{PODS}?fieldManager=creator"), object)
        .await;
    let config = |spec: Value| json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": {"no": "no"}}, "spec": spec});
    let more = config(json!({"nodeName": "no", "containers": [
        {"name": "c", "image": "no", "resources": {"requests": {"cpu": "200m"}}}]}));
    let (code, conflict) = raw
        .apply(&format!("{path}/resize"), "m", more.clone())
        .await;
    assert_eq!(code, 409, "{conflict}");
    let (code, resized) = raw.force(&format!("{path}/resize"), "m", more).await;
    let container = &resized["spec"]["containers"][0];
    assert_eq!(
        (code, &container["resources"]["requests"]["cpu"]),
        (200, &json!("200m")),
        "{resized}"
    );
    assert_eq!(
        (&container["image"], &resized["metadata"]["labels"]),
        (&json!("nginx"), &json!({"app": "p"}))
    );
    assert_eq!(managers(&resized), ["creator Update", "m Apply resize"]);
    assert!(
        !fields_of(&resized, "m").to_string().contains("f:image"),
        "{resized}"
    );
    let debugger = config(json!({"ephemeralContainers": [{"name": "d", "image": "busybox"}]}));
    let (code, debugged) = raw
        .apply(&format!("{path}/ephemeralcontainers"), "d", debugger)
        .await;
    assert_eq!(
        (code, &debugged["spec"]["ephemeralContainers"][0]["name"]),
        (200, &json!("d")),
        "{debugged}"
    );
    assert_eq!(
        managers(&debugged),
        [
            "creator Update",
            "d Apply ephemeralcontainers",
            "m Apply resize"
        ]
    );
    let nothing = config(json!({}));
    let (code, removed) = raw
        .apply(&format!("{path}/ephemeralcontainers"), "d", nothing)
        .await;
    assert_eq!(code, 422, "what is there stays: {removed}");
    let (code, _) = raw
        .apply(&format!("{PODS}/q/resize"), "m", {
            let mut other = config(json!({}));
            other["metadata"]["name"] = "q".into();
            other
        })
        .await;
    assert_eq!(code, 404, "nothing is made by way of a subresource");
}

#[tokio::test]
async fn an_approval_can_be_applied() {
    let raw = admin().await;
    let path = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let request = testing::certificate_request("alice", "people");
    let made = raw.post(path, json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
        "metadata": {"name": "r"}, "spec": {"request": request, "signerName": "example.org/s", "usages": ["client auth"]}}));
    assert_eq!(made.await.0, 201);
    let config = json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
        "metadata": {"name": "r", "annotations": {"by": "m"}},
        "status": {"conditions": [{"type": "Approved", "status": "True", "reason": "Test"}]}});
    let (code, approved) = raw.apply(&format!("{path}/r/approval"), "m", config).await;
    assert_eq!(
        (code, &approved["status"]["conditions"][0]["type"]),
        (200, &json!("Approved")),
        "{approved}"
    );
    assert_eq!(approved["metadata"]["annotations"]["by"], "m");
    assert!(
        managers(&approved).contains(&"m Apply approval".to_owned()),
        "{approved}"
    );
}

#[tokio::test]
async fn an_object_made_by_a_component_is_tracked_from_its_first_apply() {
    let server = testing::server().await;
    let controller = Raw::of(
        &server,
        UserInfo::component("system:kube-controller-manager"),
    );
    let (_, made) = controller.post(CONFIG_MAPS, config_map("a")).await;
    assert_eq!(managers(&made), Vec::<String>::new());
    let raw = Raw::of(&server, UserInfo::component("test"));
    let (code, answer) = raw
        .apply(&format!("{CONFIG_MAPS}/a"), "m", data(json!({"n": "1"})))
        .await;
    assert_eq!(code, 409);
    assert!(
        answer["message"]
            .as_str()
            .unwrap()
            .contains("conflict with \"before-first-apply\" using v1"),
        "{answer}"
    );
    let (code, answer) = raw
        .apply(&format!("{CONFIG_MAPS}/a"), "m", data(json!({"o": "1"})))
        .await;
    assert_eq!(
        (code, managers(&answer)),
        (
            200,
            vec!["before-first-apply Update".to_owned(), "m Apply".to_owned()]
        )
    );
}

#[tokio::test]
async fn a_bad_configuration_is_refused() {
    let raw = admin().await;
    let path = format!("{CONFIG_MAPS}/a");
    let (code, answer) = raw
        .send("PATCH", &path, APPLY, data(json!({})).to_string())
        .await;
    assert_eq!(code, 422);
    assert_eq!(
        answer["message"],
        "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch"
    );
    let mut unknown = data(json!({}));
    unknown["colour"] = "red".into();
    let (code, answer) = raw.apply(&path, "m", unknown).await;
    assert_eq!(
        (code, answer["message"].as_str().unwrap()),
        (
            500,
            "failed to create typed patch object (default/a; v1, Kind=ConfigMap): .colour: field not declared in schema"
        )
    );
    let mut applied = data(json!({}));
    applied["metadata"]["managedFields"] = json!([{"manager": "x"}]);
    let (code, answer) = raw.apply(&path, "m", applied).await;
    assert_eq!(
        (code, answer["message"].as_str().unwrap()),
        (400, "metadata.managedFields must be nil")
    );
    let (code, _) = raw
        .apply(&format!("{CONFIG_MAPS}/b"), "m", data(json!({})))
        .await;
    assert_eq!(code, 400, "another name than the URL's");
}

struct Bypass {
    server: Arc<ApiServer>,
    admin: Raw,
    node: Raw,
}

impl Bypass {
    /// A node, a pod bound to it and one bound to another.
    async fn new() -> Self {
        let server = testing::server().await;
        let admin = Raw::of(&server, UserInfo::component("admin"));
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
