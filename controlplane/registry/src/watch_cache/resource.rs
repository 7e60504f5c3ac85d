//! The objects of one resource: the present in key order, the recent past in a ring.
//!
//! Pure bookkeeping behind one lock, no I/O. The feed is the only writer. The set is persistent: a
//! snapshot is a clone of a pointer, and the past is the present with the ring's events undone.

mod past;
pub(super) mod pending;

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use coracle_store::{Event, KeyValue, Revision};
use coracle_telemetry::ErrorChain;
use imbl::OrdSet;
use parking_lot::RwLock;

use super::{
    ResourceConfig, WatchCacheError, WatchCacheLimits,
    beginning::Beginning,
    entry::{Entry, EntrySource},
    event::{EventKind, WatchEvent},
    fields::Fields,
    list::{ListAt, ListRequest, ListResult},
    pool::Pool,
    ring::{Group, Narrow, announce},
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
        applied: Arc<AtomicU64>,
        start: Revision,
    ) -> Arc<Self> {
        let state = State::new(start, limits);
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
        self.state
            .read()
            .entries
            .get(key)
            .map(|entry| Arc::clone(&entry.0))
    }

    /// How many objects there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.state.read().entries.len()
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
        let mut state = self.state.write();
        let current = self.revision_of(&state);
        if revision > current {
            return Err(WatchCacheError::TooLarge {
                asked: revision,
                current,
            });
        }
        let too_old = WatchCacheError::TooOld {
            asked: revision,
            oldest: state.ring.start(),
        };
        let cursor = state.ring.after(revision).ok_or(too_old)?;
        let group = state.groups.join(self.narrow(&selection));
        drop(state);
        Ok(Watcher::new(Arc::clone(self), selection, group, cursor))
    }

    /// The present and a watch of everything after it, with nothing lost or doubled in between.
    #[must_use]
    pub fn snapshot_and_watch(self: &Arc<Self>, selection: Selection) -> (Snapshot, Watcher) {
        let mut state = self.state.write();
        let snapshot = self.snapshot_of(&state);
        let cursor = state.ring.end();
        let group = state.groups.join(self.narrow(&selection));
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

    pub(super) fn leave(&self, selection: &Selection, group: &Arc<Group>) {
        if let Some(narrow) = self.narrow(selection) {
            self.state.write().groups.leave(&narrow, group);
        }
    }

    fn narrow(&self, selection: &Selection) -> Option<Narrow> {
        Narrow::of(selection, self.config.index.as_ref())
    }

    #[cfg(test)]
    pub(super) fn narrow_groups(&self) -> usize {
        self.state.read().groups.narrow_count()
    }

    // === for the feed ===

    /// Applies the events of one batch; returns whom to wake.
    pub(super) fn apply(&self, events: &[&Event], revision: Revision) -> Wake {
        let mut state = self.state.write();
        let applied: Vec<Arc<WatchEvent>> = events
            .iter()
            .filter_map(|event| self.apply_one(&mut state, event))
            .collect();
        state.revision = revision;
        state.expire_pins(&self.limits);
        let allowed = state.superseded.saturating_sub(self.limits.beginning_bytes);
        state.beginnings.end_before(allowed);
        Wake {
            groups: state.groups.concerned(&applied),
            end: state.ring.end(),
        }
    }

    /// Replaces everything by `objects`, the state at `revision`. Watchers have lost what happened
    /// in between.
    pub(super) fn reset(&self, objects: &[KeyValue], revision: Revision) -> Wake {
        let entries: Vec<_> = objects
            .iter()
            .filter_map(|kv| self.decode(kv, EventKind::Added, None))
            .collect();
        let mut state = self.state.write();
        let State { ring, groups, .. } = &mut *state;
        ring.reset(revision, groups);
        state.entries = OrdSet::new();
        state.counts.clear();
        for entry in entries {
            state.insert(entry);
        }
        state.revision = revision;
        state.pins.clear();
        state.beginnings.end_before(u64::MAX);
        Wake {
            groups: state.groups.all(),
            end: state.ring.end(),
        }
    }

    /// Adds objects of the first load, in which nobody watches yet.
    pub(super) fn load(&self, objects: &[KeyValue]) {
        for kv in objects {
            if let Some(entry) = self.decode(kv, EventKind::Added, None) {
                self.state.write().insert(entry);
            }
        }
    }

    /// Ends every watch once it has taken what there is.
    pub(super) fn close(&self) -> Wake {
        let mut state = self.state.write();
        state.closed = true;
        Wake {
            groups: state.groups.all(),
            end: state.ring.end(),
        }
    }

    fn apply_one(&self, state: &mut State, event: &Event) -> Option<Arc<WatchEvent>> {
        let prev = state
            .entries
            .get(&*event.kv.key)
            .map(|entry| Arc::clone(&entry.0));
        let kind = match (event.deleted, &prev) {
            (true, _) => EventKind::Deleted,
            (false, None) => EventKind::Added,
            (false, Some(_)) => EventKind::Modified,
        };
        let entry = self.decode(&event.kv, kind, prev.as_deref())?;
        if event.deleted {
            state.remove(&entry);
        } else {
            state.insert(Arc::clone(&entry));
        }
        state.superseded += prev.as_ref().map_or(0, |prev| prev.size() as u64);
        let event = Arc::new(WatchEvent::new(kind, entry, prev));
        state.ring.push(Arc::clone(&event), &state.groups);
        Some(event)
    }

    /// What cannot be decoded is left out, loudly: one broken object must not hide the others.
    pub(super) fn decode(
        &self,
        kv: &KeyValue,
        kind: EventKind,
        prev: Option<&Entry>,
    ) -> Option<Arc<Entry>> {
        let ResourceConfig {
            prefix, namespaced, ..
        } = &self.config;
        let converted = self.config.converted(kv);
        let source = EntrySource {
            kv: converted.as_ref().unwrap_or(kv),
            kind,
            prefix,
            namespaced: *namespaced,
            pool: &self.pool,
        };
        let index = |json: &[u8]| match prev {
            Some(prev) if kind == EventKind::Deleted => Ok(prev.fields().clone()),
            _ => self.index(json),
        };
        Entry::decode(&source, index)
            .inspect_err(|error| tracing::error!(key = %kv.key, error = %ErrorChain(&error), "leaving out an object that cannot be read"))
            .map(Arc::new)
            .ok()
    }

    fn index(&self, json: &[u8]) -> Result<Fields, serde_json::Error> {
        self.config.index.as_ref().map_or_else(
            || Ok(Fields::default()),
            |index| index.read(json, &self.pool),
        )
    }

    // === states ===

    fn snapshot_of(&self, state: &State) -> Snapshot {
        Snapshot {
            revision: self.revision_of(state),
            entries: state.entries.clone(),
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

/// Watchers to be woken once all resources of a batch have been applied.
pub(super) struct Wake {
    groups: Vec<Arc<Group>>,
    end: u64,
}

impl Wake {
    pub(super) fn wake(self) {
        announce(&self.groups, self.end);
    }
}
