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

use rustix::{
    fs::{AtFlags, CWD, StatxAttributes, StatxFlags},
    io::Errno,
    mount::{MountPropagationFlags, UnmountFlags, mount_change, unmount},
};

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

/// Takes away what is mounted at and below `dirs`, wherever else that is mounted, too: a bind mount
/// of a directory of this machine shares what is mounted in there, and taking that away would take
/// it from the machine. So all of it is made private first.
///
/// # Errors
/// The table cannot be read; or what stays, with the path: all others are taken away.
pub(crate) fn detach_below(dirs: &[&Path]) -> io::Result<()> {
    let mut points = Vec::new();
    for dir in dirs {
        points.extend(below(dir)?);
    }
    let at = |point: &Path, error: Errno| {
        let error = io::Error::from(error);
        io::Error::new(error.kind(), format!("{}: {error}", point.display()))
    };
    for point in &points {
        mount_change(point, MountPropagationFlags::PRIVATE).map_err(|error| at(point, error))?;
    }
    let flags = UnmountFlags::DETACH | UnmountFlags::NOFOLLOW;
    let detached = points.iter().map(|point| {
        let detached = unmount(point, flags);
        detached.map_err(|error| at(point, error))
    });
    // Each is tried.
    detached.fold(Ok(()), io::Result::and)
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

    /// What a subPath of a hostPath is: a bind mount of a directory in which the machine has mounts
    /// of its own, there before it and come after it.
    #[test]
    fn taking_a_bind_mount_away_leaves_the_machine_what_is_mounted_in_its_source() {
        use rustix::mount::{MountFlags, mount, mount_bind, mount_bind_recursive};
        if !coracle_ground::is_root_or_skip() {
            return;
        }
        let dir = coracle_ground::Ground::new();
        let tmpfs = |path: &Path| {
            fs::create_dir_all(path).expect("directory");
            mount("tmpfs", path, "tmpfs", MountFlags::empty(), None).expect("tmpfs");
        };
        let disk = dir.path().join("disk");
        tmpfs(&disk);
        // As systemd has it for all of the machine.
        mount_change(&disk, MountPropagationFlags::SHARED).expect("share");
        let (before, after) = (disk.join("path/before"), disk.join("path/after"));
        tmpfs(&before);
        let copies = ["plain", "recursive"].map(|name| dir.path().join("pod").join(name));
        for copy in &copies {
            fs::create_dir_all(copy).expect("directory");
        }
        mount_bind(disk.join("path"), &copies[0]).expect("bind");
        mount_bind_recursive(disk.join("path"), &copies[1]).expect("bind");
        tmpfs(&after);
        assert!(is_point(&copies[0].join("after")), "it is shared");
        detach_below(&[&dir.path().join("pod")]).expect("detach");
        let left = [&copies[0], &copies[1], &before, &after].map(|path| is_point(path));
        detach_below(&[dir.path()]).expect("clean up");
        assert_eq!(left, [false, false, true, true]);
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
