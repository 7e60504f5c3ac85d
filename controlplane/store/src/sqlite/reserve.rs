//! Room that is kept for when the disk is full: a file that is made shorter then, a piece at a
//! time.
//!
//! A start takes nothing of it: SQLite's index of the log is in memory, and the log has its blocks
//! (see [`super::room`]). What lives on it are transactions that say so: deletions and what belongs
//! to them, heartbeats. A piece that is given up goes to the store's own files in the same moment,
//! so a neighbour who writes without end gets little of it. Everything else is refused until the
//! reserve is whole again. So an administrator can make room through the API.
//!
//! A large object is written anew when it is to be deleted: that takes as many pieces as it needs,
//! but of half the reserve at most. Whoever has large objects and writes them again and again
//! leaves the other half to what is small.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use coracle_telemetry::ErrorChain;
use rustix::{
    fs::{FallocateFlags, fallocate, statvfs},
    io::{Errno, retry_on_intr},
};

use super::room::{LOG_BYTES, Room, STEP};

/// Some hours of an idle cluster, and thousands of deletions.
const BYTES: u64 = 16 << 20;
/// Of a small disk, this part.
const PART: u64 = 8;
/// Less is of no use.
const LEAST_BYTES: u64 = 1 << 20;
/// What is given up at once: a step for the database, and one for the log.
const PIECE: u64 = 2 * STEP;
/// How often it is looked for room while nobody needs any.
const RETRY: Duration = Duration::from_secs(5);

/// The room of one store.
pub(super) struct Reserve {
    path: PathBuf,
    room: Room,
    /// How large it is when it is whole; 0 where the disk is too small for one.
    whole: u64,
    bytes: u64,
    /// A piece was given up, and the whole is not there again.
    is_given_up: bool,
    /// How large the database was to be when there was no room for that.
    lacking: Option<u64>,
    tried: Option<Instant>,
}

impl Reserve {
    /// What there is of the reserve in `dir`.
    pub(super) fn of(dir: &Path, room: Room) -> Self {
        let path = dir.join("reserve");
        let whole = match statvfs(dir) {
            Ok(disk) => BYTES.min(disk.f_blocks.saturating_mul(disk.f_frsize) / PART),
            Err(error) => {
                tracing::warn!(path = %dir.display(), error = %ErrorChain(&error), "no reserve: cannot tell how large the disk is");
                0
            }
        };
        let whole = if whole < LEAST_BYTES { 0 } else { whole };
        let bytes = fs::metadata(&path).map(|file| file.len());
        // None at all is a new store's, or a disk's that had no room for one yet.
        let is_given_up = bytes.as_ref().is_ok_and(|bytes| *bytes < whole);
        Self {
            path,
            room,
            whole,
            bytes: bytes.unwrap_or(0),
            is_given_up,
            lacking: None,
            tried: None,
        }
    }

    /// Sees to blocks for a database of `bytes` before they are written.
    ///
    /// # Errors
    /// [`io::ErrorKind::StorageFull`].
    pub(super) fn cover(&mut self, bytes: u64) -> io::Result<()> {
        let covered = self.room.for_database(bytes);
        self.lacking = covered.is_err().then_some(bytes);
        covered
    }

