//! Watches the metadata ([`Seen`]) of every served kind that no informer feeds, one task a kind.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use kube::Api;
use kube::runtime::watcher::{self, Event, watcher};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::seen::Seen;
use super::{GarbageCollector, Known, Uid};
use crate::served_kinds::ServedKind;

/// Longest pause between attempts to watch.
const RETRY_CAP: Duration = Duration::from_secs(30);

/// Keeps one watch a kind, for kinds that come and go, until `shutdown`.
pub(super) async fn run(collector: Arc<GarbageCollector>, shutdown: CancellationToken) {
    let mut tasks = JoinSet::new();
    let mut watched: HashMap<(String, String), CancellationToken> = HashMap::new();
    let mut ticks = tokio::time::interval(collector.discovery_period);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = shutdown.cancelled() => break,
            _ = ticks.tick() => {}
        }
        if let Err(error) = collector.kinds.refresh().await {
            warn!(error = &error as &dyn std::error::Error, "discovery failed");
            continue;
        }
        let wanted: HashMap<(String, String), Arc<ServedKind>> = collector
            .kinds
            .all()
            .into_iter()
            .filter(|kind| kind.deletable && kind.watchable && kind.resource.kind != "Event")
            .map(|kind| ((kind.resource.group.clone(), kind.resource.kind.clone()), kind))
            .filter(|(key, _)| !collector.fed.lock().contains(key))
            .collect();
        watched.retain(|key, stop| {
            let stays = wanted.contains_key(key);
            if !stays {
                stop.cancel();
            }
            stays
        });
        for (key, kind) in wanted {
            watched.entry(key).or_insert_with(|| {
                let stop = shutdown.child_token();
                tasks.spawn(watch(collector.clone(), kind, stop.clone()));
                stop
            });
        }
    }
    tasks.shutdown().await;
}

async fn watch(collector: Arc<GarbageCollector>, kind: Arc<ServedKind>, stop: CancellationToken) {
    let api: Api<Seen> = Api::all_with(collector.client.clone(), &kind.resource);
    let mut events = std::pin::pin!(watcher(api, watcher::Config::default().streaming_lists()));
    let mut known = Known::new();
    let mut listing: Option<Known> = None;
    let mut pause = Duration::from_millis(100);
    loop {
        let event = tokio::select! {
            () = stop.cancelled() => break,
            event = events.next() => event,
        };
        let event = match event {
            Some(Ok(event)) => event,
            Some(Err(error)) => {
                debug!(kind = %kind.resource.kind, error = &error as &dyn std::error::Error, "watch failed, trying again");
                tokio::select! {
                    () = stop.cancelled() => break,
                    () = tokio::time::sleep(pause) => {}
                }
                pause = (pause * 2).min(RETRY_CAP);
                continue;
            }
            None => break,
        };
        pause = Duration::from_millis(100);
        match event {
            Event::Init => listing = Some(Known::new()),
            Event::InitApply(object) | Event::Apply(object) => {
                collector.observed(&kind.resource.group, &kind.resource.kind, &object.metadata);
                let uid: Uid = object.metadata.uid.as_deref().unwrap_or_default().into();
                listing.as_mut().unwrap_or(&mut known).insert(uid);
            }
            Event::InitDone => {
                let fresh = listing.take().unwrap_or_default();
                let before = std::mem::replace(&mut known, fresh);
                before.difference(&known).for_each(|uid| collector.removed(uid));
            }
            Event::Delete(object) => {
                let uid = object.metadata.uid.as_deref().unwrap_or_default();
                known.remove(uid);
                collector.removed(uid);
            }
        }
    }
    // A kind that is served no more has no objects.
    if !stop.is_cancelled() || collector.kinds.get(&kind.resource.group, &kind.resource.kind).is_none() {
        known.iter().for_each(|uid| collector.removed(uid));
    }
}
