//! What one Service has and takes while it is given what it needs.

use std::{collections::BTreeSet, sync::Arc};

use super::allocation::Allocation;
use crate::watch_cache::ResourceCache;

/// What one Service may take.
pub(super) struct Claims<'a> {
    /// What it had, and has taken since.
    pub(super) own: BTreeSet<Allocation>,
    /// Keys of what it cannot have, whatever the cache says.
    pub(super) lost: &'a [Arc<str>],
    pub(super) taken_addresses: &'a ResourceCache,
    pub(super) taken_ports: &'a ResourceCache,
}

impl Claims<'_> {
    pub(super) fn is_own(&self, allocation: Allocation) -> bool {
        self.own.contains(&allocation)
    }

    /// Whether nobody has it, not even this Service.
    pub(super) fn is_free(&self, allocation: Allocation) -> bool {
        let key = allocation.key();
        let taken = match allocation {
            Allocation::Address(_) => self.taken_addresses,
            Allocation::Port(_) => self.taken_ports,
        };
        !self.is_own(allocation) && !self.lost.contains(&key) && taken.get(&key).is_none()
    }

    pub(super) fn take(&mut self, allocation: Allocation) {
        self.own.insert(allocation);
    }
}
