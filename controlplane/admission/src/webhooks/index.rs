//! All webhooks of a kind of configuration, MutatingWebhookConfiguration or
//! ValidatingWebhookConfiguration, by the names of these.
//!
//! The truth is in the watch cache; this is read off it. There is no task: whoever asks takes in
//! what has changed first. A cluster without configurations pays two loads.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use coracle_registry::{
    resource::{Registry, Resource},
    watch_cache::{KeyScope, Selection, Watcher},
};
use coracle_store::Revision;
use parking_lot::{Mutex, RwLock};

use super::hook::{self, Hook};

const GROUP: &str = "admissionregistration.k8s.io";

/// Webhooks in the order in which they are called.
pub(crate) type All = Arc<[Arc<Hook>]>;

/// The webhooks of all configurations of a kind.
pub(crate) struct Hooks(Option<Kept>);

struct Kept {
    resource: Arc<Resource>,
    all: RwLock<All>,
    is_empty: AtomicBool,
    feed: Mutex<Feed>,
}

struct Feed {
    watcher: Watcher,
    /// By the name of the configuration: what did not change is not compiled again.
    known: HashMap<String, (Revision, Vec<Arc<Hook>>)>,
}

impl Hooks {
    /// Reads what there is in the cache.
    pub(crate) fn new(registry: &Registry, plural: &str) -> Self {
        let Some(resource) = registry.get(GROUP, "v1", plural) else {
            return Self(None);
        };
        let (_, watcher) = resource.cache.snapshot_and_watch(everything());
        let kept = Kept {
            resource: Arc::clone(resource),
            all: RwLock::new(Arc::new([])),
            is_empty: AtomicBool::new(true),
            feed: Mutex::new(Feed {
                watcher,
                known: HashMap::new(),
            }),
        };
        kept.read(&mut kept.feed.lock());
        Self(Some(kept))
    }

    /// Whether there are none. Asked for every write.
    pub(crate) fn is_empty(&self) -> bool {
        let Some(kept) = &self.0 else { return true };
        kept.take_changes();
        kept.is_empty.load(Ordering::Acquire)
    }

    /// All that there are.
    pub(crate) fn all(&self) -> All {
        match &self.0 {
            Some(kept) => Arc::clone(&kept.all.read()),
            None => Arc::new([]),
        }
    }
}

fn everything() -> Selection {
    Selection::of(KeyScope::Resource)
}

impl Kept {
    fn take_changes(&self) {
        // Whoever holds the lock is doing the same.
        let Some(mut feed) = self.feed.try_lock() else {
            return;
        };
        if !feed.watcher.has_news() {
            return;
        }
        loop {
            match feed.watcher.drain() {
                Ok(deliveries) if deliveries.is_empty() => break,
                Ok(_) => {}
                Err(_) => {
                    // Too much was missed, or it is the end: then what is known goes on being true.
                    (_, feed.watcher) = self.resource.cache.snapshot_and_watch(everything());
                    break;
                }
            }
        }
        self.read(&mut feed);
    }

    fn read(&self, feed: &mut Feed) {
        let (snapshot, all) = (self.resource.cache.snapshot(), everything());
        let mut before = std::mem::take(&mut feed.known);
        // The cache is in the order of names.
        let mut hooks = Vec::new();
        for entry in snapshot.select(&all, &self.resource.prefix) {
            let (name, revision) = (entry.name().to_owned(), entry.revision());
            let own = match before.remove(&name) {
                Some((known, own)) if known == revision => own,
                _ => {
                    // What cannot be read has no webhooks.
                    let read = serde_json::from_slice(&entry.unmanaged());
                    let read = read.map(|configuration| hook::read_all(&configuration));
                    read.unwrap_or_default().into_iter().map(Arc::new).collect()
                }
            };
            hooks.extend(own.iter().cloned());
            feed.known.insert(name, (revision, own));
        }
        let is_empty = hooks.is_empty();
        *self.all.write() = hooks.into();
        self.is_empty.store(is_empty, Ordering::Release);
    }
}
