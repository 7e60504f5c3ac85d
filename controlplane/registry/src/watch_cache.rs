//! The watch cache: what GET, LIST and WATCH are served from.
//!
//! Every stored object is held here once, encoded, with its resourceVersion inside; nothing is
//! parsed or encoded again for a reader. What objects have in common, they share: field values, and
//! what managers own (`managed`). One watch of the store feeds it (`feed`). The cache never writes
//! to the store.
//!
//! How handlers use it:
//!
//! ```text
//! let pods = cache.resource("/registry/pods/")            registered at start, or later with `register` (till `unregister`)
//!
//! write            match backend.txn(..).await? { Committed(r) => cache.wait_for(r).await?, .. }   own writes are read
//! GET  rv=""       cache.catch_up().await?; pods.get(key)            Arc<Entry>: .json_bytes(), .revision() ...
//! GET  rv="0"      pods.get(key)
//! LIST rv=""       cache.catch_up().await?; pods.list(&ListRequest { at: Latest, limit, .. })
//! LIST rv="0"      pods.list(&ListRequest { at: Latest, .. })
//! LIST rv=R        NotOlderThan: cache.wait_for(R).await? and as above; Exact: ListRequest { at: Exact(R), .. }
//! LIST continue    token carries `Continue`: cache.wait_for(revision).await?; ListRequest { at: Exact(revision), after, remaining, .. };
//!                  cache.list(&pods, &ListRequest { .. }).await also knows states that only the store has
//! WATCH rv=R       cache.wait_for(R).await?; pods.watch(selection, R)?
//! WATCH rv="",0    let (beginning, watcher) = pods.begin_and_watch(selection);
//!                  first beginning.next_lines() to its end, then the watcher
//! WatchList        the same (after catch_up or wait_for), then a bookmark with initial-events-end at beginning.revision()
//! stream           loop { send(watcher.next_lines().await?) }                        bookmarks: watcher.progress()
//! Table            d.kind and d.entry (bookkeeping per watcher: none)
//! selectors        Selection::of(KeyScope::Namespace(ns)).filter(Arc::new(move |e: &Entry| labels match && fields match))
//!                    .requires_field("spec.nodeName", "n1")     optional: neither other nodes' events nor their pods are looked at
//! ```
//!
//! Errors map as: [`WatchCacheError::TooOld`] 410 Expired, [`WatchCacheError::TooLarge`] 504
//! Timeout with cause `ResourceVersionTooLarge`, [`WatchCacheError::TooSlow`] end of stream,
//! [`WatchCacheError::Closed`] 503.

mod alike;
mod beginning;
mod config;
mod current;
mod entry;
mod error;
mod event;
mod events;
mod feed;
mod fields;
mod groups;
mod history;
mod list;
mod managed;
mod metadata;
mod objects;
mod own;
mod pool;
mod register;
mod resource;
mod ring;
mod selection;
mod snapshot;
mod state;
#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests;
mod watcher;

