//! Kinds as they come, change and go: what is told of them, their watches, and who else is served.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use coracle_registry::{api_resource::ApiResource, custom_resource::CustomResource};
use futures::StreamExt as _;
use http::Request;
use serde_json::json;

use super::{
    WIDGETS, WIDGETS_V2, served, serving, watch, widget, widgets, widgets_of_two_versions, within,
};
use crate::{
    custom_resources,
    tests::raw::{CONFIG_MAPS, Raw, config_map},
};

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

#[tokio::test]
async fn what_documents_have_of_a_kind_is_kept_while_it_is_the_same() {
    let (server, _) = served().await;
    let pieces = || {
        let catalog = server.state.catalog.now();
        let mut all = catalog.published.resources.iter();
        let found = all.find(|shown| shown.info.is("example.org", "widgets"));
        Arc::clone(&found.unwrap().pieces)
    };
    let before = pieces();
    let other = CustomResource {
        info: ApiResource::new("example.org", "", "Node", "nodes"),
        ..widgets(json!({}))
    };
    custom_resources::serve(&server.state, other).await.unwrap();
    assert!(Arc::ptr_eq(&before, &pieces()), "another one came");
    custom_resources::serve(&server.state, widgets(json!({})))
        .await
        .unwrap();
    assert!(!Arc::ptr_eq(&before, &pieces()), "it is served anew");
}

/// Code and tag of the aggregated document of all groups, for who has one with the tag `known`.
async fn aggregated(admin: &Raw, known: &str) -> (u16, String) {
    let request = Request::get("/apis")
        .header(
            "accept",
            "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
        )
        .header("if-none-match", known)
        .body(kube::client::Body::empty());
    let answer = admin.0.send(request.unwrap()).await.unwrap();
    let headers = answer.headers();
    assert_eq!(headers["cache-control"], "public");
    assert_eq!(headers["vary"], "Accept");
    let tag = headers["etag"].to_str().unwrap().to_owned();
    let code = answer.status().as_u16();
    let body = answer.into_body().collect_bytes().await.unwrap();
    assert_eq!(body.is_empty(), code == 304);
    (code, tag)
}

#[tokio::test]
async fn who_knows_the_groups_is_told_of_them_anew_only_as_they_change() {
    let (server, admin) = served().await;
    let (code, tag) = aggregated(&admin, "").await;
    assert_eq!(code, 200);
    assert_eq!(aggregated(&admin, &tag).await, (304, tag.clone()));
    let kind = widgets_of_two_versions(json!({}));
    custom_resources::serve(&server.state, kind).await.unwrap();
    let (code, other) = aggregated(&admin, &tag).await;
    assert_eq!(code, 200);
    assert_ne!(other, tag);
    custom_resources::serve(&server.state, widgets(json!({})))
        .await
        .unwrap();
    assert_eq!(aggregated(&admin, &tag).await, (304, tag));
}

#[tokio::test]
async fn a_kind_that_changes_or_goes_ends_its_watches() {
    let (server, admin) = served().await;
    admin.post(WIDGETS, widget("a", json!({"size": 1}))).await;
    let mut events = watch(&admin, WIDGETS).await;
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
    let mut events = watch(&admin, WIDGETS).await;
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
    let (server, admin) = serving(widgets_of_two_versions(json!({}))).await;
    let done = AtomicBool::new(false);
    let changes = async {
        let more = json!({"more": {"type": "string"}});
        for round in 0..40 {
            if round % 4 == 3 {
                custom_resources::withdraw(&server.state, "example.org", "widgets").await;
            } else {
                let kind = widgets_of_two_versions(more.clone());
                custom_resources::serve(&server.state, kind).await.unwrap();
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let kind = widgets_of_two_versions(json!({}));
        custom_resources::serve(&server.state, kind).await.unwrap();
        done.store(true, Ordering::Relaxed);
    };
    let built_in = write_config_maps(&admin, &done);
    let custom = write_widgets(&admin, &done);
    let (made, [served, absent], ()) = tokio::join!(built_in, custom, changes);
    assert!(made > 0 && served > 0, "{made} {served} {absent}");
    // Whatever was answered 201 is there, in each version.
    for path in [WIDGETS, WIDGETS_V2] {
        let (_, list) = admin.get(path).await;
        assert_eq!(list["items"].as_array().unwrap().len(), served, "{path}");
    }
}

/// Makes and reads objects of a built-in kind until it is `done`; how many.
async fn write_config_maps(admin: &Raw, done: &AtomicBool) -> usize {
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
}

/// The same with the kind that comes and goes, written in both versions by turns, and read in the
/// other: how many were made, and how often there was no such kind.
async fn write_widgets(admin: &Raw, done: &AtomicBool) -> [usize; 2] {
    let mut codes = [0; 2];
    let mut paths = [(WIDGETS, "v1"), (WIDGETS_V2, "v2")];
    let mut count = 0;
    while !done.load(Ordering::Relaxed) {
        let name = format!("w{count}");
        let [(written, version), (read, _)] = paths;
        let mut object = widget(&name, json!({"size": 1}));
        object["apiVersion"] = format!("example.org/{version}").into();
        let (code, made) = admin.post(written, object).await;
        assert!(matches!(code, 201 | 404), "{code} {made}");
        codes[usize::from(code == 404)] += 1;
        let (code, found) = admin.get(&format!("{read}/{name}")).await;
        assert!(matches!(code, 200 | 404), "{code} {found}");
        paths.reverse();
        count += 1;
    }
    codes
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
