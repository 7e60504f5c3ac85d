use coracle_auth::user::UserInfo;
use serde_json::json;

use crate::testing;

async fn text(server: &std::sync::Arc<crate::ApiServer>) -> String {
    let request = http::Request::get("/metrics").body(Vec::new()).unwrap();
    server
        .client(UserInfo::master("test"))
        .request_text(request)
        .await
        .unwrap()
}

#[tokio::test]
async fn requests_are_counted_by_what_is_served() {
    let server = testing::server().await;
    let client = server.client(UserInfo::master("test"));
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}});
    let path = "/api/v1/namespaces/default/configmaps";
    let request = http::Request::post(path)
        .body(map.to_string().into_bytes())
        .unwrap();
    client.request_text(request).await.unwrap();
    for path in [
        "/api/v1/namespaces/default/configmaps/m",
        "/api/v1/namespaces/default/no-such-words/m",
    ] {
        let _ = client
            .request_text(http::Request::get(path).body(Vec::new()).unwrap())
            .await;
    }
    let text = text(&server).await;
    let has = |line: &str| {
        assert!(
            text.lines().any(|found| found == line),
            "no {line} in\n{text}"
        )
    };
    has("# TYPE apiserver_request_total counter");
    has(
        r#"apiserver_request_total{code="201",component="apiserver",dry_run="",group="",resource="configmaps",scope="namespace",subresource="",verb="POST",version="v1"} 1"#,
    );
    has(
        r#"apiserver_request_total{code="200",component="apiserver",dry_run="",group="",resource="configmaps",scope="resource",subresource="",verb="GET",version="v1"} 1"#,
    );
    has(
        r#"apiserver_request_duration_seconds_count{component="apiserver",group="",resource="configmaps",scope="namespace",subresource="",verb="POST",version="v1"} 1"#,
    );
    has(r#"apiserver_current_inflight_requests{request_kind="mutating"} 0"#);
    has(r#"apiserver_storage_objects{resource="configmaps"} 1"#);
    has("# TYPE etcd_request_duration_seconds histogram");
    has("# TYPE process_resident_memory_bytes gauge");
    assert!(!text.contains("no-such-words"), "{text}");
}

#[tokio::test]
async fn watchers_count_while_they_last() {
    let server = testing::server().await;
    let line = |count| {
        format!(r#"apiserver_registered_watchers{{group="",kind="Pod",version="v1"}} {count}"#)
    };
    let request = http::Request::get("/api/v1/pods?watch=true")
        .body(kube::client::Body::empty())
        .unwrap();
    let watch = server
        .client(UserInfo::master("test"))
        .send(request)
        .await
        .unwrap();
    let during = text(&server).await;
    assert!(during.contains(&line(1)), "{during}");
    drop(watch);
    let after = text(&server).await;
    assert!(after.contains(&line(0)), "{after}");
}
