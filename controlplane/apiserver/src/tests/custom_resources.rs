//! Kinds that come, change and go while the server runs.

mod kubectl;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use coracle_api::schema::Structural;
use coracle_auth::user::UserInfo;
use coracle_registry::{
    api_resource::ApiResource,
    custom_resource::{CustomResource, PrinterColumn},
    json_path::JsonPath,
    strategy::{Column, Subresource},
};
use futures::{StreamExt as _, TryStreamExt as _};
use serde_json::{Value, json};

use super::raw::{CONFIG_MAPS, Raw, config_map};
use crate::{custom_resources, server::ApiServer, testing};

const WIDGETS: &str = "/apis/example.org/v1/namespaces/default/widgets";

/// Widgets, with more properties in their spec.
fn widgets(more: Value) -> CustomResource {
    let mut spec = json!({"type": "object", "description": "What is wanted.", "required": ["size"], "properties": {
        "size": {"type": "integer", "description": "How large it is."},
        "mode": {"type": "string", "default": "fast"},
        "parts": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
            "items": {"type": "object", "required": ["name"],
                "properties": {"name": {"type": "string"}, "count": {"type": "integer"}}}},
    }});
    for (name, property) in more.as_object().into_iter().flatten() {
        spec["properties"][name] = property.clone();
    }
    let schema = json!({"type": "object", "description": "A Widget is a thing.", "properties": {
        "spec": spec,
        "status": {"type": "object", "properties": {"phase": {"type": "string"}}},
    }});
    let head = |name: &str, kind: &str| Column {
        name: name.to_owned().into(),
        kind: kind.to_owned().into(),
        format: "".into(),
        description: "".into(),
        priority: 0,
    };
    let column = |name, kind, path| PrinterColumn {
        column: head(name, kind),
        path: JsonPath::parse(path).unwrap(),
    };
    let info = ApiResource {
        short_names: vec!["wd".into()],
        subresources: vec![Subresource::Status].into(),
        ..ApiResource::new(
            "example.org".to_owned(),
            "v1".to_owned(),
            "Widget".to_owned(),
            "widgets".to_owned(),
        )
    };
    CustomResource {
        info,
        schema: Structural::read(&schema).unwrap(),
        columns: vec![
            column("Size", "integer", ".spec.size"),
            column("Age", "date", ".metadata.creationTimestamp"),
        ],
        selectable_fields: vec!["spec.mode".to_owned()],
    }
}

fn widget(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "example.org/v1", "kind": "Widget", "metadata": {"name": name}, "spec": spec})
}

async fn served() -> (Arc<ApiServer>, Raw) {
    let server = testing::server().await;
    custom_resources::serve(&server.state, widgets(json!({})))
        .await
        .unwrap();
    let admin = Raw::of(&server, UserInfo::component("test"));
    (server, admin)
}

