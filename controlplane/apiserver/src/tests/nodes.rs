//! What somebody gets who has a node's certificate, and what the API server's own to nodes is
//! worth.

mod local_volumes;
mod registering;

use std::sync::Arc;

use coracle_auth::user::UserInfo;
use serde_json::{Value, json};

use super::raw::{PODS, Raw, pod};
use crate::{ApiServer, testing};

const ACCOUNT: &str = "/api/v1/namespaces/default/serviceaccounts/default/token";

struct World {
    server: Arc<ApiServer>,
    admin: Raw,
    /// The node `evil`, which is registered.
    node: Raw,
    node_uid: String,
}

impl World {
    async fn new() -> Self {
        let server = testing::server().await;
        let (admin, node) = (
            Raw::of(&server, UserInfo::master("admin")),
            Raw::of(&server, UserInfo::node("evil")),
        );
        let object = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "evil"}});
        let (code, made) = node.post("/api/v1/nodes", object).await;
        assert_eq!(code, 201, "{made}");
        let node_uid = made["metadata"]["uid"].as_str().unwrap().to_owned();
        Self {
            server,
            admin,
            node,
            node_uid,
        }
    }

    /// A pod on the node, with these volumes besides its token for the API; its UID.
    async fn pod(&self, name: &str, volumes: Value) -> String {
        let mut object = pod(name);
        object["spec"]["nodeName"] = "evil".into();
        object["spec"]["volumes"] = volumes;
        let (code, made) = self.admin.post(PODS, object).await;
        assert_eq!(code, 201, "{made}");
        made["metadata"]["uid"].as_str().unwrap().to_owned()
    }

    async fn token(&self, pod: &str, uid: &str, mut spec: Value) -> (u16, String) {
        spec["boundObjectRef"] =
            json!({"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": uid});
        let request =
            json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec});
        let (code, answer) = self.node.post(ACCOUNT, request).await;
        (
            code,
            answer["message"].as_str().unwrap_or_default().to_owned(),
        )
    }
}

fn projected(audience: &str, seconds: i64) -> Value {
    let source = json!({"serviceAccountToken": {"audience": audience, "expirationSeconds": seconds, "path": "token"}});
    json!([{"name": "token", "projected": {"sources": [source]}}])
}

#[tokio::test]
async fn a_node_gets_tokens_for_the_audiences_of_its_pods_alone() {
    let world = World::new().await;
    let uid = world.pod("p", projected("vault", 7200)).await;
    let ask = async |spec| world.token("p", &uid, spec).await;
    assert_eq!(
        ask(json!({"audiences": ["vault"]})).await,
        (201, String::new())
    );
    assert_eq!(
        ask(json!({"audiences": ["vault"], "expirationSeconds": 7200}))
            .await
            .0,
        201
    );
    let (code, message) =
        ask(json!({"audiences": ["vault"], "expirationSeconds": 31_536_000})).await;
    assert_eq!(code, 403);
    assert!(
        message
            .ends_with("requested a token for 31536000 seconds, the volumes of the pod say 7200"),
        "{message}"
    );
    let (code, message) = ask(json!({"audiences": ["sts.amazonaws.com"]})).await;
    assert_eq!(
        (code, message.as_str()),
        (
            403,
            "serviceaccounts \"default\" is forbidden: audience \"sts.amazonaws.com\" not found in pod spec volume, \
             system:node:evil is not authorized to request tokens for this audience"
        )
    );
    let (code, message) = ask(json!({"audiences": ["vault", "sts.amazonaws.com"]})).await;
    assert_eq!(
        (
            code,
            message.ends_with("node may only request 0 or 1 audiences")
        ),
        (403, true),
        "{message}"
    );
    let (code, message) = world.token("p", "", json!({"audiences": ["vault"]})).await;
    assert_eq!(code, 403, "{message}");
    assert!(
        message.ends_with("node requested token with a pod binding without a uid"),
        "{message}"
    );
}

