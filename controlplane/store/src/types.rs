//! The vocabulary of the store: revisions, keys, transactions, ranges and events. Plain data; no
//! engine, no I/O.

use std::{collections::HashSet, fmt, sync::Arc};

use bytes::Bytes;

use crate::error::StoreError;

/// Most writes in one transaction, and most comparisons: as many as etcd takes unless it is told
/// otherwise (`--max-txn-ops`).
pub const MAX_OPS: usize = 128;

/// A point in the store's history; 0 means "before anything was written".
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Revision(pub u64);

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A key and what is stored there at some revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyValue {
    /// The full key, `/registry/...`.
    pub key: Arc<str>,
    /// The stored bytes.
    pub value: Bytes,
    /// Revision of the write that created the key.
    pub create_revision: Revision,
    /// Revision of the last write to the key.
    pub mod_revision: Revision,
}

/// What must hold for a transaction to be carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Compare {
    /// The key does not exist.
    Absent(Arc<str>),
    /// The key exists, whatever it holds.
    Present(Arc<str>),
    /// The key exists and was last written at this revision.
    ModRevision(Arc<str>, Revision),
}

/// One write of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// Stores `value` under `key`.
    Put {
        /// The key, written anew or over what it held.
        key: Arc<str>,
        /// The bytes, kept as they are.
        value: Bytes,
    },
    /// Removes `key`; removing what is absent is a no-op that makes no event.
    Delete {
        /// The key that goes.
        key: Arc<str>,
    },
}

/// Compares, then writes: all or nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Txn {
    /// Every one must hold.
    pub compare: Vec<Compare>,
    /// Applied in order, at one revision.
    pub ops: Vec<Op>,
    /// Whether it may use the room that is kept for a full disk, as deletions, their steps and
    /// Leases may. An engine may refuse it all the same if it makes an object, or one much larger.
    pub may_use_disk_reserve: bool,
}

/// How a transaction ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TxnOutcome {
    /// Durable at this revision.
    Committed(Revision),
    /// A comparison failed; nothing was written. Carries the compared keys as they are now (absent:
    /// `None`).
    Conflict(Vec<Option<KeyValue>>),
}

/// A range of keys under `prefix`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RangeRequest {
    /// Keys that start with this.
    pub prefix: String,
    /// Keys greater than or equal to this only (where a chunked list goes on).
    pub start: Option<String>,
    /// At most so many; `None` is all.
    pub limit: Option<usize>,
    /// As of this revision; `None` is now.
    pub at: Option<Revision>,
}

/// What a range returned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RangeResponse {
    /// In key order.
    pub items: Vec<KeyValue>,
    /// The revision this is a snapshot of.
    pub revision: Revision,
    /// How many keys of the range lie beyond `limit`.
    pub remaining: usize,
}

/// What happened to a key. What it replaced is not said: who needs it has it, or asks for a range
/// of the past.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The key's state after the event; for a delete, the last state with `mod_revision` of the
    /// deletion.
    pub kv: KeyValue,
    /// Whether this removes the key.
    pub deleted: bool,
}

/// Events of whole revisions in order: no revision is split over two batches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventBatch {
    /// Everything up to and including this revision has been delivered, also when `events` is
    /// empty.
    pub revision: Revision,
    /// In commit order.
    pub events: Vec<Event>,
}

impl Compare {
    /// The key that is compared.
    #[must_use]
    pub fn key(&self) -> &Arc<str> {
        match self {
            Self::Absent(key) | Self::Present(key) | Self::ModRevision(key, _) => key,
        }
    }
}

impl Op {
    /// The key that is written.
    #[must_use]
    pub fn key(&self) -> &Arc<str> {
        match self {
            Self::Put { key, .. } | Self::Delete { key } => key,
        }
    }
}

impl RangeRequest {
    /// Whether `key` is in the range, limit aside.
    #[must_use]
    pub fn covers(&self, key: &str) -> bool {
        key.starts_with(&self.prefix) && self.start.as_deref().is_none_or(|start| key >= start)
    }

    /// The smallest key that can be in the range.
    #[must_use]
    pub fn first_key(&self) -> &str {
        match &self.start {
            Some(start) if *start > self.prefix => start,
            _ => &self.prefix,
        }
    }
}

impl Txn {
    /// Rejects what no engine carries out: more than [`MAX_OPS`] writes or comparisons, a key
    /// written twice, a key with a NUL.
    ///
    /// # Errors
    /// [`StoreError::InvalidTxn`].
    pub fn check(&self) -> Result<(), StoreError> {
        if self.ops.len() > MAX_OPS {
            return Err(StoreError::InvalidTxn {
                why: "too many writes",
            });
        }
        if self.compare.len() > MAX_OPS {
            return Err(StoreError::InvalidTxn {
                why: "too many comparisons",
            });
        }
        if self.ops.iter().any(|op| op.key().contains('\0')) {
            return Err(StoreError::InvalidTxn {
                why: "a key contains a NUL",
            });
        }
        if self.ops.len() < 2 {
            return Ok(());
        }
        let mut seen = HashSet::with_capacity(self.ops.len());
        if self.ops.iter().all(|op| seen.insert(op.key())) {
            return Ok(());
        }
        Err(StoreError::InvalidTxn {
            why: "a key is written twice",
        })
    }
}
