//! `subPath`: one file or directory of a volume, held fast (CVE-2021-25741).
//!
//! The path is walked by the kernel with `openat2(RESOLVE_BENEATH)`, so that no symlink leads out
//! of the volume, also one that is exchanged meanwhile; what was opened, not its name, is
//! bind-mounted to a place of our own.

use std::{
    fs, io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::PermissionsExt,
    },
    path::{Component, Path, PathBuf},
};

use rustix::fs::{
    AtFlags, CWD, Mode, OFlags, ResolveFlags, fchmod, mkdirat, openat, openat2, statat,
};

use super::mounter::Mounter;

/// What a new directory takes over from its volume. The set-group-ID bit hands on the group.
const PERMISSIONS: u32 = 0o2777;

/// Why there is no such sub-path: the waiting reason is `CreateContainerConfigError`.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SubPathError {
    #[error("subPath {path:?} is not a relative path within the volume")]
    BadPath { path: String },
    #[error("failed to prepare subPath {path:?}")]
    Open { path: String, source: io::Error },
    #[error("failed to prepare subPath {path:?}: its volume does not answer")]
    Late { path: String },
}

/// Opens, makes if missing, and mounts `path` of `volume` at `target`; idempotent. What an earlier
/// instance of the container had mounted there gives way if the path leads to something else now: a
/// ConfigMap or Secret was written anew.
///
/// Source: `prepareSubpathTarget`, `checkSubPathFileEqual` in
/// `pkg/volume/util/subpath/subpath_linux.go` at v1.37.
pub(super) fn prepare(
    volume: &Path,
    path: &str,
    target: &Path,
    mounter: &dyn Mounter,
) -> Result<PathBuf, SubPathError> {
    let relative = Path::new(path);
    if relative.is_absolute()
        || relative
            .components()
            .any(|part| part == Component::ParentDir)
    {
        return Err(SubPathError::BadPath {
            path: path.to_owned(),
        });
    }
    let failed = |source: io::Error| SubPathError::Open {
        path: path.to_owned(),
        source,
    };
    let root = openat(
        CWD,
        volume,
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )
    .map_err(|e| failed(e.into()))?;
    let found = match open_beneath(&root, relative) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            make_beneath(&root, relative).map_err(failed)?;
            open_beneath(&root, relative).map_err(failed)?
        }
        other => other.map_err(failed)?,
    };
    if mounter.is_mount_point(target) {
        if is_same(&found, target).map_err(failed)? {
            return Ok(target.to_owned());
        }
        mounter.unmount_below(target).map_err(failed)?;
    }
    make_target(&found, target).map_err(failed)?;
    mounter.bind(found.as_fd(), target).map_err(failed)?;
    Ok(target.to_owned())
}

fn open_beneath(root: &OwnedFd, path: &Path) -> io::Result<OwnedFd> {
    let path = if path.as_os_str().is_empty() {
        Path::new(".")
    } else {
        path
    };
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    Ok(openat2(
        root,
        path,
        OFlags::PATH | OFlags::CLOEXEC,
        Mode::empty(),
        resolve,
    )?)
}