#[tokio::test]
async fn a_role_or_a_driver_gives_a_node_another_audience() {
    let world = World::new().await;
    let volume = json!([{"name": "data", "csi": {"driver": "csi.example.org"}}]);
    let uid = world.pod("p", volume).await;
    let ask = async |audience: &str| {
        world
            .token("p", &uid, json!({"audiences": [audience]}))
            .await
            .0
    };
    assert_eq!((ask("storage").await, ask("registry").await), (403, 403));
    let driver = json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": "csi.example.org"},
        "spec": {"tokenRequests": [{"audience": "storage"}]}});
    let (code, answer) = world
        .admin
        .post("/apis/storage.k8s.io/v1/csidrivers", driver)
        .await;
    assert_eq!(code, 201, "{answer}");
    assert_eq!((ask("storage").await, ask("registry").await), (201, 403));
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "a"},
        "rules": [{"verbs": ["request-serviceaccounts-token-audience"], "apiGroups": [""], "resources": ["registry"]}]});
    assert_eq!(
        world
            .admin
            .post(&format!("{rbac}/clusterroles"), role)
            .await
            .0,
        201
    );
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "a"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "a"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:nodes"}]});
    assert_eq!(
        world
            .admin
            .post(&format!("{rbac}/clusterrolebindings"), binding)
            .await
            .0,
        201
    );
    assert_eq!(ask("registry").await, 201);
}

#[tokio::test]
async fn a_token_is_for_the_account_that_is_there() {
    let world = World::new().await;
    let request = |metadata: Value| json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "metadata": metadata, "spec": {}});
    let (code, answer) = world
        .admin
        .post(ACCOUNT, request(json!({"uid": "another"})))
        .await;
    assert_eq!(code, 409, "{answer}");
    assert!(
        answer["message"]
            .as_str()
            .unwrap()
            .contains("the UID in the token request (another) does not match the UID"),
        "{answer}"
    );
    assert_eq!(
        world
            .admin
            .post(ACCOUNT, request(json!({"namespace": "kube-system"})))
            .await
            .0,
        400
    );
    assert_eq!(
        world
            .admin
            .post(
                ACCOUNT,
                request(json!({"namespace": "default", "name": "default"}))
            )
            .await
            .0,
        201
    );
}

#[tokio::test]
async fn a_mirror_pod_goes_with_the_node_that_made_it() {
    let world = World::new().await;
    let mirror = |owner: Value| {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "mirror", "labels": {"k8s-app": "kube-dns"},
            "annotations": {"kubernetes.io/config.mirror": "x"}, "ownerReferences": owner},
            "spec": {"nodeName": "evil", "containers": [{"name": "c", "image": "x"}]}})
    };
    let pods = "/api/v1/namespaces/kube-system/pods";
    let owner = |uid: &str| json!([{"apiVersion": "v1", "kind": "Node", "name": "evil", "uid": uid, "controller": true}]);
    for refused in [json!([]), owner("another")] {
        let (code, answer) = world.node.post(pods, mirror(refused)).await;
        assert_eq!(code, 403, "{answer}");
    }
    let (code, answer) = world.node.post(pods, mirror(owner(&world.node_uid))).await;
    assert_eq!(code, 201, "{answer}");
    let said = json!({"status": {"phase": "Running", "podIP": "10.1.2.3; rm -rf"}});
    let (code, answer) = world
        .node
        .merge(&format!("{pods}/mirror/status"), said)
        .await;
    assert_eq!(code, 422, "{answer}");
    let said = json!({"status": {"phase": "Running", "podIP": "10.1.2.3"}});
    let (code, answer) = world
        .node
        .merge(&format!("{pods}/mirror/status"), said)
        .await;
    assert_eq!(
        (code, &answer["status"]["podIPs"]),
        (200, &json!([{"ip": "10.1.2.3"}])),
        "{answer}"
    );
    let (code, answer) = world
        .node
        .get("/api/v1/namespaces/kube-system/serviceaccounts/default")
        .await;
    assert_eq!(code, 403, "what a node makes lends it nothing: {answer}");
}

#[tokio::test]
async fn nobody_makes_a_pod_a_mirror_by_its_annotation() {
    let world = World::new().await;
    let annotation = json!({"metadata": {"annotations": {"kubernetes.io/config.mirror": "x"}}});
    let said = "metadata.annotations[kubernetes.io/config.mirror]";
    let unbound = format!(
        "{said}: Invalid value: \"x\": must set spec.nodeName if mirror pod annotation is set"
    );
    let mut object = pod("new");
    object["metadata"]["annotations"] = annotation["metadata"]["annotations"].clone();
    let (code, answer) = world.admin.post(PODS, object.clone()).await;
    assert_eq!(
        (code, &answer["message"]),
        (422, &json!(format!("Pod \"new\" is invalid: {unbound}")))
    );
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": {
        "selector": {"matchLabels": {"app": "new"}}, "template": {"metadata": object["metadata"], "spec": object["spec"]}}});
    let (code, answer) = world
        .admin
        .post("/apis/apps/v1/namespaces/default/deployments", deployment)
        .await;
    assert!(
        code == 422
            && answer["message"]
                .as_str()
                .unwrap()
                .contains("must set spec.nodeName"),
        "{answer}"
    );
    world.pod("p", json!([])).await;
    let why = format!("Pod \"p\" is invalid: {said}: Forbidden: may not add mirror pod annotation");
    for path in ["p", "p/status"] {
        let (code, answer) = world
            .admin
            .merge(&format!("{PODS}/{path}"), annotation.clone())
            .await;
        assert_eq!((code, &answer["message"]), (422, &json!(why)), "{path}");
    }
}

