//! The default engine: one SQLite file in WAL mode, synced before anything is acknowledged.
//!
//! ```text
//! txn() --bounded queue--> writer thread: stage a batch > COMMIT (one fdatasync) > index + watchers > acknowledge all
//! get(), range(), watch() of the past --> reader connections, each on its own snapshot, never in the writer's way
//! ```
//!
//! The table is a log: one row an event, at the end, so that a commit dirties few pages. What is
//! live is an index in memory, key to row, rebuilt by one scan at the start; so comparisons need no
//! query. Values are in the file only. Each row knows the row that it supersedes: that is the past
//! state for `range(at)`, what a deletion shows, and what compaction deletes.
//!
//! The process is the only user of the directory: a lock file says so, and SQLite's index of its
//! log is in memory. No SQL leaves this module. On a full disk a reserve (`reserve`) is given up
//! for what makes room.

mod index;
mod read;
mod reclaim;
mod reserve;
mod room;
mod schema;
mod writer;

use std::{
    fs::File,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread::JoinHandle,
};

use parking_lot::{Mutex, RwLock};
use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::{
    backend::{Backend, WatchStream},
    error::StoreError,
    types::{KeyValue, RangeRequest, RangeResponse, Revision, Txn, TxnOutcome},
};
use index::State;
use read::Readers;
use reserve::Reserve;
use room::Room;
use writer::{Job, Writer};

/// Transactions that may wait for the writer; beyond, callers wait in line.
const QUEUE: usize = 1024;

/// The SQLite engine. Dropping it waits for the writer and closes the file.
pub struct SqliteBackend {
    shared: Arc<Shared>,
    queue: Option<mpsc::Sender<Job>>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

/// What the writer and the readers share.
struct Shared {
    dir: PathBuf,
    state: RwLock<State>,
    readers: Readers,
    counters: Counters,
    /// Why the last batch was not written, unless the disk was full.
    failure: Mutex<Option<String>>,
    /// The writer has ended.
    closed: CancellationToken,
}

#[derive(Default)]
struct Counters {
    commits: AtomicU64,
    txns: AtomicU64,
}

/// What the engine has done since it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SqliteStats {
    /// Commits to disk.
    pub commits: u64,
    /// Transactions that were carried out; by `commits`, how many shared a commit.
    pub txns: u64,
    /// Live keys.
    pub keys: usize,
}

/// How a store is opened. The default is what a server uses; the rest plants faults.
#[derive(Debug, Clone, Copy, Default)]
pub struct SqliteOptions {
    /// Leaves out every fsync.
    #[cfg(feature = "testing")]
    pub skip_fsync: bool,
    /// Most pages in the file: a disk that is full at that point.
    #[cfg(feature = "testing")]
    pub max_pages: Option<u32>,
}

impl SqliteBackend {
    /// Opens the store in `dir`, made if it does not exist. Blocks while the index is built.
    ///
    /// # Errors
    /// [`StoreError::Locked`], [`StoreError::NotWritable`], [`StoreError::DiskFull`]: tell the
    /// user. [`StoreError::Engine`] for a file that is no store or is damaged.
    pub fn open(dir: impl AsRef<Path>) -> Result<Self, StoreError> {
        Self::open_with(dir, SqliteOptions::default())
    }

    /// Keeps every server off the store in `dir` until the file is dropped, as who deletes it
    /// has to; `None` if there is no `dir`.
    ///
    /// # Errors
    /// [`StoreError::Locked`] while a server runs on it, [`StoreError::NotWritable`]: tell the
    /// user.
    pub fn keep_off(dir: &Path) -> Result<Option<File>, StoreError> {
        dir.exists().then(|| schema::lock(dir)).transpose()
    }

