//! ResourceQuota and LimitRange, as who makes objects meets them.

use futures::future::join_all;
use serde_json::{Value, json};

use super::raw::{CONFIG_MAPS, PODS, Raw, admin, config_map, pod};

const QUOTAS: &str = "/api/v1/namespaces/default/resourcequotas";
const RANGES: &str = "/api/v1/namespaces/default/limitranges";

/// Makes a quota and says, as the controller would, that nothing is used.
pub(super) async fn limit(raw: &Raw, name: &str, spec: Value) {
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": name}, "spec": spec});
    let (code, mut made) = raw.post(QUOTAS, quota).await;
    assert_eq!(code, 201, "{made}");
    let hard = spec["hard"].as_object().unwrap();
    made["status"] = json!({"hard": hard, "used": hard.keys().map(|key| (key.clone(), json!("0"))).collect::<serde_json::Map<_, _>>()});
    let (code, answer) = raw.put(&format!("{QUOTAS}/{name}/status"), made).await;
    assert_eq!(code, 200, "{answer}");
}

pub(super) async fn used(raw: &Raw, name: &str) -> Value {
    raw.get(&format!("{QUOTAS}/{name}")).await.1["status"]["used"].clone()
}

fn sized(name: &str, resources: Value) -> Value {
    let mut pod = pod(name);
    pod["spec"]["containers"][0]["resources"] = resources;
    pod
}

#[tokio::test]
async fn a_full_quota_refuses() {
    let raw = admin().await;
    limit(&raw, "q", json!({"hard": {"pods": "2"}})).await;
    for name in ["a", "b"] {
        assert_eq!(raw.post(PODS, pod(name)).await.0, 201);
    }
    let (code, answer) = raw.post(PODS, pod("x")).await;
    assert_eq!(
        (code, answer["message"].as_str().unwrap()),
        (
            403,
            "pods \"x\" is forbidden: exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2"
        )
    );
    assert_eq!(used(&raw, "q").await, json!({"pods": "2"}));
    assert_eq!(
        raw.post(CONFIG_MAPS, config_map("free")).await.0,
        201,
        "others are not limited"
    );
}

#[tokio::test]
async fn what_a_quota_limits_must_be_said() {
    let raw = admin().await;
    limit(
        &raw,
        "q",
        json!({"hard": {"limits.cpu": "2", "requests.memory": "1Gi"}}),
    )
    .await;
    let (code, answer) = raw.post(PODS, pod("x")).await;
    assert_eq!(
        (code, answer["message"].as_str().unwrap()),
        (
            403,
            "pods \"x\" is forbidden: failed quota: q: must specify limits.cpu for: c; requests.memory for: c"
        )
    );
    let resources = json!({"limits": {"cpu": "1500m", "memory": "600Mi"}});
    assert_eq!(raw.post(PODS, sized("a", resources.clone())).await.0, 201);
    assert_eq!(
        used(&raw, "q").await,
        json!({"limits.cpu": "1500m", "requests.memory": "600Mi"})
    );
    let (_, answer) = raw.post(PODS, sized("b", resources)).await;
    assert_eq!(
        answer["message"],
        "pods \"b\" is forbidden: exceeded quota: q, requested: limits.cpu=1500m,requests.memory=600Mi, used: \
         limits.cpu=1500m,requests.memory=600Mi, limited: limits.cpu=2,requests.memory=1Gi"
    );
}

#[tokio::test]
async fn concurrent_creates_take_no_more_than_there_is() {
    let raw = admin().await;
    limit(&raw, "q", json!({"hard": {"count/configmaps": "5"}})).await;
    limit(&raw, "r", json!({"hard": {"configmaps": "7"}})).await;
    let names: Vec<String> = (0..30).map(|number| format!("c{number}")).collect();
    let codes = join_all(
        names
            .iter()
            .map(|name| async { raw.post(CONFIG_MAPS, config_map(name)).await.0 }),
    )
    .await;
    assert_eq!(
        codes.iter().filter(|code| **code == 201).count(),
        5,
        "{codes:?}"
    );
    assert!(
        codes.iter().all(|code| matches!(code, 201 | 403)),
        "{codes:?}"
    );
    assert_eq!(used(&raw, "q").await, json!({"count/configmaps": "5"}));
    assert_eq!(used(&raw, "r").await, json!({"configmaps": "5"}));
}

#[tokio::test]
async fn failed_and_dry_writes_use_nothing() {
    let raw = admin().await;
    assert_eq!(raw.post(CONFIG_MAPS, config_map("there")).await.0, 201);
    limit(&raw, "q", json!({"hard": {"configmaps": "5"}})).await;
    assert_eq!(raw.post(CONFIG_MAPS, config_map("there")).await.0, 409);
    assert_eq!(
        raw.post(&format!("{CONFIG_MAPS}?dryRun=All"), config_map("dry"))
            .await
            .0,
        201
    );
    assert_eq!(used(&raw, "q").await, json!({"configmaps": "0"}));
}

#[tokio::test]
async fn a_changed_service_is_charged_for_the_difference() {
    let raw = admin().await;
    limit(
        &raw,
        "q",
        json!({"hard": {"services": "2", "services.nodeports": "1"}}),
    )
    .await;
    let services = "/api/v1/namespaces/default/services";
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"},
        "spec": {"ports": [{"name": "a", "port": 80}]}});
    assert_eq!(raw.post(services, service).await.0, 201);
    let path = format!("{services}/s");
    assert_eq!(
        raw.merge(&path, json!({"spec": {"type": "NodePort"}}))
            .await
            .0,
        200
    );
    assert_eq!(
        used(&raw, "q").await,
        json!({"services": "1", "services.nodeports": "1"})
    );
    let more = json!({"spec": {"ports": [{"name": "a", "port": 80}, {"name": "b", "port": 81}]}});
    let (code, answer) = raw.merge(&path, more).await;
    assert_eq!(
        (code, answer["message"].as_str().unwrap()),
        (
            403,
            "services \"s\" is forbidden: exceeded quota: q, requested: services.nodeports=1, used: \
             services.nodeports=1, limited: services.nodeports=1"
        )
    );
}

