//! The chain of admission around a write: its order, what comes of what it adds, and that it holds
//! nobody up.

mod below;
mod connect;
mod node_pods;
mod plugins;
mod recorder;
mod reviews;

use std::sync::Arc;

use coracle_auth::user::{GROUP_MASTERS, UserInfo};
use coracle_registry::store::WriteOptions;
use serde_json::{Value, json};

use super::raw::{CONFIG_MAPS, PODS, Raw, admin, config_map, pod};
use crate::{ApiServer, testing};
use plugins::{Gate, Meddler, PATIENCE, Slow};

const SERVICES: &str = "/api/v1/namespaces/default/services";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const SECRETS: &str = "/api/v1/namespaces/default/secrets";

fn of(server: &Arc<ApiServer>, name: &str) -> Raw {
    Raw::of(server, UserInfo::new(name, &[GROUP_MASTERS]))
}

async fn quota(raw: &Raw, hard: Value) {
    let path = "/api/v1/namespaces/default/resourcequotas";
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": hard}});
    let (_, mut made) = raw.post(path, quota).await;
    let used: serde_json::Map<String, Value> = hard
        .as_object()
        .unwrap()
        .keys()
        .map(|key| (key.clone(), json!("0")))
        .collect();
    made["status"] = json!({"hard": hard, "used": used});
    assert_eq!(raw.put(&format!("{path}/q/status"), made).await.0, 200);
}

#[tokio::test]
async fn the_chain_is_in_upstreams_order() {
    let server = testing::server_with(vec![Box::new(Meddler)]).await;
    let names: Vec<&str> = server.state.admission.names().collect();
    assert_eq!(
        names,
        [
            "NamespaceLifecycle",
            "LimitRanger",
            "ServiceAccount",
            "NodeRestriction",
            "TaintNodesByCondition",
            "PodSecurity",
            "Priority",
            "DefaultTolerationSeconds",
            "DefaultStorageClass",
            "StorageObjectInUseProtection",
            "PersistentVolumeClaimResize",
            "RuntimeClass",
            "CertificateApproval",
            "CertificateSigning",
            "ClusterTrustBundleAttest",
            "CertificateSubjectRestriction",
            "DefaultIngressClass",
            "PodTopologyLabels",
            "NodeDeclaredFeatureValidator",
            "PodResizeValidator",
            "MutatingAdmissionPolicy",
            "MutatingAdmissionWebhook",
            "ValidatingAdmissionPolicy",
            "ValidatingAdmissionWebhook",
            "Meddler",
            "CertificateRequester",
            "PodCertificateSigning",
            "ServiceAccountTokens",
            "RoleEscalation",
            "ParamAccess",
            "ResourceQuota",
        ]
    );
}

#[tokio::test]
async fn a_lost_race_comes_through_admission_again() {
    let gate = Gate::closed();
    let server = testing::server_with(vec![Box::new(Slow(Arc::clone(&gate)))]).await;
    let (slow, fast) = (of(&server, "slow"), of(&server, "fast"));
    fast.post(CONFIG_MAPS, config_map("x")).await;
    let path = format!("{CONFIG_MAPS}/x");
    let race = async {
        gate.entered().await;
        gate.open.add_permits(1);
        // Validated, and not written yet.
        gate.entered().await;
        assert_eq!(fast.merge(&path, json!({"data": {"n": "1"}})).await.0, 200);
        gate.open.add_permits(3);
    };
    let ((code, merged), ()) = tokio::join!(slow.merge(&path, json!({"data": {"m": "2"}})), race);
    assert_eq!(
        (code, &merged["data"]),
        (200, &json!({"n": "1", "m": "2"})),
        "{merged}"
    );
    let (before, after) = (json!({"n": "0"}), json!({"n": "1"}));
    assert_eq!(
        *gate.seen.lock(),
        [before.clone(), before, after.clone(), after]
    );
}

