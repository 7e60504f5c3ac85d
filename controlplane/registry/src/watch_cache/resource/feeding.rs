//! How a resource takes in what the feed brings. Decoding is done before the lock is taken: the
//! feed is the only writer, so what it finds there stays until it comes back.

use std::{collections::HashMap, sync::Arc};

use coracle_store::{Event, KeyValue, Revision};
use coracle_telemetry::ErrorChain;
use tokio::time::Instant;

use super::{
    super::{
        ResourceConfig,
        entry::{Entry, EntrySource},
        event::{EventKind, WatchEvent},
        fields::Fields,
        groups::{Group, announce},
        objects::Objects,
        state::Counts,
    },
    ResourceCache,
};

impl ResourceCache {
    /// Applies the events of one batch; returns whom to wake.
    pub(in crate::watch_cache) fn apply(&self, events: &[&Event], revision: Revision) -> Wake {
        let made = self.made(events);
        let mut state = self.state.write();
        let mut concerned = state.ring.batch();
        for event in made {
            state.apply(event, &mut concerned);
        }
        state.revision = revision;
        state.trim(&self.limits);
        let allowed = state.superseded.saturating_sub(self.limits.beginning_bytes);
        state.beginnings.end_before(allowed);
        Wake {
            groups: concerned.groups,
            end: state.ring.end(),
        }
    }

    /// What the events of a batch do to what is there.
    fn made(&self, events: &[&Event]) -> Vec<Arc<WatchEvent>> {
        let at = Instant::now();
        // What earlier events of the batch have made of their objects.
        let mut newest: HashMap<&str, Option<Arc<Entry>>> = HashMap::new();
        let mut made = Vec::with_capacity(events.len());
        for event in events {
            let key = &*event.kv.key;
            let prev = match newest.get(key) {
                Some(newest) => newest.clone(),
                None => self.get(key),
            };
            let kind = match (event.deleted, &prev) {
                (true, _) => EventKind::Deleted,
                (false, None) => EventKind::Added,
                (false, Some(_)) => EventKind::Modified,
            };
            let Some(entry) = self.decode(&event.kv, kind, prev.as_deref()) else {
                continue;
            };
            if events.len() > 1 {
                newest.insert(key, (!event.deleted).then(|| Arc::clone(&entry)));
            }
            made.push(Arc::new(WatchEvent::new(kind, entry, prev, at)));
        }
        made
    }

    /// Replaces everything by `objects`, the state at `revision`. Watchers have lost what happened
    /// in between.
    pub(in crate::watch_cache) fn reset(&self, objects: &[KeyValue], revision: Revision) -> Wake {
        let (mut present, mut counts) =
            (Objects::new(self.config.index.as_ref()), Counts::default());
        for kv in objects {
            if let Some(entry) = self.decode(kv, EventKind::Added, None) {
                counts.add(&entry);
                present.insert(entry);
            }
        }
        let mut state = self.state.write();
        let before = state.reset((present, counts), revision);
        let wake = Wake {
            groups: state.groups.all(),
            end: state.ring.end(),
        };
        drop(state);
        drop(before);
        wake
    }

    /// Adds objects of the first load, in which nobody watches yet.
    pub(in crate::watch_cache) fn load(&self, objects: &[KeyValue]) {
        for kv in objects {
            if let Some(entry) = self.decode(kv, EventKind::Added, None) {
                self.state.write().insert(entry);
            }
        }
    }

    /// Forgets what has become too old. Nothing else does where nothing happens.
    pub(in crate::watch_cache) fn trim(&self) {
        while self.state.write().trim(&self.limits) {}
    }

    /// Ends every watch once it has taken what there is.
    pub(in crate::watch_cache) fn close(&self) -> Wake {
        let mut state = self.state.write();
        state.closed = true;
        Wake {
            groups: state.groups.all(),
            end: state.ring.end(),
        }
    }

    /// What cannot be decoded is left out, loudly: one broken object must not hide the others.
    pub(in crate::watch_cache) fn decode(
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
}

/// Watchers to be woken once all resources of a batch have been applied.
pub(in crate::watch_cache) struct Wake {
    groups: Vec<Arc<Group>>,
    end: u64,
}

impl Wake {
    pub(in crate::watch_cache) fn wake(self) {
        announce(&self.groups, self.end);
    }
}
