//! A kind of several versions: stored in one, read and written in each.

use std::sync::Arc;

use coracle_registry::custom_resource::CustomResource;
use futures::StreamExt as _;
use http::Request;
use serde_json::{Value, json};

use super::{
    WIDGETS, WIDGETS_V2, serving, v1, v2, watch, widget, widgets, widgets_of_two_versions, within,
};
use crate::{custom_resources, server::ApiServer, tests::raw::Raw};

async fn served() -> (Arc<ApiServer>, Raw) {
    serving(widgets_of_two_versions(json!({}))).await
}

fn widget_v2(name: &str, spec: Value) -> Value {
    let mut object = widget(name, spec);
    object["apiVersion"] = "example.org/v2".into();
    object
}

/// The text in the store.
async fn stored(server: &ApiServer, name: &str) -> Value {
    let key = format!("/registry/example.org/widgets/default/{name}");
    let kv = server.state.store.backend.get(&key).await.unwrap();
    serde_json::from_slice(&kv.unwrap().value).unwrap()
}

#[tokio::test]
async fn what_is_written_in_one_version_is_read_in_the_other() {
    let (server, admin) = served().await;
    let parts = json!([{"name": "x"}]);
    admin
        .post(WIDGETS, widget("a", json!({"size": 1, "parts": parts})))
        .await;
    let (code, made) = admin
        .post(WIDGETS_V2, widget_v2("b", json!({"flavour": "sweet"})))
        .await;
    // A size is required by v1 alone, in which it is stored.
    assert_eq!(
        (code, &made["apiVersion"], &made["spec"]),
        (201, &json!("example.org/v2"), &json!({"mode": "calm"})),
        "{made}"
    );
    let spec_of_a = json!({"size": 1, "mode": "fast", "parts": parts});
    let without_parts = json!({"size": 1, "mode": "fast"});
    for (version, name, spec) in [
        ("v1", "a", &spec_of_a),
        ("v2", "a", &without_parts),
        ("v1", "b", &json!({"mode": "calm"})),
        ("v2", "b", &json!({"mode": "calm"})),
    ] {
        let path = format!("/apis/example.org/{version}/namespaces/default/widgets/{name}");
        let (_, object) = admin.get(&path).await;
        assert_eq!(
            (&object["apiVersion"], &object["spec"]),
            (&json!(format!("example.org/{version}")), spec),
            "{path}"
        );
    }
    assert_eq!(stored(&server, "b").await["apiVersion"], "example.org/v1");
    // What does not fit a version is refused there alone.
    let sizeless = widget("c", json!({}));
    assert_eq!(admin.post(WIDGETS, sizeless).await.0, 422);
    let (code, answer) = admin
        .post(WIDGETS, widget_v2("c", json!({"size": 1})))
        .await;
    assert_eq!(code, 400, "{answer}");
}

#[tokio::test]
async fn every_verb_speaks_the_version_of_its_path() {
    let (server, admin) = served().await;
    admin.post(WIDGETS, widget("a", json!({"size": 1}))).await;
    let path = format!("{WIDGETS_V2}/a");
    let (_, found) = admin.get(&path).await;
    let mut sent = found.clone();
    sent["spec"]["size"] = 2.into();
    let apply = format!("{path}?fieldManager=m");
    let applied = widget_v2("a", json!({"mode": "slow"})).to_string();
    let status = json!({"status": {"phase": "Up"}});
    let answers = [
        admin.put(&path, sent).await,
        admin.merge(&path, json!({"spec": {"size": 3}})).await,
        admin.merge(&format!("{path}/status"), status).await,
        admin
            .send(
                "PATCH",
                &format!("{apply}&force=true"),
                "application/apply-patch+yaml",
                applied,
            )
            .await,
        admin.get(&path).await,
    ];
    for (code, answer) in &answers {
        assert_eq!(
            (*code, &answer["apiVersion"]),
            (200, &json!("example.org/v2")),
            "{answer}"
        );
    }
    let (_, last) = &answers[4];
    assert_eq!(
        (&last["spec"], &last["status"]["phase"]),
        (&json!({"size": 3, "mode": "slow"}), &json!("Up"))
    );
    assert_eq!(last["metadata"]["generation"], 4);
    let managers = last["metadata"]["managedFields"].as_array().unwrap();
    let applier = managers.iter().find(|one| one["manager"] == "m").unwrap();
    assert_eq!(applier["apiVersion"], "example.org/v2");
    assert_eq!(stored(&server, "a").await["apiVersion"], "example.org/v1");
    let (code, list) = admin
        .get(&format!("{WIDGETS_V2}?fieldSelector=spec.mode%3Dslow"))
        .await;
    assert_eq!(
        (code, &list["apiVersion"], &list["items"][0]["apiVersion"]),
        (200, &json!("example.org/v2"), &json!("example.org/v2"))
    );
    // A finalizer keeps the object, so that the answer is the object itself.
    let finalizers = json!({"metadata": {"finalizers": ["example.org/f"]}});
    admin.merge(&path, finalizers).await;
    let (code, waiting) = admin.delete(&path, json!({})).await;
    assert_eq!(
        (code, &waiting["apiVersion"]),
        (200, &json!("example.org/v2"))
    );
    let (code, gone) = admin
        .merge(&path, json!({"metadata": {"finalizers": null}}))
        .await;
    assert_eq!((code, &gone["apiVersion"]), (200, &json!("example.org/v2")));
    assert_eq!(admin.get(&format!("{WIDGETS}/a")).await.0, 404);
}

