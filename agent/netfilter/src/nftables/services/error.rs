//! What goes wrong with the table of Services.

use std::io;

use coracle_telemetry::ErrorChain;

use super::{super::kernel::CommitError, parts::TABLE};

/// Why Services could not be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NftablesError {
    /// It cannot be read.
    #[error("list the nftables table {}", TABLE.name)]
    List(#[source] io::Error),
    /// Nobody's rules were taken, or there is no end to what is refused.
    #[error("write the nftables table {}: {why}", TABLE.name)]
    Write {
        /// What the kernel said.
        why: String,
    },
}

impl From<CommitError> for NftablesError {
    fn from(error: CommitError) -> Self {
        Self::Write {
            why: ErrorChain(&error).to_string(),
        }
    }
}
