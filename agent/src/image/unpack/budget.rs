//! How much a layer may take of the disk: a small blob can unpack to any size, and every author of
//! a pod can name one.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
};

use super::super::error::TooLarge;

/// Most unpacked bytes of one layer.
const BYTES_MAX: u64 = 64 << 30;
/// Most bytes that a byte of the blob may become: four times what the best of real layers do.
const RATIO_MAX: u64 = 1000;
/// What any layer may take, however small its blob.
const BYTES_ALWAYS: u64 = 64 << 20;
/// Of the file system's size, one part in so many stays free, and not more than [`RESERVE_MAX`]:
/// the node has other work there, and eviction comes after the fact.
const RESERVE_PART: u64 = 20;
const RESERVE_MAX: u64 = 2 << 30;
/// Between two looks at the file system.
const LOOK_EVERY: u64 = 16 << 20;
/// What a file takes at least.
const BLOCK: u64 = 4096;

/// Counts what is written.
pub(super) struct Budget {
    left: u64,
    until_look: u64,
}

impl Budget {
    /// For a blob of this many bytes, if that is known.
    pub(super) fn new(blob_bytes: Option<u64>) -> Self {
        Self {
            left: most(blob_bytes),
            until_look: 0,
        }
    }

    /// Most bytes to write before [`Budget::take`] is asked again.
    pub(super) fn step(&self) -> u64 {
        self.left.saturating_add(1).min(LOOK_EVERY)
    }

    /// Takes note of `bytes` in one file below `root`.
    ///
    /// # Errors
    /// The layer is too large, or the file system too full.
    pub(super) fn take(&mut self, bytes: u64, root: BorrowedFd<'_>) -> io::Result<()> {
        if !self.count(bytes)? {
            return Ok(());
        }
        let stat = nix::sys::statvfs::fstatvfs(root.as_fd())?;
        check_room(
            stat.blocks() * stat.fragment_size(),
            stat.blocks_available() * stat.fragment_size(),
        )
    }

    /// Whether it is time to look at the file system.
    fn count(&mut self, bytes: u64) -> io::Result<bool> {
        let Some(left) = self.left.checked_sub(bytes) else {
            return Err(TooLarge::Accepted.into());
        };
        self.left = left;
        let counted = bytes.max(BLOCK);
        if counted < self.until_look {
            self.until_look -= counted;
            return Ok(false);
        }
        self.until_look = LOOK_EVERY;
        Ok(true)
    }
}

/// Most bytes that a layer may have, in files and as a stream, whose blob has this many.
pub(in crate::image) fn most(blob_bytes: Option<u64>) -> u64 {
    let by_ratio = blob_bytes.map_or(BYTES_MAX, |bytes| {
        bytes.saturating_mul(RATIO_MAX).max(BYTES_ALWAYS)
    });
    by_ratio.min(BYTES_MAX)
}

fn check_room(total: u64, free: u64) -> io::Result<()> {
    let reserve = (total / RESERVE_PART).min(RESERVE_MAX);
    if free >= reserve {
        return Ok(());
    }
    let why = format!("No space left for images: {reserve} of {total} bytes stay free");
    Err(io::Error::new(io::ErrorKind::StorageFull, why))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layer_may_grow_by_its_ratio_and_not_beyond() {
        for (blob, fits, too_much) in [
            (Some(1), BYTES_ALWAYS, BYTES_ALWAYS + 1),
            (Some(1 << 20), 1000 << 20, (1000 << 20) + 1),
            (Some(1 << 40), BYTES_MAX, BYTES_MAX + 1),
            (None, BYTES_MAX, BYTES_MAX + 1),
        ] {
            assert!(Budget::new(blob).count(fits).is_ok(), "{blob:?}");
            assert!(Budget::new(blob).count(too_much).is_err(), "{blob:?}");
        }
    }

    #[test]
    fn a_part_of_the_disk_stays_free() {
        for (total, free, good) in [
            (1000, 50, true),
            (1000, 49, false),
            (1 << 40, 2 << 30, true),
            (0, 0, true),
        ] {
            assert_eq!(check_room(total, free).is_ok(), good, "{total} {free}");
        }
    }
}
