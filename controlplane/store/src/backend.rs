//! The seam between the API server and the storage engines.

use std::fs::File;

use crate::{
    error::StoreError,
    types::{EventBatch, KeyValue, RangeRequest, RangeResponse, Revision, Txn, TxnOutcome},
};

/// The receiving end of a watch. Bounded: a receiver that falls behind gets
/// [`StoreError::WatcherTooSlow`] and is closed.
///
/// A stream that ends without an error belongs to a store that was closed.
pub type WatchStream = futures::stream::BoxStream<'static, Result<EventBatch, StoreError>>;

/// A storage engine.
///
/// Every method is cancel-safe: dropping the future of [`Backend::txn`] may or may not have
/// written.
#[async_trait::async_trait]
pub trait Backend: Send + Sync + 'static {
    /// Carries out `txn`; returns once the outcome is durable and visible to [`Backend::range`].
    ///
    /// # Errors
    /// [`StoreError::InvalidTxn`] for a key written twice or too many writes;
    /// [`StoreError::DiskFull`] and [`StoreError::Full`] when nothing was written for want of
    /// space, [`StoreError::Unavailable`] when it was not for other reasons;
    /// [`StoreError::Unsure`] and [`StoreError::Closed`] when it is unknown whether it was written.
    async fn txn(&self, txn: Txn) -> Result<TxnOutcome, StoreError>;
    /// One key, now.
    async fn get(&self, key: &str) -> Result<Option<KeyValue>, StoreError>;
    /// A consistent snapshot of a range.
    ///
    /// # Errors
    /// [`StoreError::Compacted`] or [`StoreError::Future`] for a revision that cannot be served.
    async fn range(&self, request: RangeRequest) -> Result<RangeResponse, StoreError>;
    /// Every event under `prefix` with a revision greater than `from`.
    ///
    /// # Errors
    /// As [`Backend::range`]; [`StoreError::Compacted`] may also come later, in the stream, while
    /// it reads history.
    async fn watch(&self, prefix: &str, from: Revision) -> Result<WatchStream, StoreError>;
    /// Forgets history older than `to`: afterwards `to` is the oldest revision for `range` and
    /// `watch`.
    ///
    /// Returns once the new bound holds; an engine may reclaim the space later. Compacting to what
    /// is already compacted does nothing.
    ///
    /// # Errors
    /// [`StoreError::Future`] if `to` lies ahead of the store.
    async fn compact(&self, to: Revision) -> Result<(), StoreError>;
    /// The newest durable revision, no older than any that was acknowledged to anybody before this
    /// was called.
    ///
    /// # Errors
    /// When an engine outside this process does not answer.
    async fn current_revision(&self) -> Result<Revision, StoreError>;
    /// The same at once, from an engine that nobody outside this process writes to; `None` from
    /// others.
    fn known_revision(&self) -> Option<Revision> {
        None
    }
    /// Called while somebody waits for a watch to come to `revision`. An engine whose watches come
    /// there only by an event under their prefix sees that one comes; it goes on until it is
    /// dropped. Others return at once.
    async fn hasten(&self, revision: Revision) {
        let _: Revision = revision;
    }
    /// Why writes fail, as far as the last one told; `None` while they do not. A full disk is no
    /// failure: reads and deletions go on.
    fn failure(&self) -> Option<String> {
        None
    }
    /// Whether the disk is full, so that room is worth more than history.
    fn is_full(&self) -> bool {
        false
    }
    /// Whether other servers may have the same store open. Then one of them leads, by Lease; else
    /// whoever has it open does.
    fn is_shared(&self) -> bool {
        self.known_revision().is_none()
    }
    /// Everything that is stored at this moment, in the engine's own form, in a file without a
    /// name. Writers are not held up.
    ///
    /// # Errors
    /// [`StoreError::NoBackup`] with what to do instead; [`StoreError::NoRoomForCopy`].
    async fn backup(&self) -> Result<File, StoreError> {
        Err(StoreError::NoBackup {
            advice: "its engine has no files of this server's",
        })
    }
    /// Returns once the store has closed by itself, because the state of its disk is in doubt, or
    /// what it kept has gone back to an earlier state: nothing can be written any more, and only a
    /// new start knows what is there.
    async fn closed(&self) {
        std::future::pending().await
    }
}
