//! What a watcher has yet to see of the ring.

use std::sync::Arc;

use coracle_store::Revision;

use super::{
    super::{
        WatchCacheError,
        entry::Entry,
        event::{EventKind, WatchEvent},
        groups::Group,
        selection::{KeyScope, Selection},
    },
    ResourceCache,
};

/// How far a watcher has come.
#[derive(Debug, Clone, Copy)]
pub(in crate::watch_cache) struct Position {
    /// Number of the next event.
    sequence: u64,
    /// Bytes of its line that have been given out.
    begun: usize,
}

impl Position {
    pub(in crate::watch_cache) fn at(sequence: u64) -> Self {
        Self { sequence, begun: 0 }
    }
}

impl ResourceCache {
    /// Takes up to `limit` events of `scope` from the ring and moves on behind them.
    pub(in crate::watch_cache) fn pending(
        &self,
        group: &Group,
        position: &mut Position,
        scope: &KeyScope,
        limit: usize,
    ) -> Result<Vec<Arc<WatchEvent>>, WatchCacheError> {
        let state = self.state.read();
        if group.has_lost(position.sequence) {
            return Err(WatchCacheError::TooSlow);
        }
        let mut taken = Vec::new();
        let mut next = state.ring.end();
        group.concerning(state.ring.events(), position.sequence, |events| {
            for (sequence, event) in events {
                if taken.len() == limit {
                    next = sequence;
                    break;
                }
                if concerns(scope, event) {
                    taken.push(Arc::clone(event));
                }
            }
        });
        *position = Position::at(next);
        if taken.is_empty() && state.closed {
            return Err(WatchCacheError::Closed);
        }
        Ok(taken)
    }

    /// The lines of what [`ResourceCache::pending`] would give, in one piece of `most` bytes at
    /// most, with nothing shared on the way; empty if there is nothing. A line that is longer comes
    /// in parts.
    pub(in crate::watch_cache) fn pending_lines(
        &self,
        group: &Group,
        position: &mut Position,
        selection: &Selection,
        most: usize,
    ) -> Result<Vec<u8>, WatchCacheError> {
        let state = self.state.read();
        if group.has_lost(position.sequence) {
            return Err(WatchCacheError::TooSlow);
        }
        let events = state.ring.events();
        // Twice over the same events: measured, then written at once into as much room as they
        // need.
        let end = state.ring.end();
        let measured = group.concerning(events, position.sequence, |events| {
            Measured::of(events, selection, position.begun, most, end)
        });
        let mut lines = Vec::with_capacity(measured.length);
        let mut skip = position.begun;
        group.concerning(events, position.sequence, |events| {
            let visible = events.filter_map(|(_, event)| visible(selection, event));
            visible.take(measured.shown).for_each(|(kind, entry)| {
                entry.append_line(kind, std::mem::take(&mut skip), most, &mut lines);
            });
        });
        *position = measured.next;
        if lines.is_empty() && state.closed {
            return Err(WatchCacheError::Closed);
        }
        Ok(lines)
    }

    /// See [`Watcher::progress`].
    pub(in crate::watch_cache) fn progress(
        &self,
        group: &Group,
        position: &mut Position,
        selection: &Selection,
    ) -> Option<Revision> {
        let state = self.state.read();
        // What the selection leaves out was never delivered and never will be: a watcher of one
        // node's pods gets on while only others' change.
        let waits = group.concerning(state.ring.events(), position.sequence, |events| {
            let mut visible = events.map(|(_, event)| visible(selection, event).is_some());
            visible.any(|is_visible| is_visible)
        });
        if waits || group.has_lost(position.sequence) {
            return None;
        }
        *position = Position::at(state.ring.end());
        Some(self.revision_of(&state))
    }
}

/// What goes into one piece of lines.
struct Measured {
    length: usize,
    /// How many lines begin or go on in it.
    shown: usize,
    next: Position,
}

impl Measured {
    fn of<'a>(
        events: impl Iterator<Item = (u64, &'a Arc<WatchEvent>)>,
        selection: &Selection,
        mut begun: usize,
        most: usize,
        end: u64,
    ) -> Self {
        let (mut length, mut shown) = (0, 0);
        let mut next = Position::at(end);
        for (sequence, event) in events {
            let Some((kind, entry)) = visible(selection, event) else {
                continue;
            };
            let left = entry.line_len(kind) - begun;
            if length > 0 && length + left > most {
                next = Position::at(sequence);
                break;
            }
            shown += 1;
            length += left.min(most);
            if left > most {
                begun += most;
                next = Position { sequence, begun };
                break;
            }
            begun = 0;
        }
        Self {
            length,
            shown,
            next,
        }
    }
}

/// What a watcher sees of an event.
fn visible<'a>(
    selection: &Selection,
    event: &'a WatchEvent,
) -> Option<(EventKind, &'a Arc<Entry>)> {
    concerns(&selection.scope, event).then(|| event.shown_to(|entry| selection.selects(entry)))?
}

fn concerns(scope: &KeyScope, event: &WatchEvent) -> bool {
    match scope {
        KeyScope::Resource => true,
        KeyScope::Namespace(namespace) => event.entry.namespace() == Some(namespace),
        KeyScope::Key(key) => event.entry.key() == key,
    }
}
