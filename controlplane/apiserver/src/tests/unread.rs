//! Watches that nobody reads: what is held for them is little, and nobody else misses anything.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Empty};
use hyper::{body::Incoming, client::conn::http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};

use super::{
    connections::connect,
    raw::{CONFIG_MAPS, Raw},
};
use crate::testing::{self, Listening};

const CONNECTIONS: usize = 2;
/// As many as a connection has.
const STREAMS: usize = 100;
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
/// Nobody waits so long unless something is stuck.
const DEADLINE: Duration = Duration::from_secs(60);
/// What all watches together may take: a tenth of what they are told.
const BOUND_KB: u64 = 40 * 1024;

/// An object of some 700 KB, each time another.
fn large(round: usize) -> Value {
    let data = "x".repeat(200 * 1024);
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "large", "annotations": {"note": data}},
        "data": {"round": round.to_string(), "more": format!("{data}{data}")},
    })
}

/// What this process has in memory that is no file.
fn anonymous_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok())
        .unwrap()
}

/// Somebody who may read everything, and nothing else.
async fn viewer(listening: &Listening) -> Vec<http2::SendRequest<Empty<Bytes>>> {
    let admin = Raw(listening
        .server
        .client(coracle_auth::user::UserInfo::master("admin")));
    let (code, answer) = admin
        .post(
            "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
            json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
                "metadata": {"name": "viewer"},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
                "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "viewer"}],
            }),
        )
        .await;
    assert_eq!(code, 201, "{answer}");
    let pki = Arc::clone(&listening.server.state.config.pki);
    let identity = pki.issue_client("viewer", "viewers").unwrap();
    let mut senders = Vec::new();
    for _ in 0..CONNECTIONS {
        let stream = connect(listening, Some(&identity), "h2").await;
        // A client that takes a byte of each answer, and no more.
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .initial_stream_window_size(1)
            .handshake(TokioIo::new(stream))
            .await
            .unwrap();
        coracle_telemetry::spawn("task of a test", connection);
        senders.push(sender);
    }
    senders
}

/// Watches that are begun and not read.
async fn unread(
    senders: &mut [http2::SendRequest<Empty<Bytes>>],
    listening: &Listening,
    accept: &str,
    version: &str,
) -> Vec<Response<Incoming>> {
    let uri = format!(
        "https://{}{CONFIG_MAPS}?watch=true&includeObject=Object&resourceVersion={version}",
        listening.address
    );
    let mut watches = Vec::new();
    for sender in senders {
        for _ in 0..STREAMS {
            let request = Request::get(&uri).header("accept", accept);
            let answer = sender.send_request(request.body(Empty::new()).unwrap());
            let answer = tokio::time::timeout(DEADLINE, answer).await;
            let answer = answer.expect("an answer").unwrap();
            assert_eq!(answer.status(), 200);
            watches.push(answer);
        }
    }
    watches
}

/// Reads a watch until it has seen `events`.
async fn follow(mut body: kube::client::Body, events: usize) {
    let mut seen = 0;
    while seen < events {
        let frame = tokio::time::timeout(DEADLINE, body.frame()).await;
        let data = frame.expect("an event").unwrap().unwrap().into_data();
        seen += data.unwrap().iter().filter(|byte| **byte == b'\n').count();
    }
}

/// How much memory grows by watches that nobody reads, while a large object is written and somebody
/// else reads it.
async fn growth_kb(accept: &str, version: &str) -> u64 {
    let listening = testing::listen(testing::server().await).await;
    let admin = Raw(listening
        .server
        .client(coracle_auth::user::UserInfo::master("admin")));
    let (code, made) = admin.post(CONFIG_MAPS, large(0)).await;
    assert_eq!(code, 201);
    let now = made["metadata"]["resourceVersion"].as_str().unwrap();
    let version = if version.is_empty() { now } else { version };
    let mut senders = viewer(&listening).await;
    let read = admin
        .response(
            "GET",
            &format!("{CONFIG_MAPS}?watch=true&resourceVersion={now}"),
            "",
            "",
        )
        .await;
    let before = anonymous_kb();
    let watches = unread(&mut senders, &listening, accept, version).await;
    let (rounds, path) = (8, format!("{CONFIG_MAPS}/large"));
    let write = async {
        for round in 1..=rounds {
            assert_eq!(admin.put(&path, large(round)).await.0, 200);
        }
    };
    tokio::join!(write, follow(read.into_body(), rounds));
    let growth = anonymous_kb().saturating_sub(before);
    drop((watches, senders));
    growth
}

#[tokio::test(flavor = "multi_thread")]
async fn events_that_nobody_reads_take_little_memory() {
    let growth = growth_kb("application/json", "").await;
    assert!(growth < BOUND_KB, "{growth} kB");
}

#[tokio::test(flavor = "multi_thread")]
async fn beginnings_that_nobody_reads_take_little_memory() {
    let growth = growth_kb("application/json", "0").await;
    assert!(growth < BOUND_KB, "{growth} kB");
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_nobody_reads_take_little_memory() {
    let growth = growth_kb(TABLE, "").await;
    assert!(growth < BOUND_KB, "{growth} kB");
}
