//! One watch a kind, shared by all who read it: keeps a [`Cache`] current and tells handlers what
//! changed.
//!
//! Handlers run on the informer's task, in the order of events, and must be quick: they add keys to
//! queues. Informers only read. `managedFields` are dropped before anything is kept, and each kind
//! may drop more.

use std::{
    fmt::{self, Debug},
    sync::Arc,
    time::Duration,
};

use coracle_telemetry::{Backoff, ExponentialBackoff};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::warn;

pub use crate::reflector::Selection;
use crate::{
    cache::{By, Cache, Change, Index, Key, Writer},
    pulse::{Pulse, pause_or_return},
    reflector::{Event, Reflector, number},
};

/// First and longest pause between attempts to watch.
const RETRY: ExponentialBackoff =
    ExponentialBackoff::new(Duration::from_millis(50), Duration::from_secs(10));

type Keep<K> = Box<dyn FnMut(&K) -> bool + Send>;
type Handler<K> = Box<dyn Fn(&Change<'_, K>) + Send + Sync>;
type ProgressHandler = Box<dyn Fn(u64) + Send + Sync>;

/// A watch to be: register handlers, then [`Informer::run`] it.
pub struct Informer<K: 'static> {
    api: Api<K>,
    selection: Selection,
    trim: Box<dyn FnMut(&mut K) + Send>,
    keep: Option<Keep<K>>,
    cache: Arc<Cache<K>>,
    handlers: Vec<Handler<K>>,
    on_progress: Vec<ProgressHandler>,
    synced: watch::Sender<bool>,
    retry: ExponentialBackoff,
    pulse: Pulse,
}

impl<K> Debug for Informer<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Informer")
            .field("cache", &self.cache)
            .finish_non_exhaustive()
    }
}

impl<K> Informer<K>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
{
    /// Follows what `selection` has of `api`. `trim` drops what nobody reads.
    pub fn new(
        api: Api<K>,
        selection: Selection,
        trim: impl FnMut(&mut K) + Send + 'static,
    ) -> Self {
        Self {
            api,
            selection,
            trim: Box::new(trim),
            keep: None,
            cache: Arc::new(Cache::new()),
            handlers: Vec::new(),
            on_progress: Vec::new(),
            synced: watch::Sender::new(false),
            retry: RETRY,
            pulse: Pulse::default(),
        }
    }

    /// Takes objects that do not pass `keep` as not there: a selection that the server cannot make.
    #[must_use]
    pub fn only(mut self, keep: impl FnMut(&K) -> bool + Send + 'static) -> Self {
        self.keep = Some(Box::new(keep));
        self
    }

