//! States of the past: the present with the ring's events undone, or one that was kept for the
//! continue tokens that refer to it.

use std::{sync::Arc, time::Instant};

use coracle_store::Revision;

use super::{
    super::{WatchCacheError, snapshot::Snapshot, state::Pin},
    ResourceCache,
};

impl ResourceCache {
    pub(super) fn snapshot_at(&self, revision: Revision) -> Result<Snapshot, WatchCacheError> {
        if let Some(pinned) = self.pinned(revision) {
            return Ok(pinned);
        }
        let state = self.state.read();
        let sequence = self.cursor(&state, revision)?;
        let milestone = state.milestones.iter().find(|(at, _)| *at >= sequence);
        let (end, mut objects) = match milestone {
            Some((at, objects)) => (*at, objects.clone()),
            None => (state.ring.end(), state.objects.clone()),
        };
        let events = state.ring.events().clone();
        // Thousands of steps: not while writers wait.
        drop(state);
        for (_, event) in events.between(sequence, end).rev() {
            match &event.prev {
                Some(prev) => objects.insert(Arc::clone(prev)),
                None => objects.remove(event.entry.key()),
            };
        }
        Ok(Snapshot { revision, objects })
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
