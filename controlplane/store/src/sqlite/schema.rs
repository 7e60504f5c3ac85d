//! The file: its lock, its settings, its tables, and the scan that rebuilds the index.

use std::{
    collections::BTreeMap,
    fs::{self, File, TryLockError},
    path::{Path, PathBuf},
    sync::Arc,
};

use rusqlite::{Connection, OpenFlags, OptionalExtension, config::DbConfig};

use super::{
    SqliteOptions, engine_error,
    index::{Live, RowId, State},
};
use crate::{error::StoreError, fanout::Fanout, types::Revision};

/// "cora".
const APPLICATION_ID: i32 = 0x636f_7261;
const VERSION: i32 = 1;
/// One process has the file, so SQLite keeps its index of the WAL in memory. As a file it would
/// need room at each start.
const VFS: &str = "unix-excl";
/// Pages in the WAL at which a commit moves them to the main file; bounds the WAL at some 4 MB.
const CHECKPOINT_PAGES: u32 = 1000;

const TABLES: &str = "
    CREATE TABLE log (
        id INTEGER PRIMARY KEY,             -- revision * 1024 + place in the transaction
        prev_id INTEGER NOT NULL,           -- the row this supersedes; 0 if the key was absent
        create_revision INTEGER NOT NULL,
        deleted INTEGER NOT NULL,
        key TEXT NOT NULL,
        value BLOB                          -- NULL for a deletion
    );
    CREATE TABLE meta (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
    INSERT INTO meta VALUES ('compacted', 0), ('reclaimed', 0);
";

/// The database file.
pub(super) fn file(dir: &Path) -> PathBuf {
    dir.join("store.db")
}

/// Takes the directory for this process until the file is dropped.
pub(super) fn lock(dir: &Path) -> Result<File, StoreError> {
    let not_writable = |source| StoreError::NotWritable {
        path: dir.to_path_buf(),
        source,
    };
    fs::create_dir_all(dir).map_err(not_writable)?;
    let mut options = File::options();
    options.create(true).truncate(false).write(true);
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let lock = options
        .open(dir.join("store.lock"))
        .map_err(|source| match source.kind() {
            std::io::ErrorKind::StorageFull => StoreError::DiskFull {
                path: dir.to_path_buf(),
            },
            _ => not_writable(source),
        })?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err(StoreError::Locked {
            path: dir.to_path_buf(),
        }),
        Err(TryLockError::Error(source)) => Err(not_writable(source)),
    }
}

/// The connection that writes; makes the tables if there are none.
pub(super) fn open_writer(dir: &Path, options: SqliteOptions) -> Result<Connection, StoreError> {
    let path = file(dir);
    make_private(&path).map_err(|source| StoreError::NotWritable {
        path: dir.to_path_buf(),
        source,
    })?;
    let failed = |source| engine_error(&path, "open it", source);
    let connection = Connection::open_with_flags_and_vfs(
        &path,
        OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX,
        VFS,
    )
    .map_err(failed)?;
    if connection.is_readonly("main").map_err(failed)? {
        let source = std::io::ErrorKind::ReadOnlyFilesystem.into();
        return Err(StoreError::NotWritable {
            path: dir.to_path_buf(),
            source,
        });
    }
    configure_writer(&connection, options).map_err(failed)?;
    create_tables(&connection).map_err(failed)?;
    check_version(&connection, &path)?;
    Ok(connection)
}

/// A database that exists, for one who has it alone. Nothing is made in it.
pub(super) fn open_again(path: &Path) -> Result<Connection, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Connection::open_with_flags_and_vfs(path, flags, VFS)
        .map_err(|source| engine_error(path, "open it", source))
}

/// A connection that reads.
pub(super) fn open_reader(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags_and_vfs(path, flags, VFS)?;
    keep_log(&connection)?;
    connection.pragma_update(None, "cache_size", -256)?;
    connection.busy_timeout(std::time::Duration::from_secs(5))?;
    Ok(connection)
}

/// Closing leaves the WAL where it is, with its room.
pub(super) fn keep_log(connection: &Connection) -> rusqlite::Result<()> {
    connection
        .set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)
        .map(drop)
}

/// Secrets are in this file: nobody else may read it, nor the WAL, which inherits its mode.
fn make_private(path: &Path) -> std::io::Result<()> {
    let mut options = File::options();
    options.create(true).truncate(false).write(true);
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path).map(drop)
}

