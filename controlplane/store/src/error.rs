//! Why a store operation failed. How this maps to HTTP is the API server's business, not this
//! crate's.

use std::path::PathBuf;

use crate::types::Revision;

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
    /// The watcher did not keep up and was cut off: watch again from the last revision that it saw.
    #[error("the watcher fell behind and was cut off")]
    WatcherTooSlow,
    /// The store is shutting down, or its writer has died.
    #[error("the store is closed")]
    Closed,
    /// Another process holds the data directory.
    #[error("data directory {path} is in use by another server")]
    Locked {
        /// The directory.
        path: PathBuf,
    },
    /// The data directory cannot be created or written.
    #[error("data directory {path} is not writable")]
    NotWritable {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The disk is full: nothing of the transaction was written, and a later one may succeed.
    #[error("no space left on the disk of {path}: delete objects, or free space")]
    DiskFull {
        /// The data directory.
        path: PathBuf,
    },
    /// The transaction cannot be carried out whatever the state of the store.
    #[error("invalid transaction: {why}")]
    InvalidTxn {
        /// Which rule it breaks.
        why: &'static str,
    },
    /// The engine failed at `what`.
    #[error("store engine failed to {what}")]
    Engine {
        /// The operation, such as "commit a batch".
        what: String,
        /// The engine's own error.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}
