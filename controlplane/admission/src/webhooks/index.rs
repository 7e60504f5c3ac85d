//! All webhooks of a kind of configuration, MutatingWebhookConfiguration or
//! ValidatingWebhookConfiguration, by the names of these.
//!
//! The truth is in the watch cache, and in files, whose webhooks come first; this is read off both.
//! There is no task: whoever asks takes in what has changed first. A cluster without configurations
//! pays a few loads.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use coracle_api::meta;
use coracle_registry::{
    beside::beside,
    resource::{Registry, Resource},
    watch_cache::{Entry, KeyScope, Selection, Watcher},
};
use coracle_store::Revision;
use parking_lot::{Mutex, RwLock};
use serde_json::Value;
use tokio::sync::watch;

use super::hook::{self, Hook};
use crate::{
    kubeconfig::Authentication,
    manifests::{Loaded, config::WebhookConfig},
    matching::Asked,
};

const GROUP: &str = "admissionregistration.k8s.io";

/// Webhooks in the order in which they are called.
pub(crate) type All = Arc<[Arc<Hook>]>;

/// The webhooks of all configurations of a kind.
pub(crate) struct Hooks(Option<Kept>);

struct Kept {
    resource: Arc<Resource>,
    /// Of files alone.
    fixed: List,
    /// Those and all others.
    all: List,
    authentication: Arc<Authentication>,
    feed: Mutex<Feed>,
}

/// Webhooks, and whether there are any.
struct List {
    hooks: RwLock<All>,
    is_empty: AtomicBool,
}

struct Feed {
    watcher: Watcher,
    manifests: Option<watch::Receiver<Arc<Loaded>>>,
    /// By the name of the configuration: what did not change is not compiled again.
    known: HashMap<String, Known>,
}

/// What was made of a configuration.
struct Known {
    revision: Revision,
    uid: String,
    generation: i64,
    hooks: Vec<Arc<Hook>>,
}

impl Hooks {
    /// Reads what there is in the cache, and what files say.
    pub(crate) fn new(registry: &Registry, plural: &str, told: &WebhookConfig) -> Self {
        let Some(resource) = registry.get(GROUP, "v1", plural) else {
            return Self(None);
        };
        let (_, watcher) = resource.cache.snapshot_and_watch(everything());
        let kept = Kept {
            resource: Arc::clone(resource),
            fixed: List::default(),
            all: List::default(),
            authentication: Arc::clone(&told.authentication),
            feed: Mutex::new(Feed {
                watcher,
                manifests: told.manifests.as_ref().map(|source| source.subscribe()),
                known: HashMap::new(),
            }),
        };
        let mut feed = kept.feed.lock();
        kept.read_manifests(&mut feed);
        kept.read(&mut feed);
        drop(feed);
        Self(Some(kept))
    }

    /// Whether there are some of those that may be asked; which these are is looked at only if
    /// there are any. Asked for every write.
    pub(crate) fn has_some(&self, asked: impl FnOnce() -> Asked) -> bool {
        let Some(kept) = &self.0 else { return false };
        kept.take_changes();
        let has = |list: &List| !list.is_empty.load(Ordering::Acquire);
        has(&kept.all) && kept.list(asked()).is_some_and(has)
    }

    /// All that there are of them.
    pub(crate) fn all(&self, asked: Asked) -> All {
        let list = self.0.as_ref().and_then(|kept| kept.list(asked));
        list.map_or_else(
            || Arc::new([]) as All,
            |list| Arc::clone(&list.hooks.read()),
        )
    }
}

impl Default for List {
    fn default() -> Self {
        Self {
            hooks: RwLock::new(Arc::new([])),
            is_empty: AtomicBool::new(true),
        }
    }
}

impl List {
    fn set(&self, hooks: Vec<Arc<Hook>>) {
        let is_empty = hooks.is_empty();
        *self.hooks.write() = hooks.into();
        self.is_empty.store(is_empty, Ordering::Release);
    }
}

fn everything() -> Selection {
    Selection::of(KeyScope::Resource)
}

impl Kept {
    fn list(&self, asked: Asked) -> Option<&List> {
        match asked {
            Asked::All => Some(&self.all),
            Asked::Manifests => Some(&self.fixed),
            Asked::Nobody => None,
        }
    }

    fn take_changes(&self) {
        // Whoever holds the lock is doing the same.
        let Some(mut feed) = self.feed.try_lock() else {
            return;
        };
        let manifests = feed.manifests.as_ref();
        let has_files = manifests.is_some_and(|now| now.has_changed().unwrap_or_default());
        if has_files {
            self.read_manifests(&mut feed);
        }
        if !feed.watcher.has_news() && !has_files {
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
        // Thousands of conditions may have to be compiled.
        beside(|| self.read(&mut feed));
    }

    fn read_manifests(&self, feed: &mut Feed) {
        let Some(manifests) = &mut feed.manifests else {
            return;
        };
        let loaded = Arc::clone(&manifests.borrow_and_update());
        let mut hooks = Vec::new();
        for configuration in &loaded.objects {
            hooks.extend(self.read_one(configuration).into_iter().map(|mut hook| {
                // Nobody's of the API has this name.
                hook.uid = format!("manifest/{}", hook.uid);
                Arc::new(hook)
            }));
        }
        self.fixed.set(hooks);
    }

    fn read_one(&self, configuration: &Value) -> Vec<Hook> {
        let mut hooks = hook::read_all(configuration);
        for client in hooks
            .iter_mut()
            .filter_map(|hook| hook.client.as_mut().ok())
        {
            client.credentials = self.authentication.of(&client.target);
        }
        hooks
    }

    /// Of a configuration as it is in the cache; `before` of what it was.
    fn known(&self, entry: &Entry, before: Option<Known>) -> Known {
        // What cannot be read has no webhooks.
        let object = serde_json::from_slice(&entry.unmanaged()).unwrap_or_default();
        let (uid, generation) = (meta::uid(&object), meta::generation(&object));
        let is_same = |before: &Known| before.uid == uid && before.generation == generation;
        let hooks = match before.filter(is_same) {
            Some(before) => before.hooks,
            None => self.read_one(&object).into_iter().map(Arc::new).collect(),
        };
        Known {
            revision: entry.revision(),
            uid: uid.to_owned(),
            generation,
            hooks,
        }
    }

    fn read(&self, feed: &mut Feed) {
        let (snapshot, all) = (self.resource.cache.snapshot(), everything());
        let mut before = std::mem::take(&mut feed.known);
        // The cache is in the order of names.
        let mut hooks = self.fixed.hooks.read().to_vec();
        for entry in snapshot.select(&all, &self.resource.prefix) {
            let known = match before.remove(entry.name()) {
                Some(known) if known.revision == entry.revision() => known,
                old => self.known(entry, old),
            };
            hooks.extend(known.hooks.iter().cloned());
            feed.known.insert(entry.name().to_owned(), known);
        }
        self.all.set(hooks);
    }
}
