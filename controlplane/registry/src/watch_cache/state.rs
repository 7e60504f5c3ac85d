//! What the lock of a resource protects.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Instant,
};

use coracle_store::Revision;

use super::{
    WatchCacheLimits,
    beginning::Beginnings,
    entry::Entry,
    event::{EventKind, WatchEvent},
    groups::Groups,
    objects::Objects,
    ring::{Concerned, Ring},
    selection::KeyScope,
    snapshot::Snapshot,
};

/// The objects and their past.
pub(super) struct State {
    pub(super) objects: Objects,
    counts: Counts,
    /// Revision of the last batch that touched this resource.
    pub(super) revision: Revision,
    pub(super) ring: Ring,
    pub(super) groups: Groups,
    /// States on the way through the ring, each before the event with its number.
    pub(super) milestones: VecDeque<(u64, Objects)>,
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

/// How many objects each namespace has.
#[derive(Default)]
pub(super) struct Counts(HashMap<Box<str>, usize>);

impl Counts {
    pub(super) fn add(&mut self, entry: &Entry) {
        let Some(namespace) = entry.namespace() else {
            return;
        };
        match self.0.get_mut(namespace) {
            Some(count) => *count += 1,
            None => drop(self.0.insert(namespace.into(), 1)),
        }
    }

    fn subtract(&mut self, entry: &Entry) {
        if let Some(namespace) = entry.namespace()
            && let Some(count) = self.0.get_mut(namespace)
        {
            *count -= 1;
            if *count == 0 {
                self.0.remove(namespace);
            }
        }
    }
}

/// Events from one milestone to the next: most that are undone for a state of the past.
const MILESTONE_EVENTS: u64 = if cfg!(test) { 16 } else { 8192 };

impl State {
    /// Nothing yet.
    pub(super) fn new(objects: Objects, fields: usize, ring: Ring) -> Self {
        Self {
            objects,
            counts: Counts::default(),
            revision: ring.start(),
            ring,
            groups: Groups::new(fields),
            milestones: VecDeque::new(),
            pins: VecDeque::new(),
            beginnings: Beginnings::default(),
            superseded: 0,
            closed: false,
        }
    }

    pub(super) fn insert(&mut self, entry: Arc<Entry>) {
        if self.objects.insert(Arc::clone(&entry)).is_none() {
            self.counts.add(&entry);
        }
    }

    fn remove(&mut self, entry: &Entry) {
        if self.objects.remove(entry.key()).is_some() {
            self.counts.subtract(entry);
        }
    }

    /// Makes an event part of the state and of its past.
    pub(super) fn apply(&mut self, event: Arc<WatchEvent>, concerned: &mut Concerned) {
        if self.ring.end().is_multiple_of(MILESTONE_EVENTS) {
            self.milestones
                .push_back((self.ring.end(), self.objects.clone()));
        }
        if event.kind == EventKind::Deleted {
            self.remove(&event.entry);
        } else {
            self.insert(Arc::clone(&event.entry));
        }
        let prev = event.prev.as_ref();
        self.superseded += prev.map_or(0, |prev| prev.size() as u64);
        self.ring.push(event, &self.groups, concerned);
    }

    /// Forgets what of the past is beyond the limits, or a piece of it; whether there is more.
    pub(super) fn trim(&mut self, limits: &WatchCacheLimits) -> bool {
        let now = tokio::time::Instant::now();
        let is_over = self.ring.trim(now, &self.groups);
        let first = self.ring.first();
        while self
            .milestones
            .pop_front_if(|(at, _)| *at < first)
            .is_some()
        {}
        self.expire_pins(limits);
        is_over
    }

    /// Replaces everything by the state at `revision`; what happened up to it is not known. Returns
    /// what was there.
    pub(super) fn reset(
        &mut self,
        (objects, counts): (Objects, Counts),
        revision: Revision,
    ) -> impl Sized + use<> {
        self.ring.reset(revision, &self.groups);
        self.revision = revision;
        self.counts = counts;
        self.beginnings.end_before(u64::MAX);
        (
            std::mem::replace(&mut self.objects, objects),
            std::mem::take(&mut self.milestones),
            std::mem::take(&mut self.pins),
        )
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
            KeyScope::Resource => Some(self.objects.len()),
            KeyScope::Namespace(namespace) => {
                Some(self.counts.0.get(&**namespace).copied().unwrap_or_default())
            }
            KeyScope::Key(_) => None,
        }
    }
}
