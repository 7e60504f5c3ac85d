//! Blocks of the store's own files that are there before anything is written to them, so that a
//! neighbour who fills the disk takes none of them.
//!
//! The write-ahead log has as much as it ever needs between two checkpoints; it keeps that when the
//! store is closed. The database gets, before a commit, what the next checkpoint will write: a full
//! disk is seen while the batch can be undone. Files keep their length: SQLite sees nothing of
//! this.

use std::{
    fs::File,
    io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use rustix::{
    fs::{FallocateFlags, fallocate},
    io::{Errno, retry_on_intr},
};

use super::schema;

/// Twice what a checkpoint is begun at, for the batch that comes in between.
pub(super) const LOG_BYTES: u64 = 8 << 20;
/// Taken for the database at once, so that few commits ask.
const CHUNK: u64 = 1 << 20;
/// Where there is not so much: what each of the two files gets of a piece that the reserve gives
/// up.
pub(super) const STEP: u64 = 256 << 10;
/// What a file system counts blocks in, for `stat`.
const BLOCK: u64 = 512;

/// The room of one store.
pub(super) struct Room {
    /// Open for as long as the connection is: closing it would end SQLite's lock on the file.
    database: File,
    database_path: PathBuf,
    log: PathBuf,
    /// The length of the database when it was last given blocks, and up to where it got them.
    given: Option<(u64, u64)>,
}

impl Room {
    pub(super) fn of(dir: &Path) -> io::Result<Self> {
        let database_path = schema::file(dir);
        let database = File::options().write(true).open(&database_path)?;
        Ok(Self {
            database,
            database_path,
            log: dir.join("store.db-wal"),
            given: None,
        })
    }

    /// Sees to blocks for a database of `bytes`.
    ///
    /// # Errors
    /// [`io::ErrorKind::StorageFull`] if there are not so many. Its text names the file and how far
    /// it should have reached.
    pub(super) fn for_database(&mut self, bytes: u64) -> io::Result<()> {
        let length = self.database.metadata()?.len();
        let has_room = |(at, until)| at == length && bytes <= until;
        if bytes <= length || self.given.is_some_and(has_room) {
            return Ok(());
        }
        let mut allocated = Ok(());
        for until in [bytes.next_multiple_of(CHUNK), bytes + STEP, bytes] {
            allocated = allocate(&self.database, length, until)
                .map_err(|error| of_file(&self.database_path, until, &error));
            match &allocated {
                Ok(()) => self.given = Some((length, until)),
                Err(error) if error.kind() == io::ErrorKind::StorageFull => continue,
                Err(_) => {}
            }
            break;
        }
        allocated
    }

    /// How many bytes a database of `bytes` is longer than it is now.
    pub(super) fn beyond_database(&self, bytes: u64) -> u64 {
        self.database
            .metadata()
            .map_or(0, |database| bytes.saturating_sub(database.len()))
    }

    /// How many bytes the log has blocks for.
    pub(super) fn log_bytes(&self) -> u64 {
        self.log.metadata().map_or(0, |log| log.blocks() * BLOCK)
    }

    /// Sees to blocks for a log of `bytes`.
    ///
    /// # Errors
    /// As [`Room::for_database`].
    pub(super) fn for_log(&self, bytes: u64) -> io::Result<()> {
        if self.log_bytes() >= bytes {
            return Ok(());
        }
        let log = File::options().write(true).open(&self.log);
        log.and_then(|log| allocate(&log, 0, bytes))
            .map_err(|error| of_file(&self.log, bytes, &error))
    }
}

/// Gives `file` blocks for `[from, until)`. A file system that cannot do this has no room to
/// promise: that is no error.
fn allocate(file: &File, from: u64, until: u64) -> io::Result<()> {
    match retry_on_intr(|| {
        fallocate(
            file,
            FallocateFlags::KEEP_SIZE,
            from,
            until.saturating_sub(from),
        )
    }) {
        Err(Errno::OPNOTSUPP) => Ok(()),
        allocated => Ok(allocated?),
    }
}

fn of_file(path: &Path, bytes: u64, error: &io::Error) -> io::Error {
    io::Error::new(
        error.kind(),
        format!(
            "cannot give {} blocks for {bytes} bytes: {error}",
            path.display()
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_gets_no_room_is_named_and_why_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        File::create(schema::file(dir.path())).unwrap();
        let error = Room::of(dir.path()).unwrap().for_log(4096).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        let expect = format!(
            "cannot give {}/store.db-wal blocks for 4096 bytes: No such file",
            dir.path().display()
        );
        assert!(error.to_string().starts_with(&expect), "{error}");
        let full = of_file(dir.path(), 1, &io::ErrorKind::StorageFull.into());
        assert_eq!(full.kind(), io::ErrorKind::StorageFull);
    }
}
