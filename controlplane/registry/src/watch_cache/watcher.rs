//! One watch of one client: a cursor into the ring of its resource.

use std::sync::Arc;

use coracle_store::Revision;
use tokio::sync::watch;

use super::{
    WatchCacheError, event::Delivery, resource::ResourceCache, ring::Group, selection::Selection,
};

/// Most deliveries at once. What a client has not taken yet stays in the ring, shared.
const BATCH: usize = 128;
/// Most bytes of lines at once, but for the last line.
const LINES_BYTES: usize = 32 * 1024;

/// A running watch. Dropping it ends it.
pub struct Watcher {
    resource: Arc<ResourceCache>,
    selection: Selection,
    group: Arc<Group>,
    newest: watch::Receiver<u64>,
    cursor: u64,
}

impl Watcher {
    pub(super) fn new(
        resource: Arc<ResourceCache>,
        selection: Selection,
        group: Arc<Group>,
        cursor: u64,
    ) -> Self {
        let newest = group.subscribe();
        Self {
            resource,
            selection,
            group,
            newest,
            cursor,
        }
    }

    /// Waits for the next events of the selection; at least one. Cancel-safe: nothing is lost.
    ///
    /// # Errors
    /// [`WatchCacheError::TooSlow`] when events were dropped before they were taken here, and
    /// [`WatchCacheError::Closed`]: close the client's stream.
    pub async fn next(&mut self) -> Result<Vec<Delivery>, WatchCacheError> {
        loop {
            self.newest.mark_unchanged();
            let deliveries = self.ready()?;
            if !deliveries.is_empty() {
                return Ok(deliveries);
            }
            // The sender lives as long as `group`.
            self.newest
                .changed()
                .await
                .map_err(|_| WatchCacheError::Closed)?;
        }
    }

    /// The events of the selection that are there now; none if there are none.
    ///
    /// # Errors
    /// As [`Watcher::next`].
    pub fn ready(&mut self) -> Result<Vec<Delivery>, WatchCacheError> {
        let mut deliveries = Vec::new();
        while deliveries.is_empty() {
            let pending = self.resource.pending(
                &self.group,
                &mut self.cursor,
                &self.selection.scope,
                BATCH,
            )?;
            if pending.is_empty() {
                break;
            }
            deliveries.extend(
                pending
                    .iter()
                    .filter_map(|event| event.seen_by(|entry| self.selection.selects(entry))),
            );
        }
        Ok(deliveries)
    }

    /// As [`Watcher::next`], as the lines of the events, some 32 KB at most.
    ///
    /// # Errors
    /// As [`Watcher::next`].
    pub async fn next_lines(&mut self) -> Result<Vec<u8>, WatchCacheError> {
        loop {
            self.newest.mark_unchanged();
            let Self {
                resource,
                group,
                cursor,
                selection,
                ..
            } = self;
            let lines = resource.pending_lines(group, cursor, selection, LINES_BYTES)?;
            if !lines.is_empty() {
                return Ok(lines);
            }
            self.newest
                .changed()
                .await
                .map_err(|_| WatchCacheError::Closed)?;
        }
    }

    /// Whether something happened since the last [`Watcher::drain`], perhaps not for this
    /// selection. An atomic load.
    pub fn has_news(&self) -> bool {
        self.newest.has_changed().unwrap_or(true)
    }

    /// As [`Watcher::ready`], for those who ask [`Watcher::has_news`] before.
    pub fn drain(&mut self) -> Result<Vec<Delivery>, WatchCacheError> {
        self.newest.mark_unchanged();
        self.ready()
    }

    /// A revision that a bookmark may announce now: everything up to it has been delivered. `None`
    /// while events wait.
    pub fn progress(&mut self) -> Option<Revision> {
        self.resource
            .progress(&self.group, &mut self.cursor, &self.selection)
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.resource.leave(&self.selection, &self.group);
    }
}

impl std::fmt::Debug for Watcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watcher")
            .field("selection", &self.selection)
            .field("cursor", &self.cursor)
            .finish_non_exhaustive()
    }
}
