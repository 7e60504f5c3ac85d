//! What a directory takes of the disk.

use std::{fs, os::unix::fs::MetadataExt, path::Path};

/// `st_blocks` are these, whatever the file system's own are.
const BLOCK: u64 = 512;

/// Bytes and inodes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Usage {
    pub(super) bytes: u64,
    pub(super) inodes: u64,
}

impl Usage {
    /// Of everything below `directory` on its own file system: what is mounted there is another's.
    /// Blocking. What goes while it is counted is not counted.
    pub(super) fn of(directory: &Path) -> Self {
        fs::symlink_metadata(directory)
            .map(|root| Self::below(directory, root.dev()))
            .unwrap_or_default()
    }

    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_add(other.bytes),
            inodes: self.inodes.saturating_add(other.inodes),
        }
    }

    fn below(path: &Path, device: u64) -> Self {
        let Ok(metadata) = fs::symlink_metadata(path) else {
            return Self::default();
        };
        if metadata.dev() != device {
            return Self::default();
        }
        let own = Self {
            bytes: metadata.blocks() * BLOCK,
            inodes: 1,
        };
        if !metadata.is_dir() {
            return own;
        }
        let entries = fs::read_dir(path).into_iter().flatten().flatten();
        entries
            .map(|entry| Self::below(&entry.path(), device))
            .fold(own, Self::plus)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_counted_and_links_are_not_followed() {
        let dir = tempfile::tempdir().expect("directory");
        let inner = dir.path().join("a");
        fs::create_dir(&inner).expect("directory");
        fs::write(inner.join("file"), vec![1; 100_000]).expect("file");
        std::os::unix::fs::symlink("/usr", inner.join("link")).expect("link");
        let usage = Usage::of(dir.path());
        assert_eq!(usage.inodes, 4);
        assert!((100_000..1_000_000).contains(&usage.bytes), "{usage:?}");
        assert_eq!(Usage::of(Path::new("/nowhere")), Usage::default());
    }
}
