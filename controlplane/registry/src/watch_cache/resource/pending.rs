//! What a watcher has yet to see of the ring.

use std::sync::Arc;

use coracle_store::Revision;

use super::{
    super::{
        WatchCacheError,
        event::WatchEvent,
        ring::Group,
        selection::{KeyScope, Selection},
    },
    ResourceCache,
};

impl ResourceCache {
    /// Takes up to `limit` events of `scope` from the ring and moves the cursor behind them.
    pub(in crate::watch_cache) fn pending(
        &self,
        group: &Group,
        cursor: &mut u64,
        scope: &KeyScope,
        limit: usize,
    ) -> Result<Vec<Arc<WatchEvent>>, WatchCacheError> {
        let state = self.state.read();
        if group.has_lost(*cursor) {
            return Err(WatchCacheError::TooSlow);
        }
        let mut taken = Vec::new();
        let mut next = state.ring.end();
        for (sequence, event) in state.ring.from(*cursor) {
            if taken.len() == limit {
                next = sequence;
                break;
            }
            if concerns(scope, event) {
                taken.push(Arc::clone(event));
            }
        }
        *cursor = next;
        if taken.is_empty() && state.closed {
            return Err(WatchCacheError::Closed);
        }
        Ok(taken)
    }

    /// The lines of what [`ResourceCache::pending`] would give, in one piece, with nothing shared
    /// on the way; empty if there is nothing. About `most_bytes` of them.
    pub(in crate::watch_cache) fn pending_lines(
        &self,
        group: &Group,
        cursor: &mut u64,
        selection: &Selection,
        most_bytes: usize,
    ) -> Result<Vec<u8>, WatchCacheError> {
        let state = self.state.read();
        if group.has_lost(*cursor) {
            return Err(WatchCacheError::TooSlow);
        }
        // Twice over the same events: measured, then written at once into as much room as they
        // need.
        let (mut length, mut next, mut shown) = (0, state.ring.end(), 0);
        let seen = |event: &'_ WatchEvent| concerns(&selection.scope, event);
        for (sequence, event) in state.ring.from(*cursor) {
            if length >= most_bytes {
                next = sequence;
                break;
            }
            if seen(event)
                && let Some((kind, entry)) = event.shown_to(|entry| selection.selects(entry))
            {
                length += entry.line_len(kind);
                shown += 1;
            }
        }
        let mut lines = Vec::with_capacity(length);
        let events = state
            .ring
            .from(*cursor)
            .map(|(_, event)| event)
            .filter(|event| seen(event));
        let visible = events.filter_map(|event| event.shown_to(|entry| selection.selects(entry)));
        visible
            .take(shown)
            .for_each(|(kind, entry)| entry.append_line(kind, &mut lines));
        *cursor = next;
        if lines.is_empty() && state.closed {
            return Err(WatchCacheError::Closed);
        }
        Ok(lines)
    }

    /// See [`Watcher::progress`].
    pub(in crate::watch_cache) fn progress(
        &self,
        group: &Group,
        cursor: &mut u64,
        selection: &Selection,
    ) -> Option<Revision> {
        let state = self.state.read();
        // What the selection leaves out was never delivered and never will be: a watcher of one
        // node's pods gets on while only others' change.
        let waits = |event: &WatchEvent| {
            concerns(&selection.scope, event)
                && event.shown_to(|entry| selection.selects(entry)).is_some()
        };
        if group.has_lost(*cursor) || state.ring.from(*cursor).any(|(_, event)| waits(event)) {
            return None;
        }
        *cursor = state.ring.end();
        Some(self.revision_of(&state))
    }
}

fn concerns(scope: &KeyScope, event: &WatchEvent) -> bool {
    match scope {
        KeyScope::Resource => true,
        KeyScope::Namespace(namespace) => event.entry.namespace() == Some(namespace),
        KeyScope::Key(key) => event.entry.key() == key,
    }
}
