//! Why the watch cache could not serve.

use coracle_store::{Revision, StoreError};

/// Why the cache could not serve.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WatchCacheError {
    /// The revision lies before what the cache remembers.
    #[error("too old resource version: {asked} ({oldest})")]
    TooOld {
        /// What was asked for.
        asked: Revision,
        /// The oldest that can be served.
        oldest: Revision,
    },
    /// The revision was not reached in time.
    #[error("too large resource version: {asked}, current: {current}")]
    TooLarge {
        /// What was asked for.
        asked: Revision,
        /// Where the cache is.
        current: Revision,
    },
    /// The watcher did not take its events in time.
    #[error("the watcher fell behind and was cut off")]
    TooSlow,
    /// The server is shutting down.
    #[error("the watch cache is closed")]
    Closed,
    /// The keys of a resource would lie among those of another.
    #[error("{prefix} cannot be kept beside {by}")]
    PrefixTaken {
        /// Of the new one.
        prefix: String,
        /// Of the other.
        by: String,
    },
    /// The store was cut off or compacted again and again while a resource was loaded.
    #[error("the objects under {prefix} could not be loaded in one piece")]
    NotLoaded {
        /// Where they are.
        prefix: String,
    },
    /// The store could not be read.
    #[error("cannot read the store")]
    Store(#[from] StoreError),
}
