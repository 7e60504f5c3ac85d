//! Mounts of a container in the shim's mount namespace: overlay root and volumes. And what an image
//! may not contain.
//!
//! Nothing here is visible in the node's own mount namespace; all of it goes with the shim's at the
//! latest.

use std::{
    collections::BTreeSet,
    fs,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
        unix::fs::{DirBuilderExt, PermissionsExt},
    },
    path::{Path, PathBuf},
};

use anyhow::Context;
use coracle_shim_protocol::{CreateSpec, VolumeMount};
use nix::{
    errno::Errno,
    fcntl::{OFlag, open},
    mount::{MntFlags, MsFlags, mount, umount2},
    sched::{CloneFlags, setns},
    sys::stat::{Mode, SFlag, fstat},
};
use pathrs::Root;
use rustix::mount::{MoveMountFlags, OpenTreeFlags};

use super::Invalid;

/// Unmounts what was mounted below a container's directory unless told to keep it.
pub(super) struct MountGuard<'a> {
    pub(super) directory: &'a Path,
    pub(super) keep: bool,
}

impl Drop for MountGuard<'_> {
    fn drop(&mut self) {
        if !self.keep {
            unmount_below(self.directory);
        }
    }
}

/// Unmounts `rootfs` and `mnt/*` of a container's directory; what is not mounted is fine.
pub(super) fn unmount_below(directory: &Path) {
    let volumes = fs::read_dir(directory.join(coracle_shim_protocol::layout::MOUNTS))
        .into_iter()
        .flatten()
        .flatten();
    for path in volumes
        .map(|entry| entry.path())
        .chain([directory.join(coracle_shim_protocol::layout::ROOTFS)])
    {
        // A volume is a peer of the node's mounts: unmounting it as it is would unmount what lies
        // below on the node.
        let _ = mount(
            None::<&str>,
            &path,
            None::<&str>,
            MsFlags::MS_REC | MsFlags::MS_PRIVATE,
            None::<&str>,
        );
        let _ = umount2(&path, MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW);
    }
}

/// Mounts the image's layers and the writable one over each other at `target`.
///
/// Makes no parents: if the agent has removed them, this helper's shim is dead and nobody wants
/// what it makes.
pub(super) fn mount_overlay(create: &CreateSpec, target: &Path) -> anyhow::Result<()> {
    if create.layers.is_empty() {
        return Err(Invalid("image has no layers".to_owned()).into());
    }
    for directory in [&create.upper, &create.work, &target.to_path_buf()] {
        fs::DirBuilder::new()
            .mode(0o755)
            .create(directory)
            .with_context(|| format!("make {}", directory.display()))?;
    }
    // mount(2) takes one page of options: paths by descriptor are short, and free of colons and
    // commas.
    let by_descriptor = |path: &Path| -> anyhow::Result<OwnedFd> {
        open(
            path,
            OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC,
            Mode::empty(),
        )
        .with_context(|| format!("open layer {}", path.display()))
    };
    let layers = uppermost(&create.layers)
        .into_iter()
        .map(by_descriptor)
        .collect::<anyhow::Result<Vec<_>>>()?;
    let (upper, work) = (by_descriptor(&create.upper)?, by_descriptor(&create.work)?);
    let name = |fd: &OwnedFd| format!("/proc/self/fd/{}", fd.as_raw_fd());
    let lower = layers.iter().map(name).collect::<Vec<_>>().join(":");
    let options = format!(
        "lowerdir={lower},upperdir={},workdir={}",
        name(&upper),
        name(&work)
    );
    let flags = if create.privileged {
        MsFlags::empty()
    } else {
        MsFlags::MS_NODEV
    };
    let attempt = |options: &str| {
        mount(
            Some("overlay"),
            target,
            Some("overlay"),
            flags,
            Some(options),
        )
    };
    // `volatile` spares the sync of the whole file system at unmount; the layer dies with its
    // container anyway.
    match attempt(&format!("{options},volatile")) {
        Err(Errno::EINVAL) => attempt(&options),
        outcome => outcome,
    }
    .with_context(|| format!("mount overlay of {} layers", layers.len()))
}

/// The layers, uppermost first, each once: overlayfs refuses a directory that occurs twice (ELOOP),
/// and builders write the same empty layer again and again. The uppermost occurrence adds, hides
/// and makes opaque all that a lower one does, and over everything that lies below either.
fn uppermost(layers: &[PathBuf]) -> Vec<&Path> {
    let mut seen = BTreeSet::new();
    layers
        .iter()
        .rev()
        .map(PathBuf::as_path)
        .filter(|layer| seen.insert(*layer))
        .collect()
}

