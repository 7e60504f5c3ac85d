//! A backup in the place of what a stopped server has: checked first, then swapped in by one
//! rename, so that at any moment one of the two is there in full. What was there is kept.
//!
//! Clients must not see revisions go back, nor one that they know with other contents. So the
//! revision is raised by more than any cluster writes between a backup and its use, and all before
//! that counts as compacted: who watches is told so, and lists anew.
//!
//! Source: `etcdutl snapshot restore --bump-revision --mark-compacted`; a billion is what etcd's
//! guide to disaster recovery recommends.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use coracle_telemetry::ErrorChain;
use rusqlite::Connection;

use super::{
    check::{self, Contents},
    engine_error,
    index::RowId,
    pending::{beside, sync_directory_of},
    schema,
};
use crate::{error::StoreError, types::Revision};

/// How far the revision is raised: eleven days of a thousand writes a second.
const REVISION_BUMP: u64 = 1_000_000_000;

/// What a restore has done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restored {
    /// What the store holds now.
    pub contents: Contents,
    /// Where what was there before is now, if there was something.
    pub kept: Option<PathBuf>,
}

/// Puts the backup `from` in the place of the store in `dir`.
///
/// # Errors
/// Before anything is changed: [`StoreError::Locked`] while a server runs,
/// [`StoreError::NotAStore`], [`StoreError::OtherVersion`], [`StoreError::Damaged`],
/// [`StoreError::NoRoomForCopy`], [`StoreError::File`].
pub fn restore(dir: &Path, from: &Path) -> Result<Restored, StoreError> {
    let bytes = fs::metadata(from)
        .and_then(|file| match file.is_file() {
            true => Ok(file.len()),
            false => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no file")),
        })
        .map_err(|source| StoreError::file("read", from, source))?;
    let _lock = schema::lock(dir)?;
    clear(dir);
    let new = path(dir);
    let restored = prepare(from, &new, bytes).and_then(|backup| {
        let old = Old::of(dir);
        let contents = raise(&new, old.revision.max(backup.revision), backup)?;
        let kept = old.keep()?;
        fs::rename(&new, schema::file(dir))
            .map_err(|source| StoreError::file("rename the restored store to", &new, source))?;
        sync_directory_of(&new)?;
        Ok(Restored { contents, kept })
    });
    if restored.is_err() {
        clear(dir);
    }
    restored
}

/// Removes what restores and backups have left that were killed. Whoever has the lock may.
pub(super) fn clear(dir: &Path) {
    for left in [path(dir), super::backup::path(dir)] {
        for path in [log_of(&left), left] {
            // What cannot be removed is in the way of the next one, which says so.
            let _ = fs::remove_file(path);
        }
    }
}

fn path(dir: &Path) -> PathBuf {
    beside(&schema::file(dir), ".restoring")
}

fn log_of(database: &Path) -> PathBuf {
    beside(database, "-wal")
}

/// Copies the backup, and the log of one that was taken by copying files, and looks at all of it.
fn prepare(from: &Path, new: &Path, bytes: u64) -> Result<Contents, StoreError> {
    copy(from, new, bytes)?;
    let log = log_of(from);
    if let Some(log_bytes) = fs::metadata(&log)
        .map(|log| log.len())
        .ok()
        .filter(|len| *len > 0)
    {
        copy(&log, &log_of(new), log_bytes)?;
    }
    let mut connection = schema::open_again(new)?;
    check::contents(&mut connection, from)
}

fn copy(from: &Path, to: &Path, bytes: u64) -> Result<(), StoreError> {
    let mut source = File::open(from).map_err(|source| StoreError::file("read", from, source))?;
    let mut options = File::options();
    options.create(true).truncate(true).write(true).mode(0o600);
    options
        .open(to)
        .and_then(|mut target| io::copy(&mut source, &mut target))
        .map(drop)
        .map_err(|source| match source.kind() {
            io::ErrorKind::StorageFull => StoreError::NoRoomForCopy {
                path: to.to_path_buf(),
                bytes,
            },
            _ => StoreError::file("write", to, source),
        })
}

