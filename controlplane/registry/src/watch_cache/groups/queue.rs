//! Which events of the ring concern a group. No longer than the ring.

use std::{collections::VecDeque, sync::Arc};

use super::{
    super::{event::WatchEvent, events::Events},
    Narrow,
};

/// Which events of the ring concern a group, by their numbers.
pub(in crate::watch_cache) struct Queue {
    /// From this number on, all that do are in `numbers`.
    since: u64,
    numbers: VecDeque<u64>,
    watchers: usize,
}

/// Which of the events before `end` concern a group that somebody is about to join. Found while
/// nobody waits: there may be thousands to look at.
pub(in crate::watch_cache) struct Backlog {
    end: u64,
    numbers: Vec<u64>,
}

impl Backlog {
    pub(in crate::watch_cache) fn find(narrow: &Narrow, events: &Events, cursor: u64) -> Self {
        Self {
            end: events.end(),
            numbers: numbers_of(narrow, events.from(cursor)).collect(),
        }
    }
}

impl Queue {
    /// Of a group that begins with the next event.
    pub(super) fn from_now(events: &Events) -> Self {
        Self {
            since: events.end(),
            numbers: VecDeque::new(),
            watchers: 0,
        }
    }

    /// One watcher more, who has yet to see the events from `cursor` on.
    pub(super) fn join(
        &mut self,
        narrow: &Narrow,
        events: &Events,
        cursor: u64,
        backlog: Option<Backlog>,
    ) {
        self.watchers += 1;
        if self.reaches(cursor) {
            return;
        }
        let (known, numbers) = backlog.map_or((cursor, Vec::new()), |backlog| {
            (backlog.end.max(cursor), backlog.numbers)
        });
        let late = events
            .from(known)
            .take_while(|(number, _)| *number < self.since);
        let mut missing: VecDeque<u64> = numbers
            .into_iter()
            .filter(|number| (cursor..self.since).contains(number))
            .chain(numbers_of(narrow, late))
            .collect();
        missing.append(&mut self.numbers);
        (self.numbers, self.since) = (missing, cursor);
    }

    /// One watcher less; whether it was the last.
    pub(super) fn leave(&mut self) -> bool {
        self.watchers = self.watchers.saturating_sub(1);
        self.watchers == 0
    }

    pub(super) fn reaches(&self, cursor: u64) -> bool {
        self.since <= cursor
    }

    /// Takes in the newest event, once; whether it is the first from `batch` on.
    pub(super) fn push(&mut self, sequence: u64, batch: u64) -> bool {
        let newest = self.numbers.back().copied();
        if newest != Some(sequence) {
            self.numbers.push_back(sequence);
        }
        newest.is_none_or(|newest| newest < batch)
    }

    /// Takes out the oldest event, if it is in.
    pub(super) fn pop(&mut self, sequence: u64) {
        if self.numbers.front() == Some(&sequence) {
            self.numbers.pop_front();
        }
        // What a burst has made large.
        if self.numbers.len() < self.numbers.capacity() / 4 {
            self.numbers.shrink_to(self.numbers.len() * 2);
        }
    }

    pub(super) fn begin_anew(&mut self, next: u64) {
        self.numbers = VecDeque::new();
        self.since = next;
    }

    /// The numbers from `sequence` on.
    pub(super) fn from(&self, sequence: u64) -> impl Iterator<Item = u64> {
        let first = self.numbers.partition_point(|number| *number < sequence);
        self.numbers.range(first..).copied()
    }
}

/// The numbers of those events that concern a group.
fn numbers_of<'a>(
    narrow: &Narrow,
    events: impl Iterator<Item = (u64, &'a Arc<WatchEvent>)>,
) -> impl Iterator<Item = u64> {
    events.filter_map(|(number, event)| narrow.concerns(event).then_some(number))
}
