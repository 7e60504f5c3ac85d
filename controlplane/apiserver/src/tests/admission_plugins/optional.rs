//! Plugins that are off by default.

use tokio_util::sync::CancellationToken;

use super::*;
use crate::tests::raw::{CONFIG_MAPS, config_map};

#[tokio::test]
async fn always_deny_refuses_every_write_and_always_admit_none() {
    let raw = with("AlwaysAdmit").await;
    made(&raw, CONFIG_MAPS, config_map("m")).await;
    let raw = with("AlwaysDeny").await;
    let (code, message) = refused(&raw, CONFIG_MAPS, config_map("m")).await;
    let expect = "configmaps \"m\" is forbidden: admission control is denying all modifications";
    assert_eq!((code, message.as_str()), (403, expect));
    let (code, _) = raw
        .delete("/api/v1/namespaces/kube-node-lease", json!({}))
        .await;
    assert_eq!(code, 403);
}

#[tokio::test]
async fn images_are_always_pulled() {
    let raw = with("AlwaysPullImages").await;
    let containers = json!([{"name": "c", "image": "i:1", "imagePullPolicy": "Never"}]);
    let pod = made(&raw, PODS, pod_with("p", json!({"containers": containers}))).await;
    let policy = |pod: &Value| pod["spec"]["containers"][0]["imagePullPolicy"].clone();
    assert_eq!(policy(&pod), "Always");
    let labelled = json!({"metadata": {"labels": {"a": "b"}}});
    let (code, answer) = raw.merge(&format!("{PODS}/p"), labelled).await;
    assert_eq!((code, policy(&answer)), (200, json!("Always")));
}

#[tokio::test]
async fn events_beyond_the_limit_are_refused() {
    let config = "{name: EventRateLimit, configuration: {apiVersion: eventratelimit.admission.k8s.io/v1alpha1, \
                  kind: Configuration, limits: [{type: Namespace, qps: 1, burst: 2}]}}";
    let server = server(&["EventRateLimit"], &[], config).await;
    let raw = of(&server);
    let event = |name: &str| {
        json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": name},
            "involvedObject": {"kind": "Pod", "namespace": "default", "name": "p"}, "type": "Normal"})
    };
    let path = "/api/v1/namespaces/default/events";
    tokio::time::pause();
    made(&raw, path, event("a")).await;
    made(&raw, path, event("b")).await;
    let (code, message) = refused(&raw, path, event("c")).await;
    let expect = "Too many requests: limit reached on type Namespace for key default";
    assert_eq!((code, message.as_str()), (429, expect));
    let new = json!({"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "d"}, "type": "Normal",
        "eventTime": "2026-01-01T00:00:00.000000Z", "reportingController": "c", "reportingInstance": "i",
        "action": "A", "reason": "R", "regarding": {"kind": "Pod", "namespace": "default", "name": "p"}});
    let views = "/apis/events.k8s.io/v1/namespaces/default/events";
    assert_eq!(refused(&raw, views, new).await.0, 429);
    made(&raw, CONFIG_MAPS, config_map("m")).await;
    tokio::time::advance(std::time::Duration::from_secs(1)).await;
    made(&raw, path, event("c")).await;
}

#[tokio::test]
async fn pods_go_where_their_namespace_says() {
    let config = "{name: PodNodeSelector, configuration: {podNodeSelectorPluginConfig: \
                  {clusterDefaultNodeSelector: env=test, bound: 'env=prod,disk=ssd'}}}";
    let raw = of(&server(&["PodNodeSelector"], &[], config).await);
    let selector = |pod: &Value| pod["spec"]["nodeSelector"].clone();
    assert_eq!(
        selector(&made(&raw, PODS, pod("p")).await),
        json!({"env": "test"})
    );
    let own = json!({"scheduler.alpha.kubernetes.io/node-selector": "env=prod"});
    namespace(&raw, "bound", own).await;
    let pods = "/api/v1/namespaces/bound/pods";
    let ssd = pod_with("ssd", json!({"nodeSelector": {"disk": "ssd"}}));
    let expect = json!({"disk": "ssd", "env": "prod"});
    assert_eq!(selector(&made(&raw, pods, ssd).await), expect);
    for (selector, why) in [
        (
            json!({"env": "dev"}),
            "pod node label selector conflicts with its namespace node label selector",
        ),
        (
            json!({"disk": "hdd"}),
            "pod node label selector labels conflict with its namespace whitelist",
        ),
    ] {
        let pod = pod_with("x", json!({"nodeSelector": selector}));
        let expect = format!("pods \"x\" is forbidden: {why}");
        assert_eq!(refused(&raw, pods, pod).await, (403, expect));
    }
}

