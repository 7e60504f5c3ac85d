//! The groups of watchers of one resource: who is woken by an event, and which events of the ring
//! concern whom.
//!
//! Watchers that the same events concern are a group: everybody, those of a namespace, of a key, of
//! an indexed field's value. Each but the first has a queue, the numbers of its events in the ring:
//! what a watcher of one node's pods costs does not depend on what happens on others. When an event
//! leaves the ring, its groups note it: a watcher of that group that had not read it yet has lost
//! it. A group of a hundred watchers and more is woken every few milliseconds at most, the less
//! often the more they are.

mod narrow;
mod queue;

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::{Mutex, RwLock};
use tokio::{sync::watch, time::Instant};

pub(super) use self::{
    narrow::Narrow,
    queue::{Backlog, Queue},
};
use super::{event::WatchEvent, events::Events};

/// Watchers that the same events concern.
pub(super) struct Group {
    /// Sequence number after the newest event that concerns the group.
    newest: watch::Sender<u64>,
    /// Sequence number of the newest concerning event that has left the ring; [`NOTHING_LOST`]
    /// before the first.
    lost: AtomicU64,
    pace: Mutex<Pace>,
    /// `None` for the group of those whom everything concerns. Written by who holds the resource's
    /// lock for writing, read by who holds it for reading: nobody ever waits here.
    queue: Option<RwLock<Queue>>,
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
    fn new(queue: Option<Queue>) -> Arc<Self> {
        Arc::new(Self {
            newest: watch::Sender::new(0),
            lost: AtomicU64::new(NOTHING_LOST),
            pace: Mutex::default(),
            queue: queue.map(RwLock::new),
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

    /// Looks through the events from `sequence` on that concern the group.
    pub(super) fn concerning<T>(
        &self,
        events: &Events,
        sequence: u64,
        look: impl FnOnce(&mut dyn Iterator<Item = (u64, &Arc<WatchEvent>)>) -> T,
    ) -> T {
        let Some(queue) = &self.queue else {
            return look(&mut events.from(sequence));
        };
        let queue = queue.read();
        let numbers = queue.from(sequence);
        look(&mut numbers.filter_map(|number| Some((number, events.get(number)?))))
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
    by_key: ByText,
    by_namespace: ByText,
    /// By the place of the field among those that are indexed.
    by_field: Vec<ByText>,
}

type ByText = HashMap<Box<str>, Arc<Group>>;

impl Groups {
    /// Of a resource with so many indexed fields.
    pub(super) fn new(fields: usize) -> Self {
        Self {
            everything: Group::new(None),
            by_key: HashMap::new(),
            by_namespace: HashMap::new(),
            by_field: (0..fields).map(|_| HashMap::new()).collect(),
        }
    }

    /// The group that is narrowed so far, made if need be, for a watcher that has yet to see the
    /// events from `cursor` on. `backlog` is what is known about those before the present.
    pub(super) fn join(
        &mut self,
        narrow: Option<&Narrow>,
        events: &Events,
        cursor: u64,
        backlog: Option<Backlog>,
    ) -> Arc<Group> {
        let Some(narrow) = narrow else {
            return Arc::clone(&self.everything);
        };
        let everything = Arc::clone(&self.everything);
        let Some(groups) = self.groups_mut(narrow) else {
            return everything;
        };
        let group = groups
            .entry(narrow.text().into())
            .or_insert_with(|| Group::new(Some(Queue::from_now(events))));
        if let Some(queue) = &group.queue {
            queue.write().join(narrow, events, cursor, backlog);
        }
        Arc::clone(group)
    }

    /// One watcher less. The group goes with its last.
    pub(super) fn leave(&mut self, narrow: &Narrow) {
        let Some(groups) = self.groups_mut(narrow) else {
            return;
        };
        let queue = groups
            .get(narrow.text())
            .and_then(|group| group.queue.as_ref());
        if queue.is_some_and(|queue| queue.write().leave()) {
            groups.remove(narrow.text());
        }
    }

    /// Whether a watcher that has yet to see the events from `cursor` on finds all of its own in
    /// its group's queue.
    pub(super) fn reaches(&self, narrow: &Narrow, cursor: u64) -> bool {
        let group = self
            .groups(narrow)
            .and_then(|groups| groups.get(narrow.text()));
        let queue = group.and_then(|group| group.queue.as_ref());
        queue.is_some_and(|queue| queue.read().reaches(cursor))
    }

    /// Puts a new event into the queues of its groups. Those of them that are not there yet are
    /// added to `concerned`: they have had no event since `batch`.
    pub(super) fn note(
        &self,
        event: &WatchEvent,
        sequence: u64,
        batch: u64,
        concerned: &mut Vec<Arc<Group>>,
    ) {
        self.each_concerned(event, |group| {
            let is_new = match &group.queue {
                Some(queue) => queue.write().push(sequence, batch),
                None => sequence == batch,
            };
            if is_new {
                concerned.push(Arc::clone(group));
            }
        });
    }

    /// An event leaves the ring.
    pub(super) fn lose(&self, event: &WatchEvent, sequence: u64) {
        self.each_concerned(event, |group| {
            group.lost.store(sequence, Ordering::Release);
            if let Some(queue) = &group.queue {
                queue.write().pop(sequence);
            }
        });
    }

    /// All events leave it, and what happened up to the number before `next` is not known.
    pub(super) fn lose_all(&self, next: u64) {
        for group in self.all() {
            group.lost.store(next.saturating_sub(1), Ordering::Release);
            if let Some(queue) = &group.queue {
                queue.write().begin_anew(next);
            }
        }
    }

    /// Every group.
    pub(super) fn all(&self) -> Vec<Arc<Group>> {
        let narrow = [&self.by_key, &self.by_namespace];
        let narrow = narrow.into_iter().chain(&self.by_field);
        std::iter::once(&self.everything)
            .chain(narrow.flat_map(HashMap::values))
            .cloned()
            .collect()
    }

    /// Calls `visit` for each group that an event concerns, with nothing allocated on the way; for
    /// one group perhaps twice.
    fn each_concerned(&self, event: &WatchEvent, mut visit: impl FnMut(&Arc<Group>)) {
        visit(&self.everything);
        if let Some(group) = self.by_key.get(event.entry.key()) {
            visit(group);
        }
        let namespace = event.entry.namespace();
        if let Some(group) = namespace.and_then(|name| self.by_namespace.get(name)) {
            visit(group);
        }
        let after = event.entry.fields().values();
        let before = event
            .prev
            .as_ref()
            .map_or(&[][..], |prev| prev.fields().values());
        for (at, groups) in self.by_field.iter().enumerate() {
            if groups.is_empty() {
                continue;
            }
            let (after, before) = (after.get(at), before.get(at));
            if let Some(group) = after.and_then(|value| groups.get(&**value)) {
                visit(group);
            }
            let before = before.filter(|before| Some(*before) != after);
            if let Some(group) = before.and_then(|value| groups.get(&**value)) {
                visit(group);
            }
        }
    }

    fn groups(&self, narrow: &Narrow) -> Option<&ByText> {
        match narrow {
            Narrow::Key(_) => Some(&self.by_key),
            Narrow::Namespace(_) => Some(&self.by_namespace),
            Narrow::Field(at, _) => self.by_field.get(*at),
        }
    }

    fn groups_mut(&mut self, narrow: &Narrow) -> Option<&mut ByText> {
        match narrow {
            Narrow::Key(_) => Some(&mut self.by_key),
            Narrow::Namespace(_) => Some(&mut self.by_namespace),
            Narrow::Field(at, _) => self.by_field.get_mut(*at),
        }
    }

    /// How many narrow groups there are.
    #[cfg(test)]
    pub(super) fn narrow_count(&self) -> usize {
        self.all().len() - 1
    }

    /// How many numbers all queues have.
    #[cfg(test)]
    pub(super) fn queued(&self) -> usize {
        let all = self.all();
        let queues = all.iter().filter_map(|group| group.queue.as_ref());
        queues.map(|queue| queue.read().from(0).count()).sum()
    }
}

/// Wakes the watchers of `groups`. Outside of any lock: there may be thousands.
pub(super) fn announce(groups: &[Arc<Group>], end: u64) {
    for group in groups {
        group.announce(end);
    }
}
