//! The watches that feed the scheduler: Pods and Nodes, as one stream of closed events.
//!
//! A relist sends every object again and then the set of those that exist, so that what vanished meanwhile goes.

use std::{collections::HashSet, fmt::Debug, time::Instant};

use coracle_telemetry::Chain;
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::{
    api::core::v1::{Node, Pod},
    serde::de::DeserializeOwned,
};
use kube::{
    Api, Client, Resource, ResourceExt,
    runtime::{WatchStreamExt, watcher},
};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::pod_info::{PodInfo, PodUid};

/// What the scheduler reacts to.
#[derive(Debug)]
pub(crate) enum SyncEvent {
    /// A pod is new or has changed.
    PodApplied(Box<PodInfo>),
    /// A pod is gone.
    PodDeleted(PodUid),
    /// These pods existed when the list was begun, and no others.
    PodsListed { existing: HashSet<PodUid>, begun: Instant },
    /// A node is new or has changed.
    NodeApplied(Box<Node>),
    /// A node is gone.
    NodeDeleted(String),
    /// These nodes exist, and no others.
    NodesListed(HashSet<String>),
}

/// Follows pods until `shutdown`.
pub(crate) async fn follow_pods(client: Client, events: mpsc::Sender<SyncEvent>, shutdown: CancellationToken) {
    let (mut listed, mut begun) = (HashSet::new(), Instant::now());
    let step = move |event: watcher::Event<Pod>| match event {
        watcher::Event::Init => {
            listed.clear();
            // Before the request is sent.
            begun = Instant::now();
            None
        }
        watcher::Event::InitApply(pod) => {
            let info = PodInfo::new(&pod)?;
            listed.insert(info.uid.clone());
            Some(SyncEvent::PodApplied(Box::new(info)))
        }
        watcher::Event::Apply(pod) => Some(SyncEvent::PodApplied(Box::new(PodInfo::new(&pod)?))),
        watcher::Event::Delete(pod) => Some(SyncEvent::PodDeleted(PodUid(pod.uid()?.into()))),
        watcher::Event::InitDone => Some(SyncEvent::PodsListed { existing: std::mem::take(&mut listed), begun }),
    };
    follow::<Pod>(Api::all(client), step, events, shutdown).await;
}

/// Follows nodes until `shutdown`.
pub(crate) async fn follow_nodes(client: Client, events: mpsc::Sender<SyncEvent>, shutdown: CancellationToken) {
    let mut listed = HashSet::new();
    let step = move |event: watcher::Event<Node>| match event {
        watcher::Event::Init => {
            listed.clear();
            None
        }
        watcher::Event::InitApply(node) => {
            listed.insert(node.name_any());
            Some(SyncEvent::NodeApplied(Box::new(node)))
        }
        watcher::Event::Apply(node) => Some(SyncEvent::NodeApplied(Box::new(node))),
        watcher::Event::Delete(node) => Some(SyncEvent::NodeDeleted(node.name_any())),
        watcher::Event::InitDone => Some(SyncEvent::NodesListed(std::mem::take(&mut listed))),
    };
    follow::<Node>(Api::all(client), step, events, shutdown).await;
}

async fn follow<K>(
    api: Api<K>,
    mut step: impl FnMut(watcher::Event<K>) -> Option<SyncEvent>,
    events: mpsc::Sender<SyncEvent>,
    shutdown: CancellationToken,
) where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
    K::DynamicType: Default,
{
    let stream = watcher(api, watcher::Config::default()).default_backoff();
    let mut stream = stream.take_until(shutdown.cancelled_owned()).boxed();
    loop {
        match stream.try_next().await {
            Ok(Some(event)) => {
                if let Some(event) = step(event)
                    && events.send(event).await.is_err()
                {
                    return;
                }
            }
            Ok(None) => return,
            // The watcher backs off and relists by itself.
            Err(error) => tracing::warn!(error = %Chain(&error), "the scheduler's watch was interrupted"),
        }
    }
}
