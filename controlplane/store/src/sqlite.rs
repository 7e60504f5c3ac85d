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

pub mod backup;
pub mod check;
mod index;
mod past;
pub mod pending;
mod read;
mod reclaim;
mod reserve;
pub mod restore;
mod room;
mod schema;
mod writer;

use std::{
    fs::File,
    path::{Path, PathBuf},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::JoinHandle,
};

use parking_lot::{Mutex, RwLock};
use rusqlite::{Connection, ErrorCode};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::{
    backend::{Backend, WatchStream},
    error::StoreError,
    types::{KeyValue, RangeRequest, RangeResponse, Revision, Txn, TxnOutcome},
};
use index::State;
use past::Pasts;
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
    /// Looks at a large file beside the work.
    checker: Mutex<Option<JoinHandle<()>>>,
}

/// What the writer and the readers share.
struct Shared {
    dir: PathBuf,
    state: RwLock<State>,
    readers: Readers,
    pasts: Pasts,
    counters: Counters,
    /// Why the last batch was not written, unless the disk was full.
    failure: Mutex<Option<String>>,
    /// The reserve is given up.
    is_full: AtomicBool,
    /// What is wrong with the file, if that was found after the start.
    damage: OnceLock<String>,
    /// One copy at a time.
    copying: Arc<tokio::sync::Mutex<()>>,
    /// The writer has ended.
    closed: CancellationToken,
}

#[derive(Default)]
struct Counters {
    commits: AtomicU64,
    txns: AtomicU64,
    /// How often a batch found no room.
    times_full: AtomicU64,
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
    /// Where the revisions of a store that is empty go on: those of one that is copied into it.
    pub begin_after: Revision,
    /// Leaves out every fsync.
    #[cfg(feature = "testing")]
    pub skip_fsync: bool,
    /// Most pages in the file: a disk that is full at that point.
    #[cfg(feature = "testing")]
    pub max_pages: Option<u32>,
    /// Takes the file for one that is too large to be checked before the start.
    #[cfg(feature = "testing")]
    pub is_large: bool,
}

impl SqliteOptions {
    #[cfg(feature = "testing")]
    fn is_large(self) -> bool {
        self.is_large
    }

    #[cfg(not(feature = "testing"))]
    fn is_large(self) -> bool {
        false
    }
}

impl SqliteBackend {
    /// Opens the store in `dir`, made if it does not exist. Blocks while the file is checked and
    /// the index is built.
    ///
    /// # Errors
    /// [`StoreError::Locked`], [`StoreError::NotWritable`], [`StoreError::DiskFull`],
    /// [`StoreError::NotAStore`], [`StoreError::OtherVersion`], [`StoreError::Damaged`]: tell the
    /// user.
    pub fn open(dir: impl AsRef<Path>) -> Result<Self, StoreError> {
        Self::open_with(dir, SqliteOptions::default())
    }

    /// Takes `dir`, made if it does not exist, for a server whose store is elsewhere, until the
    /// file is dropped.
    ///
    /// # Errors
    /// [`StoreError::Locked`] while another server runs on it, [`StoreError::NotWritable`],
    /// [`StoreError::DiskFull`]: tell the user.
    pub fn take(dir: &Path) -> Result<File, StoreError> {
        schema::lock(dir)
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
        restore::clear(&dir);
        let mut connection = schema::open_writer(&dir, options)?;
        let is_checked =
            !options.is_large() && check::at_start(&mut connection, &schema::file(&dir))?;
        schema::begin_after(&connection, options.begin_after)
            .map_err(|source| engine_error(&dir, "set the first revision", source))?;
        let room = Room::of(&dir).map_err(|source| StoreError::NotWritable {
            path: dir.clone(),
            source,
        })?;
        let reserve = Reserve::of(&dir, room);
        let (state, reclaimed) = schema::load(&connection)
            .map_err(|source| engine_error(&schema::file(&dir), "load the index", source))?;
        let page_bytes: u32 = connection
            .pragma_query_value(None, "page_size", |row| row.get(0))
            .map_err(|source| engine_error(&dir, "read the size of a page", source))?;
        let shared = Arc::new(Shared {
            readers: Readers::new(schema::file(&dir)),
            pasts: Pasts::default(),
            dir,
            state: RwLock::new(state),
            counters: Counters::default(),
            failure: Mutex::default(),
            is_full: AtomicBool::default(),
            damage: OnceLock::new(),
            copying: Arc::default(),
            closed: CancellationToken::new(),
        });
        let (queue, jobs) = mpsc::channel(QUEUE);
        let closed = shared.closed.clone().drop_guard();
        let writer = Writer {
            connection,
            shared: Arc::clone(&shared),
            jobs,
            reclaimed,
            is_reclaiming: false,
            may_vacuum: true,
            lock,
            reserve,
            page_bytes: page_bytes.into(),
            is_in_doubt: false,
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
        let checker = match is_checked {
            true => None,
            false => Some(check::beside_the_work(Arc::clone(&shared))?),
        };
        Ok(Self {
            shared,
            queue: Some(queue),
            writer: Mutex::new(Some(thread)),
            checker: Mutex::new(checker),
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

    async fn current_revision(&self) -> Result<Revision, StoreError> {
        Ok(self.shared.state.read().revision)
    }

    fn known_revision(&self) -> Option<Revision> {
        Some(self.shared.state.read().revision)
    }

    fn failure(&self) -> Option<String> {
        if self.shared.closed.is_cancelled() {
            return Some("the store is closed: the state of its disk is in doubt".to_owned());
        }
        let damage = self.shared.damage.get().cloned();
        damage.or_else(|| self.shared.failure.lock().clone())
    }

    fn is_full(&self) -> bool {
        self.shared.is_full.load(Ordering::Relaxed)
    }

    async fn backup(&self) -> Result<File, StoreError> {
        let one_at_a_time = Arc::clone(&self.shared.copying).lock_owned().await;
        let stop = self.shared.closed.child_token();
        // A caller that has gone needs no copy.
        let _stopped = stop.clone().drop_guard();
        self.read(move |shared, connection| {
            let _one_at_a_time = one_at_a_time;
            backup::of_running(shared, connection, &stop)
        })
        .await
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
        if let Some(checker) = self.checker.lock().take()
            && checker.join().is_err()
        {
            tracing::error!("the check of the store's file panicked");
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
    error.sqlite_error_code() == Some(ErrorCode::DiskFull)
}

/// What SQLite reported of a file or its directory, in the store's terms.
fn engine_error(path: &Path, what: &str, source: impl Into<Arc<rusqlite::Error>>) -> StoreError {
    let source = source.into();
    let path = path.to_path_buf();
    match source.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => StoreError::DiskFull { path },
        Some(ErrorCode::NotADatabase) => StoreError::NotAStore { path },
        Some(ErrorCode::DatabaseCorrupt) => StoreError::Damaged {
            path,
            found: source.to_string(),
        },
        _ => StoreError::Engine {
            what: what.to_owned(),
            source: Box::new(source),
        },
    }
}
