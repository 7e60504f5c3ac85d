//! Resources that come and go while the cache runs, without holding up the others.
//!
//! ```text
//! begin   at revision R: from here on the events of the prefix are kept aside
//! load    the state at R, in pages, while the feed goes on
//! finish  the events kept aside are applied, the resource is in; one that was there before is closed
//! ```
//!
//! Begin and finish hold the stream, so no event falls between; loading holds nothing. If the feed
//! lost its place meanwhile, or the store has forgotten R, it begins again.

use std::{ops::Bound, sync::Arc, time::Duration};

use coracle_store::{Backend, Event, EventBatch, Revision, StoreError};
use coracle_telemetry::Backoff;

use super::{ResourceConfig, Shared, WatchCacheError, feed, resource::ResourceCache};

/// Times that a resource is loaded before it is given up.
const TRIES: usize = 10;
/// Pauses between the tries, for the feed to find its place again.
const RETRY: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_millis(500));
/// Most events that are kept aside. A kind that nobody was served has no writers; one whose turn it
/// is again may.
const EVENTS: usize = 10_000;

/// What happens to a resource while it is loaded.
#[derive(Default)]
pub(super) struct Aside {
    /// Empty if none is.
    prefix: String,
    batches: Vec<(Vec<Event>, Revision)>,
    events: usize,
    /// The feed is about to begin elsewhere.
    is_lost: bool,
    /// Something is missing.
    has_gap: bool,
}

impl Aside {
    /// Keeps what concerns the resource that is being loaded.
    pub(super) fn keep(&mut self, batch: &EventBatch) {
        if self.prefix.is_empty() || self.has_gap {
            return;
        }
        let mine = batch
            .events
            .iter()
            .filter(|event| event.kv.key.starts_with(&self.prefix));
        let mine: Vec<Event> = mine.cloned().collect();
        self.events += mine.len();
        if self.events > EVENTS {
            self.has_gap = true;
            self.batches.clear();
        } else if !mine.is_empty() {
            self.batches.push((mine, batch.revision));
        }
    }

    /// The feed loses its place until [`Aside::goes_on`].
    pub(super) fn mark_lost(&mut self) {
        (self.is_lost, self.has_gap) = (true, true);
    }

    /// The feed goes on at the revision that is announced.
    pub(super) fn goes_on(&mut self) {
        self.is_lost = false;
    }
}

/// Ends the keeping aside, also of what is given up half-way.
struct Keeping<'a>(&'a Shared);

impl Drop for Keeping<'_> {
    fn drop(&mut self) {
        let mut aside = self.0.aside.lock();
        *aside = Aside {
            is_lost: aside.is_lost,
            ..Aside::default()
        };
    }
}

/// Loads a resource beside the others and puts it among them. One at a time.
pub(super) async fn register(
    backend: &dyn Backend,
    shared: &Shared,
    config: ResourceConfig,
) -> Result<Arc<ResourceCache>, WatchCacheError> {
    check(shared, &config.prefix)?;
    let mut retry = RETRY;
    for _ in 0..TRIES {
        if shared.announced.borrow().closed {
            return Err(WatchCacheError::Closed);
        }
        if let Some((keeping, at)) = begin(shared, &config.prefix) {
            let resource = shared.make(config.clone(), at);
            match feed::load(backend, &resource, at).await {
                Ok(()) if finish(shared, &keeping, &resource) => return Ok(resource),
                Ok(()) | Err(StoreError::Compacted { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        tokio::time::sleep(retry.pause()).await;
    }
    Err(WatchCacheError::NotLoaded {
        prefix: config.prefix,
    })
}

/// Takes a resource out. Its watchers end once they have taken what there is.
pub(super) fn unregister(shared: &Shared, prefix: &str) {
    let removed = shared.resources.write().remove(prefix);
    if let Some(removed) = removed {
        removed.close().wake();
    }
}

/// Keys of one resource must not lie among those of another.
fn check(shared: &Shared, prefix: &str) -> Result<(), WatchCacheError> {
    let resources = shared.resources.read();
    let mut others = resources.keys().filter(|other| *other != prefix);
    match others.find(|other| other.starts_with(prefix) || prefix.starts_with(other.as_str())) {
        Some(other) => Err(WatchCacheError::PrefixTaken {
            prefix: prefix.to_owned(),
            by: other.clone(),
        }),
        None => Ok(()),
    }
}

fn begin<'a>(shared: &'a Shared, prefix: &str) -> Option<(Keeping<'a>, Revision)> {
    let _still = shared.source.hold();
    let mut aside = shared.aside.lock();
    if aside.is_lost {
        return None;
    }
    *aside = Aside {
        prefix: prefix.to_owned(),
        ..Aside::default()
    };
    Some((Keeping(shared), shared.applied()))
}

/// Whether the resource has everything and is in.
fn finish(shared: &Shared, _keeping: &Keeping<'_>, resource: &Arc<ResourceCache>) -> bool {
    let still = shared.source.hold();
    let batches = {
        let mut aside = shared.aside.lock();
        if aside.has_gap {
            return false;
        }
        std::mem::take(&mut aside.batches)
    };
    for (events, revision) in &batches {
        // Nobody watches yet.
        drop(resource.apply(&events.iter().collect::<Vec<_>>(), *revision));
    }
    let before = {
        let mut resources = shared.resources.write();
        resources.insert(resource.config().prefix.clone(), Arc::clone(resource))
    };
    drop(still);
    if let Some(before) = before {
        before.close().wake();
    }
    // The end of the cache closes what it finds.
    if shared.announced.borrow().closed {
        resource.close().wake();
    }
    true
}

impl Shared {
    /// The resource whose prefix `key` has.
    pub(super) fn resource_of(&self, key: &str) -> Option<Arc<ResourceCache>> {
        let resources = self.resources.read();
        let (prefix, resource) = resources
            .range::<str, _>((Bound::Unbounded, Bound::Included(key)))
            .next_back()?;
        key.starts_with(prefix).then(|| Arc::clone(resource))
    }
}
