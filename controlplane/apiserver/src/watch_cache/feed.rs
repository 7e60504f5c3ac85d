//! The one task that feeds the cache from the store.
//!
//! One watch of everything under `/registry/`; each batch is applied to all resources it touches, then the new revision
//! is announced, then watchers are woken. If the store cuts the watch off, it is resumed; if the store has forgotten the
//! point of resumption, everything is loaded again and watchers are told that they lost events.

use std::{sync::Arc, time::Duration};

use coracle_store::{Backend, Event, EventBatch, RangeRequest, Revision, StoreError, WatchStream};
use futures::StreamExt;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::{ResourceConfig, Shared, WatchCacheError, resource::ResourceCache};

/// What the whole store is under.
const ROOT: &str = "/registry/";
/// Objects read from the store at once while loading; bounds what is held twice.
const PAGE: usize = 1000;
/// Pause after an engine failure before the watch is tried again.
const RETRY: Duration = Duration::from_millis(200);

/// A resource to be added while the cache runs.
pub(super) struct Register {
    pub(super) config: ResourceConfig,
    pub(super) reply: oneshot::Sender<Result<Arc<ResourceCache>, WatchCacheError>>,
}

/// The feeding task.
pub(super) struct Feed {
    pub(super) backend: Arc<dyn Backend>,
    pub(super) shared: Arc<Shared>,
    pub(super) registrations: mpsc::Receiver<Register>,
}

enum Input {
    Batch(Option<Result<EventBatch, StoreError>>),
    Register(Register),
    Stop,
}

impl Feed {
    /// Feeds until `shutdown`, then ends all watches.
    pub(super) async fn run(mut self, mut stream: WatchStream, shutdown: CancellationToken) {
        loop {
            let input = tokio::select! {
                biased;
                () = shutdown.cancelled() => Input::Stop,
                Some(register) = self.registrations.recv() => Input::Register(register),
                batch = stream.next() => Input::Batch(batch),
            };
            match input {
                Input::Batch(Some(Ok(batch))) => self.apply(&batch),
                Input::Batch(Some(Err(error))) => {
                    tracing::warn!(%error, "the watch of the store broke off");
                    match self.resume(&shutdown).await {
                        Some(resumed) => stream = resumed,
                        None => break,
                    }
                }
                Input::Register(register) => self.register(register).await,
                Input::Batch(None) | Input::Stop => break,
            }
        }
        self.shared.close();
    }

    fn apply(&self, batch: &EventBatch) {
        let mut wakes = Vec::new();
        // Events of one resource mostly come in runs; an order between resources within a batch is nobody's concern.
        let mut rest: Vec<&Event> = batch.events.iter().collect();
        while let Some(first) = rest.first() {
            let Some(resource) = self.shared.resource_of(&first.kv.key) else {
                let unknown = Arc::clone(&first.kv.key);
                rest.retain(|event| event.kv.key != unknown);
                continue;
            };
            let prefix = &resource.config().prefix;
            let (mine, others): (Vec<&Event>, Vec<&Event>) =
                rest.into_iter().partition(|event| event.kv.key.starts_with(prefix));
            wakes.push(resource.apply(&mine, batch.revision));
            rest = others;
        }
        self.shared.announce(batch.revision);
        for wake in wakes {
            wake.wake();
        }
    }

    /// A new watch of the store after one broke off; `None` when there is no point.
    async fn resume(&self, shutdown: &CancellationToken) -> Option<WatchStream> {
        loop {
            let resumed = match self.backend.watch(ROOT, self.shared.applied()).await {
                Err(StoreError::Compacted { .. }) => self.reload().await,
                other => other,
            };
            match resumed {
                Ok(stream) => return Some(stream),
                Err(StoreError::Closed) => return None,
                Err(error) => tracing::error!(%error, "cannot watch the store; trying again"),
            }
            tokio::select! {
                () = shutdown.cancelled() => return None,
                () = tokio::time::sleep(RETRY) => {}
            }
        }
    }

    async fn reload(&self) -> Result<WatchStream, StoreError> {
        let revision = self.backend.current_revision();
        let mut wakes = Vec::new();
        for resource in self.shared.resources() {
            let mut objects = Vec::new();
            read_all(&*self.backend, &resource.config().prefix, revision, |page| objects.extend_from_slice(page))
                .await?;
            wakes.push(resource.reset(&objects, revision));
        }
        self.shared.announce(revision);
        for wake in wakes {
            wake.wake();
        }
        self.backend.watch(ROOT, revision).await
    }

    async fn register(&self, register: Register) {
        let at = self.shared.applied();
        let resource = self.shared.make(register.config, at);
        let loaded = load(&*self.backend, &resource, at).await;
        let reply = loaded.map(|()| self.shared.insert(resource)).map_err(WatchCacheError::from);
        // Whoever asked may have gone; the resource stays.
        let _ = register.reply.send(reply);
    }
}

/// Loads the state of one resource at `revision`.
pub(super) async fn load(
    backend: &dyn Backend,
    resource: &ResourceCache,
    revision: Revision,
) -> Result<(), StoreError> {
    read_all(backend, &resource.config().prefix, revision, |page| resource.load(page)).await
}

/// Watches everything after `revision`.
pub(super) async fn watch(backend: &dyn Backend, revision: Revision) -> Result<WatchStream, StoreError> {
    backend.watch(ROOT, revision).await
}

async fn read_all(
    backend: &dyn Backend,
    prefix: &str,
    at: Revision,
    mut take: impl FnMut(&[coracle_store::KeyValue]),
) -> Result<(), StoreError> {
    let mut start = None;
    loop {
        let request = RangeRequest { prefix: prefix.to_owned(), start, limit: Some(PAGE), at: Some(at) };
        let page = backend.range(request).await?;
        take(&page.items);
        match page.items.last() {
            Some(last) if page.remaining > 0 => start = Some(format!("{}\0", last.key)),
            _ => return Ok(()),
        }
    }
}
