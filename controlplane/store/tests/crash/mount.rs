//! Disks for tests that need root: images on a loop device, small tmpfs. Unmounted when dropped; on
//! a ground also if the test is killed.

use std::{
    fs::File,
    path::{Path, PathBuf},
    process::Command,
};

pub(crate) use coracle_ground::{Ground, is_root_or_skip};

/// A mounted file system.
pub(crate) struct Mounted {
    path: PathBuf,
}

impl Mounted {
    /// Mounts an image.
    #[allow(dead_code, reason = "one of two users")]
    pub(crate) fn disk(image: &Path, path: PathBuf) -> Self {
        Self::mount(&["-o", "loop", image.to_str().unwrap()], path)
    }

    /// Mounts an empty tmpfs.
    #[allow(dead_code, reason = "one of two users")]
    pub(crate) fn tmpfs(size: &str, path: PathBuf) -> Self {
        Self::mount(
            &["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"],
            path,
        )
    }

    fn mount(args: &[&str], path: PathBuf) -> Self {
        std::fs::create_dir_all(&path).unwrap();
        run("mount", &[args, &[path.to_str().unwrap()]].concat());
        Self { path }
    }

    /// Allows no more writes.
    #[allow(dead_code, reason = "one of two users")]
    pub(crate) fn make_read_only(&self) {
        run("mount", &["-o", "remount,ro", self.path.to_str().unwrap()]);
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        run("umount", &["-l", self.path.to_str().unwrap()]);
    }
}

/// An empty file system in a file.
#[allow(dead_code, reason = "one of two users")]
pub(crate) fn make_disk(image: &Path) {
    File::create(image).unwrap().set_len(64 << 20).unwrap();
    run("mkfs.ext4", &["-q", "-F", image.to_str().unwrap()]);
}

/// Writes everything of a file system to its disk.
#[allow(dead_code, reason = "one of two users")]
pub(crate) fn sync(path: &Path) {
    run("sync", &["-f", path.to_str().unwrap()]);
}

fn run(program: &str, args: &[&str]) {
    let status = Command::new(program)
        .args(args)
        .env("LC_ALL", "C")
        .status()
        .unwrap();
    assert!(status.success(), "{program} {args:?}: {status}");
}