#[tokio::test]
async fn a_plugin_that_waits_holds_up_its_own_write_alone() {
    let gate = Gate::closed();
    let server = testing::server_with(vec![Box::new(Slow(Arc::clone(&gate)))]).await;
    let (slow, fast) = (of(&server, "slow"), of(&server, "fast"));
    quota(&fast, json!({"configmaps": "2", "services": "1"})).await;
    let meanwhile = async {
        for name in ["in-mutate", "in-validate"] {
            gate.entered().await;
            let (code, made) = fast.post(CONFIG_MAPS, config_map(name)).await;
            assert_eq!(code, 201, "{made}");
            assert_eq!(
                fast.merge(
                    &format!("{CONFIG_MAPS}/{name}"),
                    json!({"data": {"a": "b"}})
                )
                .await
                .0,
                200
            );
            gate.open.add_permits(1);
        }
        let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"},
            "spec": {"ports": [{"port": 80}]}});
        assert_eq!(fast.post(SERVICES, service).await.0, 201);
    };
    let slowly = slow.post(CONFIG_MAPS, config_map("slow"));
    let both = async { tokio::join!(slowly, meanwhile).0 };
    let (code, refused) = tokio::time::timeout(PATIENCE, both)
        .await
        .expect("nobody waits for the slow one");
    // Charged last: what came meanwhile has taken what there was.
    assert_eq!(code, 403, "{refused}");
    assert!(
        refused["message"]
            .as_str()
            .unwrap()
            .contains("exceeded quota: q"),
        "{refused}"
    );
}

#[tokio::test]
async fn what_a_plugin_adds_is_completed_and_nobodys() {
    let server = testing::server_with(vec![Box::new(Meddler)]).await;
    let raw = of(&server, "admin");
    let response = raw
        .response("POST", PODS, "application/json", pod("p").to_string())
        .await;
    let warnings: Vec<_> = response
        .headers()
        .get_all("warning")
        .iter()
        .cloned()
        .collect();
    assert!(
        warnings
            .iter()
            .any(|text| text.to_str().unwrap().contains("there is a sidecar")),
        "{warnings:?}"
    );
    let (_, made) = raw.get(&format!("{PODS}/p")).await;
    assert_eq!(
        made["spec"]["containers"][1]["terminationMessagePolicy"], "File",
        "{made}"
    );
    let fields = made["metadata"]["managedFields"].to_string();
    assert!(
        fields.contains("f:containers") && !fields.contains("sidecar"),
        "{fields}"
    );
}

#[tokio::test]
async fn what_a_plugin_changes_is_bound_as_a_clients_change_is() {
    let server = testing::server_with(vec![Box::new(Meddler)]).await;
    let raw = of(&server, "admin");
    let labels = json!({"app": "d"});
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": {
        "replicas": 1, "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels},
        "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    let (code, made) = raw.post(DEPLOYMENTS, deployment).await;
    assert_eq!(
        (code, &made["metadata"]["generation"]),
        (201, &json!(1)),
        "{made}"
    );
    let path = format!("{DEPLOYMENTS}/d");
    let (code, changed) = raw
        .merge(&path, json!({"metadata": {"labels": {"zebra": "z"}}}))
        .await;
    assert_eq!(
        (code, &changed["spec"]["replicas"]),
        (200, &json!(7)),
        "{changed}"
    );
    assert_eq!(
        changed["metadata"]["generation"], 2,
        "what is added counts as a change"
    );
    assert!(
        changed["status"]["replicas"].is_null(),
        "the status is not the main resource's: {changed}"
    );
    let entries = changed["metadata"]["managedFields"].to_string();
    assert!(
        entries.contains("f:zebra"),
        "who wrote the label still owns it: {entries}"
    );
}

#[tokio::test]
async fn what_is_refused_gives_back_its_address() {
    let server = testing::server_with(vec![Box::new(Meddler)]).await;
    let raw = of(&server, "admin");
    let service = |name: &str, labels: Value| {
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "labels": labels},
            "spec": {"clusterIP": "10.96.0.99", "ports": [{"port": 80}]}})
    };
    let (code, refused) = raw
        .post(SERVICES, service("a", json!({"refuse": "yes"})))
        .await;
    assert_eq!(
        (code, &refused["message"]),
        (403, &json!("services \"a\" is forbidden: it says so"))
    );
    quota(&raw, json!({"services": "0"})).await;
    let (code, refused) = raw.post(SERVICES, service("a", json!({}))).await;
    assert_eq!(code, 403, "{refused}");
    assert_eq!(
        raw.delete("/api/v1/namespaces/default/resourcequotas/q", json!({}))
            .await
            .0,
        200
    );
    let (code, made) = raw.post(SERVICES, service("b", json!({}))).await;
    assert_eq!(
        (code, &made["spec"]["clusterIP"]),
        (201, &json!("10.96.0.99")),
        "{made}"
    );
}

