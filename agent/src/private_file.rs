//! Files that are root's alone and outlast a power cut.

use std::{
    fs,
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

/// Writes whole, mode 0600, and so that a power cut does not take it back. Blocks.
///
/// # Errors
/// What the file system says; what was there stays then.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = path.with_extension("new");
    let _ = fs::remove_file(&temporary);
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&temporary)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&temporary, path)?;
    path.parent()
        .map_or(Ok(()), |dir| fs::File::open(dir)?.sync_all())
}
