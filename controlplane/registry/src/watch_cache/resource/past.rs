//! States of the past: the present with the ring's events undone, or one that was kept for the
//! continue tokens that refer to it.

use std::{sync::Arc, time::Instant};

use coracle_store::Revision;

use super::{
    super::{WatchCacheError, entry::ByKey, event::WatchEvent, snapshot::Snapshot, state::Pin},
    ResourceCache,
};

impl ResourceCache {
    pub(super) fn snapshot_at(&self, revision: Revision) -> Result<Snapshot, WatchCacheError> {
        if let Some(pinned) = self.pinned(revision) {
            return Ok(pinned);
        }
        let state = self.state.read();
        let current = self.revision_of(&state);
        if revision > current {
            return Err(WatchCacheError::TooLarge {
                asked: revision,
                current,
            });
        }
        let Some(sequence) = state.ring.after(revision) else {
            return Err(WatchCacheError::TooOld {
                asked: revision,
                oldest: state.ring.start(),
            });
        };
        let mut entries = state.entries.clone();
        let since: Vec<Arc<WatchEvent>> = state
            .ring
            .from(sequence)
            .map(|(_, event)| Arc::clone(event))
            .collect();
        // Thousands of steps: not while writers wait.
        drop(state);
        for event in since.iter().rev() {
            match &event.prev {
                Some(prev) => entries.insert(ByKey(Arc::clone(prev))),
                None => entries.remove(event.entry.key()),
            };
        }
        Ok(Snapshot { revision, entries })
    }

    /// A state that is kept for continue tokens.
    fn pinned(&self, revision: Revision) -> Option<Snapshot> {
        let mut state = self.state.write();
        let pin = state
            .pins
            .iter_mut()
            .find(|pin| pin.snapshot.revision == revision)?;
        pin.used = Instant::now();
        Some(pin.snapshot.clone())
    }

    /// Keeps a state for the continue tokens that refer to it.
    pub(super) fn pin(&self, snapshot: &Snapshot) {
        let mut state = self.state.write();
        if let Some(pin) = state
            .pins
            .iter_mut()
            .find(|pin| pin.snapshot.revision == snapshot.revision)
        {
            pin.used = Instant::now();
            return;
        }
        let superseded_before = state.superseded;
        state.pins.push_back(Pin {
            snapshot: snapshot.clone(),
            used: Instant::now(),
            superseded_before,
        });
        state.expire_pins(&self.limits);
    }
}
