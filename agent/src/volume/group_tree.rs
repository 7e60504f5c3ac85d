//! `fsGroup` of volumes that outlive their pods: gives a whole tree to a group.
//!
//! The tree is what containers left, and others may be at work in it: every step is one `openat2`
//! from a directory that is open already, and what was opened is changed, never a name. No symbolic
//! link is followed, and nothing is entered that is mounted in the tree: it is somebody else's.
//! However deep the tree is, few files are open at once, and no path gets too long. Blocking.
//!
//! Source: `pkg/volume/volume_linux.go` at v1.37, which walks by paths.

use std::{
    ffi::{CStr, OsStr},
    io,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
    rc::Rc,
    sync::atomic::{AtomicU64, Ordering},
};

use rustix::{
    fs::{AtFlags, CWD, Dir, FileType, Gid, Mode, OFlags, ResolveFlags, Stat},
    io::Errno,
};

const DIR_BITS: u32 = 0o2770;
const FILE_BITS: u32 = 0o660;
const PERMISSIONS: u32 = 0o7777;
/// So many directories further down a path begins anew, at one that is kept open: names of 255
/// bytes fit into a path of 4096 then.
const STEPS_MAX: usize = 15;
/// Kept open at once: for 15,360 directories in each other.
const ANCHORS_MAX: usize = 1024;

/// How much of a tree is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Policy {
    /// All of it, each time.
    Always,
    /// Nothing if its root is the group's already: that is changed last.
    OnRootMismatch,
}

/// Gives `root` and what is in it to a group, which may read and write it, and to which new files
/// in it belong. `changed` counts.
///
/// # Errors
/// The first thing that could not be changed. What goes meanwhile is none.
pub(super) fn set_group(
    root: &Path,
    group: u32,
    policy: Policy,
    changed: &AtomicU64,
) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = Rc::new(rustix::fs::openat(CWD, root, flags, Mode::empty())?);
    if policy == Policy::OnRootMismatch && is_groups(&rustix::fs::fstat(&root)?, group) {
        return Ok(());
    }
    let mut walk = Walk {
        group,
        changed,
        pending: Vec::new(),
    };
    let top = Place {
        anchor: Rc::clone(&root),
        anchors: 1,
        path: PathBuf::new(),
        steps: 0,
    };
    walk.change_entries(&root, &top)?;
    while let Some(place) = walk.pending.pop() {
        walk.change_directory(place)?;
    }
    walk.change(root.as_fd())
}

/// Whether a directory is the group's and its members may do in it what they are to.
fn is_groups(found: &Stat, group: u32) -> bool {
    found.st_gid == group && found.st_mode & DIR_BITS == DIR_BITS
}

/// A directory by its way from one that is open.
struct Place {
    anchor: Rc<OwnedFd>,
    /// Open on the way, with this one.
    anchors: usize,
    path: PathBuf,
    steps: usize,
}

impl Place {
    fn child(&self, name: &CStr) -> Self {
        Self {
            anchor: Rc::clone(&self.anchor),
            anchors: self.anchors,
            path: self.path.join(OsStr::from_bytes(name.to_bytes())),
            steps: self.steps + 1,
        }
    }
}

struct Walk<'a> {
    group: u32,
    changed: &'a AtomicU64,
    pending: Vec<Place>,
}

impl Walk<'_> {
    fn change_directory(&mut self, place: Place) -> io::Result<()> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW;
        let Some(dir) = open(place.anchor.as_fd(), &place.path, flags)? else {
            return Ok(());
        };
        self.change(dir.as_fd())?;
        let dir = Rc::new(dir);
        if place.steps < STEPS_MAX {
            return self.change_entries(&dir, &place);
        }
        if place.anchors >= ANCHORS_MAX {
            return Err(at(&place.path, "too deep to change its group"));
        }
        let place = Place {
            anchor: Rc::clone(&dir),
            anchors: place.anchors + 1,
            path: PathBuf::new(),
            steps: 0,
        };
        self.change_entries(&dir, &place)
    }

    /// Files at once, directories later.
    fn change_entries(&mut self, dir: &OwnedFd, place: &Place) -> io::Result<()> {
        for entry in Dir::read_from(dir)? {
            let entry = entry?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let path = Path::new(OsStr::from_bytes(name.to_bytes()));
            let flags = OFlags::PATH | OFlags::NOFOLLOW;
            let Some(found) = open(dir.as_fd(), path, flags)? else {
                continue;
            };
            let kind = FileType::from_raw_mode(rustix::fs::fstat(&found)?.st_mode);
            if kind == FileType::Directory {
                self.pending.push(place.child(name));
            } else {
                self.change(found.as_fd())
                    .map_err(|error| at(path, error))?;
            }
        }
        Ok(())
    }

    /// What is open, whatever its name leads to by now.
    fn change(&self, file: BorrowedFd<'_>) -> io::Result<()> {
        let found = rustix::fs::fstat(file)?;
        let group = Some(Gid::from_raw(self.group));
        rustix::fs::chownat(file, c"", None, group, AtFlags::EMPTY_PATH)?;
        self.changed.fetch_add(1, Ordering::Relaxed);
        let bits = match FileType::from_raw_mode(found.st_mode) {
            // A link has no mode of its own.
            FileType::Symlink => return Ok(()),
            FileType::Directory => DIR_BITS,
            _ => FILE_BITS,
        };
        let mode = Mode::from_raw_mode(found.st_mode & PERMISSIONS | bits);
        // Of a file that is open as a place alone the mode cannot be changed in another way.
        rustix::fs::chmod(format!("/proc/self/fd/{}", file.as_raw_fd()), mode)?;
        Ok(())
    }
}

