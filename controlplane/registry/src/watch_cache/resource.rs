//! The objects of one resource: the present in key order, the recent past in a ring.
//!
//! Pure bookkeeping behind one lock, no I/O. The feed is the only writer: what it is about to add
//! it decodes before it takes the lock. The set is persistent: a snapshot is a clone of a pointer,
//! and the past is the present with the ring's events undone.

mod feeding;
mod past;
pub(super) mod pending;

use std::sync::{
    Arc,
    atomic::{AtomicU64, AtomicUsize, Ordering},
};

use coracle_store::Revision;
use parking_lot::RwLock;

pub(super) use self::feeding::Wake;
use super::{
    ResourceConfig, WatchCacheError, WatchCacheLimits,
    beginning::Beginning,
    entry::Entry,
    fields::FieldIndex,
    groups::{Backlog, Narrow},
    list::{ListAt, ListRequest, ListResult},
    objects::Objects,
    pool::Pool,
    ring::Ring,
    selection::Selection,
    snapshot::Snapshot,
    state::State,
    watcher::Watcher,
};

/// The cache of one resource.
pub struct ResourceCache {
    config: ResourceConfig,
    limits: WatchCacheLimits,
    /// Revision up to which the whole cache, all resources, has been fed.
    applied: Arc<AtomicU64>,
    state: RwLock<State>,
    /// What objects share: values of indexed fields, what managers own.
    pool: Pool,
}

impl ResourceCache {
    pub(super) fn new(
        config: ResourceConfig,
        limits: WatchCacheLimits,
        (applied, ring_bytes): (Arc<AtomicU64>, Arc<AtomicUsize>),
        start: Revision,
    ) -> Arc<Self> {
        let index = config.index.as_ref();
        let ring = Ring::new(start, limits.of(&config), ring_bytes);
        let fields = index.map_or(0, FieldIndex::count);
        let state = State::new(Objects::new(index), fields, ring);
        Arc::new(Self {
            config,
            limits,
            applied,
            state: RwLock::new(state),
            pool: Pool::default(),
        })
    }

    /// What the resource was registered with.
    #[must_use]
    pub fn config(&self) -> &ResourceConfig {
        &self.config
    }

    /// One object, by its full key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<Arc<Entry>> {
        self.state.read().objects.get(key).cloned()
    }

    /// How many objects there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.state.read().objects.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The present.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.snapshot_of(&self.state.read())
    }

    /// The objects of a selection, whole or in chunks of one state.
    ///
    /// # Errors
    /// [`WatchCacheError::TooOld`] when the asked state is no longer known,
    /// [`WatchCacheError::TooLarge`] when it is not there yet (wait with
    /// [`super::WatchCache::wait_for`] first).
    pub fn list(&self, request: &ListRequest) -> Result<ListResult, WatchCacheError> {
        let (snapshot, total) = match request.at {
            ListAt::Latest => {
                let state = self.state.read();
                (
                    self.snapshot_of(&state),
                    state.count(&request.selection.scope),
                )
            }
            ListAt::Exact(revision) => (self.snapshot_at(revision)?, None),
        };
        let result = super::list::cut(&snapshot, request, &self.config.prefix, total);
        if result.next.is_some() {
            self.pin(&snapshot);
        }
        Ok(result)
    }

    /// Watches a selection from the events after `revision` on.
    ///
    /// # Errors
    /// [`WatchCacheError::TooOld`]: 410; [`WatchCacheError::TooLarge`]: wait for the revision
    /// first, then 504.
    pub fn watch(
        self: &Arc<Self>,
        selection: Selection,
        revision: Revision,
    ) -> Result<Watcher, WatchCacheError> {
        let narrow = self.narrow(&selection);
        let backlog = self.backlog(narrow.as_ref(), revision)?;
        let mut state = self.state.write();
        let cursor = self.cursor(&state, revision)?;
        let State { groups, ring, .. } = &mut *state;
        let group = groups.join(narrow.as_ref(), ring.events(), cursor, backlog);
        drop(state);
        Ok(Watcher::new(Arc::clone(self), selection, group, cursor))
    }

    /// Which of the events since a revision concern a group that has no queue of them yet. They are
    /// looked through while nobody waits: the lock is for joining the group.
    fn backlog(
        &self,
        narrow: Option<&Narrow>,
        revision: Revision,
    ) -> Result<Option<Backlog>, WatchCacheError> {
        let state = self.state.read();
        let cursor = self.cursor(&state, revision)?;
        let Some(narrow) = narrow.filter(|narrow| !state.groups.reaches(narrow, cursor)) else {
            return Ok(None);
        };
        let events = state.ring.events().clone();
        drop(state);
        Ok(Some(Backlog::find(narrow, &events, cursor)))
    }

    /// Where in the ring a revision is.
    fn cursor(&self, state: &State, revision: Revision) -> Result<u64, WatchCacheError> {
        let current = self.revision_of(state);
        if revision > current {
            return Err(WatchCacheError::TooLarge {
                asked: revision,
                current,
            });
        }
        let too_old = || WatchCacheError::TooOld {
            asked: revision,
            oldest: state.ring.start(),
        };
        state.ring.after(revision).ok_or_else(too_old)
    }

    /// The present and a watch of everything after it, with nothing lost or doubled in between.
    #[must_use]
    pub fn snapshot_and_watch(self: &Arc<Self>, selection: Selection) -> (Snapshot, Watcher) {
        let narrow = self.narrow(&selection);
        let mut state = self.state.write();
        let snapshot = self.snapshot_of(&state);
        let State { groups, ring, .. } = &mut *state;
        let cursor = ring.end();
        let group = groups.join(narrow.as_ref(), ring.events(), cursor, None);
        drop(state);
        (
            snapshot,
            Watcher::new(Arc::clone(self), selection, group, cursor),
        )
    }

    /// The same, with the present as it is sent to a client that may not take it.
    #[must_use]
    pub fn begin_and_watch(self: &Arc<Self>, selection: Selection) -> (Beginning, Watcher) {
        let (snapshot, watcher) = self.snapshot_and_watch(selection.clone());
        let beginning = Beginning::new(&self.config.prefix, selection, snapshot);
        let mut state = self.state.write();
        let superseded = state.superseded;
        state.beginnings.add(superseded, &beginning);
        (beginning, watcher)
    }

    // === for watchers ===

    pub(super) fn leave(&self, selection: &Selection) {
        if let Some(narrow) = self.narrow(selection) {
            self.state.write().groups.leave(&narrow);
        }
    }

    fn narrow(&self, selection: &Selection) -> Option<Narrow> {
        Narrow::of(selection, self.config.index.as_ref())
    }

    #[cfg(test)]
    pub(super) fn narrow_groups(&self) -> usize {
        self.state.read().groups.narrow_count()
    }

    /// How many numbers of events all groups have, and how many events there are.
    #[cfg(test)]
    pub(super) fn queued(&self) -> (usize, u64) {
        let state = self.state.read();
        (state.groups.queued(), state.ring.end() - state.ring.first())
    }

    // === states ===

    fn snapshot_of(&self, state: &State) -> Snapshot {
        Snapshot {
            revision: self.revision_of(state),
            objects: state.objects.clone(),
        }
    }

    /// The newest revision that `state` is the state of: other resources' revisions count as well.
    fn revision_of(&self, state: &State) -> Revision {
        state
            .revision
            .max(Revision(self.applied.load(Ordering::Acquire)))
    }
}

impl std::fmt::Debug for ResourceCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ResourceCache")
            .field("prefix", &self.config.prefix)
            .finish_non_exhaustive()
    }
}