#[tokio::test]
async fn watches_and_tables_are_of_the_version_of_their_path() {
    let (_server, admin) = served().await;
    admin.post(WIDGETS, widget("a", json!({"size": 1}))).await;
    let mut both = [
        (watch(&admin, WIDGETS).await, "example.org/v1"),
        (watch(&admin, WIDGETS_V2).await, "example.org/v2"),
    ];
    let patch = json!({"spec": {"size": 2}});
    admin.merge(&format!("{WIDGETS_V2}/a"), patch).await;
    admin.delete(&format!("{WIDGETS}/a"), json!({})).await;
    for (events, version) in &mut both {
        for kind in ["ADDED", "MODIFIED", "DELETED"] {
            let event = within(events.next()).await.unwrap();
            assert_eq!(
                (&event["type"], &event["object"]["apiVersion"]),
                (&json!(kind), &json!(version))
            );
        }
    }
    for (path, column) in [(WIDGETS, "Size"), (WIDGETS_V2, "Mode")] {
        let request = Request::get(path)
            .header("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
            .body(kube::client::Body::empty());
        let answer = admin.0.send(request.unwrap()).await.unwrap();
        let body = answer.into_body().collect_bytes().await.unwrap();
        let table: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(table["columnDefinitions"][1]["name"], column);
    }
}

#[tokio::test]
async fn another_storage_version_takes_what_the_one_before_left() {
    let (server, admin) = served().await;
    admin
        .post(WIDGETS, widget("a", json!({"size": 1, "parts": []})))
        .await;
    let stored_as_v2 = CustomResource {
        storage: v2(),
        others: vec![v1(json!({}))],
        ..widgets(json!({}))
    };
    custom_resources::serve(&server.state, stored_as_v2)
        .await
        .unwrap();
    assert_eq!(stored(&server, "a").await["apiVersion"], "example.org/v1");
    for (path, version) in [(WIDGETS, "example.org/v1"), (WIDGETS_V2, "example.org/v2")] {
        let (_, list) = admin.get(path).await;
        let object = &list["items"][0];
        assert_eq!(
            (&object["apiVersion"], &object["spec"]),
            (&json!(version), &json!({"size": 1, "mode": "fast"}))
        );
        let event = within(watch(&admin, path).await.next()).await.unwrap();
        assert_eq!(event["object"]["apiVersion"], version);
    }
    // A write that changes nothing moves it into the new version, once.
    let path = format!("{WIDGETS}/a");
    let (_, before) = admin.get(&path).await;
    let (code, after) = admin.put(&path, before.clone()).await;
    assert_eq!((code, &after["spec"]), (200, &before["spec"]), "{after}");
    assert_eq!(stored(&server, "a").await["apiVersion"], "example.org/v2");
    let (_, again) = admin.put(&path, after.clone()).await;
    assert_eq!(
        again["metadata"]["resourceVersion"],
        after["metadata"]["resourceVersion"]
    );
}

#[tokio::test]
async fn what_is_told_of_the_server_has_each_version_that_is_served() {
    let (server, admin) = served().await;
    let versions = async || {
        let (_, group) = admin.get("/apis/example.org").await;
        let versions = group["versions"].as_array().cloned().unwrap_or_default();
        let names: Vec<String> = versions
            .iter()
            .map(|one| one["version"].as_str().unwrap().to_owned())
            .collect();
        (names, group["preferredVersion"]["version"].clone())
    };
    assert_eq!(
        versions().await,
        (vec!["v2".to_owned(), "v1".to_owned()], json!("v2"))
    );
    for (version, description) in [
        ("v1", "How large it is."),
        ("v2", "Its size in this version."),
    ] {
        let (_, document) = admin
            .get(&format!("/openapi/v3/apis/example.org/{version}"))
            .await;
        let schema = &document["components"]["schemas"][format!("org.example.{version}.Widget")];
        let size = &schema["properties"]["spec"]["properties"]["size"];
        assert_eq!(size["description"], description);
    }
    let (_, all) = admin.get("/openapi/v2").await;
    for name in ["org.example.v1.Widget", "org.example.v2.WidgetList"] {
        assert!(all["definitions"].get(name).is_some(), "{name}");
    }
    // One that is not served is stored all the same.
    let mut kind = widgets_of_two_versions(json!({}));
    kind.storage.served = false;
    kind.others[0].deprecated = "example.org/v2 Widget is deprecated".into();
    custom_resources::serve(&server.state, kind).await.unwrap();
    assert_eq!(versions().await, (vec!["v2".to_owned()], json!("v2")));
    assert_eq!(admin.get(WIDGETS).await.0, 404);
    let object = widget_v2("a", json!({})).to_string();
    let answer = admin
        .response("POST", WIDGETS_V2, "application/json", object)
        .await;
    let warning = answer.headers()["warning"].to_str().unwrap().to_owned();
    assert_eq!(answer.status(), 201);
    assert!(warning.contains("Widget is deprecated"), "{warning}");
    assert_eq!(stored(&server, "a").await["apiVersion"], "example.org/v1");
}

#[tokio::test]
async fn an_object_of_an_older_schema_is_read_as_the_schema_says_now() {
    let (server, admin) = serving(widgets(json!({"colour": {"type": "string"}}))).await;
    let old = widget("a", json!({"size": 1, "colour": "red"}));
    assert_eq!(admin.post(WIDGETS, old).await.0, 201);
    let later = widgets(json!({"shade": {"type": "string", "default": "dark"}}));
    custom_resources::serve(&server.state, later).await.unwrap();
    let now = json!({"size": 1, "mode": "fast", "shade": "dark"});
    let path = format!("{WIDGETS}/a");
    let (_, found) = admin.get(&path).await;
    assert_eq!(found["spec"], now);
    let (_, list) = admin.get(WIDGETS).await;
    assert_eq!(list["items"][0]["spec"], now);
    let event = within(watch(&admin, WIDGETS).await.next()).await.unwrap();
    assert_eq!(event["object"]["spec"], now);
    // To read is not to write.
    assert_eq!(stored(&server, "a").await["spec"]["colour"], "red");
    let (code, same) = admin.put(&path, found.clone()).await;
    assert_eq!((code, &same["spec"]), (200, &now), "{same}");
    assert_eq!(
        same["metadata"]["generation"], 1,
        "nothing has changed for who reads"
    );
    assert_eq!(stored(&server, "a").await["spec"], now);
    let (_, again) = admin.put(&path, same.clone()).await;
    assert_eq!(
        again["metadata"]["resourceVersion"],
        same["metadata"]["resourceVersion"]
    );
}

#[tokio::test]
async fn what_is_applied_in_two_versions_is_told_apart() {
    let (_server, admin) = served().await;
    let apply = async |path: &str, manager: &str, object: Value| {
        let path = format!("{path}/a?fieldManager={manager}");
        let kind = "application/apply-patch+yaml";
        admin.send("PATCH", &path, kind, object.to_string()).await
    };
    let one = widget("a", json!({"size": 1, "mode": "slow"}));
    assert_eq!(apply(WIDGETS, "one", one).await.0, 201);
    let fast = widget_v2("a", json!({"mode": "fast"}));
    let (code, refused) = apply(WIDGETS_V2, "two", fast).await;
    let why = "Apply failed with 1 conflict: conflict with \"one\": .spec.mode";
    assert_eq!((code, &refused["message"]), (409, &json!(why)));
    let (code, shared) = apply(WIDGETS_V2, "two", widget_v2("a", json!({"mode": "slow"}))).await;
    assert_eq!(code, 200, "{shared}");
    // One names it no more in the other version, and the other nothing at all.
    let sized = widget_v2("a", json!({"size": 1}));
    let (code, left) = apply(WIDGETS_V2, "one", sized).await;
    assert_eq!(
        (code, &left["spec"]),
        (200, &json!({"size": 1, "mode": "slow"})),
        "{left}"
    );
    let (code, left) = apply(WIDGETS, "two", widget("a", json!({"size": 1}))).await;
    assert_eq!(
        (code, &left["spec"]),
        (200, &json!({"size": 1, "mode": "fast"})),
        "{left}"
    );
}
