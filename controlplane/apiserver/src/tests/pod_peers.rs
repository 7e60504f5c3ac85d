//! What nodes see of the pods of others: enough for NetworkPolicies, and no more.

use std::sync::Arc;

use coracle_auth::user::UserInfo;
use serde_json::{Value, json};

use super::{
    kubectl::{Kubectl, ok, words},
    raw::{PODS, Raw, pod},
    watches::Events,
};
use crate::{ApiServer, testing};

const GROUP: &str = "/apis/net.coracle.dev/v1";
const ALL: &str = "/apis/net.coracle.dev/v1/podpeers";
const PEERS: &str = "/apis/net.coracle.dev/v1/namespaces/default/podpeers";
const SECRET: &str = "nobody-elses-business";

struct World {
    server: Arc<ApiServer>,
    admin: Raw,
    /// The node `w1`.
    node: Raw,
}

impl World {
    /// With the pods `a` on `w1` and `b` on `w2`, which have something to hide.
    async fn new() -> Self {
        let server = testing::server().await;
        let world = Self {
            admin: Raw::of(&server, UserInfo::master("admin")),
            node: Raw::of(&server, UserInfo::node("w1")),
            server,
        };
        world.run("a", "w1").await;
        world.run("b", "w2").await;
        world
    }

    async fn run(&self, name: &str, node: &str) {
        let mut object = pod(name);
        object["metadata"]["annotations"] = json!({"note": SECRET});
        object["spec"]["nodeName"] = node.into();
        let container = &mut object["spec"]["containers"][0];
        container["env"] = json!([{"name": "PASSWORD", "value": SECRET}]);
        container["ports"] = json!([{"name": "http", "containerPort": 80}]);
        let (code, made) = self.admin.post(PODS, object).await;
        assert_eq!(code, 201, "{made}");
    }

    async fn get(&self, path: &str, accept: &str) -> (u16, Value) {
        let request = http::Request::get(path).header("accept", accept);
        let body = kube::client::Body::empty();
        let response = self.node.0.send(request.body(body).unwrap()).await.unwrap();
        let code = response.status().as_u16();
        let body = response.into_body().collect_bytes().await.unwrap();
        (code, serde_json::from_slice(&body).unwrap_or_default())
    }

    async fn listed(&self, path: &str) -> Value {
        let (code, list) = self.node.get(path).await;
        assert_eq!(code, 200, "{path}: {list}");
        list
    }

    async fn names(&self, path: &str) -> Vec<String> {
        let list = self.listed(path).await;
        let items = list["items"].as_array().unwrap().iter();
        items
            .map(|item| item["metadata"]["name"].as_str().unwrap().to_owned())
            .collect()
    }
}

fn assert_discreet(shown: &Value, where_from: &str) {
    let text = shown.to_string();
    for hidden in [SECRET, "managedFields", "annotations", "image"] {
        assert!(!text.contains(hidden), "{where_from}: {hidden} in {text}");
    }
}

#[tokio::test]
async fn a_node_reads_peers_and_only_peers() {
    let world = World::new().await;
    let list = world.listed(ALL).await;
    assert_eq!(
        (&list["kind"], &list["apiVersion"]),
        (&json!("PodPeerList"), &json!("net.coracle.dev/v1"))
    );
    assert_discreet(&list, "list");
    let (code, one) = world.node.get(&format!("{PEERS}/b")).await;
    assert_eq!(code, 200, "{one}");
    assert_eq!(one, list["items"][1], "alone as in a list");
    assert_eq!(one["metadata"]["labels"], json!({"app": "b"}));
    assert_eq!(
        one["spec"],
        json!({"nodeName": "w2", "containers": [{"name": "c", "ports": [
            {"name": "http", "containerPort": 80, "protocol": "TCP"}]}]})
    );
    assert_eq!(one["status"], json!({"phase": "Pending"}));
    let (_, pod) = world.admin.get(&format!("{PODS}/b")).await;
    for field in ["uid", "resourceVersion", "creationTimestamp"] {
        assert_eq!(one["metadata"][field], pod["metadata"][field], "{field}");
    }
    for (path, code) in [
        ("/api/v1/pods", 403),
        ("/api/v1/namespaces/default/pods/b", 403),
        ("/api/v1/namespaces", 200),
        ("/apis/networking.k8s.io/v1/networkpolicies", 200),
    ] {
        assert_eq!(world.node.get(path).await.0, code, "{path}");
        let watch = format!("{path}?watch=true&timeoutSeconds=1");
        let is_named = path.ends_with("/b");
        let expect = if is_named { 403 } else { code };
        let answer = world.node.response("GET", &watch, "", "").await;
        assert_eq!(answer.status(), expect, "{watch}");
    }
    let alice = Raw::of(&world.server, UserInfo::new("alice", &[]));
    assert_eq!(alice.get(ALL).await.0, 403);
}

