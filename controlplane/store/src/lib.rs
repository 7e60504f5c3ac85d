//! The store: a revisioned key-value space cut like etcd's KV service.
//!
//! Engines implement [`Backend`]; everything above (the API server, nobody else) sees only this trait.
//! Keys are `/registry/<group>/<resource>/[<namespace>/]<name>` (the core group has no `<group>` element,
//! as in etcd); values are opaque bytes to this crate.
//!
//! One revision counter orders the whole store. A transaction that succeeds gets exactly one new revision;
//! every event it causes carries that revision.
#![forbid(unsafe_code)]

use std::{fmt, sync::Arc};

use bytes::Bytes;

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
    /// The key exists and was last written at this revision.
    ModRevision(Arc<str>, Revision),
}

/// One write of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// Stores `value` under `key`.
    Put {
        /// Where.
        key: Arc<str>,
        /// What.
        value: Bytes,
    },
    /// Removes `key`; removing what is absent is a no-op that makes no event.
    Delete {
        /// Which.
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
}

/// How a transaction ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TxnOutcome {
    /// Durable at this revision.
    Committed(Revision),
    /// A comparison failed; nothing was written. Carries the compared keys as they are now (absent: `None`).
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

/// What happened to a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The key's state after the event; for a delete, the last state with `mod_revision` of the deletion.
    pub kv: KeyValue,
    /// The state before, if there was one.
    pub prev: Option<KeyValue>,
    /// Whether this removes the key.
    pub deleted: bool,
}

/// Events of whole revisions in order: no revision is split over two batches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventBatch {
    /// Everything up to and including this revision has been delivered, also when `events` is empty.
    pub revision: Revision,
    /// In commit order.
    pub events: Vec<Event>,
}

/// The receiving end of a watch. Bounded: a receiver that falls behind gets [`StoreError::WatcherTooSlow`] and is closed.
pub type WatchStream = futures::stream::BoxStream<'static, Result<EventBatch, StoreError>>;

/// Why the store could not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The asked revision was compacted away: relist.
    #[error("revision {asked} has been compacted (oldest is {oldest})")]
    Compacted {
        /// What was asked for.
        asked: Revision,
        /// The oldest that can be served.
        oldest: Revision,
    },
    /// The asked revision lies ahead of the store.
    #[error("revision {asked} is in the future (current is {current})")]
    Future {
        /// What was asked for.
        asked: Revision,
        /// The newest there is.
        current: Revision,
    },
    /// The watcher did not keep up and was cut off.
    #[error("the watcher fell behind and was cut off")]
    WatcherTooSlow,
    /// The store is shutting down, or its writer has died.
    #[error("the store is closed")]
    Closed,
    /// Another process holds the data directory.
    #[error("data directory {path} is in use by another server")]
    Locked {
        /// The directory.
        path: std::path::PathBuf,
    },
    /// The engine failed at `what`.
    #[error("store engine failed to {what}")]
    Engine {
        /// The operation, such as "commit a batch".
        what: String,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// A storage engine.
///
/// Every method is cancel-safe: dropping the future of [`Backend::txn`] may or may not have written.
#[async_trait::async_trait]
pub trait Backend: Send + Sync + 'static {
    /// Carries out `txn`; returns once the outcome is durable and visible to [`Backend::range`].
    async fn txn(&self, txn: Txn) -> Result<TxnOutcome, StoreError>;
    /// One key, now.
    async fn get(&self, key: &str) -> Result<Option<KeyValue>, StoreError>;
    /// A consistent snapshot of a range.
    async fn range(&self, request: RangeRequest) -> Result<RangeResponse, StoreError>;
    /// Every event under `prefix` with a revision greater than `from`.
    async fn watch(&self, prefix: &str, from: Revision) -> Result<WatchStream, StoreError>;
    /// Forgets history older than `to`.
    async fn compact(&self, to: Revision) -> Result<(), StoreError>;
    /// The newest durable revision.
    fn current_revision(&self) -> Revision;
}
