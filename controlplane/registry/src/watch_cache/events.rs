//! Events by number: what the ring keeps, and what watchers read.

use std::{cmp::Ordering, sync::Arc};

use coracle_store::Revision;
use imbl::Vector;

use super::event::WatchEvent;

/// Events in order, by number. A clone shares them.
#[derive(Clone)]
pub(super) struct Events {
    events: Vector<Arc<WatchEvent>>,
    /// Number of the first.
    first: u64,
}

impl Events {
    /// None yet; the first one gets this number.
    pub(super) fn starting_at(first: u64) -> Self {
        Self {
            events: Vector::new(),
            first,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.events.len()
    }

    /// Number of the oldest event, or of the next if there is none.
    pub(super) fn first(&self) -> u64 {
        self.first
    }

    pub(super) fn oldest(&self) -> Option<&Arc<WatchEvent>> {
        self.events.front()
    }

    /// Number of the first event that is younger than `revision`.
    pub(super) fn after(&self, revision: Revision) -> u64 {
        let index = self.events.binary_search_by(|event| {
            // Never equal: of several with the same revision, the place behind the last.
            event.revision.cmp(&revision).then(Ordering::Less)
        });
        self.first + index.unwrap_or_else(|index| index) as u64
    }

    pub(super) fn push(&mut self, event: Arc<WatchEvent>) {
        self.events.push_back(event);
    }

    /// Takes the oldest, with its number.
    pub(super) fn pop(&mut self) -> Option<(u64, Arc<WatchEvent>)> {
        let event = self.events.pop_front()?;
        self.first += 1;
        Some((self.first - 1, event))
    }

    /// Number of the next event.
    pub(super) fn end(&self) -> u64 {
        self.first + self.events.len() as u64
    }

    pub(super) fn get(&self, sequence: u64) -> Option<&Arc<WatchEvent>> {
        let index = sequence.checked_sub(self.first)?;
        self.events.get(usize::try_from(index).ok()?)
    }

    /// Events from a number on, with their numbers.
    pub(super) fn from(
        &self,
        sequence: u64,
    ) -> impl DoubleEndedIterator<Item = (u64, &Arc<WatchEvent>)> {
        self.between(sequence, self.end())
    }

    /// Events from one number to before another, with their numbers.
    pub(super) fn between(
        &self,
        from: u64,
        to: u64,
    ) -> impl DoubleEndedIterator<Item = (u64, &Arc<WatchEvent>)> {
        let index = |sequence: u64| {
            usize::try_from(sequence.saturating_sub(self.first))
                .unwrap_or(usize::MAX)
                .min(self.events.len())
        };
        let (from, to) = (index(from), index(to));
        let from = from.min(to);
        let first = self.first + from as u64;
        let events = self.events.focus().narrow(from..to).into_iter();
        events
            .enumerate()
            .map(move |(index, event)| (first + index as u64, event))
    }
}
