//! The end of a kind, as those see it who watch its objects.

use std::time::Duration;

use futures::StreamExt as _;
use serde_json::json;

use super::{DEFINITIONS, WIDGETS, cluster, definition, established, memory, widget};

#[tokio::test]
async fn who_watches_sees_the_last_object_go() {
    let cluster = cluster(&memory()).await;
    let admin = &cluster.admin;
    established(&cluster, definition(json!({"type": "integer"}))).await;
    let (_, one) = admin.post(WIDGETS, widget("a", json!({"size": 1}))).await;
    let revision = one["metadata"]["resourceVersion"].as_str().unwrap();
    let path = format!("{WIDGETS}?watch=true&resourceVersion={revision}");
    let answer = admin.response("GET", &path, "", "").await;
    assert_eq!(answer.status(), 200);
    let chunks = http_body_util::BodyDataStream::new(answer.into_body());
    let lines = chunks.filter_map(|chunk| async { chunk.ok() });
    let lines = lines.map(|chunk| String::from_utf8_lossy(&chunk).into_owned());
    let path = format!("{DEFINITIONS}/widgets.example.org");
    assert_eq!(admin.delete(&path, json!({})).await.0, 200);
    let seen = tokio::time::timeout(Duration::from_secs(20), lines.collect::<Vec<_>>());
    let seen = seen.await.unwrap().concat();
    assert!(seen.contains(r#""type":"DELETED""#), "{seen}");
}
