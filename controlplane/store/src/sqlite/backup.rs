//! A copy of the database: of a running store on a reader's snapshot, or of files that nobody has
//! open.
//!
//! A snapshot keeps the log from being begun again, so the copy goes to a file beside the database
//! first, as fast as the disk takes it without holding up the writer; whoever fetches it may be as
//! slow as they like. Steps are short, and what is written is synced on the way: one large sync at
//! the end would make every commit wait for it.

use std::{
    fs::{self, File},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use rusqlite::{
    Connection, OpenFlags,
    backup::{Backup, StepResult},
};
use rustix::fs::statvfs;
use tokio_util::sync::CancellationToken;

use super::{
    Shared, engine_error,
    pending::{PendingFile, beside},
    read, schema,
};
use crate::error::StoreError;

/// Pages copied at once: a megabyte.
const STEP_PAGES: i32 = 256;
/// Steps between two syncs.
const STEPS_A_SYNC: u32 = 4;
/// What a copy leaves of the disk.
const SPARE_BYTES: u64 = 16 << 20;
/// No lock, no log: the file is this copy's alone, and of no use until it is whole.
const VFS: &str = "unix-none";

/// Copies what a running store holds at this moment. The file has no name: it goes when it is
/// closed.
///
/// # Errors
/// [`StoreError::NoRoomForCopy`], also if the store itself runs out of room meanwhile;
/// [`StoreError::Closed`] once `stop` says so.
pub(super) fn of_running(
    shared: &Shared,
    connection: &mut Connection,
    stop: &CancellationToken,
) -> Result<File, StoreError> {
    let snapshot = read::begin(connection)
        .map_err(|error| engine_error(&shared.dir, "begin a copy", error))?;
    let bytes = database_bytes(&snapshot, &shared.dir)?;
    let no_room = || StoreError::NoRoomForCopy {
        path: shared.dir.clone(),
        bytes,
    };
    if free_bytes(&shared.dir).is_some_and(|free| free < bytes + SPARE_BYTES) {
        return Err(no_room());
    }
    let (name, file) = Name::create(path(&shared.dir))?;
    let times_full = || shared.counters.times_full.load(Ordering::Relaxed);
    let before = times_full();
    copy(&snapshot, &name.0, &file, |step| {
        // A writer that finds no room may need the log's, which this snapshot holds.
        if times_full() != before {
            return Err(no_room());
        }
        if stop.is_cancelled() {
            return Err(StoreError::Closed);
        }
        // Half of the disk's time is for others.
        std::thread::park_timeout(step);
        Ok(())
    })
    .map_err(|error| match error {
        StoreError::DiskFull { .. } => no_room(),
        error => error,
    })?;
    // SQLite wrote by a descriptor of its own: this one is at the beginning.
    Ok(file)
}

/// Copies the database in `dir`, which nobody has open, into `target`. What is in its log is in
/// the copy.
///
/// # Errors
/// [`StoreError::Locked`] while a server has the directory; [`StoreError::NotAStore`] and its like.
pub fn of_stopped(dir: &Path, target: &PendingFile) -> Result<(), StoreError> {
    let _lock = schema::lock(dir)?;
    let database = schema::file(dir);
    let connection = schema::open_again(&database)?;
    schema::check_version(&connection, &database)?;
    schema::keep_log(&connection).map_err(|source| engine_error(&database, "open it", source))?;
    copy(&connection, target.partial(), target.file(), |_| Ok(()))
}

/// Where a running store's copy is for as long as it is made.
pub(super) fn path(dir: &Path) -> PathBuf {
    beside(&schema::file(dir), ".copy")
}

fn copy(
    source: &Connection,
    path: &Path,
    file: &File,
    after_step: impl Fn(Duration) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let failed = |source| engine_error(path, "copy the database", source);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut target = Connection::open_with_flags_and_vfs(path, flags, VFS).map_err(failed)?;
    configure_target(&target).map_err(failed)?;
    let backup = Backup::new(source, &mut target).map_err(failed)?;
    for step in 1_u32.. {
        let begun = Instant::now();
        match backup.step(STEP_PAGES).map_err(failed)? {
            StepResult::Done => break,
            StepResult::More => {}
            // Only for one who shares the connection or the target.
            _ => {
                let busy = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_BUSY);
                return Err(failed(rusqlite::Error::SqliteFailure(busy, None)));
            }
        }
        if step.is_multiple_of(STEPS_A_SYNC) {
            sync(file, path)?;
        }
        after_step(begun.elapsed())?;
    }
    drop(backup);
    target.close().map_err(|(_, error)| failed(error))?;
    sync(file, path)
}

fn configure_target(target: &Connection) -> rusqlite::Result<()> {
    target.pragma_update_and_check(None, "journal_mode", "OFF", |_| Ok(()))?;
    target.pragma_update(None, "synchronous", "OFF")?;
    target.pragma_update(None, "cache_size", -1024)
}

fn sync(file: &File, path: &Path) -> Result<(), StoreError> {
    file.sync_all()
        .map_err(|source| StoreError::file("sync", path, source))
}

fn database_bytes(connection: &Connection, dir: &Path) -> Result<u64, StoreError> {
    let number = |name| connection.pragma_query_value(None, name, |row| row.get::<_, u32>(0));
    let bytes = number("page_count")
        .and_then(|pages| Ok(u64::from(pages) * u64::from(number("page_size")?)));
    bytes.map_err(|source| engine_error(dir, "read its size", source))
}

/// Bytes of the disk that nobody has.
fn free_bytes(dir: &Path) -> Option<u64> {
    let space = statvfs(dir).ok()?;
    Some(space.f_bavail.saturating_mul(space.f_frsize))
}

/// The name of a copy under way: gone with this value. What one that was killed has left goes at
/// the next start.
struct Name(PathBuf);

impl Name {
    fn create(path: PathBuf) -> Result<(Self, File), StoreError> {
        let mut options = File::options();
        options.create(true).truncate(true).read(true).write(true);
        let created = options.mode(0o600).open(&path);
        let file = created.map_err(|source| StoreError::file("create", &path, source))?;
        Ok((Self(path), file))
    }
}

impl Drop for Name {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}