#[tokio::test]
async fn scopes_choose_the_pods_that_count() {
    let raw = admin().await;
    limit(
        &raw,
        "q",
        json!({"hard": {"pods": "0"}, "scopes": ["BestEffort"]}),
    )
    .await;
    assert_eq!(raw.post(PODS, pod("best")).await.0, 403);
    assert_eq!(
        raw.post(PODS, sized("burst", json!({"requests": {"cpu": "1m"}})))
            .await
            .0,
        201
    );
}

#[tokio::test]
async fn a_quota_keeps_affinity_in_its_namespace() {
    let raw = admin().await;
    limit(
        &raw,
        "q",
        json!({"hard": {"pods": "0"}, "scopes": ["CrossNamespacePodAffinity"]}),
    )
    .await;
    let apart = |name: &str, namespaces: Value| {
        let mut term = json!({"labelSelector": {}, "topologyKey": "kubernetes.io/os"});
        term.as_object_mut()
            .unwrap()
            .extend(namespaces.as_object().unwrap().clone());
        let mut pod = pod(name);
        pod["spec"]["affinity"] =
            json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}});
        pod
    };
    assert_eq!(
        raw.post(PODS, apart("everywhere", json!({"namespaceSelector": {}})))
            .await
            .0,
        403
    );
    assert_eq!(
        raw.post(PODS, apart("elsewhere", json!({"namespaces": ["other"]})))
            .await
            .0,
        403
    );
    assert_eq!(raw.post(PODS, apart("here", json!({}))).await.0, 201);
}

#[tokio::test]
async fn a_quota_not_counted_yet_refuses() {
    let raw = admin().await;
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"},
        "spec": {"hard": {"pods": "1"}}});
    let (_, mut made) = raw.post(QUOTAS, quota).await;
    assert_eq!(
        raw.post(PODS, pod("a")).await.0,
        201,
        "without a status there is nothing to hold to"
    );
    made["status"] = json!({"hard": {"pods": "1"}});
    raw.put(&format!("{QUOTAS}/q/status"), made).await;
    let (code, answer) = raw.post(PODS, pod("b")).await;
    assert_eq!(
        (code, answer["message"].as_str().unwrap()),
        (
            403,
            "pods \"b\" is forbidden: status unknown for quota: q, resources: pods"
        )
    );
}

#[tokio::test]
async fn a_limit_range_fills_and_bounds() {
    let raw = admin().await;
    let range = json!({"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "l"}, "spec": {"limits": [
        {"type": "Container", "default": {"cpu": "500m"}, "defaultRequest": {"cpu": "100m"}, "max": {"cpu": "1"}}]}});
    assert_eq!(raw.post(RANGES, range).await.0, 201);
    let (code, made) = raw.post(PODS, pod("a")).await;
    assert_eq!(code, 201, "{made}");
    assert_eq!(
        made["spec"]["containers"][0]["resources"],
        json!({"limits": {"cpu": "500m"}, "requests": {"cpu": "100m"}})
    );
    assert_eq!(made["status"]["qosClass"], "Burstable");
    assert_eq!(
        made["metadata"]["annotations"]["kubernetes.io/limit-ranger"],
        "LimitRanger plugin set: cpu request for container c; cpu limit for container c"
    );
    let (code, answer) = raw
        .post(PODS, sized("b", json!({"limits": {"cpu": "2"}})))
        .await;
    assert_eq!(
        (code, answer["message"].as_str().unwrap()),
        (
            403,
            "pods \"b\" is forbidden: maximum cpu usage per Container is 1, but limit is 2"
        )
    );
}

#[tokio::test]
async fn a_class_of_volume_attributes_has_a_quota_of_its_own() {
    let raw = admin().await;
    let gold = json!({"scopeName": "VolumeAttributesClass", "operator": "In", "values": ["gold"]});
    limit(
        &raw,
        "q",
        json!({"hard": {"persistentvolumeclaims": "1"}, "scopeSelector": {"matchExpressions": [gold]}}),
    )
    .await;
    let claims = "/api/v1/namespaces/default/persistentvolumeclaims";
    let claim = |name: &str, class: &str| {
        json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": {
            "accessModes": ["ReadWriteOnce"], "volumeAttributesClassName": class,
            "resources": {"requests": {"storage": "1Gi"}}}})
    };
    for (name, class, expect) in [("a", "gold", 201), ("b", "silver", 201), ("c", "gold", 403)] {
        let (code, answer) = raw.post(claims, claim(name, class)).await;
        assert_eq!(code, expect, "{name}: {answer}");
    }
    assert_eq!(
        used(&raw, "q").await,
        json!({"persistentvolumeclaims": "1"})
    );
    // One that is on its way to the class counts before it has arrived.
    let status = json!({"status": {"modifyVolumeStatus":
        {"targetVolumeAttributesClassName": "gold", "status": "Pending"}}});
    let (code, refused) = raw.merge(&format!("{claims}/b/status"), status).await;
    assert_eq!(code, 403, "{refused}");
}
