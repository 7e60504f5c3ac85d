//! Bounds what an archive reader may read between two entries.
//!
//! The reader keeps PAX and long-name records in memory, however long their headers claim they are.
//! It cannot be told a limit, so its source is: while it looks for the next entry it gets so many
//! bytes and no more. Contents are not limited here; who reads them counts them.

use std::{
    cell::Cell,
    io::{self, Read, Seek, SeekFrom},
    rc::Rc,
};

/// How many bytes may still be read. Clones share it.
#[derive(Clone)]
pub(super) struct Allowance(Rc<Cell<u64>>);

impl Allowance {
    pub(super) fn new(bytes: u64) -> Self {
        Self(Rc::new(Cell::new(bytes)))
    }

    /// From here on so many bytes and no more.
    pub(super) fn set(&self, bytes: u64) {
        self.0.set(bytes);
    }

    /// No limit until the next [`Allowance::set`].
    pub(super) fn lift(&self) {
        self.0.set(u64::MAX);
    }

    /// Puts `inner` under this allowance.
    pub(super) fn limit<R>(&self, inner: R) -> Limited<R> {
        Limited {
            inner,
            allowance: self.clone(),
        }
    }
}

/// A reader under an [`Allowance`].
pub(super) struct Limited<R> {
    inner: R,
    allowance: Allowance,
}

impl<R: Read> Read for Limited<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let left = self.allowance.0.get();
        if left == 0 && !buf.is_empty() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "an extended header is too long",
            ));
        }
        let room = usize::try_from(left).unwrap_or(usize::MAX).min(buf.len());
        let count = self.inner.read(&mut buf[..room])?;
        if left != u64::MAX {
            self.allowance.0.set(left - count as u64);
        }
        Ok(count)
    }
}

/// Jumping over contents costs nothing.
impl<R: Seek> Seek for Limited<R> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.inner.seek(to)
    }
}
