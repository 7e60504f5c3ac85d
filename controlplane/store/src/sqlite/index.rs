//! What is live and where its row is. The writer alone changes it, after a commit; everybody reads
//! it.

use std::{collections::BTreeMap, ops::Bound, sync::Arc};

use crate::{
    error::StoreError,
    fanout::Fanout,
    types::{MAX_OPS, RangeRequest, Revision},
};

/// A row of the log: the revision and the place in its transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RowId(pub(super) i64);

/// Bits of a row ID for the place in the transaction. The file's format: they cannot be changed.
const OP_BITS: u32 = 10;
/// Places in a transaction.
const PLACES: usize = 1 << OP_BITS;
const _: () = assert!(MAX_OPS <= PLACES);

impl RowId {
    /// `None` after 2^53 revisions.
    pub(super) fn new(revision: Revision, op: usize) -> Option<Self> {
        let id = revision.0.checked_mul(PLACES as u64)? | op as u64;
        i64::try_from(id).ok().map(Self)
    }

    /// The last possible row of a revision.
    pub(super) fn last_of(revision: Revision) -> Self {
        Self::new(revision, PLACES - 1).unwrap_or(Self(i64::MAX))
    }

    pub(super) fn revision(self) -> Revision {
        Revision(self.0.unsigned_abs() >> OP_BITS)
    }
}

/// The present state of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Live {
    pub(super) row: RowId,
    pub(super) create_revision: Revision,
}

/// All that is known without the file.
pub(super) struct State {
    pub(super) live: BTreeMap<Arc<str>, Live>,
    /// Newest durable revision.
    pub(super) revision: Revision,
    /// Oldest revision that can be served.
    pub(super) compacted: Revision,
    pub(super) fanout: Fanout,
    /// The writer has died.
    pub(super) closed: bool,
}

impl State {
    /// Whether the state at `asked` can be served.
    pub(super) fn check(&self, asked: Revision) -> Result<(), StoreError> {
        if asked < self.compacted {
            return Err(StoreError::Compacted {
                asked,
                oldest: self.compacted,
            });
        }
        if asked > self.revision {
            return Err(StoreError::Future {
                asked,
                current: self.revision,
            });
        }
        Ok(())
    }

    /// Live keys of a range, limit aside.
    pub(super) fn range<'a>(
        &'a self,
        request: &'a RangeRequest,
    ) -> impl Iterator<Item = (&'a Arc<str>, &'a Live)> {
        self.live
            .range::<str, _>((Bound::Included(request.first_key()), Bound::Unbounded))
            .take_while(|(key, _)| key.starts_with(&*request.prefix))
    }
}
