use std::time::Duration;

use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::{Value, json};

use super::raw::{CONFIG_MAPS, Raw, admin, config_map, grow_old};

/// Events of one watch.
pub(super) struct Events {
    body: Body,
    rest: Vec<u8>,
}

impl Events {
    async fn open(raw: &Raw, query: &str) -> Self {
        Self::at(raw, &format!("{CONFIG_MAPS}?watch=true&{query}")).await
    }

    pub(super) async fn at(raw: &Raw, path: &str) -> Self {
        Self::accepting(raw, path, "application/json").await
    }

    pub(super) async fn accepting(raw: &Raw, path: &str, accept: &str) -> Self {
        let request = http::Request::get(path).header("accept", accept);
        let request = request.body(Body::empty()).unwrap();
        let response = raw.0.send(request).await.unwrap();
        assert_eq!(response.status(), 200);
        Self {
            body: response.into_body(),
            rest: Vec::new(),
        }
    }

    /// The next event; `None` at the end of the stream.
    pub(super) async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).unwrap());
            }
            let frame = tokio::time::timeout(Duration::from_secs(600), self.body.frame())
                .await
                .expect("an event")?;
            self.rest
                .extend_from_slice(&frame.unwrap().into_data().unwrap());
        }
    }

    pub(super) async fn expect(&mut self, kind: &str, name: &str) -> Value {
        let event = self.next().await.unwrap();
        assert_eq!(
            (&event["type"], &event["object"]["metadata"]["name"]),
            (&json!(kind), &json!(name)),
            "{event}"
        );
        event
    }
}

#[tokio::test]
async fn watch_goes_on_where_a_list_ended() {
    let raw = admin().await;
    raw.post(CONFIG_MAPS, config_map("old")).await;
    let (_, list) = raw.get(CONFIG_MAPS).await;
    let version = list["metadata"]["resourceVersion"].as_str().unwrap();
    let mut events = Events::open(&raw, &format!("resourceVersion={version}")).await;
    raw.post(CONFIG_MAPS, config_map("x")).await;
    raw.merge(&format!("{CONFIG_MAPS}/x"), json!({"data": {"n": "1"}}))
        .await;
    raw.delete(&format!("{CONFIG_MAPS}/x"), json!({})).await;
    let added = events.expect("ADDED", "x").await;
    events.expect("MODIFIED", "x").await;
    events.expect("DELETED", "x").await;
    let version = added["object"]["metadata"]["resourceVersion"]
        .as_str()
        .unwrap();
    let mut resumed = Events::open(&raw, &format!("resourceVersion={version}")).await;
    resumed.expect("MODIFIED", "x").await;
    resumed.expect("DELETED", "x").await;
}

#[tokio::test]
async fn watch_without_version_starts_with_what_is_there() {
    let raw = admin().await;
    raw.post(CONFIG_MAPS, config_map("x")).await;
    let mut events = Events::open(&raw, "resourceVersion=0").await;
    events.expect("ADDED", "x").await;
    raw.post(CONFIG_MAPS, config_map("y")).await;
    events.expect("ADDED", "y").await;
}

#[tokio::test]
async fn watch_list_ends_its_initial_events_with_a_bookmark() {
    let raw = admin().await;
    for name in ["x", "y"] {
        raw.post(CONFIG_MAPS, config_map(name)).await;
    }
    let query = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut events = Events::open(&raw, query).await;
    events.expect("ADDED", "x").await;
    events.expect("ADDED", "y").await;
    let bookmark = events.next().await.unwrap();
    assert_eq!(bookmark["type"], "BOOKMARK");
    assert_eq!(
        bookmark["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"],
        "true"
    );
    assert_eq!(bookmark["object"]["kind"], "ConfigMap");
}

#[tokio::test]
async fn selection_turns_changes_into_arrivals_and_departures() {
    let raw = admin().await;
    let mut events = Events::open(&raw, "labelSelector=in%3Dyes").await;
    raw.post(CONFIG_MAPS, config_map("x")).await;
    let path = format!("{CONFIG_MAPS}/x");
    raw.merge(&path, json!({"metadata": {"labels": {"in": "yes"}}}))
        .await;
    raw.merge(&path, json!({"metadata": {"labels": {"in": "no"}}}))
        .await;
    events.expect("ADDED", "x").await;
    events.expect("DELETED", "x").await;
}

#[tokio::test]
async fn watch_too_old_says_expired() {
    let raw = admin().await;
    for round in 0..9000 {
        if round == 8999 {
            grow_old().await;
        }
        raw.merge(
            &format!("{CONFIG_MAPS}/x"),
            json!({"data": {"n": round.to_string()}}),
        )
        .await;
        if round == 0 {
            raw.post(CONFIG_MAPS, config_map("x")).await;
        }
    }
    let mut events = Events::open(&raw, "resourceVersion=1").await;
    let event = events.next().await.unwrap();
    assert_eq!(
        (&event["type"], &event["object"]["code"]),
        (&json!("ERROR"), &json!(410))
    );
    assert_eq!(
        event["object"]["message"],
        "The resourceVersion for the provided watch is too old."
    );
}

#[tokio::test(start_paused = true)]
async fn bookmarks_come_every_minute_and_time_runs_out() {
    let raw = admin().await;
    let mut events = Events::open(&raw, "allowWatchBookmarks=true&timeoutSeconds=90").await;
    let first = events.next().await.unwrap();
    assert_eq!(first["type"], "BOOKMARK");
    let last = events.next().await.unwrap();
    assert_eq!(last["type"], "BOOKMARK");
    assert!(events.next().await.is_none());
}
