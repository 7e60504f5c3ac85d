//! CustomResourceDefinitions as clients see them: made, changed, deleted, and there again after a
//! restart.

mod conformance;
mod conversion;
mod deletion;
mod names;
mod rules;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use coracle_auth::user::UserInfo;
use coracle_store::{Backend, memory::MemoryBackend};
use futures::StreamExt as _;
use serde_json::{Value, json};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::raw::Raw;
use crate::{server::ApiServer, testing};

pub(super) const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
pub(super) const WIDGETS: &str = "/apis/example.org/v1/namespaces/default/widgets";

/// A server, its administrator, and who keeps its definitions for as long as this is held.
struct Cluster {
    server: Arc<ApiServer>,
    admin: Raw,
    _keeping: DropGuard,
}

async fn cluster(backend: &Arc<dyn Backend>) -> Cluster {
    let server = testing::server_over(Arc::clone(backend)).await;
    let stop = CancellationToken::new();
    let keeping = Arc::clone(&server).keep_definitions(stop.clone());
    coracle_telemetry::spawn("keep definitions", keeping);
    Cluster {
        admin: Raw::of(&server, UserInfo::master("test")),
        server,
        _keeping: stop.drop_guard(),
    }
}

fn memory() -> Arc<dyn Backend> {
    Arc::new(MemoryBackend::new())
}

pub(super) fn definition(size: Value) -> Value {
    let spec = json!({"type": "object", "required": ["size"], "properties": {
        "size": size, "mode": {"type": "string", "default": "fast", "enum": ["fast", "slow"]}}});
    let status = json!({"type": "object", "properties": {
        "size": {"type": "integer"}, "selector": {"type": "string"}}});
    let schema = json!({"type": "object", "properties": {"spec": spec, "status": status}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.org"},
        "spec": {
            "group": "example.org", "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["wd"], "categories": ["all"]},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
                "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.size",
                    "statusReplicasPath": ".status.size", "labelSelectorPath": ".status.selector"}},
                "additionalPrinterColumns": [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}],
                "selectableFields": [{"jsonPath": ".spec.mode"}]}],
        },
    })
}

pub(super) fn widget(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "example.org/v1", "kind": "Widget", "metadata": {"name": name}, "spec": spec})
}