#[tokio::test]
async fn a_node_does_not_say_that_it_is_where_others_are() {
    let world = World::new().await;
    let say = async |who: &Raw, kind: &str, address: &str| {
        let status = json!({"status": {"addresses": [{"type": kind, "address": address}]}});
        who.merge("/api/v1/nodes/evil/status", status).await
    };
    let range = json!({"apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR",
        "metadata": {"name": "more"}, "spec": {"cidrs": ["203.0.113.0/24", "2001:db8:1::/112"]}});
    let ranges = "/apis/networking.k8s.io/v1/servicecidrs";
    assert_eq!(world.admin.post(ranges, range).await.0, 201);
    for address in [
        "127.0.0.1",
        "::1",
        "169.254.169.254",
        "10.96.0.1",
        "::ffff:127.0.0.1",
        "::ffff:10.96.0.1",
        "203.0.113.9",
        "::ffff:203.0.113.9",
        "2001:db8:1::9",
        "x",
    ] {
        let (code, answer) = say(&world.node, "InternalIP", address).await;
        assert_eq!(code, 403, "{address}: {answer}");
        assert!(
            answer["message"]
                .as_str()
                .unwrap()
                .contains("is not allowed to report"),
            "{answer}"
        );
    }
    for (kind, address) in [
        ("InternalIP", "192.0.2.1"),
        ("ExternalIP", "2001:db8::1"),
        ("Hostname", "evil.example.org"),
    ] {
        assert_eq!(say(&world.node, kind, address).await.0, 200, "{address}");
    }
    let garbage = json!({"status": {"capacity": {"cpu": "many"}}});
    let (code, answer) = world.node.merge("/api/v1/nodes/evil/status", garbage).await;
    assert!(code == 422 || code == 400, "{code} {answer}");
}

#[tokio::test]
async fn a_claims_state_is_not_a_nodes_to_tell() {
    let world = World::new().await;
    let claims = "/api/v1/namespaces/default/persistentvolumeclaims";
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "c"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    assert_eq!(world.admin.post(claims, claim).await.0, 201);
    world
        .pod(
            "p",
            json!([{"name": "data", "persistentVolumeClaim": {"claimName": "c"}}]),
        )
        .await;
    let path = format!("{claims}/c/status");
    let (code, answer) = world
        .node
        .merge(&path, json!({"status": {"phase": "Lost"}}))
        .await;
    assert_eq!(code, 403, "{answer}");
    let (code, answer) = world
        .node
        .merge(&path, json!({"status": {"capacity": {"storage": "2Gi"}}}))
        .await;
    assert_eq!(code, 200, "{answer}");
}

#[tokio::test]
async fn a_command_needs_the_right_to_create_whatever_the_method() {
    let world = World::new().await;
    world.pod("p", json!([])).await;
    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    for (who, verb) in [("reader", "get"), ("runner", "*")] {
        let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": who},
            "rules": [{"verbs": [verb], "apiGroups": [""], "resources": ["pods", "pods/exec", "pods/attach", "pods/portforward"]}]});
        assert_eq!(
            world.admin.post(&format!("{rbac}/roles"), role).await.0,
            201
        );
        let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": who},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": who},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": who}]});
        assert_eq!(
            world
                .admin
                .post(&format!("{rbac}/rolebindings"), binding)
                .await
                .0,
            201
        );
    }
    for subresource in [
        "exec?command=sh&stdout=true",
        "attach?stdout=true",
        "portforward",
    ] {
        let path = format!("{PODS}/p/{subresource}");
        let (code, answer) = Raw::of(&world.server, UserInfo::new("reader", &[]))
            .get(&path)
            .await;
        assert_eq!(code, 403, "{answer}");
        assert!(
            answer["message"]
                .as_str()
                .unwrap()
                .contains("User \"reader\" cannot create resource \"pods/"),
            "{answer}"
        );
        // This one comes as far as the missing upgrade or the missing address of the node.
        let (code, answer) = Raw::of(&world.server, UserInfo::new("runner", &[]))
            .get(&path)
            .await;
        assert!(code != 403 && code != 401, "{code} {answer}");
    }
}
