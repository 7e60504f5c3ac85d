//! A file that gets its name only once it is whole and on disk, so that whoever finds the name
//! finds all of it, whenever the program or the machine died.

use std::{
    ffi::OsString,
    fs::{self, File, TryLockError},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use rustix::fs::{CWD, RenameFlags, renameat_with};

use crate::error::StoreError;

/// What becomes of a file that has the name already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existing {
    /// It stays, and there is an error.
    Keep,
    /// It goes.
    Replace,
}

/// A file on its way. Dropped, it is gone.
#[derive(Debug)]
pub struct PendingFile {
    file: File,
    partial: PathBuf,
    path: PathBuf,
    existing: Existing,
    is_named: bool,
}

impl PendingFile {
    /// Begins a file that will be called `path`, readable by its owner alone. What a killed
    /// predecessor has left is written over.
    ///
    /// # Errors
    /// [`StoreError::Exists`]; [`StoreError::File`] for a directory that is not there or that may
    /// not be written, and while another writes the same file.
    pub fn create(path: &Path, existing: Existing) -> Result<Self, StoreError> {
        if existing == Existing::Keep && path.symlink_metadata().is_ok() {
            return Err(StoreError::Exists {
                path: path.to_path_buf(),
            });
        }
        let partial = beside(path, ".partial");
        let failed = |source| StoreError::file("create", &partial, source);
        let mut options = File::options();
        options.create(true).truncate(false).read(true).write(true);
        let file = options
            .mode(0o600)
            .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed())
            .open(&partial)
            .map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::Error(source)) => return Err(failed(source)),
            Err(TryLockError::WouldBlock) => {
                let why = "another program is writing it";
                return Err(failed(io::Error::new(io::ErrorKind::ResourceBusy, why)));
            }
        }
        // From here on it is this one's to remove.
        let pending = Self {
            file,
            partial,
            path: path.to_path_buf(),
            existing,
            is_named: false,
        };
        let emptied = pending.file.set_len(0);
        emptied.map_err(|source| StoreError::file("write", &pending.partial, source))?;
        Ok(pending)
    }

    /// Where it is until it is whole.
    #[must_use]
    pub fn partial(&self) -> &Path {
        &self.partial
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Adds to it.
    ///
    /// # Errors
    /// [`StoreError::File`], such as for a full disk.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        self.file
            .write_all(bytes)
            .map_err(|source| StoreError::file("write", &self.partial, source))
    }

    /// Syncs it, and gives it its name.
    ///
    /// # Errors
    /// [`StoreError::Exists`] if somebody else has made such a file meanwhile;
    /// [`StoreError::File`].
    pub fn finish(mut self) -> Result<(), StoreError> {
        let synced = self.file.sync_all();
        synced.map_err(|source| StoreError::file("sync", &self.partial, source))?;
        let renamed = match self.existing {
            Existing::Replace => fs::rename(&self.partial, &self.path),
            Existing::Keep => rename_new(&self.partial, &self.path),
        };
        renamed.map_err(|source| match source.kind() {
            io::ErrorKind::AlreadyExists => StoreError::Exists {
                path: self.path.clone(),
            },
            _ => StoreError::file("rename a new file to", &self.path, source),
        })?;
        self.is_named = true;
        sync_directory_of(&self.path)
    }
}

impl Drop for PendingFile {
    fn drop(&mut self) {
        if !self.is_named {
            // Nobody can act on it: the next one writes over it.
            let _ = fs::remove_file(&self.partial);
        }
    }
}

/// Renames only if there is no such file. File systems that cannot promise that are looked at
/// before.
fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        Err(rustix::io::Errno::INVAL) if to.symlink_metadata().is_ok() => {
            Err(io::ErrorKind::AlreadyExists.into())
        }
        Err(rustix::io::Errno::INVAL) => fs::rename(from, to),
        renamed => Ok(renamed?),
    }
}

/// Makes sure that what was renamed is so after a power cut.
pub(super) fn sync_directory_of(path: &Path) -> Result<(), StoreError> {
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    File::open(parent)
        .and_then(|directory| directory.sync_all())
        .map_err(|source| StoreError::file("sync", parent, source))
}

/// `path` with something after its name.
pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_file_has_its_name_when_it_is_whole_and_not_before() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let mut pending = PendingFile::create(&path, Existing::Keep).unwrap();
        pending.write(b"half").unwrap();
        assert!(!path.exists());
        pending.write(b" and half").unwrap();
        pending.finish().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"half and half");
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_is_there_stays_unless_it_is_to_go() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let first = PendingFile::create(&path, Existing::Keep).unwrap();
        // Made by somebody else in between.
        fs::write(&path, "theirs").unwrap();
        let error = first.finish().unwrap_err();
        assert!(matches!(error, StoreError::Exists { .. }), "{error}");
        let error = PendingFile::create(&path, Existing::Keep).unwrap_err();
        assert!(matches!(error, StoreError::Exists { .. }), "{error}");
        assert_eq!(fs::read(&path).unwrap(), b"theirs");
        let mut other = PendingFile::create(&path, Existing::Replace).unwrap();
        other.write(b"ours").unwrap();
        other.finish().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"ours");
    }

    #[test]
    fn two_do_not_write_one_file_and_a_dead_one_holds_up_nobody() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        fs::write(beside(&path, ".partial"), "left by one that was killed").unwrap();
        let first = PendingFile::create(&path, Existing::Keep).unwrap();
        let error = PendingFile::create(&path, Existing::Keep).unwrap_err();
        assert!(matches!(error, StoreError::File { .. }), "{error}");
        first.finish().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"");
    }
}
