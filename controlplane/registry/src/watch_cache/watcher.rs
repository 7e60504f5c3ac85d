//! One watch of one client: a cursor into the ring of its resource.

use std::sync::Arc;

use coracle_store::Revision;
use tokio::sync::watch;

use super::{
    WatchCacheError,
    entry::LINES_BYTES,
    event::Delivery,
    groups::Group,
    resource::{ResourceCache, pending::Position},
    selection::Selection,
};

/// Most deliveries at once. What a client has not taken yet stays in the ring, shared.
const BATCH: usize = 128;

/// A running watch. Dropping it ends it.
pub struct Watcher {
    resource: Arc<ResourceCache>,
    selection: Selection,
    group: Arc<Group>,
    newest: watch::Receiver<u64>,
    position: Position,
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
            position: Position::at(cursor),
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
            self.changed().await?;
        }
    }

    /// The events of the selection that are there now; none if there are none.
    ///
    /// # Errors
    /// As [`Watcher::next`].
    pub fn ready(&mut self) -> Result<Vec<Delivery>, WatchCacheError> {
        self.ready_up_to(BATCH)
    }

    fn ready_up_to(&mut self, limit: usize) -> Result<Vec<Delivery>, WatchCacheError> {
        let mut deliveries = Vec::new();
        while deliveries.is_empty() {
            let pending = self.resource.pending(
                &self.group,
                &mut self.position,
                &self.selection.scope,
                limit,
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

    /// As [`Watcher::next`], one of them: for what is dear to hold.
    ///
    /// # Errors
    /// As [`Watcher::next`].
    pub async fn next_one(&mut self) -> Result<Delivery, WatchCacheError> {
        loop {
            self.newest.mark_unchanged();
            if let Some(delivery) = self.ready_one()? {
                return Ok(delivery);
            }
            self.changed().await?;
        }
    }

    /// As [`Watcher::ready`], one of them.
    ///
    /// # Errors
    /// As [`Watcher::next`].
    pub fn ready_one(&mut self) -> Result<Option<Delivery>, WatchCacheError> {
        Ok(self.ready_up_to(1)?.pop())
    }

    /// As [`Watcher::next`], as the lines of the events: [`LINES_BYTES`] at most, and a line that
    /// is longer in parts. Whoever has been given a part and not the next when its event leaves the
    /// ring was too slow.
    ///
    /// # Errors
    /// As [`Watcher::next`].
    pub async fn next_lines(&mut self) -> Result<Vec<u8>, WatchCacheError> {
        loop {
            self.newest.mark_unchanged();
            let lines = self.resource.pending_lines(
                &self.group,
                &mut self.position,
                &self.selection,
                LINES_BYTES,
            )?;
            if !lines.is_empty() {
                return Ok(lines);
            }
            self.changed().await?;
        }
    }

    /// Waits for something that may concern this watch.
    async fn changed(&mut self) -> Result<(), WatchCacheError> {
        // The sender lives as long as `group`.
        self.newest
            .changed()
            .await
            .map_err(|_| WatchCacheError::Closed)
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
            .progress(&self.group, &mut self.position, &self.selection)
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.resource.leave(&self.selection);
    }
}

impl std::fmt::Debug for Watcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watcher")
            .field("selection", &self.selection)
            .field("position", &self.position)
            .finish_non_exhaustive()
    }
}
