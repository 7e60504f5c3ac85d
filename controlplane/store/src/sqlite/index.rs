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

/// A key, and the row that it had; with it the index's entry, if that still is the one.
pub(super) type Row = (Arc<str>, Option<Live>, RowId);

/// What is known of a page before the index is asked.
#[derive(Default)]
pub(super) struct Outline {
    /// No key behind this one is in the page.
    pub(super) bound: Option<Arc<str>>,
    /// Keys from its start on, those that have changed since included.
    pub(super) left: Option<usize>,
}

/// What the index has of a page.
pub(super) struct Unchanged {
    pub(super) rows: Vec<Row>,
    /// Keys from the page's start on, unless that was known.
    pub(super) count: usize,
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

    /// What a page at `at` may hold of what has not changed since. Walks no further than it must.
    pub(super) fn unchanged(
        &self,
        request: &RangeRequest,
        at: Revision,
        outline: &Outline,
    ) -> Unchanged {
        let limit = request.limit.unwrap_or(usize::MAX);
        let (mut rows, mut count) = (Vec::new(), 0);
        let range = self
            .live
            .range::<str, _>((Bound::Included(request.first_key()), Bound::Unbounded))
            .take_while(|(key, _)| key.starts_with(&*request.prefix));
        for (key, live) in range {
            let is_behind = outline.bound.as_ref().is_some_and(|bound| key > bound);
            let is_full = rows.len() == limit || is_behind;
            if is_full && outline.left.is_some() {
                break;
            }
            if live.row.revision() > at {
                continue;
            }
            count += 1;
            if !is_full {
                rows.push((Arc::clone(key), Some(*live), live.row));
            }
        }
        Unchanged { rows, count }
    }
}