/// Refuses what libcontainer would follow out of the root, because it works by path before it
/// pivots (CVE-2025-31133 and its kin): `/proc`, `/sys` and `/dev` must be directories or absent.
pub(super) fn inspect(rootfs: &Path) -> anyhow::Result<()> {
    for name in ["proc", "sys", "dev"] {
        match fs::symlink_metadata(rootfs.join(name)) {
            Ok(metadata) if !metadata.is_dir() => {
                return Err(Invalid(format!("image has /{name} that is not a directory")).into());
            }
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
    }
    Ok(())
}

/// Makes a directory and its parents, following links inside the root only.
pub(super) fn make_directory(root: &Root, path: &str) -> anyhow::Result<()> {
    let relative = path.trim_start_matches('/');
    if !relative.is_empty() {
        root.mkdir_all(relative, &fs::Permissions::from_mode(0o755))
            .with_context(|| format!("make {path} in the container"))?;
    }
    Ok(())
}

/// Copies the volumes' mounts out of the node's mount namespace into the shim's, at `directory/0`,
/// `directory/1`...
///
/// The copy is taken in the node's namespace, so that volumes mounted after the sandbox was made
/// are found, whatever the propagation of the node's mounts. If the original is shared, it is a
/// peer of it, and stays one for `Bidirectional` alone: libcontainer makes nothing of the
/// propagation that a bind mount asks for.
pub(super) fn fetch_volumes(
    volumes: &[VolumeMount],
    directory: &Path,
    host: BorrowedFd<'_>,
) -> anyhow::Result<()> {
    if volumes.is_empty() {
        return Ok(());
    }
    let own = fs::File::open("/proc/self/ns/mnt")?;
    setns(host, CloneFlags::CLONE_NEWNS).context("enter the node's mount namespace")?;
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE;
    let trees = volumes
        .iter()
        .map(|volume| {
            rustix::mount::open_tree(rustix::fs::CWD, &volume.source, flags)
                .with_context(|| format!("take volume {}", volume.source.display()))
        })
        .collect::<anyhow::Result<Vec<_>>>();
    // Before any failure is looked at: this process must not stay there.
    setns(own.as_fd(), CloneFlags::CLONE_NEWNS)
        .context("come back from the node's mount namespace")?;
    fs::create_dir_all(directory)?;
    for (number, tree) in trees?.iter().enumerate() {
        let target = directory.join(number.to_string());
        let kind = SFlag::from_bits_truncate(fstat(tree)?.st_mode) & SFlag::S_IFMT;
        if kind == SFlag::S_IFDIR {
            fs::create_dir(&target)?;
        } else {
            fs::File::create(&target)?;
        }
        rustix::mount::move_mount(
            tree,
            "",
            rustix::fs::CWD,
            &target,
            MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH,
        )
        .with_context(|| format!("attach volume {}", volumes[number].source.display()))?;
        if let Some(flags) = propagation(&volumes[number].options) {
            mount(
                None::<&str>,
                &target,
                None::<&str>,
                flags | MsFlags::MS_REC,
                None::<&str>,
            )
            .with_context(|| {
                format!(
                    "set the propagation of volume {}",
                    volumes[number].source.display()
                )
            })?;
        }
    }
    Ok(())
}

/// `None`: as it is.
fn propagation(options: &[String]) -> Option<MsFlags> {
    options.iter().find_map(|option| match option.as_str() {
        "rprivate" => Some(MsFlags::MS_PRIVATE),
        "rslave" => Some(MsFlags::MS_SLAVE),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layer_counts_where_it_is_uppermost() {
        let layers = ["base", "empty", "x", "empty", "x"].map(PathBuf::from);
        assert_eq!(uppermost(&layers), ["x", "empty", "base"].map(Path::new));
    }

    #[test]
    fn the_same_layer_twice_can_be_mounted() {
        if !coracle_ground::is_root_or_skip() {
            return;
        }
        let dir = coracle_ground::Ground::new();
        let layer = |name: &str| dir.path().join(name);
        for name in ["base", "empty"] {
            fs::create_dir(layer(name)).unwrap();
        }
        fs::write(layer("base").join("file"), "x").unwrap();
        let create = CreateSpec {
            spec: serde_json::Value::Null,
            layers: vec![layer("base"), layer("empty"), layer("base"), layer("empty")],
            upper: layer("upper"),
            work: layer("work"),
            mounts: Vec::new(),
            user: coracle_shim_protocol::UserRequest::default(),
            volumes: Vec::new(),
            privileged: false,
            compiled_filters: PathBuf::new(),
        };
        mount_overlay(&create, &layer("root")).unwrap();
        let found = fs::read_to_string(layer("root").join("file"));
        umount2(&layer("root"), MntFlags::MNT_DETACH).unwrap();
        assert_eq!(found.unwrap(), "x");
    }
}
