//! Those about custom resources and their definitions.

use tokio_util::sync::{CancellationToken, DropGuard};

use super::*;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// Where definitions become kinds.
async fn defining() -> (Arc<ApiServer>, Raw, DropGuard) {
    let (server, admin) = cluster().await;
    let stop = CancellationToken::new();
    let keeping = Arc::clone(&server).keep_definitions(stop.clone());
    coracle_telemetry::spawn("keep definitions", keeping);
    (server, admin, stop.drop_guard())
}

fn definition(storage: &str, schema: &Value) -> Value {
    let version = |name: &str| {
        json!({"name": name, "served": true, "storage": name == storage,
        "schema": {"openAPIV3Schema": schema}})
    };
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.org"}, "spec": {"group": "example.org", "scope": "Namespaced",
            "names": {"plural": "things", "kind": "Thing"}, "versions": [version("v1"), version("v2")]}})
}

fn open() -> Value {
    json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

fn things(version: &str) -> String {
    format!("/apis/example.org/{version}/namespaces/default/things")
}

fn thing(name: &str, data: Value) -> Value {
    json!({"apiVersion": "example.org/v1", "kind": "Thing", "metadata": {"name": name}, "data": data})
}

async fn defined(admin: &Raw, schema: &Value) {
    let (code, answer) = admin.post(DEFINITIONS, definition("v1", schema)).await;
    assert_eq!(code, 201, "{answer}");
    served(admin, |_| true).await;
}

/// Waits until the definition is served and is as it is to be.
async fn served(admin: &Raw, holds: impl Fn(&Value) -> bool) {
    let waiting = async {
        loop {
            let (_, read) = admin
                .get(&format!("{DEFINITIONS}/things.example.org"))
                .await;
            if admin.get(&things("v1")).await.0 == 200 && holds(&read) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), waiting)
        .await
        .expect("it is served");
}

#[tokio::test]
async fn custom_resources_are_refused_when_they_are_made_changed_and_deleted() {
    let (server, admin, _keeping) = defining().await;
    defined(&admin, &open()).await;
    let hook = choosy().await;
    let rules = about(&["CREATE", "UPDATE", "DELETE"], "example.org", "things");
    let webhook = hook.webhook("v", json!({"rules": rules}));
    configure(&server, &admin, VALIDATING, "c", &[webhook]).await;
    denied(
        admin
            .post(&things("v1"), thing("bad", json!({"unwanted": "yes"})))
            .await,
    );
    let own = format!("{}/good", things("v1"));
    assert_eq!(
        admin
            .post(&things("v1"), thing("good", json!({"a": "b"})))
            .await
            .0,
        201
    );
    denied(
        admin
            .merge(&own, json!({"data": {"unwanted": "yes"}}))
            .await,
    );
    // What is there may be one that nobody may delete.
    admin.delete(&format!("{VALIDATING}/c"), json!({})).await;
    catch_up(&server).await;
    assert_eq!(
        admin
            .merge(&own, json!({"data": {"unwanted": "yes"}}))
            .await
            .0,
        200
    );
    let rules = about(&["UPDATE", "DELETE"], "example.org", "things");
    let webhook = hook.webhook("v", json!({"rules": rules}));
    configure(&server, &admin, VALIDATING, "c", &[webhook]).await;
    denied(admin.merge(&own, json!({"data": {"a": "c"}})).await);
    denied(admin.delete(&own, json!({})).await);
    assert_eq!(
        admin
            .merge(&own, json!({"data": {"unwanted": null}}))
            .await
            .0,
        200
    );
    assert_eq!(admin.delete(&own, json!({})).await.0, 200);
    assert_eq!(admin.get(&own).await.0, 404);
}

#[tokio::test]
async fn nobody_makes_a_definition_against_a_webhook() {
    let (server, admin, _keeping) = defining().await;
    let hook = Hook::that(says(json!({"allowed": false, "status": {"message": "no"}}))).await;
    let rules = about(
        &["CREATE"],
        "apiextensions.k8s.io",
        "customresourcedefinitions",
    );
    let webhook = hook.webhook("v", json!({"rules": rules, "namespaceSelector": {}}));
    configure(&server, &admin, VALIDATING, "c", &[webhook]).await;
    denied(admin.post(DEFINITIONS, definition("v1", &open())).await);
    assert_eq!(
        admin
            .get(&format!("{DEFINITIONS}/things.example.org"))
            .await
            .0,
        404
    );
}

/// One adds to what another has added, as long as there is something to begin with.
async fn stages(server: &ApiServer, admin: &Raw) -> [Hook; 2] {
    let stage = |wants: &'static str, adds: &'static str| {
        Hook::start(move |request| match &request["object"]["data"][wants] {
            Value::Null => says(json!({"allowed": true})),
            _ => patch(json!([{"op": "add", "path": format!("/data/{adds}"), "value": "yes"}])),
        })
    };
    let hooks = [
        stage("mutation-start", "mutation-stage-1").await,
        stage("mutation-stage-1", "mutation-stage-2").await,
    ];
    let changes = json!({"rules": about(&["CREATE", "UPDATE"], "example.org", "things")});
    let webhooks = [
        hooks[0].webhook("one", changes.clone()),
        hooks[1].webhook("two", changes),
    ];
    configure(server, admin, MUTATING, "c", &webhooks).await;
    hooks
}

#[tokio::test]
async fn what_is_added_to_custom_resources_is_pruned_by_their_schema() {
    let text = json!({"type": "string"});
    let pruning = json!({"type": "object", "properties": {"data": {"type": "object",
        "properties": {"mutation-start": text, "mutation-stage-1": text}}}});
    let (start, one, two) = (
        ("mutation-start", "yes"),
        ("mutation-stage-1", "yes"),
        ("mutation-stage-2", "yes"),
    );
    for (schema, expect) in [(open(), vec![start, one, two]), (pruning, vec![start, one])] {
        let (server, admin, _keeping) = defining().await;
        defined(&admin, &schema).await;
        let _hooks = stages(&server, &admin).await;
        let (code, made) = admin
            .post(&things("v1"), thing("a", json!({"mutation-start": "yes"})))
            .await;
        assert_eq!(code, 201, "{made}");
        let expect: std::collections::BTreeMap<_, _> = expect.into_iter().collect();
        assert_eq!(made["data"], json!(expect));
    }
}

#[tokio::test]
async fn custom_resources_are_changed_whatever_version_they_are_stored_in() {
    let (server, admin, _keeping) = defining().await;
    defined(&admin, &open()).await;
    let _hooks = stages(&server, &admin).await;
    let own = format!("{}/a", things("v1"));
    assert_eq!(
        admin
            .post(&things("v1"), thing("a", json!({"mutation-start": "yes"})))
            .await
            .0,
        201
    );
    let other = json!([{"op": "replace", "path": "/spec/versions/0/storage", "value": false},
        {"op": "replace", "path": "/spec/versions/1/storage", "value": true}]);
    let path = format!("{DEFINITIONS}/things.example.org");
    let (code, answer) = admin
        .send("PATCH", &path, JSON_PATCH, other.to_string())
        .await;
    assert_eq!(code, 200, "{answer}");
    served(&admin, |read| {
        read["status"]["storedVersions"] == json!(["v1", "v2"])
    })
    .await;
    let (code, patched) = admin.merge(&own, json!({"dummy": "added"})).await;
    assert_eq!(code, 200, "{patched}");
    let (_, read) = admin.get(&format!("{}/a", things("v2"))).await;
    assert_eq!(
        (&read["dummy"], &read["data"]["mutation-stage-2"]),
        (&json!("added"), &json!("yes"))
    );
}
