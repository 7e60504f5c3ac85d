//! Settings of the kernel.

use std::{fs, path::Path};

use crate::error::CniError;

/// Gives it `value`. Says whether it had another.
///
/// # Errors
/// [`CniError::Io`].
pub(crate) fn set(path: &Path, value: &str) -> Result<bool, CniError> {
    // Reading first: a node may be set up right and its /proc/sys be read-only.
    if fs::read_to_string(path).is_ok_and(|present| present.trim() == value) {
        return Ok(false);
    }
    fs::OpenOptions::new()
        .write(true)
        .open(path)
        .and_then(|mut file| std::io::Write::write_all(&mut file, value.as_bytes()))
        .map_err(|source| CniError::Io {
            operation: "write",
            path: path.into(),
            source,
        })?;
    Ok(true)
}
