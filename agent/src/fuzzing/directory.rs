//! Where fuzz targets put files: one place, always the same.

use std::{fs, path::PathBuf};

/// The directory, empty.
pub(crate) fn directory() -> PathBuf {
    let path = std::env::temp_dir().join("coracle-fuzzed");
    let _absent_at_first = fs::remove_dir_all(&path);
    fs::create_dir(&path).expect("a directory");
    path
}
