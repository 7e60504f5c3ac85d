//! The end of a kind, as those see it who watch its objects.

use std::time::Duration;

use coracle_store::{Op, Txn};
use futures::StreamExt as _;
use serde_json::json;

use super::{DEFINITIONS, WIDGETS, cluster, definition, established, has, memory, until, widget};

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

#[tokio::test]
async fn a_definition_that_is_not_served_does_not_go_before_its_objects() {
    let backend = memory();
    let cluster = cluster(&backend).await;
    let admin = &cluster.admin;
    let mut other = definition(json!({"type": "integer"}));
    other["metadata"]["name"] = "gadgets.example.org".into();
    other["spec"]["names"] = json!({"plural": "gadgets", "kind": "Widget"});
    established(&cluster, other).await;
    let write = async |op: Op| {
        let txn = Txn {
            ops: vec![op],
            ..Txn::default()
        };
        backend.txn(txn).await.unwrap();
    };
    let key = || "/registry/example.org/widgets/default/a".into();
    let value = "{}".into();
    write(Op::Put { key: key(), value }).await;
    let (code, made) = admin
        .post(DEFINITIONS, definition(json!({"type": "integer"})))
        .await;
    assert_eq!(code, 201, "{made}");
    let path = format!("{DEFINITIONS}/widgets.example.org");
    until(admin, &path, |_, now| has(now, "NamesAccepted", "False")).await;
    assert_eq!(admin.delete(&path, json!({})).await.0, 200);
    until(admin, &path, |_, now| {
        now.to_string().contains("InstanceDeletionFailed")
    })
    .await;
    write(Op::Delete { key: key() }).await;
    until(admin, &path, |code, _| code == 404).await;
}