    /// With other pauses between attempts to watch, which end early when `pulse` tells of the API's
    /// return.
    #[must_use]
    pub fn woken_by(mut self, pulse: &Pulse, retry: ExponentialBackoff) -> Self {
        self.pulse = pulse.clone();
        self.retry = retry;
        self
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

    /// Where the objects come from.
    #[must_use]
    pub fn api(&self) -> &Api<K> {
        &self.api
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

    /// Runs `handler` when the cache shows everything up to another revision, after the handlers of
    /// the changes.
    pub(crate) fn on_progress(&mut self, handler: impl Fn(u64) + Send + Sync + 'static) {
        self.on_progress.push(Box::new(handler));
    }

    /// Watches until `shutdown`, over any number of failures of the server.
    pub async fn run(self, shutdown: CancellationToken) {
        let _ = shutdown.run_until_cancelled(self.watch()).await;
    }

    async fn watch(self) {
        let Self {
            api,
            selection,
            mut trim,
            mut keep,
            cache,
            handlers,
            on_progress,
            synced,
            retry,
            pulse,
        } = self;
        let mut retry = Backoff::of(retry);
        let mut back = pulse.subscribe();
        let mut writer = Writer::new();
        let mut events = Reflector::new(api, selection);
        loop {
            let mut event = match events.next().await {
                Ok(event) => event,
                Err(error) => {
                    warn!(kind = %K::kind(&()), error = &error as &dyn std::error::Error, "watch failed, trying again");
                    if pause_or_return(&mut back, retry.pause()).await {
                        retry.reset();
                    }
                    continue;
                }
            };
            if !matches!(event, Event::Init) {
                retry.reset();
            }
            let mut at = None;
            if let Event::InitApply(object) | Event::Apply(object) | Event::Delete(object) =
                &mut event
            {
                object.meta_mut().managed_fields = None;
                trim(object);
            }
            if let Event::Apply(object) | Event::Delete(object) = &event {
                at = object.meta().resource_version.as_deref().and_then(number);
            }
            let listed = matches!(event, Event::InitDone);
            let before = cache.revision();
            if let Some(event) = selected(event, keep.as_mut(), &cache) {
                writer.apply(&cache, event, |change| {
                    handlers.iter().for_each(|handler| handler(&change))
                });
            }
            // What is left out has been seen as well.
            if let Some(at) = at {
                writer.apply(&cache, Event::Progress(at), |_| {});
            }
            if cache.revision() != before {
                on_progress
                    .iter()
                    .for_each(|handler| handler(cache.revision()));
            }
            if listed {
                synced.send_replace(true);
            }
        }
    }
}

/// What an event is to a reader who sees only what passes `keep`: one that passes no more is gone,
/// as it was.
fn selected<K: Resource<DynamicType = ()> + Clone>(
    event: Event<K>,
    keep: Option<&mut Keep<K>>,
    cache: &Cache<K>,
) -> Option<Event<K>> {
    let Some(keep) = keep else { return Some(event) };
    match event {
        Event::InitApply(object) if !keep(&object) => None,
        Event::Apply(object) | Event::Delete(object) if !keep(&object) => {
            let known = cache.get(&Key::of(&object))?;
            Some(Event::Delete(K::clone(&known)))
        }
        event => Some(event),
    }
}

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeMap,
        sync::atomic::{AtomicUsize, Ordering},
    };

    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::{Client, ResourceExt, client::Body};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_waits_asks_again_when_the_api_is_back() {
        const LONG: Duration = Duration::from_secs(3600);
        let asked = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&asked);
        let service = tower::service_fn(move |_: http::Request<Body>| {
            counter.fetch_add(1, Ordering::Relaxed);
            async {
                Err::<http::Response<Body>, _>(std::io::Error::from(
                    std::io::ErrorKind::ConnectionRefused,
                ))
            }
        });
        let pulse = Pulse::default();
        let api = Api::<ConfigMap>::all(Client::new(service, "default"));
        let informer = Informer::new(api, Selection::all(), |_| {})
            .woken_by(&pulse, ExponentialBackoff::new(LONG, LONG));
        let mut run = std::pin::pin!(informer.run(CancellationToken::new()));
        let tell = async {
            for expected in 1..=3 {
                // No time passes while this is never idle.
                for _ in 0..1000 {
                    tokio::task::yield_now().await;
                }
                assert_eq!(asked.load(Ordering::Relaxed), expected);
                pulse.answered();
            }
        };
        tokio::select! { () = &mut run => panic!("it runs on"), () = tell => {} }
    }

    #[test]
    fn what_passes_no_more_is_gone_and_what_never_passed_was_not_there() {
        let (cache, mut writer, mut seen) = (Cache::new(), Writer::new(), Vec::new());
        let mut keep: Keep<ConfigMap> = Box::new(|object| object.data.is_some());
        let object = |name: &str, wanted: bool| {
            let metadata = kube::api::ObjectMeta {
                name: Some(name.into()),
                ..Default::default()
            };
            ConfigMap {
                metadata,
                data: wanted.then(BTreeMap::new),
                ..ConfigMap::default()
            }
        };
        for event in [
            Event::Init,
            Event::InitApply(object("a", true)),
            Event::InitApply(object("b", false)),
            Event::InitDone,
            Event::Apply(object("c", false)),
            Event::Apply(object("b", true)),
            Event::Apply(object("a", false)),
            Event::Apply(object("a", false)),
            Event::Delete(object("c", false)),
            Event::Delete(object("b", false)),
        ] {
            let Some(event) = selected(event, Some(&mut keep), &cache) else {
                continue;
            };
            writer.apply(&cache, event, |change| {
                let what = match change {
                    Change::Added(_) => "added",
                    Change::Updated { .. } => "updated",
                    Change::Deleted(_) => "deleted",
                };
                seen.push(format!("{what} {}", change.latest().name_any()));
            });
        }
        assert_eq!(seen, ["added a", "added b", "deleted a", "deleted b"]);
    }
}
