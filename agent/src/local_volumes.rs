//! How volumes go that the cluster has made for this node: their directories, and then the
//! finalizer that has kept them in the API until then.
//!
//! What is to be done about one says [`local_path::due`]; that no pod of this node has it, the
//! records of pods say. Level-triggered: what cannot be done now is looked at again, later and
//! later, and at once when the volume changes.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use coracle_api::volume::local_path::{self, Due};
use coracle_client::{
    cache::{Cache, Key},
    errors::{is_conflict, is_not_found},
    feed::Feed,
};
use coracle_telemetry::{Backoff, ErrorChain};
use futures::{StreamExt as _, stream::FuturesUnordered};
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::{
    Api,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{
    blocking::blocking,
    informers::Informers,
    volume::{Records, Storage, StorageError, VolumeManager},
};

const REQUEST_LIMIT: Duration = Duration::from_secs(10);
/// Volumes that are let go of at once; the others wait.
const AT_ONCE: usize = 4;
/// After a volume was still in use, or could not be removed.
const RETRY_MIN: Duration = Duration::from_millis(500);
const RETRY_MAX: Duration = Duration::from_secs(30);

/// Why a volume is not gone yet.
#[derive(Debug, thiserror::Error)]
enum LetGoError {
    #[error("a pod of this node has it")]
    Used,
    #[error("cannot let go of it on this node")]
    Storage(#[source] StorageError),
    #[error("it is not to be removed any more, says the API server")]
    Changed,
    #[error("cannot ask the API server about it, or take its finalizer off")]
    Request(#[source] Box<kube::Error>),
    #[error("the API server does not answer")]
    Timeout,
}

/// Lets go of volumes.
#[derive(Clone)]
pub(crate) struct LocalVolumes {
    feed: Feed,
    cache: Arc<Cache<PersistentVolume>>,
    api: Api<PersistentVolume>,
    storage: Arc<Storage>,
    records: Records,
}

/// A volume that has to be looked at again.
struct Again {
    at: Instant,
    backoff: Backoff,
}

impl LocalVolumes {
    pub(crate) fn new(
        informers: &mut Informers,
        client: kube::Client,
        volumes: &VolumeManager,
    ) -> Self {
        let mut feed = Feed::default();
        feed.follow(&mut informers.volumes, |change| {
            Some(Key::of(change.latest().as_ref()))
        });
        Self {
            feed,
            cache: informers.volumes.cache(),
            api: Api::all(client),
            storage: volumes.storage(),
            records: volumes.records(),
        }
    }

    /// Runs until `shutdown`.
    pub(crate) async fn run(self, shutdown: CancellationToken) {
        let _ = shutdown.run_until_cancelled(self.follow()).await;
    }

    async fn follow(&self) {
        let mut again: BTreeMap<Key, Again> = BTreeMap::new();
        // A large tree takes its time, and holds up no other.
        let mut busy: BTreeSet<Key> = BTreeSet::new();
        let mut looks = FuturesUnordered::new();
        // What an earlier run of this task had not done.
        let known = self.cache.all();
        self.feed
            .add(known.iter().map(|volume| Key::of(volume.as_ref())));
        loop {
            let now = Instant::now();
            let mut due = self.feed.take();
            let over = again.iter().filter(|(_, again)| again.at <= now);
            due.extend(over.map(|(key, _)| key.clone()));
            for key in due {
                if looks.len() == AT_ONCE || !busy.insert(key.clone()) {
                    postpone(&mut again, key);
                    continue;
                }
                looks.push(async move {
                    let looked = self.look(&key).await;
                    (key, looked)
                });
            }
            let next = again.values().map(|again| again.at).min();
            let pause = async {
                match next {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = self.feed.changed() => {}
                () = pause => {}
                Some((key, looked)) = looks.next() => {
                    busy.remove(&key);
                    match looked {
                        Ok(()) => drop(again.remove(&key)),
                        Err(error) => {
                            tracing::debug!(volume = key.name, error = %ErrorChain(&error), "a volume stays for now");
                            postpone(&mut again, key);
                        }
                    }
                }
            }
        }
    }

    async fn look(&self, key: &Key) -> Result<(), LetGoError> {
        let Some(volume) = self.cache.get(key) else {
            return Ok(());
        };
        let due = local_path::due(&volume);
        if due == Due::Keep || !self.storage.is_ours(&volume) {
            return Ok(());
        }
        if due == Due::Remove && !self.is_still_due(&volume).await? {
            return Err(LetGoError::Changed);
        }
        let (storage, records, going) = (
            Arc::clone(&self.storage),
            self.records.clone(),
            Arc::clone(&volume),
        );
        let gone = blocking(move || {
            let is_used = || Ok(!records.holders(&going, None)?.is_empty());
            storage.let_go(&going, due == Due::Forget, is_used)
        });
        match gone.await {
            Ok(true) => {}
            Ok(false) => return Err(LetGoError::Used),
            Err(error) => {
                tracing::warn!(volume = key.name, error = %ErrorChain(&error), "cannot let go of a volume");
                return Err(LetGoError::Storage(error));
            }
        }
        tracing::info!(
            volume = key.name,
            retained = due == Due::Forget,
            "let go of a volume"
        );
        self.release(&volume).await
    }

    /// The API server is asked: it is the last moment, and somebody may want to retain it.
    async fn is_still_due(&self, volume: &PersistentVolume) -> Result<bool, LetGoError> {
        let meta = &volume.metadata;
        let node = meta.labels.as_ref().and_then(|it| it.get(local_path::NODE));
        let params = ListParams::default()
            .labels(&format!(
                "{}={}",
                local_path::NODE,
                node.map_or("", String::as_str)
            ))
            .fields(&format!(
                "metadata.name={}",
                meta.name.as_deref().unwrap_or_default()
            ));
        match tokio::time::timeout(REQUEST_LIMIT, self.api.list(&params)).await {
            Ok(Ok(found)) => Ok(found
                .iter()
                .any(|live| live.metadata.uid == meta.uid && local_path::due(live) == Due::Remove)),
            Ok(Err(error)) => Err(LetGoError::Request(Box::new(error))),
            Err(_) => Err(LetGoError::Timeout),
        }
    }

    async fn release(&self, volume: &PersistentVolume) -> Result<(), LetGoError> {
        let name = volume.metadata.name.as_deref().unwrap_or_default();
        let patch = Patch::Merge(without_finalizer(volume));
        let params = PatchParams::default();
        let request = self.api.patch(name, &params, &patch);
        match tokio::time::timeout(REQUEST_LIMIT, request).await {
            Ok(Ok(_)) => Ok(()),
            // Its change comes by the watch.
            Ok(Err(error)) if is_conflict(&error) || is_not_found(&error) => Ok(()),
            Ok(Err(error)) => Err(LetGoError::Request(Box::new(error))),
            Err(_) => Err(LetGoError::Timeout),
        }
    }
}

fn postpone(again: &mut BTreeMap<Key, Again>, key: Key) {
    let new = || Again {
        at: Instant::now(),
        backoff: Backoff::new(RETRY_MIN, RETRY_MAX),
    };
    let again = again.entry(key).or_insert_with(new);
    again.at = Instant::now() + again.backoff.pause();
}

/// The patch, for the volume as it was seen and no other.
fn without_finalizer(volume: &PersistentVolume) -> Value {
    let all = volume.metadata.finalizers.iter().flatten();
    let rest: Vec<_> = all.filter(|one| *one != local_path::FINALIZER).collect();
    json!({"metadata": {
        "uid": volume.metadata.uid,
        "resourceVersion": volume.metadata.resource_version,
        "finalizers": rest,
    }})
}