/// Asks until an answer is as it is to be.
pub(super) async fn until(admin: &Raw, path: &str, holds: impl Fn(u16, &Value) -> bool) -> Value {
    let asking = async {
        loop {
            let (code, answer) = admin.get(path).await;
            if holds(code, &answer) {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let asked = tokio::time::timeout(Duration::from_secs(20), asking).await;
    asked.unwrap_or_else(|_| panic!("{path}"))
}

pub(super) fn has(definition: &Value, kind: &str, status: &str) -> bool {
    let conditions = definition["status"]["conditions"].as_array();
    let mut all = conditions.into_iter().flatten();
    all.any(|one| one["type"] == kind && one["status"] == status)
}

async fn established(cluster: &Cluster, definition: Value) -> Value {
    let path = format!(
        "{DEFINITIONS}/{}",
        definition["metadata"]["name"].as_str().unwrap()
    );
    let (code, made) = cluster.admin.post(DEFINITIONS, definition).await;
    assert_eq!(code, 201, "{made}");
    until(&cluster.admin, &path, |_, now| {
        has(now, "Established", "True")
    })
    .await
}

#[tokio::test]
async fn a_definition_makes_a_kind() {
    let cluster = cluster(&memory()).await;
    let admin = &cluster.admin;
    assert_eq!(admin.get(WIDGETS).await.0, 404);
    let made = established(
        &cluster,
        definition(json!({"type": "integer", "maximum": 10})),
    )
    .await;
    assert_eq!(made["status"]["acceptedNames"]["singular"], "widget");
    assert_eq!(made["status"]["storedVersions"], json!(["v1"]));
    let (code, one) = admin
        .post(WIDGETS, widget("a", json!({"size": 1, "x": 1})))
        .await;
    assert_eq!(
        (code, &one["spec"]),
        (201, &json!({"size": 1, "mode": "fast"})),
        "{one}"
    );
    let (code, refused) = admin
        .post(WIDGETS, widget("b", json!({"size": 11, "mode": "odd"})))
        .await;
    assert_eq!(code, 422);
    assert_eq!(
        refused["message"],
        "Widget.example.org \"b\" is invalid: [spec.mode: Unsupported value: \"odd\": supported values: \"fast\", \"slow\", spec.size: Invalid value: 11: spec.size in body should be less than or equal to 10]"
    );
    let path = format!("{WIDGETS}?fieldSelector=spec.mode%3Dfast");
    let (_, list) = admin.get(&path).await;
    assert_eq!(
        (&list["kind"], list["items"].as_array().unwrap().len()),
        (&json!("WidgetList"), 1)
    );
}

/// The definition of widgets after a JSON patch.
async fn patched(admin: &Raw, patch: &Value) -> Value {
    let path = format!("{DEFINITIONS}/widgets.example.org");
    let kind = "application/json-patch+json";
    let (code, changed) = admin.send("PATCH", &path, kind, patch.to_string()).await;
    assert_eq!(code, 200, "{changed}");
    changed
}

#[tokio::test]
async fn what_a_stricter_schema_forbids_stays_until_it_is_changed() {
    let cluster = cluster(&memory()).await;
    let admin = &cluster.admin;
    established(&cluster, definition(json!({"type": "integer"}))).await;
    let (code, _) = admin.post(WIDGETS, widget("a", json!({"size": 11}))).await;
    assert_eq!(code, 201);
    let schema = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/size";
    let patch =
        json!([{"op": "replace", "path": schema, "value": {"type": "integer", "maximum": 10}}]);
    let changed = patched(admin, &patch).await;
    assert_eq!(changed["metadata"]["generation"], 2, "{changed}");
    // The schema is served a moment later.
    until(admin, "/openapi/v3/apis/example.org/v1", |_, document| {
        document.to_string().contains("\"maximum\":10")
    })
    .await;
    let one = format!("{WIDGETS}/a");
    let (code, left) = admin.merge(&one, json!({"spec": {"mode": "slow"}})).await;
    assert_eq!(code, 200, "{left}");
    let (code, refused) = admin.merge(&one, json!({"spec": {"size": 12}})).await;
    assert_eq!(code, 422, "{refused}");
}

#[tokio::test]
async fn a_kind_is_scaled_by_its_paths() {
    let cluster = cluster(&memory()).await;
    let admin = &cluster.admin;
    established(&cluster, definition(json!({"type": "integer"}))).await;
    admin.post(WIDGETS, widget("a", json!({"size": 3}))).await;
    let status = json!({"status": {"size": 2, "selector": "app=a"}});
    let (code, _) = admin.merge(&format!("{WIDGETS}/a/status"), status).await;
    assert_eq!(code, 200);
    let path = format!("{WIDGETS}/a/scale");
    let (_, scale) = admin.get(&path).await;
    assert_eq!(scale["spec"], json!({"replicas": 3}));
    assert_eq!(scale["status"], json!({"replicas": 2, "selector": "app=a"}));
    let (code, scale) = admin.merge(&path, json!({"spec": {"replicas": 7}})).await;
    assert_eq!((code, &scale["spec"]["replicas"]), (200, &json!(7)));
    let (_, one) = admin.get(&format!("{WIDGETS}/a")).await;
    assert_eq!(
        (&one["spec"]["size"], &one["metadata"]["generation"]),
        (&json!(7), &json!(2))
    );
    let unset = json!({"metadata": {"annotations": {"a": "b"}}});
    let mut open = definition(json!({"type": "integer"}));
    open["metadata"]["name"] = "gadgets.example.org".into();
    open["spec"]["names"] = json!({"plural": "gadgets", "kind": "Gadget"});
    let schema = &mut open["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    schema["properties"]["spec"]["required"] = json!([]);
    established(&cluster, open).await;
    let gadgets = "/apis/example.org/v1/namespaces/default/gadgets";
    let gadget = json!({"apiVersion": "example.org/v1", "kind": "Gadget", "metadata": {"name": "a"}, "spec": {}});
    let (code, made) = admin.post(gadgets, gadget).await;
    assert_eq!(code, 201, "{made}");
    let (code, answer) = admin.merge(&format!("{gadgets}/a/scale"), unset).await;
    let why = "the spec replicas field \".spec.size\" cannot be empty";
    assert_eq!((code, &answer["message"]), (400, &json!(why)));
}

#[tokio::test]
async fn what_is_no_number_has_no_scale() {
    let cluster = cluster(&memory()).await;
    let admin = &cluster.admin;
    established(&cluster, definition(json!({"type": "string"}))).await;
    let (code, made) = admin
        .post(WIDGETS, widget("a", json!({"size": "three"})))
        .await;
    assert_eq!(code, 201, "{made}");
    let path = format!("{WIDGETS}/a/scale");
    let why = ".spec.size accessor error: three is of the type string, expected int64";
    let written = admin.merge(&path, json!({"spec": {"replicas": 7}})).await;
    for (code, answer) in [admin.get(&path).await, written] {
        assert_eq!((code, &answer["message"]), (500, &json!(why)), "{answer}");
    }
}

#[tokio::test]
async fn the_objects_go_before_their_definition() {
    let cluster = cluster(&memory()).await;
    let admin = &cluster.admin;
    established(&cluster, definition(json!({"type": "integer"}))).await;
    let mut held = widget("held", json!({"size": 1}));
    held["metadata"]["finalizers"] = json!(["example.org/hold"]);
    for one in [widget("free", json!({"size": 1})), held] {
        assert_eq!(admin.post(WIDGETS, one).await.0, 201);
    }
    let path = format!("{DEFINITIONS}/widgets.example.org");
    let (code, _) = admin.delete(&path, json!({})).await;
    assert_eq!(code, 200);
    until(admin, &format!("{WIDGETS}/free"), |code, _| code == 404).await;
    let waiting = until(admin, &path, |_, now| has(now, "Terminating", "True")).await;
    let cleanup = "customresourcecleanup.apiextensions.k8s.io";
    assert_eq!(waiting["metadata"]["finalizers"], json!([cleanup]));
    let (code, refused) = admin
        .post(WIDGETS, widget("late", json!({"size": 1})))
        .await;
    assert_eq!(code, 405, "{refused}");
    // Who holds one lets it go as ever.
    let free = json!({"metadata": {"finalizers": []}});
    let (code, _) = admin.merge(&format!("{WIDGETS}/held"), free).await;
    assert_eq!(code, 200);
    until(admin, &path, |code, _| code == 404).await;
    until(admin, WIDGETS, |code, _| code == 404).await;
    let again = established(&cluster, definition(json!({"type": "integer"}))).await;
    assert!(has(&again, "Established", "True"));
    assert_eq!(admin.get(WIDGETS).await.1["items"], json!([]));
}

#[tokio::test]
async fn what_was_defined_is_served_from_the_first_request_on() {
    let backend = memory();
    let first = cluster(&backend).await;
    established(&first, definition(json!({"type": "integer"}))).await;
    first
        .admin
        .post(WIDGETS, widget("a", json!({"size": 1})))
        .await;
    first.server.stop().await;
    drop(first);
    let second = testing::server_over(backend).await;
    let admin = Raw::of(&second, UserInfo::master("test"));
    let (code, one) = admin.get(&format!("{WIDGETS}/a")).await;
    assert_eq!((code, &one["spec"]["size"]), (200, &json!(1)), "{one}");
}

/// Reads as client-go's reflector does: a list, a watch from there on, the next watch from where
/// that ended, and a list again where the server has forgotten.
async fn read_all(admin: &Raw, expect: usize) -> BTreeSet<String> {
    let mut seen = BTreeSet::new();
    let name = |object: &Value| {
        object["metadata"]["name"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    while seen.len() < expect {
        let (code, list) = admin.get(WIDGETS).await;
        if code != 200 {
            continue;
        }
        seen.extend(list["items"].as_array().unwrap().iter().map(name));
        let mut revision = list["metadata"]["resourceVersion"]
            .as_str()
            .unwrap()
            .to_owned();
        'watching: while seen.len() < expect {
            let path = format!("{WIDGETS}?watch=true&resourceVersion={revision}");
            let answer = admin.response("GET", &path, "", "").await;
            if answer.status() != 200 {
                break;
            }
            let mut bytes = http_body_util::BodyDataStream::new(answer.into_body());
            while let Some(Ok(chunk)) = bytes.next().await {
                for line in String::from_utf8_lossy(&chunk).lines() {
                    let event: Value = serde_json::from_str(line).unwrap();
                    if event["type"] == "ERROR" {
                        break 'watching;
                    }
                    seen.insert(name(&event["object"]));
                    revision = event["object"]["metadata"]["resourceVersion"]
                        .as_str()
                        .unwrap()
                        .to_owned();
                }
                if seen.len() >= expect {
                    break;
                }
            }
        }
    }
    seen
}

#[tokio::test]
async fn neither_writes_nor_events_are_lost_while_a_definition_changes() {
    const COUNT: usize = 60;
    let cluster = cluster(&memory()).await;
    let admin = &cluster.admin;
    established(&cluster, definition(json!({"type": "integer"}))).await;
    let writing = async {
        for at in 0..COUNT {
            let name = format!("w{at}");
            let (code, made) = admin.post(WIDGETS, widget(&name, json!({"size": 1}))).await;
            assert_eq!(code, 201, "{made}");
            tokio::task::yield_now().await;
        }
    };
    let changing = async {
        let at = "/spec/versions/0/schema/openAPIV3Schema/description";
        for round in 0..20 {
            let patch = json!([{"op": "add", "path": at, "value": format!("round {round}")}]);
            patched(admin, &patch).await;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let reading = tokio::time::timeout(Duration::from_secs(30), read_all(admin, COUNT));
    let ((), (), seen) = tokio::join!(writing, changing, reading);
    assert_eq!(seen.unwrap().len(), COUNT);
    let (_, list) = admin.get(WIDGETS).await;
    assert_eq!(list["items"].as_array().unwrap().len(), COUNT);
}
