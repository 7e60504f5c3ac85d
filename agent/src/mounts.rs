//! What is mounted where, as this process sees it.
//!
//! The kernel tells mount points by their real paths, so whoever asks for those below a directory
//! may name it by another: it is resolved first.

use std::{
    ffi::OsString,
    fs, io,
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
};

use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags};

/// Whether something is mounted exactly at `path`; a symbolic link there is not followed.
pub(crate) fn is_point(path: &Path) -> bool {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    match rustix::fs::statx(CWD, path, flags, StatxFlags::empty()) {
        Ok(found)
            if found
                .stx_attributes_mask
                .contains(StatxAttributes::MOUNT_ROOT) =>
        {
            found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT)
        }
        // Before Linux 5.8 only the table knows.
        Ok(_) => {
            let real = resolve(path);
            below(path).is_ok_and(|points| points.contains(&real))
        }
        Err(_) => false,
    }
}

/// Mount points at and below `dir`, deepest first.
///
/// # Errors
/// The table cannot be read.
pub(crate) fn below(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let dir = resolve(dir);
    let mut points: Vec<PathBuf> = parse(&fs::read("/proc/self/mountinfo")?)
        .filter(|point| point.starts_with(&dir))
        .collect();
    points.sort_by_key(|point| std::cmp::Reverse(point.components().count()));
    Ok(points)
}

/// The real path, as far as there is anything.
fn resolve(path: &Path) -> PathBuf {
    let in_parent = || Some(path.parent()?.canonicalize().ok()?.join(path.file_name()?));
    path.canonicalize()
        .ok()
        .or_else(in_parent)
        .unwrap_or_else(|| path.to_owned())
}

fn parse(table: &[u8]) -> impl Iterator<Item = PathBuf> {
    let lines = table.split(|byte| *byte == b'\n');
    lines
        .filter_map(|line| line.split(|byte| *byte == b' ').nth(4))
        .map(|field| PathBuf::from(unescape(field)))
}

/// The kernel writes blank, tab, newline and backslash as octal.
fn unescape(field: &[u8]) -> OsString {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, after)) = rest.split_first() {
        let digits = after
            .get(..3)
            .and_then(|digits| std::str::from_utf8(digits).ok());
        match digits
            .filter(|_| first == b'\\')
            .and_then(|digits| u8::from_str_radix(digits, 8).ok())
        {
            Some(code) => {
                out.push(code);
                rest = &after[3..];
            }
            None => {
                out.push(first);
                rest = after;
            }
        }
    }
    OsString::from_vec(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_the_table_are_unescaped() {
        let table = b"22 1 0:20 / /a\\040b rw - tmpfs tmpfs rw\n23 1 0:21 / /c\\134d\xff rw - tmpfs tmpfs rw\n";
        let got: Vec<PathBuf> = parse(table).collect();
        assert_eq!(
            got,
            [
                PathBuf::from("/a b"),
                PathBuf::from(OsString::from_vec(b"/c\\d\xff".to_vec()))
            ]
        );
    }

    #[test]
    fn mounts_are_found_by_any_name_of_a_directory() {
        let dir = tempfile::tempdir().expect("directory");
        let link = dir.path().join("link");
        std::os::unix::fs::symlink("/proc", &link).expect("link");
        assert!(is_point(Path::new("/proc")));
        assert!(!is_point(dir.path()));
        assert!(
            below(&link)
                .expect("table")
                .contains(&PathBuf::from("/proc"))
        );
        assert!(
            below(&dir.path().join("link/.."))
                .expect("table")
                .contains(&PathBuf::from("/proc"))
        );
    }
}
