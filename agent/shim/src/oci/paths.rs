//! Paths inside a container that a pod or an image names: where they lead, and where they may not.
//!
//! Links and `..` are followed as the kernel would inside the root, and never out of it; a `..` of
//! what is not there leads back, as it does where a directory is made first. What the kernel would
//! be given with a `..` in it is given without, as it could lead elsewhere once volumes are
//! mounted.
//!
//! Source: `mountToRootfs` in runc's `libcontainer/rootfs_linux.go` at v1.3, `SecureJoin` in
//! `filepath-securejoin`.

use std::{
    ffi::OsString,
    fs,
    os::unix::ffi::OsStrExt,
    path::{Component, Path, PathBuf},
};

use super::Invalid;

/// Parts of a path and of the links in it, all together: more is a loop.
const MAX_STEPS: usize = 255;

/// Where a volume is to be mounted.
///
/// # Errors
/// It would stand in for what the runtime itself makes, perhaps by one of the image's links: one
/// that leads to `/proc` would put it in the place of what the runtime writes to and masks
/// (CVE-2019-16884, CVE-2025-52881).
pub(super) fn destination(rootfs: &Path, destination: &str) -> Result<String, Invalid> {
    let refused = |why: &str| Invalid(format!("volume cannot be mounted at {destination:?}{why}"));
    if !destination.starts_with('/') {
        return Err(refused(""));
    }
    let real = resolve(rootfs, destination).ok_or_else(|| refused(": too many links"))?;
    if is_the_runtimes(&real) {
        return Err(refused(""));
    }
    Ok(without_parents(destination, real))
}

/// The directory in which a container's process is to start.
///
/// # Errors
/// As of [`inspect_working_dir`], after the image's links.
pub(super) fn working_dir(rootfs: &Path, path: &str) -> Result<String, Invalid> {
    if !path.starts_with('/') {
        return Err(Invalid(format!(
            "working directory {path:?} must be an absolute path"
        )));
    }
    let real = resolve(rootfs, path)
        .ok_or_else(|| Invalid(format!("working directory {path:?} has too many links")))?;
    inspect_working_dir(&real.to_string_lossy())?;
    Ok(without_parents(path, real))
}

/// Refuses working directories that could be a descriptor of ours (CVE-2024-21626).
pub(super) fn inspect_working_dir(path: &str) -> Result<(), Invalid> {
    let inside = path.starts_with('/') && !has_parents(path) && !path.contains('\0');
    if !inside || Path::new(path).starts_with("/proc") {
        return Err(Invalid(format!(
            "working directory {path:?} is not allowed"
        )));
    }
    Ok(())
}

/// A path of the image itself, where a directory is made for a volume.
///
/// # Errors
/// It would leave the root (CVE-2022-23648).
pub(super) fn inspect_volume(path: &str) -> Result<(), Invalid> {
    if has_parents(path) {
        Err(Invalid(format!("image volume {path:?} leaves the root")))
    } else {
        Ok(())
    }
}

/// `/proc` and all in it, `/dev`, `/sys` and the root itself.
fn is_the_runtimes(real: &Path) -> bool {
    let mut parts = real.components().skip(1).map(Component::as_os_str);
    match (parts.next().map(OsStrExt::as_bytes), parts.next()) {
        (None | Some(b"proc"), _) => true,
        (Some(b"dev" | b"sys"), inside) => inside.is_none(),
        _ => false,
    }
}

/// As it is written: a link in it may lead elsewhere once volumes are mounted. Only what has a `..`
/// is replaced by where that leads.
fn without_parents(path: &str, real: PathBuf) -> String {
    if has_parents(path) {
        real.to_string_lossy().into_owned()
    } else {
        path.to_owned()
    }
}

fn has_parents(path: &str) -> bool {
    Path::new(path)
        .components()
        .any(|part| part == Component::ParentDir)
}

/// Where a path leads inside the root. Links may lead to what is not there yet. `None`: they lead
/// round in circles.
fn resolve(rootfs: &Path, path: &str) -> Option<PathBuf> {
    let mut ahead: Vec<OsString> = parts_reversed(Path::new(path));
    let mut real = PathBuf::from("/");
    let mut steps = 0;
    while let Some(part) = ahead.pop() {
        match part.as_bytes() {
            b"/" => real = PathBuf::from("/"),
            b"." => {}
            b".." => drop(real.pop()),
            _ => {
                // `real` has no links in it, and nobody else sees this root yet.
                let candidate = real.join(&part);
                let inside = rootfs.join(candidate.strip_prefix("/").unwrap_or(&candidate));
                match fs::read_link(inside) {
                    Ok(to) => ahead.extend(parts_reversed(&to)),
                    Err(_) => real = candidate,
                }
                steps += 1;
            }
        }
        if steps > MAX_STEPS {
            return None;
        }
    }
    Some(real)
}

fn parts_reversed(path: &Path) -> Vec<OsString> {
    path.components()
        .rev()
        .map(|part| part.as_os_str().to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A root with links to a directory and to the node's descriptors.
    fn root() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("a/b")).unwrap();
        for (to, name) in [
            ("/a/b", "link"),
            ("/proc/self/fd", "descriptors"),
            ("../../../..", "up"),
            ("round", "round"),
        ] {
            symlink(to, root.path().join(name)).unwrap();
        }
        root
    }

    #[test]
    fn volume_may_not_replace_what_the_runtime_makes() {
        let root = root();
        for (path, expected) in [
            ("/data", Some("/data")),
            ("/data/", Some("/data/")),
            ("/sys/fs/bpf", Some("/sys/fs/bpf")),
            ("/dev/kvm", Some("/dev/kvm")),
            ("/processor", Some("/processor")),
            ("/data/../other", Some("/other")),
            ("/../../../data", Some("/data")),
            ("/link/../x", Some("/a/x")),
            ("/link/x", Some("/link/x")),
            ("/up/../data", Some("/data")),
            ("/dev/../data", Some("/data")),
            ("/", None),
            ("/..", None),
            ("/data/..", None),
            ("/proc", None),
            ("/proc/self/attr", None),
            ("/descriptors/7", None),
            ("/descriptors/..", None),
            ("/data/../proc", None),
            ("/data/../proc/../dev", None),
            ("/dev", None),
            ("/dev/", None),
            ("/sys", None),
            ("/round/x", None),
            ("/round/..", None),
            ("data", None),
            ("../data", None),
            ("", None),
            ("//proc", None),
        ] {
            let found = destination(root.path(), path);
            assert_eq!(found.ok().as_deref(), expected, "{path:?}");
        }
    }

    #[test]
    fn working_dir_may_not_be_a_descriptor() {
        let root = root();
        for (path, expected) in [
            ("/srv", Some("/srv")),
            ("/", Some("/")),
            ("/srv/../data", Some("/data")),
            ("/link/..", Some("/a")),
            ("/../..", Some("/")),
            ("/descriptors/../../../srv", Some("/srv")),
            ("/proc/self/fd/7", None),
            ("//proc/self/fd/7", None),
            ("/srv/../proc", None),
            ("/descriptors/7", None),
            ("/descriptors/7/../8", None),
            ("/up/proc/self/fd/7", None),
            ("/round", None),
            ("srv", None),
            ("../srv", None),
            ("/srv\0", None),
            ("", None),
        ] {
            let found = working_dir(root.path(), path);
            assert_eq!(found.ok().as_deref(), expected, "{path:?}");
        }
    }
}
