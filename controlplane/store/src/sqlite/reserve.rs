//! Room that is kept for when the disk is full: a file that is given up then.
//!
//! What lives on it: the start of a server, deletions, and updates of what is there (a Lease, a finalizer that goes). New
//! objects are refused until the room could be taken back. So an administrator can make room through the API.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use coracle_telemetry::Chain;
use rustix::fs::{FallocateFlags, fallocate, statvfs};

/// Some hours of an idle cluster, and thousands of deletions.
const BYTES: u64 = 16 << 20;
/// Of a small disk, this part.
const PART: u64 = 8;
/// Less is of no use.
const LEAST_BYTES: u64 = 1 << 20;
/// How often it is looked for room while nobody needs any.
const RETRY: Duration = Duration::from_secs(5);

/// The room of one store.
pub(super) struct Reserve {
    path: PathBuf,
    is_there: bool,
    /// How large it is or was; 0 if there was none.
    bytes: u64,
    /// The disk was full, and may be.
    is_given_up: bool,
    tried: Option<Instant>,
}

impl Reserve {
    pub(super) fn of(dir: &Path) -> Self {
        let path = dir.join("reserve");
        let bytes = fs::metadata(&path).map_or(0, |file| file.len());
        Self { path, is_there: bytes > 0, bytes, is_given_up: false, tried: None }
    }

    /// Gives the room up; whether there was any.
    pub(super) fn give_up(&mut self) -> bool {
        self.is_given_up = true;
        if !std::mem::take(&mut self.is_there) {
            return false;
        }
        let given = fs::remove_file(&self.path);
        match &given {
            Ok(()) => {
                tracing::error!(path = %self.path.display(), "the disk is full: gave up the reserve; new objects are refused")
            }
            Err(error) => {
                tracing::error!(path = %self.path.display(), error = %Chain(&error), "cannot give up the reserve")
            }
        }
        given.is_ok()
    }

    /// Whether there is room for what is new. Once there was none: as soon as the reserve can be taken again.
    pub(super) fn allows_growth(&mut self) -> bool {
        if self.is_given_up {
            self.take();
        }
        !self.is_given_up
    }

    /// Takes the room, if it is not there: when nobody waits.
    pub(super) fn ensure(&mut self) {
        if !self.is_there && self.tried.is_none_or(|at| at.elapsed() >= RETRY) {
            self.take();
        }
    }

    fn take(&mut self) {
        self.tried = Some(Instant::now());
        match self.allocate() {
            Ok(bytes) => {
                if std::mem::take(&mut self.is_given_up) {
                    tracing::info!("the disk has room again");
                }
                self.is_there = bytes > 0;
                self.bytes = self.bytes.max(bytes);
            }
            Err(error) => tracing::debug!(path = %self.path.display(), error = %Chain(&error), "no room for a reserve"),
        }
    }

    /// Makes the file; 0 bytes where the disk is small or cannot do this: there is no reserve then.
    fn allocate(&self) -> io::Result<u64> {
        let space = statvfs(self.path.parent().unwrap_or(&self.path))?;
        let free = space.f_bavail.saturating_mul(space.f_frsize);
        let bytes = if self.bytes > 0 { self.bytes } else { BYTES.min(free / PART) };
        // What was given up is free as well: that alone is no room.
        if free < LEAST_BYTES.max(2 * self.bytes) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        if bytes < LEAST_BYTES {
            return Ok(0);
        }
        let file = File::create(&self.path)?;
        match fallocate(&file, FallocateFlags::empty(), 0, bytes) {
            Ok(()) => Ok(bytes),
            Err(error) => {
                fs::remove_file(&self.path)?;
                if error == rustix::io::Errno::OPNOTSUPP { Ok(0) } else { Err(error.into()) }
            }
        }
    }
}
