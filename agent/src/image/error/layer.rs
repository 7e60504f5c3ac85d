//! What is wrong with a layer.

use std::{
    error::Error,
    io::{self, ErrorKind},
    path::PathBuf,
};

use super::{StoreError, io_errors};

/// Why a layer did not make it into the store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LayerError {
    /// Not what the manifest or the config promised.
    #[error("layer {layer} is not what was promised: {what} is {actual}, expected {expected}")]
    Mismatch {
        /// Which layer.
        layer: String,
        /// `digest`, `size`, `diff ID`.
        what: &'static str,
        /// Found.
        actual: String,
        /// Promised.
        expected: String,
    },
    /// It has, or becomes, more than it may.
    #[error("layer {layer} is too large")]
    TooLarge {
        /// Which layer.
        layer: String,
        /// Which bound.
        source: TooLarge,
    },
    /// The bytes do not decompress, or are no archive.
    #[error("read layer {layer}")]
    Read {
        /// Which layer.
        layer: String,
        /// The cause.
        source: io::Error,
    },
    /// The node's disk has no room for it.
    #[error("no room on the disk for layer {layer}")]
    DiskFull {
        /// Which layer.
        layer: String,
        /// Where it ended.
        source: UnpackError,
    },
    /// The archive cannot be unpacked.
    #[error("unpack layer {layer}")]
    Unpack {
        /// Which layer.
        layer: String,
        /// The cause.
        source: UnpackError,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl LayerError {
    /// Why the bytes of `layer` ended.
    pub(crate) fn read(layer: String, source: io::Error) -> Self {
        match TooLarge::within(&source) {
            Some(source) => Self::TooLarge { layer, source },
            None => Self::Read { layer, source },
        }
    }

    /// Why `layer` was not unpacked.
    pub(crate) fn unpack(layer: String, source: UnpackError) -> Self {
        if let Some(source) = TooLarge::within(&source) {
            return Self::TooLarge { layer, source };
        }
        match source {
            UnpackError::Archive(source) => Self::Read { layer, source },
            source if is_disk_full(&source) => Self::DiskFull { layer, source },
            source => Self::Unpack { layer, source },
        }
    }
}

/// A bound that a layer went over. Readers hand it on within an [`io::Error`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TooLarge {
    /// The blob goes on.
    #[error("more than the {0} bytes that the manifest announces")]
    Announced(u64),
    /// It decompresses to more than any layer may have.
    #[error("the layer is larger than this node accepts")]
    Accepted,
    /// Archivers fill their last record; this is more.
    #[error("too much comes behind the end of the layer's archive")]
    Behind,
}

impl TooLarge {
    /// The one that an error came of.
    fn within(error: &(dyn Error + 'static)) -> Option<Self> {
        io_errors(error)
            .find_map(|error| error.get_ref()?.downcast_ref())
            .copied()
    }
}

impl From<TooLarge> for io::Error {
    fn from(bound: TooLarge) -> Self {
        Self::new(ErrorKind::InvalidData, bound)
    }
}

fn is_disk_full(error: &(dyn Error + 'static)) -> bool {
    io_errors(error).any(|error| {
        matches!(
            error.kind(),
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded
        )
    })
}

/// Why a layer cannot be unpacked.
#[derive(Debug, thiserror::Error)]
pub enum UnpackError {
    /// The tar stream itself is broken.
    #[error("read the layer archive")]
    Archive(#[source] io::Error),
    /// One entry cannot be made.
    #[error("{operation} {path:?}")]
    Entry {
        /// Doing what.
        operation: &'static str,
        /// The entry's path as the archive has it.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The layer is refused.
    #[error("layer refused: {why}")]
    Refused {
        /// The reason.
        why: String,
    },
}