#[tokio::test]
async fn objects_are_defaulted_pruned_and_checked_by_their_schema() {
    let (_server, admin) = served().await;
    let sent = widget("a", json!({"size": 1, "colour": "red"}));
    let answer = admin
        .response("POST", WIDGETS, "application/json", sent.to_string())
        .await;
    assert_eq!(answer.status(), http::StatusCode::CREATED);
    assert!(
        answer.headers()["warning"]
            .to_str()
            .unwrap()
            .contains("spec.colour")
    );
    let (code, made) = admin.get(&format!("{WIDGETS}/a")).await;
    assert_eq!(
        (code, &made["spec"], &made["metadata"]["generation"]),
        (200, &json!({"size": 1, "mode": "fast"}), &json!(1))
    );
    for (object, query, code, expect) in [
        (
            widget("b", json!({"size": "1"})),
            "",
            422,
            "spec.size in body must be of type integer: \"string\"",
        ),
        (widget("b", json!({})), "", 422, "spec.size: Required value"),
        (
            widget("b", json!({"size": 1, "x": 1})),
            "?fieldValidation=Strict",
            400,
            "unknown field \"spec.x\"",
        ),
        (widget("B_", json!({"size": 1})), "", 422, "metadata.name"),
        (
            json!({"kind": "Widget", "apiVersion": "example.org/v1", "metadata": {"labels": 1}}),
            "",
            400,
            "labels",
        ),
        (config_map("b"), "", 400, "ConfigMap"),
    ] {
        let (found, answer) = admin.post(&format!("{WIDGETS}{query}"), object).await;
        let message = answer["message"].as_str().unwrap_or_default();
        assert!(
            found == code && message.contains(expect),
            "{found} {answer}"
        );
    }
    let yaml = "apiVersion: example.org/v1\nkind: Widget\nmetadata: {name: c}\nspec: {size: 2}\n";
    assert_eq!(
        admin
            .send("POST", WIDGETS, "application/yaml", yaml)
            .await
            .0,
        201
    );
    assert_eq!(
        admin
            .send(
                "POST",
                WIDGETS,
                "application/vnd.kubernetes.protobuf",
                "k8s\0"
            )
            .await
            .0,
        415
    );
    // Selectors know the fields that the kind names.
    let (_, list) = admin
        .get(&format!(
            "{WIDGETS}?fieldSelector=spec.mode%3Dfast,metadata.name%3Dc"
        ))
        .await;
    assert_eq!(
        (&list["kind"], list["items"].as_array().unwrap().len()),
        (&json!("WidgetList"), 1)
    );
    assert_eq!(
        admin
            .get(&format!("{WIDGETS}?fieldSelector=spec.size%3D1"))
            .await
            .0,
        400
    );
    let (code, found) = admin.delete(&format!("{WIDGETS}/c"), json!({})).await;
    assert_eq!(
        (code, &found["status"]),
        (200, &json!("Success")),
        "{found}"
    );
}

#[tokio::test]
async fn objects_are_changed_in_every_way_but_a_strategic_merge() {
    let (_server, admin) = served().await;
    admin.post(WIDGETS, widget("a", json!({"size": 1}))).await;
    let path = format!("{WIDGETS}/a");
    let (code, merged) = admin
        .merge(
            &path,
            json!({"spec": {"size": 2}, "status": {"phase": "x"}}),
        )
        .await;
    assert_eq!(
        (
            code,
            &merged["spec"]["size"],
            &merged["metadata"]["generation"]
        ),
        (200, &json!(2), &json!(2))
    );
    assert!(merged["status"].is_null(), "{merged}");
    let (code, told) = admin
        .merge(
            &format!("{path}/status"),
            json!({"spec": {"size": 3}, "status": {"phase": "Up"}}),
        )
        .await;
    assert_eq!(
        (code, &told["spec"]["size"], &told["status"]),
        (200, &json!(2), &json!({"phase": "Up"}))
    );
    let patch = json!([{"op": "replace", "path": "/spec/size", "value": 4}]).to_string();
    let (code, patched) = admin
        .send("PATCH", &path, "application/json-patch+json", patch)
        .await;
    assert_eq!((code, &patched["spec"]["size"]), (200, &json!(4)));
    let (code, _) = admin
        .send(
            "PATCH",
            &path,
            "application/strategic-merge-patch+json",
            "{}",
        )
        .await;
    assert_eq!(code, 415);
    let (code, put) = admin.put(&path, widget("a", json!({"size": 5}))).await;
    assert_eq!(
        (code, &put["spec"]["size"], &put["status"]["phase"]),
        (200, &json!(5), &json!("Up"))
    );
}

#[tokio::test]
async fn fields_are_owned_along_the_schema_that_came() {
    let (_server, admin) = served().await;
    let apply = async |manager: &str, spec: Value| {
        let path = format!("{WIDGETS}/a?fieldManager={manager}");
        admin
            .send(
                "PATCH",
                &path,
                "application/apply-patch+yaml",
                widget("a", spec).to_string(),
            )
            .await
    };
    assert_eq!(
        apply(
            "one",
            json!({"size": 1, "parts": [{"name": "x", "count": 1}]})
        )
        .await
        .0,
        201
    );
    let (code, both) = apply(
        "two",
        json!({"size": 1, "parts": [{"name": "y", "count": 2}]}),
    )
    .await;
    assert_eq!(
        (code, both["spec"]["parts"].as_array().unwrap().len()),
        (200, 2),
        "{both}"
    );
    let (code, refused) = apply("two", json!({"size": 2})).await;
    assert_eq!(
        (code, &refused["details"]["causes"][0]["field"]),
        (409, &json!(".spec.size")),
        "{refused}"
    );
    // What one named and names no more goes; what is another's stays.
    let (_, left) = apply("one", json!({"size": 1})).await;
    assert_eq!(
        left["spec"]["parts"],
        json!([{"name": "y", "count": 2}]).clone(),
        "{left}"
    );
}