/// `None` for what has gone, and what is mounted there.
fn open(dir: BorrowedFd<'_>, path: &Path, flags: OFlags) -> io::Result<Option<OwnedFd>> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS;
    match rustix::fs::openat2(dir, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve) {
        Ok(file) => Ok(Some(file)),
        // Also what was a directory a moment ago.
        Err(Errno::NOENT | Errno::XDEV | Errno::LOOP | Errno::NOTDIR) => Ok(None),
        Err(error) => Err(at(path, io::Error::from(error))),
    }
}

fn at(path: &Path, error: impl std::fmt::Display) -> io::Error {
    io::Error::other(format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    };

    use super::*;

    const GROUP: u32 = 7000;

    fn set(root: &Path, policy: Policy) -> u64 {
        let changed = AtomicU64::new(0);
        set_group(root, GROUP, policy, &changed).expect("change");
        changed.into_inner()
    }

    fn shown(path: &Path) -> (u32, u32) {
        let found = fs::symlink_metadata(path).expect("it is there");
        (found.gid(), found.mode() & PERMISSIONS)
    }

    fn mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("mode");
    }

    #[test]
    fn a_tree_becomes_the_groups_and_what_links_lead_to_does_not() {
        let dir = tempfile::tempdir().expect("directory");
        let (root, other) = (dir.path().join("v"), dir.path().join("other"));
        fs::create_dir_all(root.join("a/b")).expect("directory");
        fs::create_dir(&other).expect("directory");
        for (path, bits) in [
            (root.join("a/b/f"), 0o600),
            (other.join("f"), 0o600),
            (root.join("tool"), 0o4755),
        ] {
            fs::write(&path, "").expect("file");
            mode(&path, bits);
        }
        mode(&root.join("a"), 0o700);
        mode(&root, 0o755);
        let kept = shown(&other);
        symlink(&other, root.join("to")).expect("link");
        symlink("../../../other/f", root.join("a/b/up")).expect("link");
        assert_eq!(set(&root, Policy::Always), 7);
        assert_eq!(shown(&root), (GROUP, 0o2775));
        assert_eq!(shown(&root.join("a")), (GROUP, 0o2770));
        assert_eq!(shown(&root.join("a/b/f")), (GROUP, 0o660));
        assert_eq!(shown(&root.join("tool")), (GROUP, 0o4775));
        assert_eq!(shown(&root.join("to")).0, GROUP);
        assert_eq!(shown(&other), kept);
        assert_eq!(shown(&other.join("f")), (kept.0, 0o600));
    }

    #[test]
    fn a_root_that_is_the_groups_speaks_for_its_tree_if_that_is_asked_for() {
        let dir = tempfile::tempdir().expect("directory");
        let (root, file) = (dir.path().join("v"), dir.path().join("v/f"));
        fs::create_dir(&root).expect("directory");
        fs::write(&file, "").expect("file");
        mode(&root, 0o777);
        assert_eq!(set(&root, Policy::OnRootMismatch), 2, "the group differs");
        mode(&file, 0o600);
        assert_eq!(set(&root, Policy::OnRootMismatch), 0);
        assert_eq!(shown(&file), (GROUP, 0o600));
        mode(&root, 0o2750);
        assert_eq!(set(&root, Policy::OnRootMismatch), 2, "the mode differs");
        mode(&root, 0o777);
        assert_eq!(
            set(&root, Policy::OnRootMismatch),
            2,
            "new files are not the group's"
        );
        assert_eq!(set(&root, Policy::Always), 2);
    }

    #[test]
    fn depth_costs_neither_stack_nor_descriptors() {
        let dir = tempfile::tempdir().expect("directory");
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut at = rustix::fs::open(dir.path(), flags, Mode::empty()).expect("open");
        let name = "d".repeat(255);
        for _ in 0..3000 {
            rustix::fs::mkdirat(&at, &name, Mode::RWXU).expect("directory");
            at = rustix::fs::openat(&at, &name, flags, Mode::empty()).expect("open");
        }
        assert_eq!(set(dir.path(), Policy::Always), 3001);
        assert_eq!(rustix::fs::fstat(&at).expect("stat").st_gid, GROUP);
        crate::removal::remove_tree(dir.path()).expect("remove");
    }

    /// In a thread with a mount namespace of its own, so that a failure leaves no mount.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "the thread ends with the test")]
    fn what_is_mounted_in_a_tree_is_left_alone() {
        let dir = tempfile::tempdir().expect("directory");
        let (root, other) = (dir.path().join("v"), dir.path().join("other"));
        fs::create_dir_all(root.join("point")).expect("directory");
        fs::write(root.join("file"), "").expect("file");
        fs::create_dir(&other).expect("directory");
        fs::write(other.join("f"), "").expect("file");
        let kept = (shown(&other), shown(&other.join("f")));
        let in_thread = {
            let (root, other) = (root.clone(), other.clone());
            move || {
                nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNS)
                    .expect("a mount namespace (root)");
                let private = rustix::mount::MountPropagationFlags::PRIVATE
                    | rustix::mount::MountPropagationFlags::REC;
                rustix::mount::mount_change("/", private).expect("private mounts");
                rustix::mount::mount_bind(&other, root.join("point")).expect("bind");
                rustix::mount::mount_bind(other.join("f"), root.join("file")).expect("bind");
                set(&root, Policy::Always)
            }
        };
        let changed = std::thread::spawn(in_thread).join().expect("thread");
        assert_eq!(changed, 1, "the root");
        assert_eq!((shown(&other), shown(&other.join("f"))), kept);
    }
}
