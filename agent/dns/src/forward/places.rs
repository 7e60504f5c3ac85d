//! How many may wait for answers: in all, and of one asker, so that one pod cannot take all places.

use std::{
    collections::{HashMap, hash_map},
    net::IpAddr,
    sync::Arc,
};

use parking_lot::Mutex;

use super::error::ForwardError;

/// Of one asker. A pod that looks up names as fast as it can waits for a few dozens.
pub(crate) const ASKER_MAX: usize = 150;
/// Of all askers. Each place is at most one socket and one answer of 64 KiB.
pub(crate) const TOTAL_MAX: usize = 1000;

/// The places taken.
#[derive(Debug, Default)]
pub(crate) struct Places {
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    total: usize,
    /// Only those that have one: at most [`TOTAL_MAX`].
    by_asker: HashMap<IpAddr, usize>,
}

/// A place, given back when dropped.
#[derive(Debug)]
pub(crate) struct Place {
    places: Arc<Places>,
    asker: IpAddr,
}

// === impl Places ===

impl Places {
    /// # Errors
    /// [`ForwardError::Busy`] and [`ForwardError::AskerBusy`]: there is none.
    pub(crate) fn take(self: &Arc<Self>, asker: IpAddr) -> Result<Place, ForwardError> {
        let mut taken = self.taken.lock();
        if taken.total >= TOTAL_MAX {
            return Err(ForwardError::Busy { limit: TOTAL_MAX });
        }
        let of_asker = taken.by_asker.entry(asker).or_default();
        if *of_asker >= ASKER_MAX {
            return Err(ForwardError::AskerBusy {
                asker,
                limit: ASKER_MAX,
            });
        }
        *of_asker += 1;
        taken.total += 1;
        let places = Arc::clone(self);
        Ok(Place { places, asker })
    }
}

#[cfg(test)]
impl Places {
    /// How many places are taken, and by how many askers.
    pub(crate) fn taken_in_all(&self) -> (usize, usize) {
        let taken = self.taken.lock();
        (taken.total, taken.by_asker.len())
    }
}

// === impl Place ===

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.taken.lock();
        taken.total -= 1;
        if let hash_map::Entry::Occupied(mut of_asker) = taken.by_asker.entry(self.asker) {
            *of_asker.get_mut() -= 1;
            if *of_asker.get() == 0 {
                of_asker.remove();
            }
        }
    }
}
