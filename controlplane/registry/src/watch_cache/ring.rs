//! The recent events of one resource and the groups of watchers that wait for them.
//!
//! Watchers have no queues: each holds the sequence number of the next event that it has not seen,
//! and reads from here. An event wakes only the groups that it concerns (everybody, its namespace,
//! its key, its indexed fields). When an event leaves the ring, its groups note it: a watcher of
//! that group that had not read it yet has lost it. A group of a hundred watchers and more is woken
//! every few milliseconds at most, the less often the more they are.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use coracle_store::Revision;
use parking_lot::Mutex;
use tokio::{sync::watch, time::Instant};

use super::{
    WatchCacheLimits,
    entry::Entry,
    event::{EventKind, WatchEvent},
    fields::FieldIndex,
    selection::{KeyScope, Selection},
};

/// The events are kept even if they are larger than the limit in bytes.
const EVENTS_AT_LEAST: usize = 64;
/// What an event costs beside the objects that it keeps alive.
const EVENT_OVERHEAD_BYTES: usize = 160;

/// Recent events in order.
pub(super) struct Ring {
    events: VecDeque<Arc<WatchEvent>>,
    /// Sequence number of `events[0]`.
    first: u64,
    /// Every event after this revision is in the ring.
    start: Revision,
    bytes: usize,
    limits: WatchCacheLimits,
}

impl Ring {
    pub(super) fn new(start: Revision, limits: WatchCacheLimits) -> Self {
        Self {
            events: VecDeque::new(),
            first: 0,
            start,
            bytes: 0,
            limits,
        }
    }

    /// Sequence number of the next event.
    pub(super) fn end(&self) -> u64 {
        self.first + self.events.len() as u64
    }

    /// Watches and rollbacks are possible from this revision on.
    pub(super) fn start(&self) -> Revision {
        self.start
    }

    /// Where a watch from `revision` begins.
    pub(super) fn after(&self, revision: Revision) -> Option<u64> {
        let index = self
            .events
            .partition_point(|event| event.revision <= revision);
        (revision >= self.start).then_some(self.first + index as u64)
    }

    /// Events from a sequence number on, with their numbers.
    pub(super) fn from(
        &self,
        sequence: u64,
    ) -> impl DoubleEndedIterator<Item = (u64, &Arc<WatchEvent>)> {
        let skip = usize::try_from(sequence.saturating_sub(self.first))
            .unwrap_or(usize::MAX)
            .min(self.events.len());
        let first = self.first + skip as u64;
        self.events
            .range(skip..)
            .enumerate()
            .map(move |(index, event)| (first + index as u64, event))
    }

    /// Appends, and drops what is beyond the limits.
    pub(super) fn push(&mut self, event: Arc<WatchEvent>, groups: &Groups) {
        self.bytes += cost(&event);
        self.events.push_back(event);
        while self.events.len() > self.limits.ring_events
            || (self.bytes > self.limits.ring_bytes && self.events.len() > EVENTS_AT_LEAST)
        {
            self.drop_first(groups);
        }
    }

    /// Forgets everything: what happens up to `start` is not known.
    pub(super) fn reset(&mut self, start: Revision, groups: &Groups) {
        self.events.clear();
        self.bytes = 0;
        self.start = start;
        // A gap in the numbers: every watcher has lost something.
        self.first += 1 + self.limits.ring_events as u64;
        groups.lose_all(self.first - 1);
    }

    fn drop_first(&mut self, groups: &Groups) {
        if let Some(event) = self.events.pop_front() {
            groups.each_concerned(&event, |group| {
                group.lost.store(self.first, Ordering::Release)
            });
            self.first += 1;
            self.bytes -= cost(&event);
            self.start = event.revision;
        }
    }
}

/// What an event keeps alive that the present state does not.
fn cost(event: &WatchEvent) -> usize {
    let prev = event.prev.as_ref().map_or(0, |prev| prev.size());
    let gone = if event.kind == EventKind::Deleted {
        event.entry.size()
    } else {
        0
    };
    EVENT_OVERHEAD_BYTES + prev + gone
}

/// Watchers that the same events concern.
pub(super) struct Group {
    /// Sequence number after the newest event that concerns the group.
    newest: watch::Sender<u64>,
    /// Sequence number of the newest concerning event that has left the ring; [`NOTHING_LOST`]
    /// before the first.
    lost: AtomicU64,
    pace: Mutex<Pace>,
}

const NOTHING_LOST: u64 = u64::MAX;
/// A group with more watchers than this is a crowd: to wake it takes longer than many a write.
const CROWD: usize = 100;
/// A crowd is woken no more often than once in so long a watcher: each takes several events at
/// once, and to wake them leaves time for other work.
const PERIOD_A_WATCHER: Duration = Duration::from_micros(10);
/// However large the crowd is, it waits no longer.
const PERIOD_CAP: Duration = Duration::from_millis(50);

/// When a crowd was woken, and whether it will be.
#[derive(Default)]
struct Pace {
    last: Option<Instant>,
    is_due: bool,
    end: u64,
}

impl Group {
    fn new() -> Arc<Self> {
        let newest = watch::Sender::new(0);
        Arc::new(Self {
            newest,
            lost: AtomicU64::new(NOTHING_LOST),
            pace: Mutex::default(),
        })
    }

    /// Wakes its owner whenever there is something new.
    pub(super) fn subscribe(&self) -> watch::Receiver<u64> {
        self.newest.subscribe()
    }

