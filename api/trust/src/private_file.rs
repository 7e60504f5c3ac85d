//! Files that are their owner's alone and outlast a power cut.

use std::{
    fs,
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

/// Writes whole, mode 0600, and so that a power cut does not take it back. Blocks. One writer at a
/// time: who has the directory for itself.
///
/// # Errors
/// What the file system says; what was there stays then.
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = beside(path);
    let written = replace(path, &temporary, bytes);
    if written.is_err() {
        // The first error is the one to tell.
        let _ = fs::remove_file(&temporary);
    }
    written
}

fn replace(path: &Path, temporary: &Path, bytes: &[u8]) -> io::Result<()> {
    // Of who was killed: it may have another mode, or be a link to somewhere.
    let _ = fs::remove_file(temporary);
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(temporary)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(temporary, path)?;
    let dir = match path.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        _ => Path::new("."),
    };
    fs::File::open(dir)?.sync_all()
}

/// `ca.key.new` for `ca.key`: not `ca.new`, which would be `ca.crt`'s as well.
fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    name.into()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn a_file_is_whole_and_its_owners_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ca.key");
        for text in ["first", "second"] {
            write(&path, text.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
            assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_somebody_has_left_is_not_written_into() {
        let dir = tempfile::tempdir().unwrap();
        let (path, other) = (dir.path().join("ca.key"), dir.path().join("other"));
        fs::write(&other, "other").unwrap();
        fs::set_permissions(&other, fs::Permissions::from_mode(0o644)).unwrap();
        symlink(&other, beside(&path)).unwrap();
        write(&path, b"secret").unwrap();
        assert_eq!(fs::read_to_string(&other).unwrap(), "other");
        assert_eq!(fs::symlink_metadata(&path).unwrap().mode() & 0o7777, 0o600);
    }

    #[test]
    fn what_was_there_stays_when_it_cannot_be_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ca.key");
        fs::create_dir(&path).unwrap();
        write(&path, b"secret").unwrap_err();
        assert!(path.is_dir() && !beside(&path).exists());
    }
}
