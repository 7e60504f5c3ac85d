//! Why a store operation failed. How this maps to HTTP is the API server's business, not this
//! crate's.

use std::{
    io,
    path::{Path, PathBuf},
};

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
        source: io::Error,
    },
    /// The disk is full: nothing of the transaction was written, and a later one may succeed.
    #[error("no space left on the disk of {path}: delete objects, or free space")]
    DiskFull {
        /// The data directory.
        path: PathBuf,
    },
    /// A store outside this machine has no room: nothing of the transaction was written.
    #[error("the store is full")]
    Full {
        /// Who says so, and what to do.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The store cannot be used now. Nothing was written; a later try may succeed.
    #[error("the store cannot be used now")]
    Unavailable {
        /// What is in the way.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Nobody said whether the transaction was written. Read before trying again.
    #[error("it is unknown whether this was written: read it before trying again")]
    Unsure {
        /// What came in place of an answer.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The transaction cannot be carried out whatever the state of the store.
    #[error("invalid transaction: {why}")]
    InvalidTxn {
        /// Which rule it breaks.
        why: &'static str,
    },
    /// A file is no store of ours.
    #[error("{path} is no store of Coracle")]
    NotAStore {
        /// The file.
        path: PathBuf,
    },
    /// A file was written by another version of this program.
    #[error(
        "{path} has version {found} of the store's form, this program reads version {expected}: use the release that wrote it"
    )]
    OtherVersion {
        /// The file.
        path: PathBuf,
        /// What it says.
        found: i32,
        /// What this program writes.
        expected: i32,
    },
    /// A file is broken.
    #[error(
        "{path} is damaged ({found}): keep it, and restore a backup with `coracle store restore`"
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong first of all.
        found: String,
    },
    /// There is a file already where one is to be written.
    #[error("{path} is there already: choose another name, or replace it (--force)")]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// A copy would fill the disk.
    #[error(
        "the disk of {path} has no room for a copy of {bytes} bytes: free space, or use another disk"
    )]
    NoRoomForCopy {
        /// Where it was to be.
        path: PathBuf,
        /// How large it is.
        bytes: u64,
    },
    /// This engine cannot be copied through the server.
    #[error("this server's store cannot be backed up: {advice}")]
    NoBackup {
        /// What to do instead.
        advice: &'static str,
    },
    /// A file that is not the database itself cannot be used.
    #[error("cannot {what} {path}")]
    File {
        /// The operation, such as "create".
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
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

impl StoreError {
    pub(crate) fn file(what: &'static str, path: &Path, source: io::Error) -> Self {
        Self::File {
            what,
            path: path.to_path_buf(),
            source,
        }
    }
}