#[tokio::test]
async fn what_is_told_of_the_server_has_the_kind_as_long_as_it_is_served() {
    let (server, admin) = served().await;
    let document = "/openapi/v3/apis/example.org/v1";
    let told = async || {
        let (_, groups) = admin.get("/apis").await;
        let is_group = groups["groups"]
            .as_array()
            .unwrap()
            .iter()
            .any(|group| group["name"] == "example.org");
        let (_, index) = admin.get("/openapi/v3").await;
        let (_, v2) = admin.get("/openapi/v2").await;
        let is_in_v2 = v2["definitions"].get("org.example.v1.Widget").is_some();
        let is_in_v3 = index["paths"].get("apis/example.org/v1").is_some();
        [
            is_group,
            is_in_v2,
            is_in_v3,
            admin.get(document).await.0 == 200,
            admin.get(WIDGETS).await.0 == 200,
        ]
    };
    assert_eq!(told().await, [true; 5]);
    let (_, resources) = admin.get("/apis/example.org/v1").await;
    assert_eq!(resources["resources"][0]["shortNames"], json!(["wd"]));
    let (_, v3) = admin.get(document).await;
    let patch = &v3["paths"]["/apis/example.org/v1/namespaces/{namespace}/widgets/{name}"]["patch"];
    assert!(
        patch["requestBody"]["content"]
            .get("application/strategic-merge-patch+json")
            .is_none()
    );
    let schema = &v3["components"]["schemas"]["org.example.v1.Widget"];
    assert_eq!(
        schema["properties"]["spec"]["properties"]["size"]["description"],
        "How large it is."
    );
    custom_resources::withdraw(&server.state, "example.org", "widgets").await;
    assert_eq!(told().await, [false; 5]);
}

/// A watch of all widgets, as its lines.
async fn watch(admin: &Raw) -> impl futures::Stream<Item = Value> + Unpin {
    let answer = admin
        .response("GET", &format!("{WIDGETS}?watch=true"), "", "")
        .await;
    assert_eq!(answer.status(), 200);
    let bytes = http_body_util::BodyDataStream::new(answer.into_body());
    let lines = bytes.map_ok(|chunk| {
        let text = String::from_utf8_lossy(&chunk).into_owned();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect::<Vec<Value>>()
    });
    Box::pin(lines.flat_map(|lines| futures::stream::iter(lines.unwrap())))
}

async fn within<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(10), what)
        .await
        .expect("it happens in time")
}

