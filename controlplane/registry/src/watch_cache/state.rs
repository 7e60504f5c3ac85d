//! What the lock of a resource protects.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Instant,
};

use coracle_store::Revision;
use imbl::OrdSet;

use super::{
    WatchCacheLimits,
    beginning::Beginnings,
    entry::{ByKey, Entry},
    ring::{Groups, Ring},
    selection::KeyScope,
    snapshot::Snapshot,
};

/// The objects and their past.
pub(super) struct State {
    pub(super) entries: OrdSet<ByKey>,
    /// How many objects each namespace has.
    pub(super) counts: HashMap<Box<str>, usize>,
    /// Revision of the last batch that touched this resource.
    pub(super) revision: Revision,
    pub(super) ring: Ring,
    pub(super) groups: Groups,
    /// States that continue tokens refer to, oldest first.
    pub(super) pins: VecDeque<Pin>,
    /// States that watches begin with.
    pub(super) beginnings: Beginnings,
    /// Bytes of all objects that were ever superseded: what a state of the past keeps alive is the
    /// difference since.
    pub(super) superseded: u64,
    pub(super) closed: bool,
}

/// A state kept for continue tokens.
pub(super) struct Pin {
    pub(super) snapshot: Snapshot,
    pub(super) used: Instant,
    pub(super) superseded_before: u64,
}

impl State {
    /// Nothing yet, as of `start`.
    pub(super) fn new(start: Revision, limits: WatchCacheLimits) -> Self {
        Self {
            entries: OrdSet::new(),
            counts: HashMap::new(),
            revision: start,
            ring: Ring::new(start, limits),
            groups: Groups::new(),
            pins: VecDeque::new(),
            beginnings: Beginnings::default(),
            superseded: 0,
            closed: false,
        }
    }

    pub(super) fn insert(&mut self, entry: Arc<Entry>) {
        let namespace = entry.namespace().map(Box::from);
        if self.entries.insert(ByKey(entry)).is_none()
            && let Some(namespace) = namespace
        {
            *self.counts.entry(namespace).or_default() += 1;
        }
    }

    pub(super) fn remove(&mut self, entry: &Entry) {
        if self.entries.remove(entry.key()).is_some()
            && let Some(namespace) = entry.namespace()
            && let Some(count) = self.counts.get_mut(namespace)
        {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(namespace);
            }
        }
    }

    /// Forgets states that are too old, too many, or keep too much alive.
    pub(super) fn expire_pins(&mut self, limits: &WatchCacheLimits) {
        let superseded = self.superseded;
        self.pins.retain(|pin| {
            pin.used.elapsed() < limits.pin_age
                && superseded - pin.superseded_before <= limits.pin_bytes
        });
        while self.pins.len() > limits.pins {
            self.pins.pop_front();
        }
    }

    /// How many objects a scope has; `None` for a single key.
    pub(super) fn count(&self, scope: &KeyScope) -> Option<usize> {
        match scope {
            KeyScope::Resource => Some(self.entries.len()),
            KeyScope::Namespace(namespace) => {
                Some(self.counts.get(&**namespace).copied().unwrap_or_default())
            }
            KeyScope::Key(_) => None,
        }
    }
}