    /// Gives up what a batch of `batch_bytes` lacks if the disk is full: room for the database if
    /// that lacked some, and one step more for the log. Whether there was as much.
    pub(super) fn give_up(&mut self, batch_bytes: u64) -> bool {
        let Some(free) = self.free() else {
            return false;
        };
        let for_database = self
            .lacking
            .map_or(0, |bytes| self.room.beyond_database(bytes));
        let needed = PIECE
            + if batch_bytes > STEP {
                for_database.max(batch_bytes) + batch_bytes
            } else {
                0
            };
        let missing = needed.saturating_sub(free);
        if self.bytes == 0 || missing == 0 {
            return false;
        }
        if batch_bytes > STEP && missing > self.bytes.saturating_sub(self.whole / 2) {
            return false;
        }
        let left = self.bytes.saturating_sub(missing.next_multiple_of(PIECE));
        if let Err(error) = File::options()
            .write(true)
            .open(&self.path)
            .and_then(|file| file.set_len(left))
        {
            tracing::error!(path = %self.path.display(), error = %ErrorChain(&error), "cannot give up the reserve");
            return false;
        }
        let for_database = self
            .lacking
            .take()
            .map_or(Ok(()), |bytes| self.room.for_database(bytes));
        let log_bytes = LOG_BYTES
            .min(self.whole)
            .min(self.room.log_bytes() + STEP.max(batch_bytes));
        for error in [for_database, self.room.for_log(log_bytes)]
            .into_iter()
            .filter_map(Result::err)
        {
            if error.kind() == io::ErrorKind::StorageFull {
                tracing::debug!(error = %ErrorChain(&error), "somebody else took the room that was given up");
            } else {
                tracing::warn!(error = %ErrorChain(&error), "cannot use the room that was given up");
            }
        }
        self.bytes = left;
        if !std::mem::replace(&mut self.is_given_up, true) {
            tracing::error!(
                path = %self.path.display(),
                "the disk is full: giving up the reserve; only deletions and nodes' Leases are written until it is whole \
                 again: delete objects, or free space"
            );
        }
        true
    }

    /// Whether a piece was given up and the whole is not there again.
    pub(super) fn is_given_up(&self) -> bool {
        self.is_given_up
    }

    /// Whether there is room for what is new. Once a piece was given up: as soon as it could be
    /// taken back.
    pub(super) fn allows_growth(&mut self) -> bool {
        if self.is_given_up {
            self.take();
        }
        !self.is_given_up
    }

    /// Takes what is missing: when nobody waits.
    pub(super) fn ensure(&mut self) {
        if self.tried.is_none_or(|at| at.elapsed() >= RETRY) {
            self.take();
        }
    }

    /// Keeps the log's blocks, which a checkpoint has just given back.
    pub(super) fn keep_log(&self) {
        if let Err(error) = self.room.for_log(LOG_BYTES.min(self.whole)) {
            tracing::debug!(error = %ErrorChain(&error), "no room for the write-ahead log");
        }
    }

    fn take(&mut self) {
        self.tried = Some(Instant::now());
        match self.allocate() {
            Ok(()) if self.bytes < self.whole => {}
            Ok(()) => {
                if std::mem::take(&mut self.is_given_up) {
                    tracing::info!("the disk has room again");
                }
            }
            Err(error) => {
                tracing::debug!(path = %self.path.display(), error = %ErrorChain(&error), "no room for a reserve")
            }
        }
    }

    /// Takes as much of what is missing as there is, and leaves some: the disk is for others, too.
    fn allocate(&mut self) -> io::Result<()> {
        let missing = self.whole.saturating_sub(self.bytes);
        let log_bytes = LOG_BYTES.min(self.whole);
        let missing_log = log_bytes.saturating_sub(self.room.log_bytes());
        if missing == 0 && missing_log == 0 {
            return Ok(());
        }
        let mut spare = self.free().unwrap_or(0).saturating_sub(LEAST_BYTES);
        if missing_log > 0 && missing_log <= spare {
            self.room.for_log(log_bytes)?;
            spare -= missing_log;
        }
        if missing == 0 || spare < PIECE.min(missing) {
            return Ok(());
        }
        let bytes = self.bytes + missing.min(spare);
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&self.path)?;
        match retry_on_intr(|| fallocate(&file, FallocateFlags::empty(), 0, bytes)) {
            Ok(()) => self.bytes = bytes,
            // The file system cannot promise room.
            Err(Errno::OPNOTSUPP) => {
                fs::remove_file(&self.path)?;
                (self.whole, self.bytes) = (0, 0);
            }
            Err(error) => {
                file.set_len(self.bytes)?;
                if self.bytes == 0 && !self.is_given_up {
                    fs::remove_file(&self.path)?;
                }
                return Err(error.into());
            }
        }
        Ok(())
    }

    /// Bytes of the disk that nobody has.
    fn free(&self) -> Option<u64> {
        let space = statvfs(self.path.parent().unwrap_or(&self.path)).ok()?;
        Some(space.f_bavail.saturating_mul(space.f_frsize))
    }
}