#[tokio::test]
async fn a_kind_that_changes_or_goes_ends_its_watches() {
    let (server, admin) = served().await;
    admin.post(WIDGETS, widget("a", json!({"size": 1}))).await;
    let mut events = watch(&admin).await;
    let pods = admin
        .response("GET", "/api/v1/pods?watch=true", "", "")
        .await;
    let mut pods = http_body_util::BodyDataStream::new(pods.into_body());
    assert_eq!(
        within(events.next()).await.unwrap()["object"]["metadata"]["name"],
        "a"
    );
    custom_resources::serve(
        &server.state,
        widgets(json!({"colour": {"type": "string"}})),
    )
    .await
    .unwrap();
    assert!(within(events.next()).await.is_none(), "it ends");
    // Its objects are there, and what is new is known.
    let (code, made) = admin
        .merge(&format!("{WIDGETS}/a"), json!({"spec": {"colour": "red"}}))
        .await;
    assert_eq!((code, &made["spec"]["colour"]), (200, &json!("red")));
    let mut events = watch(&admin).await;
    assert_eq!(
        within(events.next()).await.unwrap()["object"]["spec"]["colour"],
        "red"
    );
    custom_resources::withdraw(&server.state, "example.org", "widgets").await;
    assert!(within(events.next()).await.is_none(), "it ends");
    let (code, answer) = admin.get(&format!("{WIDGETS}/a")).await;
    assert_eq!(
        (code, &answer["message"]),
        (
            404,
            &json!("the server could not find the requested resource")
        )
    );
    assert!(futures::poll!(pods.next()).is_pending(), "others go on");
    // It comes again with what it had.
    custom_resources::serve(&server.state, widgets(json!({})))
        .await
        .unwrap();
    assert_eq!(admin.get(&format!("{WIDGETS}/a")).await.0, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_go_on_while_kinds_come_and_go() {
    let (server, admin) = served().await;
    let done = AtomicBool::new(false);
    let built_in = async {
        let mut count = 0;
        while !done.load(Ordering::Relaxed) {
            let name = format!("m{count}");
            let (code, made) = admin.post(CONFIG_MAPS, config_map(&name)).await;
            assert_eq!(code, 201, "{made}");
            assert_eq!(
                admin.get(&format!("{CONFIG_MAPS}/{name}")).await.0,
                200,
                "one reads one's own writes"
            );
            count += 1;
        }
        count
    };
    let custom = async {
        let mut codes = [0; 2];
        let mut count = 0;
        while !done.load(Ordering::Relaxed) {
            let name = format!("w{count}");
            let (code, made) = admin.post(WIDGETS, widget(&name, json!({"size": 1}))).await;
            assert!(matches!(code, 201 | 404), "{code} {made}");
            codes[usize::from(code == 404)] += 1;
            let (code, found) = admin.get(&format!("{WIDGETS}/{name}")).await;
            assert!(matches!(code, 200 | 404), "{code} {found}");
            count += 1;
        }
        codes
    };
    let changes = async {
        for round in 0..40 {
            if round % 4 == 3 {
                custom_resources::withdraw(&server.state, "example.org", "widgets").await;
            } else {
                custom_resources::serve(
                    &server.state,
                    widgets(json!({"more": {"type": "string"}})),
                )
                .await
                .unwrap();
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        custom_resources::serve(&server.state, widgets(json!({})))
            .await
            .unwrap();
        done.store(true, Ordering::Relaxed);
    };
    let (made, [served, absent], ()) = tokio::join!(built_in, custom, changes);
    assert!(made > 0 && served > 0, "{made} {served} {absent}");
    // Whatever was answered 201 is there.
    let (_, list) = admin.get(WIDGETS).await;
    assert_eq!(list["items"].as_array().unwrap().len(), served);
}

#[tokio::test]
async fn names_of_built_in_resources_are_not_given_away() {
    let (server, admin) = served().await;
    for (group, plural) in [
        ("apps", "deployments"),
        ("metrics.k8s.io", "pods"),
        ("", "pods"),
    ] {
        let info = ApiResource::new(group, "v1", "Thing", plural);
        let refused = custom_resources::serve(
            &server.state,
            CustomResource {
                info,
                ..widgets(json!({}))
            },
        )
        .await;
        assert_eq!(
            refused.err().map(|status| status.code),
            Some(409),
            "{plural}.{group}"
        );
    }
    // The same plural in another group is another resource.
    let info = ApiResource::new("example.org", "v1", "Node", "nodes");
    custom_resources::serve(
        &server.state,
        CustomResource {
            info,
            ..widgets(json!({}))
        },
    )
    .await
    .unwrap();
    let (_, nodes) = admin.get("/api/v1/nodes").await;
    assert_eq!(nodes["kind"], "NodeList");
    let (code, made) = admin
        .post(
            "/apis/example.org/v1/namespaces/default/nodes",
            json!({"metadata": {"name": "n"}, "spec": {"size": 1}}),
        )
        .await;
    assert_eq!(
        (code, &made["apiVersion"]),
        (201, &json!("example.org/v1")),
        "{made}"
    );
    custom_resources::withdraw(&server.state, "", "pods").await;
    assert_eq!(
        admin.get("/api/v1/pods").await.0,
        200,
        "what is built in stays"
    );
}