#[tokio::test]
async fn pods_tolerate_what_their_namespace_says() {
    let raw = with("PodTolerationRestriction").await;
    let (gpu, not_ready) = (
        json!({"key": "gpu", "operator": "Exists"}),
        json!({"operator": "Exists", "effect": "NoExecute"}),
    );
    let annotations = json!({
        "scheduler.alpha.kubernetes.io/defaultTolerations": json!([gpu]).to_string(),
        "scheduler.alpha.kubernetes.io/tolerationsWhitelist": json!([gpu, not_ready]).to_string(),
    });
    namespace(&raw, "n", annotations).await;
    let pods = "/api/v1/namespaces/n/pods";
    let pod_ = made(&raw, pods, pod("p")).await;
    let tolerations = pod_["spec"]["tolerations"].as_array().expect("some");
    assert!(tolerations.contains(&gpu), "{tolerations:?}");
    let more = json!({"tolerations": [{"key": "more", "operator": "Exists"}]});
    let (code, message) = refused(&raw, pods, pod_with("q", more)).await;
    let expect = "pod tolerations (possibly merged with namespace default tolerations) conflict with its namespace whitelist";
    assert_eq!((code, message.as_str()), (500, expect));
}

#[tokio::test]
async fn who_asks_for_a_device_tolerates_its_taint() {
    let raw = with("ExtendedResourceToleration").await;
    let resources =
        json!({"limits": {"example.com/gpu": "1"}, "requests": {"example.com/gpu": "1"}});
    let containers = json!([{"name": "c", "image": "i", "resources": resources}]);
    let pod = made(&raw, PODS, pod_with("p", json!({"containers": containers}))).await;
    let tolerations = pod["spec"]["tolerations"].as_array().expect("some");
    let expect = json!({"key": "example.com/gpu", "operator": "Exists", "effect": "NoSchedule"});
    assert!(tolerations.contains(&expect), "{tolerations:?}");
}

#[tokio::test]
async fn pods_require_to_be_alone_on_a_node_and_not_in_a_zone() {
    let raw = with("LimitPodHardAntiAffinityTopology").await;
    let apart = |key: &str| {
        let term = json!({"topologyKey": key, "labelSelector": {"matchLabels": {"a": "b"}}});
        json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}})
    };
    made(&raw, PODS, pod_with("p", apart("kubernetes.io/hostname"))).await;
    let expect = "pods \"q\" is forbidden: affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey zone but only \
                  key kubernetes.io/hostname is allowed";
    let result = refused(&raw, PODS, pod_with("q", apart("zone"))).await;
    assert_eq!(result, (403, expect.to_owned()));
}

#[tokio::test]
async fn services_take_no_external_addresses() {
    let raw = with("DenyServiceExternalIPs").await;
    let service = |name: &str, addresses: Value| {
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
            "spec": {"ports": [{"port": 80}], "externalIPs": addresses}})
    };
    let services = "/api/v1/namespaces/default/services";
    made(&raw, services, service("plain", json!([]))).await;
    let expect = "services \"s\" is forbidden: Use of external IPs is denied by admission control";
    let result = refused(&raw, services, service("s", json!(["192.0.2.1"]))).await;
    assert_eq!(result, (403, expect.to_owned()));
}

#[tokio::test]
async fn a_namespace_is_made_for_what_comes_into_it() {
    let raw = with("NamespaceAutoProvision").await;
    let maps = "/api/v1/namespaces/fresh/configmaps";
    let dry = format!("{maps}?dryRun=All");
    assert_eq!(refused(&raw, &dry, config_map("m")).await.0, 404);
    made(&raw, maps, config_map("m")).await;
    let (code, fresh) = raw.get("/api/v1/namespaces/fresh").await;
    assert_eq!((code, &fresh["status"]["phase"]), (200, &json!("Active")));
    made(&raw, maps, config_map("n")).await;
}