/// Makes the copy go on after every revision that somebody may know, and syncs it.
fn raise(new: &Path, known: Revision, backup: Contents) -> Result<Contents, StoreError> {
    let revision = Revision(known.0.saturating_add(REVISION_BUMP));
    if RowId::new(revision, 0).is_none() {
        return Err(StoreError::Damaged {
            path: new.to_path_buf(),
            found: format!("its revision is {known}"),
        });
    }
    let failed = |source| engine_error(new, "raise its revision", source);
    let connection = schema::open_again(new)?;
    schema::set_compacted(&connection, revision).map_err(failed)?;
    empty_log(&connection).map_err(failed)?;
    connection.close().map_err(|(_, error)| failed(error))?;
    File::open(new)
        .and_then(|file| file.sync_all())
        .map_err(|source| StoreError::file("sync", new, source))?;
    Ok(Contents { revision, ..backup })
}

/// Moves all of the log into the database. Both stay readable if that fails.
fn empty_log(connection: &Connection) -> rusqlite::Result<()> {
    let is_busy: bool =
        connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0))?;
    if is_busy {
        let busy = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_BUSY);
        return Err(rusqlite::Error::SqliteFailure(busy, None));
    }
    Ok(())
}

/// What is in the directory. It may be damaged, which is why somebody restores.
struct Old {
    database: PathBuf,
    /// As far as that can be told.
    revision: Revision,
}

impl Old {
    fn of(dir: &Path) -> Self {
        let database = schema::file(dir);
        let revision = match database.exists() {
            true => settled(&database),
            false => Revision::default(),
        };
        Self { database, revision }
    }

    /// Gives what is there another name beside its own. Its log goes with it: SQLite would take it
    /// for the log of whatever has the name next.
    fn keep(self) -> Result<Option<PathBuf>, StoreError> {
        if !self.database.exists() {
            return Ok(None);
        }
        let kept = self.free_name();
        let failed = |source| StoreError::file("keep what is there as", &kept, source);
        let log = log_of(&self.database);
        if log.exists() {
            fs::hard_link(&log, log_of(&kept)).map_err(failed)?;
        }
        fs::hard_link(&self.database, &kept).map_err(failed)?;
        sync_directory_of(&kept)?;
        if log.exists() {
            fs::remove_file(&log).map_err(|source| StoreError::file("remove", &log, source))?;
            sync_directory_of(&kept)?;
        }
        Ok(Some(kept))
    }

    /// The first that is free, or what a restore that was killed gave to the same file.
    fn free_name(&self) -> PathBuf {
        let inode = |path: &Path| fs::metadata(path).map(|file| file.ino()).ok();
        let names = (1_u32..).map(|n| beside(&self.database, &format!(".before-restore-{n}")));
        for name in names {
            if inode(&name).is_some() && inode(&name) == inode(&self.database) {
                let _ = fs::remove_file(&name);
            }
            if !name.exists() && !log_of(&name).exists() {
                return name;
            }
        }
        self.database.clone()
    }
}

/// Moves the log of what is there into it, and says how far it has come. One that is too damaged
/// for that keeps its log, and tells nothing.
fn settled(database: &Path) -> Revision {
    let Ok(connection) = schema::open_again(database) else {
        return Revision::default();
    };
    let newest = schema::newest_revision(&connection).unwrap_or_default();
    if let Err(error) = empty_log(&connection) {
        tracing::debug!(error = %ErrorChain(&error), "what is there keeps its log");
    }
    // No cluster comes so far: what says so is damaged.
    Some(newest)
        .filter(|newest| RowId::new(Revision(newest.0.saturating_mul(2)), 0).is_some())
        .unwrap_or_default()
}