    /// Whether an event from `cursor` on has left the ring.
    pub(super) fn has_lost(&self, cursor: u64) -> bool {
        let lost = self.lost.load(Ordering::Acquire);
        lost != NOTHING_LOST && lost >= cursor
    }

    fn announce(self: &Arc<Self>, end: u64) {
        let watchers = self.newest.receiver_count();
        if watchers <= CROWD || self.is_time(end, crowd_period(watchers)) {
            self.newest.send_replace(end);
        }
    }

    /// Whether a crowd may be woken at once; otherwise it will be in a moment.
    fn is_time(self: &Arc<Self>, end: u64, period: Duration) -> bool {
        let now = Instant::now();
        let mut pace = self.pace.lock();
        pace.end = pace.end.max(end);
        if pace.is_due {
            return false;
        }
        let Some(due) = pace.last.map(|last| last + period).filter(|due| *due > now) else {
            pace.last = Some(now);
            return true;
        };
        pace.is_due = true;
        let group = Arc::clone(self);
        // Ends by itself in a moment.
        drop(coracle_telemetry::spawn("wake watchers", async move {
            tokio::time::sleep_until(due).await;
            let end = {
                let mut pace = group.pace.lock();
                (pace.is_due, pace.last) = (false, Some(Instant::now()));
                pace.end
            };
            group.newest.send_replace(end);
        }));
        false
    }
}

fn crowd_period(watchers: usize) -> Duration {
    PERIOD_A_WATCHER
        .saturating_mul(u32::try_from(watchers).unwrap_or(u32::MAX))
        .min(PERIOD_CAP)
}

/// All groups of a resource. Those below the first exist only while somebody is in them.
pub(super) struct Groups {
    everything: Arc<Group>,
    by_scope: HashMap<Narrow, Arc<Group>>,
}

/// What a group narrows its interest to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Narrow {
    Namespace(Box<str>),
    Key(Box<str>),
    /// By the place of the field among those that are indexed.
    Field(usize, Box<str>),
}

impl Narrow {
    /// The narrowest group that sees all events of a selection.
    pub(super) fn of(selection: &Selection, index: Option<&FieldIndex>) -> Option<Self> {
        let field = selection
            .field
            .as_ref()
            .and_then(|(name, value)| Some((index?.position(name)?, value)));
        match (&selection.scope, field) {
            (KeyScope::Key(key), _) => Some(Self::Key(key.as_str().into())),
            (_, Some((at, value))) => Some(Self::Field(at, value.as_str().into())),
            (KeyScope::Namespace(namespace), None) => {
                Some(Self::Namespace(namespace.as_str().into()))
            }
            (KeyScope::Resource, None) => None,
        }
    }
}

impl Groups {
    pub(super) fn new() -> Self {
        Self {
            everything: Group::new(),
            by_scope: HashMap::new(),
        }
    }

    /// The group of a selection that is narrowed so far, made if need be.
    pub(super) fn join(&mut self, narrow: Option<Narrow>) -> Arc<Group> {
        match narrow {
            None => Arc::clone(&self.everything),
            Some(narrow) => Arc::clone(self.by_scope.entry(narrow).or_insert_with(Group::new)),
        }
    }

    /// Removes a group if `group` is the last handle outside.
    pub(super) fn leave(&mut self, narrow: &Narrow, group: &Arc<Group>) {
        if Arc::strong_count(group) <= 2 {
            self.by_scope.remove(narrow);
        }
    }

    /// How many narrow groups there are.
    #[cfg(test)]
    pub(super) fn narrow_count(&self) -> usize {
        self.by_scope.len()
    }

    /// The groups that `events` concern.
    pub(super) fn concerned(&self, events: &[Arc<WatchEvent>]) -> Vec<Arc<Group>> {
        let mut concerned: Vec<Arc<Group>> = Vec::new();
        for event in events {
            self.each_concerned(event, |group| {
                if !concerned.iter().any(|known| Arc::ptr_eq(known, group)) {
                    concerned.push(Arc::clone(group));
                }
            });
        }
        concerned
    }

    /// Every group.
    pub(super) fn all(&self) -> Vec<Arc<Group>> {
        std::iter::once(&self.everything)
            .chain(self.by_scope.values())
            .cloned()
            .collect()
    }

    fn lose_all(&self, sequence: u64) {
        for group in self.all() {
            group.lost.store(sequence, Ordering::Release);
        }
    }

    fn each_concerned(&self, event: &WatchEvent, mut visit: impl FnMut(&Arc<Group>)) {
        visit(&self.everything);
        if self.by_scope.is_empty() {
            return;
        }
        let mut visit_narrow = |narrow: Narrow| {
            if let Some(group) = self.by_scope.get(&narrow) {
                visit(group);
            }
        };
        visit_narrow(Narrow::Key(event.entry.key().into()));
        if let Some(namespace) = event.entry.namespace() {
            visit_narrow(Narrow::Namespace(namespace.into()));
        }
        let field = |entry: &Entry, visit: &mut dyn FnMut(Narrow)| {
            for (at, value) in entry.fields().values().iter().enumerate() {
                visit(Narrow::Field(at, (**value).into()));
            }
        };
        field(&event.entry, &mut visit_narrow);
        if let Some(prev) = &event.prev {
            field(prev, &mut visit_narrow);
        }
    }
}

/// Wakes the watchers of `groups`. Outside of any lock: there may be thousands.
pub(super) fn announce(groups: &[Arc<Group>], end: u64) {
    for group in groups {
        group.announce(end);
    }
}
