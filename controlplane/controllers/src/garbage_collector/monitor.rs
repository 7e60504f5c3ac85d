//! Watches the metadata ([`Seen`]) of every served kind that no informer feeds, one task a kind.

use std::{collections::HashMap, sync::Arc, time::Duration};

use coracle_client::reflector::{Event, Reflector, Selection};
use coracle_telemetry::Backoff;
use kube::Api;
use tokio::{sync, task::JoinSet, time::Instant};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::{GarbageCollector, Known, Listed, Uid, seen::Seen};
use crate::{
    controller::{CallContext, ReconcileError},
    removals::Gone,
    served_kinds::{GroupKind, ServedKind},
};

/// First and longest pause between attempts to watch.
const RETRY_FIRST: Duration = Duration::from_millis(100);
const RETRY_CAP: Duration = Duration::from_secs(30);
/// How often it is looked whether all kinds are listed, at the start.
const LOOK_PERIOD: Duration = Duration::from_millis(20);
/// When a discovery that failed is tried again.
const DISCOVERY_RETRY: Duration = Duration::from_secs(1);

/// Keeps one watch a kind, for kinds that come and go, until `shutdown`.
pub(super) async fn run(collector: Arc<GarbageCollector>, shutdown: CancellationToken) {
    let mut tasks = JoinSet::new();
    let mut watched: HashMap<GroupKind, CancellationToken> = HashMap::new();
    let mut ticks = tokio::time::interval(collector.discovery_period);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = shutdown.cancelled() => break,
            _ = ticks.tick() => {}
            Some(ended) = tasks.join_next(), if !tasks.is_empty() => {
                // A graph without one kind would be wrong about all others: the part starts anew.
                ended.expect("a monitor panicked");
                continue;
            }
        }
        if let Err(error) = collector.kinds.refresh().await {
            warn!(error = &error as &dyn std::error::Error, "discovery failed");
            ticks.reset_after(collector.discovery_period.min(DISCOVERY_RETRY));
            continue;
        }
        let wanted = wanted(&collector);
        watched.retain(|key, stop| {
            let stays = wanted.contains_key(key);
            if !stays {
                stop.cancel();
                collector.monitored.lock().remove(key);
            }
            stays
        });
        for (key, kind) in wanted {
            watched.entry(key.clone()).or_insert_with(|| {
                let stop = shutdown.child_token();
                let listed = sync::watch::Sender::new(false);
                collector.monitored.lock().insert(key, listed.subscribe());
                let watching = watch(collector.clone(), kind, listed, stop.clone());
                coracle_telemetry::spawn_in(&mut tasks, "watch a kind", watching);
                stop
            });
        }
    }
    tasks.shutdown().await;
}

/// The served kinds whose objects may own or be owned and that no informer feeds.
fn wanted(collector: &GarbageCollector) -> HashMap<GroupKind, Arc<ServedKind>> {
    let kinds = collector.kinds.all().into_iter();
    let fed = collector.fed.lock();
    kinds
        .filter(|kind| kind.deletable && kind.watchable && kind.resource.kind != "Event")
        .map(|kind| {
            (
                (kind.resource.group.clone(), kind.resource.kind.clone()),
                kind,
            )
        })
        .filter(|(key, _)| !fed.contains_key(key))
        .collect()
}

/// The kinds that are served and not in the graph yet; `None` before the first discovery.
fn unlisted(collector: &GarbageCollector) -> Option<Vec<String>> {
    let wanted = wanted(collector);
    if wanted.is_empty() {
        return None;
    }
    let (fed, monitored) = (collector.fed.lock(), collector.monitored.lock());
    let is_listed = |listed: Option<&Listed>| listed.is_some_and(|listed| *listed.borrow());
    let fed = fed
        .iter()
        .filter(|(_, listed)| !is_listed(Some(listed)))
        .map(|(key, _)| key);
    let monitored = wanted.keys().filter(|key| !is_listed(monitored.get(*key)));
    Some(
        fed.chain(monitored)
            .map(|(group, kind)| format!("{kind}.{group}"))
            .collect(),
    )
}

/// Returns once every kind has been listed, or after the time that this may take.
pub(super) async fn wait_for_sync(collector: &GarbageCollector) {
    let end = Instant::now() + collector.initial_sync_timeout;
    loop {
        let unlisted = unlisted(collector);
        if unlisted.as_ref().is_some_and(Vec::is_empty) {
            return;
        }
        if Instant::now() >= end {
            warn!(kinds = ?unlisted, "not all resource monitors could be synced, proceeding anyways");
            return;
        }
        tokio::time::sleep(LOOK_PERIOD).await;
    }
}

/// Whether the graph has every kind that is served at this moment.
///
/// # Errors
/// The kinds that it lacks, or that the server does not say which there are: try again.
pub(super) async fn every_kind_is_known(
    collector: &GarbageCollector,
) -> Result<(), ReconcileError> {
    collector
        .kinds
        .refresh()
        .await
        .during("discover the served kinds")?;
    match unlisted(collector) {
        Some(unlisted) if unlisted.is_empty() => Ok(()),
        unlisted => Err(ReconcileError::Awaited(format!(
            "not listed yet: {}",
            unlisted.unwrap_or_default().join(", ")
        ))),
    }
}

async fn watch(
    collector: Arc<GarbageCollector>,
    kind: Arc<ServedKind>,
    listed: sync::watch::Sender<bool>,
    stop: CancellationToken,
) {
    let api: Api<Seen> = Api::all_with(collector.client.clone(), &kind.resource);
    let mut events = Reflector::new(api, Selection::all());
    let mut known = Known::new();
    let mut listing: Option<Known> = None;
    let mut retry = Backoff::new(RETRY_FIRST, RETRY_CAP);
    loop {
        let event = tokio::select! {
            () = stop.cancelled() => break,
            event = events.next() => event,
        };
        let event = match event {
            Ok(event) => event,
            Err(error) => {
                debug!(kind = %kind.resource.kind, error = &error as &dyn std::error::Error, "watch failed, trying again");
                tokio::select! {
                    () = stop.cancelled() => break,
                    () = tokio::time::sleep(retry.pause()) => {}
                }
                continue;
            }
        };
        if let Event::Init = event {
            listing = Some(Known::new());
            continue;
        }
        retry.reset();
        match event {
            Event::Init | Event::Progress(_) => {}
            Event::InitApply(object) | Event::Apply(object) => {
                collector.observed(&kind.resource.group, &kind.resource.kind, &object.metadata);
                let uid: Uid = object.metadata.uid.as_deref().unwrap_or_default().into();
                listing.as_mut().unwrap_or(&mut known).insert(uid);
            }
            Event::InitDone => {
                let fresh = listing.take().unwrap_or_default();
                let before = std::mem::replace(&mut known, fresh);
                before
                    .difference(&known)
                    .for_each(|uid| collector.removed(uid));
                listed.send_replace(true);
                collector.removals.tell(Gone::Unseen);
            }
            Event::Delete(object) => {
                let uid = object.metadata.uid.as_deref().unwrap_or_default();
                known.remove(uid);
                collector.deleted(uid);
            }
        }
    }
    // A kind that is served no more has no objects.
    if !stop.is_cancelled()
        || collector
            .kinds
            .get(&kind.resource.group, &kind.resource.kind)
            .is_none()
    {
        known.iter().for_each(|uid| collector.removed(uid));
    }
}