use std::{
    collections::BTreeMap,
    fmt,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use coracle_store::{Backend, Revision, StoreError};
use coracle_telemetry::ErrorChain;
use parking_lot::{Mutex, RwLock};
use tokio::{
    sync::{Semaphore, watch},
    task::JoinHandle,
    time::Instant,
};
use tokio_util::sync::CancellationToken;

pub use beginning::Beginning;
pub use config::{Convert, ResourceConfig, WatchCacheLimits};
pub use entry::{Entry, LINES_BYTES};
pub use error::WatchCacheError;
pub use event::{Delivery, EventKind, WatchEvent};
pub use fields::{FieldIndex, FieldReads};
pub use list::{Continue, ListAt, ListRequest, ListResult};
pub use resource::ResourceCache;
pub use selection::{Filter, KeyScope, Selection};
pub use snapshot::Snapshot;
pub use watcher::Watcher;

use feed::{Feed, Source};
use own::OwnWrites;
use register::Aside;

/// How long a reader waits for a revision that is not there yet.
///
/// Source: `k8s.io/apiserver/pkg/storage/cacher/watch_cache.go`, `blockTimeout`.
const WAIT: Duration = Duration::from_secs(3);

/// The cache of all resources.
pub struct WatchCache {
    backend: Arc<dyn Backend>,
    shared: Arc<Shared>,
    /// Held while a resource is registered: one at a time.
    registering: tokio::sync::Mutex<()>,
    feed: Mutex<Option<JoinHandle<()>>>,
    /// When the store was last asked how far it is, of what the cache has come to.
    asked: Mutex<Option<Instant>>,
    own_writes: OwnWrites,
    /// Lists that are read from the store.
    stored_lists: Semaphore,
}

impl WatchCache {
    /// Loads `resources` and follows the store until `shutdown`.
    ///
    /// # Errors
    /// [`WatchCacheError::Store`] if loading fails.
    pub async fn start(
        backend: Arc<dyn Backend>,
        resources: Vec<ResourceConfig>,
        limits: WatchCacheLimits,
        shutdown: CancellationToken,
    ) -> Result<Arc<Self>, WatchCacheError> {
        let current = backend.current_revision().await?;
        let warm = current.0.saturating_sub(limits.warm_revisions);
        let shared = match Shared::load(&*backend, &resources, limits, Revision(warm)).await {
            Err(StoreError::Compacted { oldest, .. }) => {
                Shared::load(&*backend, &resources, limits, oldest).await?
            }
            other => other?,
        };
        let feed = Feed {
            backend: Arc::clone(&backend),
            shared: Arc::clone(&shared),
        };
        let feed = coracle_telemetry::spawn("follow the store", feed.run(shutdown));
        let cache = Arc::new(Self {
            backend,
            shared,
            registering: Default::default(),
            feed: Mutex::new(Some(feed)),
            asked: Mutex::default(),
            own_writes: OwnWrites::default(),
            stored_lists: Semaphore::new(history::AT_ONCE),
        });
        cache.follow_to(current).await?;
        cache.catch_up().await?;
        Ok(cache)
    }

    /// Waits until the cache has come to `revision`, as long as that takes: the past that it begins
    /// with may be long.
    async fn follow_to(&self, revision: Revision) -> Result<(), WatchCacheError> {
        let mut announced = self.shared.announced.subscribe();
        let reached = announced.wait_for(|state| state.closed || state.revision >= revision);
        match reached.await {
            Ok(state) if state.revision >= revision => Ok(()),
            _ => Err(WatchCacheError::Closed),
        }
    }

    /// Adds a resource while the cache runs. It takes the place of one with the same prefix, whose
    /// watchers end then; until then that one is fed. Nobody else waits for it. Cancel-safe: it is
    /// in or it is not.
    ///
    /// # Errors
    /// [`WatchCacheError::PrefixTaken`]: permanent. [`WatchCacheError::Store`] and
    /// [`WatchCacheError::NotLoaded`] if its objects cannot be loaded: try later.
    /// [`WatchCacheError::Closed`].
    pub async fn register(
        &self,
        config: ResourceConfig,
    ) -> Result<Arc<ResourceCache>, WatchCacheError> {
        let _turn = self.registering.lock().await;
        register::register(&*self.backend, &self.shared, config).await
    }

    /// Takes a resource out, if it is in. Its watchers end; who has it goes on with what it had.
    pub async fn unregister(&self, prefix: &str) {
        let _turn = self.registering.lock().await;
        register::unregister(&self.shared, prefix);
    }

    /// A registered resource by its prefix. Look it up once and keep it.
    #[must_use]
    pub fn resource(&self, prefix: &str) -> Option<Arc<ResourceCache>> {
        self.shared.resources.read().get(prefix).cloned()
    }

    /// One object by its full key, whatever its resource.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<Arc<Entry>> {
        self.shared.resource_of(key)?.get(key)
    }

    /// How far the store has been followed. A bookmark takes [`Watcher::progress`] instead.
    #[must_use]
    pub fn revision(&self) -> Revision {
        self.shared.applied()
    }

    /// Waits until the cache has everything up to `revision`; at once in most cases, 3 seconds at
    /// most.
    ///
    /// # Errors
    /// [`WatchCacheError::TooLarge`] after that time, [`WatchCacheError::Closed`].
    pub async fn wait_for(&self, revision: Revision) -> Result<(), WatchCacheError> {
        if self.shared.applied() >= revision {
            return Ok(());
        }
        self.shared.source.pull(&self.shared, revision);
        if self.shared.applied() >= revision {
            return Ok(());
        }
        let mut announced = self.shared.announced.subscribe();
        let reached = async {
            let state = announced
                .wait_for(|state| state.closed || state.revision >= revision)
                .await;
            state.is_ok_and(|state| state.revision >= revision)
        };
        let reached = async {
            let mut reached = pin!(reached);
            tokio::select! {
                biased;
                reached = &mut reached => return reached,
                () = self.backend.hasten(revision) => {}
            }
            reached.await
        };
        match tokio::time::timeout(WAIT, reached).await {
            Ok(true) => Ok(()),
            Ok(_) => Err(WatchCacheError::Closed),
            Err(_) => Err(WatchCacheError::TooLarge {
                asked: revision,
                current: self.shared.applied(),
            }),
        }
    }

    /// The same for a revision that somebody says this cluster has come to: what the store has not
    /// come to is refused at once.
    ///
    /// # Errors
    /// As there, and [`WatchCacheError::Store`] if the store does not say how far it is.
    pub async fn wait_for_written(&self, revision: Revision) -> Result<(), WatchCacheError> {
        if self.shared.applied() >= revision {
            return Ok(());
        }
        let current = match self.backend.known_revision() {
            Some(current) => current,
            None => self.backend.current_revision().await?,
        };
        if revision > current {
            return Err(WatchCacheError::TooLarge {
                asked: revision,
                current,
            });
        }
        self.wait_for(revision).await
    }

    /// Waits until the cache has everything that the store had acknowledged when this was called: a
    /// consistent read.
    ///
    /// # Errors
    /// As [`WatchCache::wait_for`]; [`WatchCacheError::Store`] if the store does not say how far it
    /// is.
    pub async fn catch_up(&self) -> Result<(), WatchCacheError> {
        let asked = Instant::now();
        let revision = match self.backend.known_revision() {
            Some(revision) => revision,
            None => self.backend.current_revision().await?,
        };
        self.wait_for(revision).await?;
        let mut last = self.asked.lock();
        *last = (*last).max(Some(asked));
        Ok(())
    }

    /// Waits until the feed has ended, after the shutdown that [`WatchCache::start`] was given.
    pub async fn stopped(&self) {
        let feed = self.feed.lock().take();
        if let Some(feed) = feed
            && let Err(error) = feed.await
        {
            tracing::error!(error = %ErrorChain(&error), "the feed of the watch cache died");
        }
    }
}