    /// As [`SqliteBackend::open`], with options.
    ///
    /// # Errors
    /// As [`SqliteBackend::open`].
    pub fn open_with(dir: impl AsRef<Path>, options: SqliteOptions) -> Result<Self, StoreError> {
        let dir = dir.as_ref().to_path_buf();
        let lock = schema::lock(&dir)?;
        let connection = schema::open_writer(&dir, options)?;
        let room = Room::of(&dir).map_err(|source| StoreError::NotWritable {
            path: dir.clone(),
            source,
        })?;
        let reserve = Reserve::of(&dir, room);
        let (state, reclaimed) = schema::load(&connection)
            .map_err(|source| engine_error(&dir, "load the index", source))?;
        let page_bytes: u32 = connection
            .pragma_query_value(None, "page_size", |row| row.get(0))
            .map_err(|source| engine_error(&dir, "read the size of a page", source))?;
        let shared = Arc::new(Shared {
            readers: Readers::new(schema::file(&dir)),
            dir,
            state: RwLock::new(state),
            counters: Counters::default(),
            failure: Mutex::default(),
            closed: CancellationToken::new(),
        });
        let (queue, jobs) = mpsc::channel(QUEUE);
        let closed = shared.closed.clone().drop_guard();
        let writer = Writer {
            connection,
            shared: Arc::clone(&shared),
            jobs,
            reclaimed,
            may_vacuum: true,
            lock,
            reserve,
            page_bytes: page_bytes.into(),
        };
        let thread = std::thread::Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || {
                // Told also when it panics.
                let _closed = closed;
                writer.run();
            })
            .map_err(|source| StoreError::Engine {
                what: "start the writer".to_owned(),
                source: source.into(),
            })?;
        Ok(Self {
            shared,
            queue: Some(queue),
            writer: Mutex::new(Some(thread)),
        })
    }

    /// What has been done so far.
    #[must_use]
    pub fn stats(&self) -> SqliteStats {
        SqliteStats {
            commits: self.shared.counters.commits.load(Ordering::Relaxed),
            txns: self.shared.counters.txns.load(Ordering::Relaxed),
            keys: self.shared.state.read().live.len(),
        }
    }

    async fn submit<T>(&self, job: impl FnOnce(Reply<T>) -> Job) -> Result<T, StoreError> {
        let (reply, outcome) = oneshot::channel();
        let queue = self.queue.as_ref().ok_or(StoreError::Closed)?;
        queue
            .send(job(reply))
            .await
            .map_err(|_| StoreError::Closed)?;
        outcome.await.map_err(|_| StoreError::Closed)?
    }

    /// Runs `read` on a reader connection, off the async threads.
    async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Shared, &mut Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        read::on_reader(Arc::clone(&self.shared), read).await
    }
}

type Reply<T> = oneshot::Sender<Result<T, StoreError>>;

#[async_trait::async_trait]
impl Backend for SqliteBackend {
    async fn txn(&self, txn: Txn) -> Result<TxnOutcome, StoreError> {
        txn.check()?;
        self.submit(|reply| Job::Txn { txn, reply }).await
    }

    async fn get(&self, key: &str) -> Result<Option<KeyValue>, StoreError> {
        let key = key.to_owned();
        self.read(move |shared, connection| read::get(shared, connection, &key))
            .await
    }

    async fn range(&self, request: RangeRequest) -> Result<RangeResponse, StoreError> {
        self.read(move |shared, connection| read::range(shared, connection, &request))
            .await
    }

    async fn watch(&self, prefix: &str, from: Revision) -> Result<WatchStream, StoreError> {
        read::watch(&self.shared, prefix, from)
    }

    async fn compact(&self, to: Revision) -> Result<(), StoreError> {
        self.submit(|reply| Job::Compact { to, reply }).await
    }

    fn current_revision(&self) -> Revision {
        self.shared.state.read().revision
    }

    fn failure(&self) -> Option<String> {
        if self.shared.closed.is_cancelled() {
            return Some("the store is closed: the state of its disk is in doubt".to_owned());
        }
        self.shared.failure.lock().clone()
    }

    async fn closed(&self) {
        self.shared.closed.cancelled().await;
    }
}

impl Drop for SqliteBackend {
    fn drop(&mut self) {
        // Ends the writer once it has carried out what is queued.
        self.queue = None;
        if let Some(writer) = self.writer.lock().take()
            && writer.join().is_err()
        {
            tracing::error!("the store's writer panicked");
        }
    }
}

impl std::fmt::Debug for SqliteBackend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqliteBackend")
            .field("dir", &self.shared.dir)
            .finish_non_exhaustive()
    }
}

/// Whether SQLite found no room.
fn is_full(error: &rusqlite::Error) -> bool {
    match error.sqlite_error() {
        Some(error) => error.code == rusqlite::ErrorCode::DiskFull,
        None => false,
    }
}

/// What SQLite reported, in the store's terms.
fn engine_error(dir: &Path, what: &str, source: impl Into<Arc<rusqlite::Error>>) -> StoreError {
    let source = source.into();
    if is_full(&source) {
        return StoreError::DiskFull {
            path: dir.to_path_buf(),
        };
    }
    StoreError::Engine {
        what: what.to_owned(),
        source: Box::new(source),
    }
}