#[tokio::test]
async fn nothing_is_written_in_a_namespace_that_is_not_there() {
    let server = server(&["NamespaceExists"], &["NamespaceLifecycle"], "").await;
    let raw = of(&server);
    let result = refused(&raw, "/api/v1/namespaces/none/configmaps", config_map("m")).await;
    assert_eq!(result, (404, "namespaces \"none\" not found".to_owned()));
    made(&raw, CONFIG_MAPS, config_map("m")).await;
}

const OWNED: &str = "/api/v1/namespaces/default/configmaps";

#[tokio::test]
async fn who_names_an_owner_may_delete_what_is_owned() {
    let server = server(&["OwnerReferencesPermissionEnforcement"], &[], "").await;
    let (raw, stop) = (of(&server), CancellationToken::new());
    let _stop = stop.clone().drop_guard();
    let keeping = Arc::clone(&server).keep_definitions(stop);
    coracle_telemetry::spawn("keep definitions", keeping);
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.com"}, "spec": {"group": "example.com", "scope": "Namespaced",
        "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]}});
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    made(&raw, definitions, definition).await;
    role(&raw, "maker", json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create", "update", "patch", "get"]}])).await;
    role(
        &raw,
        "keeper",
        json!([
            {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]},
            {"apiGroups": [""], "resources": ["pods/finalizers"], "verbs": ["update"]},
        ]),
    )
    .await;
    let owned = |name: &str, api_version: &str, kind: &str, blocks: bool| {
        let mut map = config_map(name);
        map["metadata"]["ownerReferences"] = json!([{"apiVersion": api_version, "kind": kind, "name": "o", "uid": "u",
            "blockOwnerDeletion": blocks}]);
        map
    };
    let by = |name: &str| Raw::of(&server, UserInfo::new(name, &[]));
    let (maker, keeper) = (by("maker"), by("keeper"));
    made(&maker, OWNED, config_map("plain")).await;
    let (code, message) = refused(&maker, OWNED, owned("a", "v1", "Pod", false)).await;
    let expect = "configmaps \"a\" is forbidden: cannot set an ownerRef on a resource you can't delete: , <nil>";
    assert_eq!((code, message.as_str()), (403, expect));
    made(&keeper, OWNED, owned("a", "v1", "Pod", true)).await;
    made(&keeper, OWNED, owned("b", "apps/v1", "Deployment", false)).await;
    for (api_version, kind) in [("apps/v1", "Deployment"), ("v1", "Node")] {
        let (code, message) = refused(&keeper, OWNED, owned("c", api_version, kind, true)).await;
        let expect = "configmaps \"c\" is forbidden: cannot set blockOwnerDeletion if an ownerReference refers to a \
                      resource you can't set finalizers on: , <nil>";
        assert_eq!((code, message.as_str()), (403, expect));
    }
    let (_, message) = refused(&keeper, OWNED, owned("c", "x/v1", "Y", true)).await;
    let expect = "configmaps \"c\" is forbidden: cannot set blockOwnerDeletion in this case because cannot find \
                  RESTMapping for APIVersion x/v1 Kind Y: no matches for kind \"Y\" in version \"x/v1\"";
    assert_eq!(message, expect);
    // An owner of a kind that came at run time is one like any other.
    let thing = owned("d", "example.com/v1", "Thing", true);
    eventually(&raw, "/apis/example.com/v1/namespaces/default/things").await;
    let (_, message) = refused(&keeper, OWNED, thing.clone()).await;
    assert!(message.contains("can't set finalizers on"), "{message}");
    made(&raw, OWNED, thing).await;
}

/// Lets the user of that name do something.
async fn role(raw: &Raw, name: &str, rules: Value) {
    let of = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": name}, "rules": rules});
    made(raw, &format!("{of}/roles"), role).await;
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}]});
    made(raw, &format!("{of}/rolebindings"), binding).await;
}

/// Waits until the kind is served.
async fn eventually(raw: &Raw, path: &str) {
    let served = async {
        while raw.get(path).await.0 != 200 {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    };
    let patience = std::time::Duration::from_secs(20);
    tokio::time::timeout(patience, served)
        .await
        .expect("served");
}
