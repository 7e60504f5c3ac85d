//! The recent events of one resource, which watchers read and states of the past are made of.
//!
//! Watchers have no copies: each holds the sequence number of the next event that it has not seen.
//! What is younger than a watch's longest silence stays, and a little at any age, within bounds in
//! number and in bytes: of this ring, and of all rings together for what goes beyond the little.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use coracle_store::Revision;
use tokio::time::Instant;

use super::{
    WatchCacheLimits,
    entry::Entry,
    event::{EventKind, WatchEvent},
    events::Events,
    groups::{Group, Groups},
};

/// The events are kept even if they are larger than the limits in bytes.
const EVENTS_AT_LEAST: usize = 64;
/// Events that leave while nobody reads. More than come in one batch, as a rule.
const DROPPED_AT_ONCE: usize = 2048;
/// What an event costs beside the objects that it keeps alive: itself, and its places in the ring
/// and in queues.
const EVENT_OVERHEAD_BYTES: usize = 192;

/// Recent events.
pub(super) struct Ring {
    events: Events,
    /// Every event after this revision is in the ring.
    start: Revision,
    bytes: usize,
    limits: WatchCacheLimits,
    /// Bytes of all rings.
    all: Arc<AtomicUsize>,
}

/// Whom the events of one batch concern.
pub(super) struct Concerned {
    /// Number of its first event.
    batch: u64,
    pub(super) groups: Vec<Arc<Group>>,
}

impl Ring {
    /// Empty; `all` counts the bytes of all rings.
    pub(super) fn new(start: Revision, limits: WatchCacheLimits, all: Arc<AtomicUsize>) -> Self {
        Self {
            events: Events::starting_at(0),
            start,
            bytes: 0,
            limits,
            all,
        }
    }

    pub(super) fn events(&self) -> &Events {
        &self.events
    }

    /// Sequence number of the next event.
    pub(super) fn end(&self) -> u64 {
        self.events.end()
    }

    /// Sequence number of the oldest event.
    pub(super) fn first(&self) -> u64 {
        self.events.first()
    }

    /// Watches and rollbacks are possible from this revision on.
    pub(super) fn start(&self) -> Revision {
        self.start
    }

    /// Where a watch from `revision` begins.
    pub(super) fn after(&self, revision: Revision) -> Option<u64> {
        (revision >= self.start).then(|| self.events.after(revision))
    }

    /// Begins a batch.
    pub(super) fn batch(&self) -> Concerned {
        Concerned {
            batch: self.end(),
            groups: Vec::new(),
        }
    }

    /// Appends an event of the batch.
    pub(super) fn push(
        &mut self,
        event: Arc<WatchEvent>,
        groups: &Groups,
        concerned: &mut Concerned,
    ) {
        groups.note(&event, self.end(), concerned.batch, &mut concerned.groups);
        let bytes = cost(&event);
        self.bytes += bytes;
        self.all.fetch_add(bytes, Ordering::Relaxed);
        self.events.push(event);
    }

    /// Drops what is beyond the limits, up to a bound in time; whether there is more.
    pub(super) fn trim(&mut self, now: Instant, groups: &Groups) -> bool {
        for _ in 0..DROPPED_AT_ONCE {
            if !self.is_over(now) || !self.drop_first(groups) {
                return false;
            }
        }
        true
    }

    fn is_over(&self, now: Instant) -> bool {
        let (count, limits) = (self.events.len(), &self.limits);
        let is_beyond =
            |events, bytes| count > events || (self.bytes > bytes && count > EVENTS_AT_LEAST);
        if is_beyond(limits.ring_events, limits.ring_bytes) {
            return true;
        }
        let oldest = self.events.oldest();
        let is_old =
            oldest.is_some_and(|oldest| now.saturating_duration_since(oldest.at) > limits.ring_age);
        is_beyond(limits.ring_events_at_any_age, limits.ring_bytes_at_any_age)
            && (is_old || self.all.load(Ordering::Relaxed) > limits.all_rings_bytes)
    }

    /// Forgets everything: what happens up to `start` is not known.
    pub(super) fn reset(&mut self, start: Revision, groups: &Groups) {
        // A gap in the numbers: every watcher has lost something.
        let first = self.end() + 1;
        self.events = Events::starting_at(first);
        self.all.fetch_sub(self.bytes, Ordering::Relaxed);
        self.bytes = 0;
        self.start = start;
        groups.lose_all(first);
    }

    fn drop_first(&mut self, groups: &Groups) -> bool {
        let Some((sequence, event)) = self.events.pop() else {
            return false;
        };
        groups.lose(&event, sequence);
        let bytes = cost(&event);
        self.bytes -= bytes;
        self.all.fetch_sub(bytes, Ordering::Relaxed);
        self.start = event.revision;
        true
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        self.all.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// What an event keeps alive that the present state does not.
fn cost(event: &WatchEvent) -> usize {
    let past = |entry: &Entry| entry.size() + entry.key().len() + size_of::<Entry>();
    let prev = event.prev.as_deref().map_or(0, past);
    let gone = if event.kind == EventKind::Deleted {
        past(&event.entry)
    } else {
        0
    };
    EVENT_OVERHEAD_BYTES + prev + gone
}