#[tokio::test]
async fn peers_are_selected_and_listed_in_chunks() {
    let world = World::new().await;
    assert_eq!(world.names(ALL).await, ["a", "b"]);
    for (query, expect) in [
        ("labelSelector=app%3Db", vec!["b"]),
        ("fieldSelector=spec.nodeName%3Dw1", vec!["a"]),
        ("fieldSelector=status.phase%3DRunning", vec![]),
        (
            "fieldSelector=status.phase%3DPending,metadata.name%3Db",
            vec!["b"],
        ),
        ("fieldSelector=metadata.namespace%3Dother", vec![]),
    ] {
        for path in [ALL, PEERS] {
            assert_eq!(world.names(&format!("{path}?{query}")).await, expect);
        }
    }
    let unknown = format!("{ALL}?fieldSelector=spec.serviceAccountName%3Ddefault");
    assert_eq!(world.node.get(&unknown).await.0, 400, "would tell of it");
    let first = world.listed(&format!("{ALL}?limit=1")).await;
    assert_eq!(first["metadata"]["remainingItemCount"], 1);
    let token = first["metadata"]["continue"].as_str().unwrap();
    let rest = format!("{ALL}?limit=1&continue={token}");
    assert_eq!(world.names(&rest).await, ["b"]);
}

#[tokio::test]
async fn no_form_of_peers_shows_more() {
    let world = World::new().await;
    for form in [
        "Table;v=v1;g=meta.k8s.io",
        "PartialObjectMetadata;v=v1;g=meta.k8s.io",
        "PartialObjectMetadataList;v=v1;g=meta.k8s.io",
    ] {
        let accept = format!("application/json;as={form}");
        let is_list = !form.starts_with("PartialObjectMetadata;");
        let one = format!("{PEERS}/b");
        let path = if is_list { ALL } else { &one };
        for include in ["Metadata", "Object"] {
            let path = format!("{path}?includeObject={include}");
            let (code, shown) = world.get(&path, &accept).await;
            assert_eq!(code, 200, "{form}: {shown}");
            assert!(shown.to_string().contains(r#""app":"b""#), "{shown}");
            assert_discreet(&shown, form);
        }
    }
    let (_, table) = world
        .get(ALL, "application/json;as=Table;v=v1;g=meta.k8s.io")
        .await;
    let cells = table["rows"][0]["cells"].as_array().unwrap();
    assert_eq!(
        cells[..4],
        [json!("a"), json!("Pending"), json!("<none>"), json!("w1")]
    );
}

#[tokio::test]
async fn peers_are_watched_as_pods_come_change_and_go() {
    let world = World::new().await;
    let query = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    // Two, as what one has been sent another is sent too.
    let mut watches = Vec::new();
    for _ in 0..2 {
        watches.push(Events::at(&world.node, &format!("{ALL}?{query}")).await);
    }
    for events in &mut watches {
        for name in ["a", "b"] {
            assert_discreet(&events.expect("ADDED", name).await, "beginning");
        }
        let bookmark = events.next().await.unwrap();
        assert_eq!(bookmark["type"], "BOOKMARK");
        assert_eq!(bookmark["object"]["kind"], "PodPeer");
        assert_eq!(bookmark["object"]["apiVersion"], "net.coracle.dev/v1");
    }
    world.run("c", "w2").await;
    let one = format!("{PODS}/c");
    let labels = json!({"metadata": {"labels": {"app": "d"}}});
    assert_eq!(world.admin.merge(&one, labels).await.0, 200);
    let now = json!({"gracePeriodSeconds": 0});
    assert_eq!(world.admin.delete(&one, now).await.0, 200);
    for events in &mut watches {
        let added = events.expect("ADDED", "c").await;
        assert_eq!(added["object"]["kind"], "PodPeer");
        assert_eq!(added["object"]["metadata"]["labels"], json!({"app": "c"}));
        let modified = events.expect("MODIFIED", "c").await;
        assert_eq!(
            modified["object"]["metadata"]["labels"],
            json!({"app": "d"})
        );
        let deleted = events.expect("DELETED", "c").await;
        for event in [added, modified, deleted] {
            assert_discreet(&event, "event");
        }
    }
}

/// Who leaves the selection goes as it was, with the revision of what happened.
#[tokio::test]
async fn a_peer_that_leaves_a_selection_is_not_the_one_that_others_see() {
    let world = World::new().await;
    let mut all = Events::at(&world.node, &format!("{ALL}?watch=true")).await;
    let mut some = Events::at(
        &world.node,
        &format!("{ALL}?watch=true&labelSelector=app%3Da"),
    )
    .await;
    all.expect("ADDED", "a").await;
    all.expect("ADDED", "b").await;
    some.expect("ADDED", "a").await;
    let labels = json!({"metadata": {"labels": {"app": "x"}}});
    world.admin.merge(&format!("{PODS}/a"), labels).await;
    let (modified, gone) = (
        all.expect("MODIFIED", "a").await,
        some.expect("DELETED", "a").await,
    );
    let metadata = |event: &Value, field: &str| event["object"]["metadata"][field].clone();
    assert_eq!(metadata(&modified, "labels"), json!({"app": "x"}));
    assert_eq!(metadata(&gone, "labels"), json!({"app": "a"}));
    let version = "resourceVersion";
    assert_eq!(metadata(&modified, version), metadata(&gone, version));
}

#[tokio::test]
async fn no_form_of_a_watch_of_peers_shows_more() {
    let world = World::new().await;
    for form in ["Table", "PartialObjectMetadata"] {
        let accept = format!("application/json;as={form};v=v1;g=meta.k8s.io");
        let path = format!("{ALL}?watch=true&includeObject=Object");
        let mut events = Events::accepting(&world.node, &path, &accept).await;
        for _ in ["a", "b"] {
            let event = events.next().await.unwrap();
            assert_eq!(event["object"]["kind"], form);
            assert!(event.to_string().contains(r#""app":"#), "{event}");
            assert_discreet(&event, form);
        }
    }
}

#[tokio::test]
async fn nobody_writes_a_peer() {
    let world = World::new().await;
    let one = format!("{PEERS}/a");
    let mut peer = world.listed(&one).await;
    peer["metadata"]["labels"] = json!({"app": "x"});
    for (method, path) in [
        ("POST", PEERS),
        ("PUT", &*one),
        ("PATCH", &*one),
        ("DELETE", &*one),
        ("DELETE", PEERS),
    ] {
        let (code, said) = world.admin.write(method, path, peer.clone()).await;
        assert_eq!((code, &said["reason"]), (405, &json!("MethodNotAllowed")));
        let (code, _) = world.node.write(method, path, peer.clone()).await;
        assert_eq!(code, 403, "{method} {path}");
    }
    for (method, path) in [
        (
            "POST",
            "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies",
        ),
        (
            "PATCH",
            "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies/x",
        ),
        ("DELETE", "/api/v1/namespaces/default"),
        ("PATCH", "/api/v1/namespaces/default"),
    ] {
        let (code, _) = world.node.write(method, path, json!({})).await;
        assert_eq!(code, 403, "{method} {path}");
    }
    let (_, pod) = world.admin.get(&format!("{PODS}/a")).await;
    assert_eq!(pod["metadata"]["labels"], json!({"app": "a"}));
}

#[tokio::test]
async fn peers_are_discovered() {
    let world = World::new().await;
    let list = world.listed(GROUP).await;
    assert_eq!(
        list["resources"],
        json!([{"name": "podpeers", "singularName": "podpeer", "namespaced": true, "kind": "PodPeer",
            "verbs": ["get", "list", "watch"]}])
    );
    let (_, schema) = world.admin.get("/openapi/v3/apis/net.coracle.dev/v1").await;
    let peer = &schema["components"]["schemas"]["dev.coracle.net.v1.PodPeer"];
    let members = &peer["properties"]["status"]["properties"];
    assert!(members["podIP"].is_object(), "{peer}");
    let (_, schema) = world.admin.get("/openapi/v2").await;
    let peer = &schema["definitions"]["dev.coracle.net.v1.PodPeer"];
    assert!(peer["properties"]["spec"].is_object(), "{peer}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_reads_peers() {
    let world = World::new().await;
    let listening = testing::listen(Arc::clone(&world.server)).await;
    let Some(kubectl) = Kubectl::of(&listening).map(Arc::new) else {
        return;
    };
    let listed = ok(&kubectl, "api-resources --api-group=net.coracle.dev").await;
    let peers = ["podpeers", "net.coracle.dev/v1", "true", "PodPeer"];
    assert_eq!(words(&listed).1, peers, "{listed}");
    let table = ok(&kubectl, "get podpeers -A -o wide").await;
    let (heads, row) = words(&table);
    assert_eq!(
        heads,
        ["NAMESPACE", "NAME", "PHASE", "IP", "NODE", "AGE"],
        "{table}"
    );
    assert_eq!(row[..5], ["default", "a", "Pending", "<none>", "w1"]);
    let named = ok(&kubectl, "get podpeer b -o jsonpath={.spec.nodeName}").await;
    assert_eq!(named, "w2");
    for line in ["podpeers --recursive", "podpeers.spec.containers.ports"] {
        let said = ok(&kubectl, &format!("explain {line}")).await;
        assert!(said.contains("PodPeer"), "{said}");
        assert!(said.contains("containerPort"), "{said}");
    }
    let all = ok(&kubectl, "get all -o name").await;
    assert_eq!(all, "pod/a\npod/b\nservice/kubernetes\n");
    for line in ["delete podpeers --all", "label podpeer a x=y"] {
        let refused = kubectl.run(line).await.unwrap_err();
        assert!(refused.contains("MethodNotAllowed"), "{line}: {refused}");
    }
}