#[tokio::test]
async fn what_a_limit_range_gives_is_nobodys() {
    let raw = admin().await;
    let range = json!({"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "l"}, "spec": {"limits": [
        {"type": "Container", "default": {"cpu": "500m"}}]}});
    assert_eq!(
        raw.post("/api/v1/namespaces/default/limitranges", range)
            .await
            .0,
        201
    );
    let (code, made) = raw.post(PODS, pod("p")).await;
    assert_eq!(
        (code, &made["spec"]["containers"][0]["resources"]["limits"]),
        (201, &json!({"cpu": "500m"}))
    );
    assert_eq!(
        made["spec"]["containers"][0]["resources"]["requests"],
        json!({"cpu": "500m"}),
        "{made}"
    );
    let fields = made["metadata"]["managedFields"].to_string();
    assert!(
        fields.contains("f:image") && !fields.contains("f:cpu"),
        "{fields}"
    );
    assert!(!fields.contains("limit-ranger"), "{fields}");
}

#[tokio::test]
async fn who_may_not_is_told_so_before_what_is_wrong() {
    let server = testing::server().await;
    let node = Raw::of(&server, UserInfo::node("n1"));
    assert_eq!(
        node.post(
            "/api/v1/nodes",
            json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})
        )
        .await
        .0,
        201
    );
    let invalid =
        json!({"metadata": {"labels": {"node-restriction.kubernetes.io/x": "not a value!"}}});
    let (code, refused) = node.merge("/api/v1/nodes/n1", invalid.clone()).await;
    assert_eq!(code, 403, "{refused}");
    assert_eq!(
        of(&server, "admin")
            .merge("/api/v1/nodes/n1", invalid)
            .await
            .0,
        422
    );
}

#[tokio::test]
async fn a_refusal_before_there_is_a_name_shows_what_it_is_to_begin_with() {
    let raw = admin().await;
    let mut object = pod("");
    object["metadata"] = json!({"generateName": "web-"});
    object["spec"]["priority"] = 3.into();
    let (code, refused) = raw.post(PODS, object).await;
    assert_eq!(code, 403, "{refused}");
    assert!(
        refused["message"]
            .as_str()
            .unwrap()
            .starts_with("pods \"web-\" is forbidden: "),
        "{refused}"
    );
}

#[tokio::test]
async fn a_token_names_the_secret_whose_name_was_made() {
    let server = testing::server().await;
    let raw = of(&server, "admin");
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
        "metadata": {"generateName": "t-", "annotations": {"kubernetes.io/service-account.name": "default"}}});
    let (code, made) = raw.post(SECRETS, secret).await;
    assert_eq!(code, 201, "{made}");
    use base64::{Engine as _, prelude::BASE64_STANDARD};
    let token = String::from_utf8(
        BASE64_STANDARD
            .decode(made["data"]["token"].as_str().unwrap())
            .unwrap(),
    )
    .unwrap();
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}});
    let (_, answer) = raw
        .post("/apis/authentication.k8s.io/v1/tokenreviews", review)
        .await;
    assert_eq!(answer["status"]["authenticated"], true, "{answer}");
}

#[tokio::test]
async fn what_is_left_in_a_namespace_that_is_gone_is_not_updated() {
    let server = testing::server().await;
    let kind = server.state.registry.core("configmaps").unwrap();
    let options = WriteOptions::default();
    let made = server
        .state
        .store
        .create(kind, "gone", config_map("x"), options);
    made.await.unwrap();
    let raw = of(&server, "root");
    let path = "/api/v1/namespaces/gone/configmaps/x";
    let (code, refused) = raw.merge(path, json!({"data": {"a": "b"}})).await;
    assert_eq!(
        (code, &refused["message"]),
        (404, &json!("namespaces \"gone\" not found"))
    );
    assert_eq!(raw.delete(path, json!({})).await.0, 200, "it can go");
}