fn configure_writer(connection: &Connection, options: SqliteOptions) -> rusqlite::Result<()> {
    // Takes effect only before the first table.
    connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
    connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "cache_size", -1024)?;
    connection.pragma_update_and_check(None, "wal_autocheckpoint", CHECKPOINT_PAGES, |_| Ok(()))?;
    // After a burst that kept the WAL from being reset, the file shrinks again.
    connection.pragma_update_and_check(None, "journal_size_limit", 16 << 20, |_| Ok(()))?;
    keep_log(connection)?;
    connection.busy_timeout(std::time::Duration::from_secs(5))?;
    plant_faults(connection, options)
}

#[cfg(feature = "testing")]
fn plant_faults(connection: &Connection, options: SqliteOptions) -> rusqlite::Result<()> {
    if options.skip_fsync {
        connection.pragma_update(None, "synchronous", "OFF")?;
    }
    if let Some(pages) = options.max_pages {
        connection.pragma_update_and_check(None, "max_page_count", pages, |_| Ok(()))?;
    }
    Ok(())
}

#[cfg(not(feature = "testing"))]
fn plant_faults(_: &Connection, _: SqliteOptions) -> rusqlite::Result<()> {
    Ok(())
}

/// Lets the revisions of an empty store go on after `past`.
pub(super) fn begin_after(connection: &Connection, past: Revision) -> rusqlite::Result<()> {
    connection
        .execute(
            "UPDATE meta SET value = max(value, ?1) WHERE name = 'compacted' AND NOT EXISTS (SELECT 1 FROM log)",
            [past.0.cast_signed()],
        )
        .map(drop)
}

fn create_tables(connection: &Connection) -> rusqlite::Result<()> {
    let tables: i64 =
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    if tables > 0 {
        return Ok(());
    }
    let ids = format!("PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {VERSION};");
    connection.execute_batch(&format!("BEGIN IMMEDIATE; {TABLES} {ids} COMMIT;"))
}

/// Whether a database is a store, and one that this program reads.
pub(super) fn check_version(connection: &Connection, path: &Path) -> Result<(), StoreError> {
    let number = |name| connection.pragma_query_value(None, name, |row| row.get::<_, i32>(0));
    let numbers = number("application_id").and_then(|id| Ok((id, number("user_version")?)));
    match numbers.map_err(|source| engine_error(path, "read its version", source))? {
        (APPLICATION_ID, VERSION) => Ok(()),
        (APPLICATION_ID, found) => Err(StoreError::OtherVersion {
            path: path.to_path_buf(),
            found,
            expected: VERSION,
        }),
        _ => Err(StoreError::NotAStore {
            path: path.to_path_buf(),
        }),
    }
}

/// One named number of the store.
fn meta(connection: &Connection, name: &str) -> rusqlite::Result<i64> {
    let value = connection
        .query_row("SELECT value FROM meta WHERE name = ?1", [name], |row| {
            row.get(0)
        })
        .optional()?;
    Ok(value.unwrap_or_default())
}

/// Notes that nothing older can be served. It makes this the newest revision of a store that is
/// behind it.
pub(super) fn set_compacted(connection: &Connection, to: Revision) -> rusqlite::Result<()> {
    connection
        .prepare_cached("UPDATE meta SET value = ?1 WHERE name = 'compacted'")?
        .execute([to.0.cast_signed()])
        .map(drop)
}

/// The newest revision that is in the file.
pub(super) fn newest_revision(connection: &Connection) -> rusqlite::Result<Revision> {
    let row = connection.query_row("SELECT max(id) FROM log", [], |row| {
        row.get::<_, Option<i64>>(0)
    })?;
    let compacted = Revision(meta(connection, "compacted")?.unsigned_abs());
    Ok(row.map_or(compacted, |id| RowId(id).revision().max(compacted)))
}

/// Rebuilds the index, and says up to which row garbage has been removed.
pub(super) fn load(connection: &Connection) -> rusqlite::Result<(State, RowId)> {
    let compacted = Revision(meta(connection, "compacted")?.unsigned_abs());
    let reclaimed = RowId(meta(connection, "reclaimed")?);
    let mut live: BTreeMap<Arc<str>, Live> = BTreeMap::new();
    let mut revision = compacted;
    let mut statement =
        connection.prepare("SELECT id, create_revision, deleted, key FROM log ORDER BY id")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let id = RowId(row.get(0)?);
        let key = row.get_ref(3)?.as_str()?;
        revision = revision.max(id.revision());
        if row.get(2)? {
            live.remove(key);
            continue;
        }
        let now = Live {
            row: id,
            create_revision: Revision(row.get::<_, i64>(1)?.unsigned_abs()),
        };
        match live.get_mut(key) {
            Some(before) => *before = now,
            None => {
                live.insert(key.into(), now);
            }
        }
    }
    Ok((
        State {
            live,
            revision,
            compacted,
            fanout: Fanout::default(),
            closed: false,
        },
        reclaimed,
    ))
}
