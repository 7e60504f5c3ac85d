//! One watch a kind, shared by all who read it: keeps a [`Cache`] current and tells handlers what changed.
//!
//! Handlers run on the informer's task, in the order of events, and must be quick: they add keys to queues.
//! Informers only read. `managedFields` are dropped before anything is kept, and each kind may drop more.

use std::{
    fmt::{self, Debug},
    sync::Arc,
    time::Duration,
};

use coracle_telemetry::Backoff;
use futures::StreamExt;
use kube::{
    Api, Resource,
    runtime::watcher::{self, watcher},
};
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::cache::{By, Cache, Change, Index, Writer};

/// First and longest pause between attempts to watch.
const RETRY_FIRST: Duration = Duration::from_millis(50);
const RETRY_CAP: Duration = Duration::from_secs(10);

type Handler<K> = Box<dyn Fn(&Change<'_, K>) + Send + Sync>;

/// A watch to be: register handlers, then [`Informer::run`] it.
pub struct Informer<K: 'static> {
    api: Api<K>,
    config: watcher::Config,
    trim: Box<dyn FnMut(&mut K) + Send>,
    cache: Arc<Cache<K>>,
    handlers: Vec<Handler<K>>,
    synced: watch::Sender<bool>,
}

impl<K> Debug for Informer<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Informer").field("cache", &self.cache).finish_non_exhaustive()
    }
}

impl<K> Informer<K>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
{
    /// Follows what `config` selects of `api`. `trim` drops what nobody reads.
    pub fn new(api: Api<K>, config: watcher::Config, trim: impl FnMut(&mut K) + Send + 'static) -> Self {
        let config = config.streaming_lists();
        Self {
            api,
            config,
            trim: Box::new(trim),
            cache: Arc::new(Cache::new()),
            handlers: Vec::new(),
            synced: watch::Sender::new(false),
        }
    }

    /// An index of the cache, from now on. One of that name that is there already is shared.
    #[must_use]
    pub fn index(&self, index: Index<K>) -> By<K> {
        self.cache.index(index)
    }

    /// For messages.
    #[must_use]
    pub fn name(&self) -> &'static str {
        std::any::type_name::<K>()
    }

    /// Where the objects are. It fills once the informer runs.
    #[must_use]
    pub fn cache(&self) -> Arc<Cache<K>> {
        self.cache.clone()
    }

    /// Becomes true once the first list is in the cache and its handlers have run.
    #[must_use]
    pub fn synced(&self) -> watch::Receiver<bool> {
        self.synced.subscribe()
    }

    /// Runs `handler` on each change, in the order of events.
    pub fn on_change(&mut self, handler: impl Fn(&Change<'_, K>) + Send + Sync + 'static) {
        self.handlers.push(Box::new(handler));
    }

    /// Watches until `shutdown`, over any number of failures of the server.
    pub async fn run(self, shutdown: CancellationToken) {
        let Self { api, mut config, mut trim, cache, handlers, synced } = self;
        let mut retry = Backoff::new(RETRY_FIRST, RETRY_CAP);
        let mut writer = Writer::new();
        'session: loop {
            let mut events = std::pin::pin!(watcher(api.clone(), config.clone()));
            loop {
                let event = tokio::select! {
                    () = shutdown.cancelled() => return,
                    event = events.next() => event,
                };
                match event {
                    Some(Ok(event)) => {
                        retry.reset();
                        let listed = matches!(event, watcher::Event::InitDone);
                        let event = event.modify(|object| {
                            object.meta_mut().managed_fields = None;
                            trim(object);
                        });
                        writer.apply(&cache, event, |change| handlers.iter().for_each(|handler| handler(&change)));
                        if listed {
                            synced.send_replace(true);
                        }
                    }
                    Some(Err(error)) => {
                        warn!(kind = %K::kind(&()), error = &error as &dyn std::error::Error, "watch failed, trying again");
                        tokio::select! {
                            () = shutdown.cancelled() => return,
                            () = tokio::time::sleep(retry.pause()) => {}
                        }
                        // The watcher would ask in the same way for ever: another one has to list.
                        if refuses_streaming(&error) {
                            debug!(kind = %K::kind(&()), "no streaming lists, listing instead");
                            config.initial_list_strategy = watcher::InitialListStrategy::ListWatch;
                            continue 'session;
                        }
                    }
                    None => continue 'session,
                }
            }
        }
    }
}

/// Whether the server does not know `sendInitialEvents`.
fn refuses_streaming(error: &watcher::Error) -> bool {
    matches!(error, watcher::Error::WatchStartFailed(kube::Error::Api(status)) if status.code == 422 || status.code == 400)
}