impl fmt::Debug for WatchCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchCache")
            .field("revision", &self.revision())
            .finish_non_exhaustive()
    }
}

/// What the feed writes and the handlers read.
struct Shared {
    resources: RwLock<BTreeMap<String, Arc<ResourceCache>>>,
    limits: WatchCacheLimits,
    applied: Arc<AtomicU64>,
    /// What the rings of all resources keep alive.
    ring_bytes: Arc<AtomicUsize>,
    announced: watch::Sender<Announced>,
    source: Source,
    /// What happens to a resource that is about to be added. Its lock is the innermost.
    aside: Mutex<Aside>,
}

/// What waiters wait for.
#[derive(Debug, Clone, Copy, Default)]
struct Announced {
    revision: Revision,
    closed: bool,
}

impl Shared {
    async fn load(
        backend: &dyn Backend,
        resources: &[ResourceConfig],
        limits: WatchCacheLimits,
        at: Revision,
    ) -> Result<Arc<Self>, StoreError> {
        let shared = Arc::new(Self {
            resources: RwLock::default(),
            limits,
            applied: Arc::new(AtomicU64::new(at.0)),
            ring_bytes: Arc::default(),
            announced: watch::Sender::new(Announced {
                revision: at,
                closed: false,
            }),
            source: Source::default(),
            aside: Mutex::default(),
        });
        let stream = feed::watch(backend, at).await?;
        for config in resources {
            let resource = shared.make(config.clone(), at);
            feed::load(backend, &resource, at).await?;
            shared
                .resources
                .write()
                .insert(resource.config().prefix.clone(), resource);
        }
        shared.source.put(stream);
        Ok(shared)
    }

    fn make(&self, config: ResourceConfig, start: Revision) -> Arc<ResourceCache> {
        let counters = (Arc::clone(&self.applied), Arc::clone(&self.ring_bytes));
        ResourceCache::new(config, self.limits, counters, start)
    }

    fn resources(&self) -> Vec<Arc<ResourceCache>> {
        self.resources.read().values().cloned().collect()
    }

    fn applied(&self) -> Revision {
        Revision(self.applied.load(Ordering::Acquire))
    }

    fn announce(&self, revision: Revision) {
        self.applied.fetch_max(revision.0, Ordering::AcqRel);
        self.announced
            .send_modify(|announced| announced.revision = announced.revision.max(revision));
    }

    fn close(&self) {
        self.announced
            .send_modify(|announced| announced.closed = true);
        for resource in self.resources() {
            resource.close().wake();
        }
    }
}