/// Makes what is missing of `path`, with the permissions of the volume itself: whoever may write to
/// the volume may write there, and where its files go to a group, so do these.
fn make_beneath(root: &OwnedFd, path: &Path) -> io::Result<()> {
    let mode = Mode::from_raw_mode(rustix::fs::fstat(root)?.st_mode & PERMISSIONS);
    let mut done = PathBuf::new();
    for part in path.components() {
        let parent = open_beneath(root, &done)?;
        let part: &Path = part.as_ref();
        match mkdirat(&parent, part, mode) {
            Ok(()) => set_mode(&parent, part, mode)?,
            Err(rustix::io::Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        done.push(part);
    }
    Ok(())
}

/// Of a directory just made: the umask must not decide, nor what somebody puts in its place.
fn set_mode(parent: &OwnedFd, name: &Path, mode: Mode) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let made = openat(parent, name, flags, Mode::empty())?;
    Ok(fchmod(&made, mode)?)
}

/// Whether what is mounted at `target` is what was opened, and not what once had its name.
fn is_same(found: &OwnedFd, target: &Path) -> io::Result<bool> {
    let (found, mounted) = (
        rustix::fs::fstat(found)?,
        statat(CWD, target, AtFlags::SYMLINK_NOFOLLOW)?,
    );
    Ok((found.st_dev, found.st_ino) == (mounted.st_dev, mounted.st_ino))
}

/// A mount point of the kind of what goes there.
fn make_target(found: &OwnedFd, target: &Path) -> io::Result<()> {
    let is_dir = rustix::fs::FileType::from_raw_mode(rustix::fs::fstat(found)?.st_mode)
        == rustix::fs::FileType::Directory;
    // An earlier instance may have had the other kind there.
    match fs::symlink_metadata(target) {
        Ok(old) if old.is_dir() && !is_dir => fs::remove_dir(target)?,
        Ok(old) if !old.is_dir() && is_dir => fs::remove_file(target)?,
        _ => {}
    }
    if is_dir {
        return fs::create_dir_all(target);
    }
    if let Some(parent) = target.parent() {
        fs::create_dir_all(parent)?;
    }
    let file = fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(target)?;
    file.set_permissions(fs::Permissions::from_mode(0o640))
}

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeSet,
        os::fd::{AsRawFd, BorrowedFd},
        sync::Mutex,
    };

    use super::{
        super::{
            atomic_writer,
            mounter::{NoMounts, SystemMounter, Tmpfs},
            payload::{FileProjection, Payload},
        },
        *,
    };

    /// Files that are "mounted" are hard links: the same file under another name, also once its own
    /// name is gone.
    #[derive(Default)]
    struct Links(Mutex<BTreeSet<PathBuf>>);

    impl Mounter for Links {
        fn mount_tmpfs(&self, _: &Path, _: &Tmpfs) -> io::Result<()> {
            unreachable!("no tmpfs here")
        }

        fn set_room(&self, _: &Path, _: u64) -> io::Result<()> {
            Ok(())
        }

        fn bind(&self, source: BorrowedFd<'_>, target: &Path) -> io::Result<()> {
            assert!(
                self.0.lock().expect("lock").insert(target.to_owned()),
                "mounted over {}",
                target.display()
            );
            fs::remove_file(target)?;
            let source = format!("/proc/self/fd/{}", source.as_raw_fd());
            Ok(rustix::fs::linkat(
                CWD,
                source,
                CWD,
                target,
                AtFlags::SYMLINK_FOLLOW,
            )?)
        }

        fn is_mount_point(&self, target: &Path) -> bool {
            self.0.lock().expect("lock").contains(target)
        }

        fn unmount_below(&self, dir: &Path) -> io::Result<()> {
            assert!(
                self.0.lock().expect("lock").remove(dir),
                "nothing is mounted on {}",
                dir.display()
            );
            fs::remove_file(dir)?;
            fs::write(dir, "")
        }
    }

    fn rotate(mounter: &dyn Mounter) {
        let dir = coracle_ground::Ground::new();
        let (volume, target) = (dir.path().join("v"), dir.path().join("t/0"));
        fs::create_dir(&volume).expect("directory");
        for password in ["old", "old", "new"] {
            let file = FileProjection::new(password.into(), 0o644);
            atomic_writer::write(
                &volume,
                &Payload::from([("password".to_owned(), file)]),
                None,
            )
            .expect("write");
            let place = prepare(&volume, "password", &target, mounter).expect("sub-path");
            let read = fs::read_to_string(place);
            if password == "new" {
                mounter.unmount_below(&target).expect("unmount");
            }
            assert_eq!(read.expect("read"), password);
        }
    }

    #[test]
    fn a_restarted_container_sees_the_rotated_secret() {
        rotate(&Links::default());
        if coracle_ground::is_root_or_skip() {
            rotate(&SystemMounter);
        }
    }

    #[test]
    fn nothing_outside_the_volume_is_opened() {
        let dir = tempfile::tempdir().expect("directory");
        let volume = dir.path().join("v");
        fs::create_dir_all(volume.join("inside")).expect("directory");
        std::os::unix::fs::symlink("/etc", volume.join("abs")).expect("link");
        std::os::unix::fs::symlink("../..", volume.join("up")).expect("link");
        std::os::unix::fs::symlink("inside", volume.join("ok")).expect("link");
        let cases = [
            ("inside", true),
            ("ok", true),
            ("new/deep", true),
            ("abs", false),
            ("abs/passwd", false),
            ("up", false),
            ("../v", false),
            ("/etc", false),
        ];
        for (path, fine) in cases {
            let got = prepare(
                &volume,
                path,
                &dir.path().join("t").join(path.replace('/', "_")),
                &NoMounts,
            );
            assert_eq!(got.is_ok(), fine, "{path}: {got:?}");
        }
        assert!(volume.join("new/deep").is_dir());
    }

    #[test]
    fn new_directories_are_as_open_as_their_volume() {
        let dir = tempfile::tempdir().expect("directory");
        let volume = dir.path().join("v");
        fs::create_dir(&volume).expect("directory");
        for mode in [0o777, 0o2777, 0o755, 0o2750] {
            fs::set_permissions(&volume, fs::Permissions::from_mode(mode)).expect("mode");
            let path = format!("{mode:o}/inner");
            prepare(
                &volume,
                &path,
                &dir.path().join(format!("t{mode:o}")),
                &NoMounts,
            )
            .expect("sub-path");
            for made in [format!("{mode:o}"), path] {
                let got = fs::metadata(volume.join(&made))
                    .expect("made")
                    .permissions()
                    .mode()
                    & 0o7777;
                assert_eq!(got, mode, "{made}: {got:o}");
            }
        }
    }
}
