//! Events are forgotten an hour after they were last seen: else they would fill the store. One of
//! several servers does it.
//!
//! Source: `--event-ttl` of kube-apiserver; there etcd's leases do it.

use std::{sync::Arc, time::Duration};

use coracle_api::meta;
use coracle_registry::{
    resource::Resource,
    store::delete::DeleteOptions,
    watch_cache::{Entry, KeyScope, ListRequest, Selection},
};
use jiff::Timestamp;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::state::State;

const PERIOD: Duration = Duration::from_secs(300);
const LIFETIME: Duration = Duration::from_secs(3600);

/// Deletes what is too old, until `stop` or until `server` stops.
pub(crate) async fn run(server: Arc<State>, stop: CancellationToken) {
    let Some(events) = server.registry.core("events").cloned() else {
        return;
    };
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = server.shutdown.cancelled() => return,
            () = tokio::time::sleep(PERIOD) => {}
        }
        let Ok(oldest) = Timestamp::now().checked_sub(LIFETIME) else {
            continue;
        };
        sweep(&server, &events, oldest).await;
    }
}

async fn sweep(server: &State, events: &Resource, oldest: Timestamp) {
    let all = events
        .cache
        .list(&ListRequest::all(Selection::of(KeyScope::Resource)));
    for entry in all.map(|all| all.entries).unwrap_or_default() {
        if last_seen(&entry).is_none_or(|seen| seen >= oldest) {
            continue;
        }
        // Seen again meanwhile: it stays.
        let options = DeleteOptions {
            resource_version: Some(entry.revision().to_string()),
            ..DeleteOptions::default()
        };
        let namespace = entry.namespace().unwrap_or_default();
        match server
            .store
            .delete(events, namespace, entry.name(), &options)
            .await
        {
            Ok(_) => {}
            Err(status) if matches!(status.code, 404 | 409) => {}
            Err(status) => return tracing::warn!(error = %status, "cannot delete old events"),
        }
    }
}

fn last_seen(entry: &Entry) -> Option<Timestamp> {
    let event: Value = serde_json::from_slice(&entry.unmanaged()).ok()?;
    let paths: [&[&str]; 4] = [
        &["metadata", "creationTimestamp"],
        &["lastTimestamp"],
        &["series", "lastObservedTime"],
        &["eventTime"],
    ];
    paths
        .into_iter()
        .filter_map(|path| meta::parse_time(meta::get_str(&event, path)))
        .max()
}

#[cfg(test)]
mod tests {
    use coracle_registry::store::WriteOptions;
    use serde_json::json;

    use super::*;
    use crate::testing;

    #[tokio::test]
    async fn events_go_an_hour_after_they_were_last_seen() {
        let server = Arc::clone(&testing::server().await.state);
        let events = server.registry.core("events").unwrap().clone();
        let event = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e", "namespace": "default"},
            "involvedObject": {"kind": "Pod", "namespace": "default", "name": "p"}});
        server
            .store
            .create(&events, "default", event, WriteOptions::default())
            .await
            .unwrap();
        server.store.cache.catch_up().await.unwrap();
        let now = Timestamp::now();
        sweep(
            &server,
            &events,
            now.checked_sub(Duration::from_secs(60)).unwrap(),
        )
        .await;
        assert_eq!(events.cache.len(), 1);
        sweep(
            &server,
            &events,
            now.checked_add(Duration::from_secs(60)).unwrap(),
        )
        .await;
        server.store.cache.catch_up().await.unwrap();
        assert_eq!(events.cache.len(), 0);
    }
}
