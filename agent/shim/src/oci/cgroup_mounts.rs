//! Makes what libcontainer mounted at `/sys/fs/cgroup` read-only.
//!
//! On the old hierarchies libcontainer binds each controller writable whatever the spec says, and
//! leaves the tmpfs that holds them writable: a container could raise its own limits. Runs inside
//! the container's mount namespace, after the pivot and before anything of the image does;
//! [`super::verify`] looks at the outcome from outside.

use std::path::Path;

use anyhow::Context;
use nix::mount::{MsFlags, mount};
use oci_spec::runtime::Spec;

/// Where all hierarchies are mounted.
pub(super) const ROOT: &str = "/sys/fs/cgroup";

/// Remounts them, unless the spec wants them writable.
pub(super) fn make_readonly(spec: &Spec) -> anyhow::Result<()> {
    if !wanted_readonly(spec) {
        return Ok(());
    }
    let mountinfo =
        std::fs::read_to_string("/proc/self/mountinfo").context("read the container's mounts")?;
    let flags = MsFlags::MS_REMOUNT
        | MsFlags::MS_BIND
        | MsFlags::MS_RDONLY
        | MsFlags::MS_NOSUID
        | MsFlags::MS_NODEV
        | MsFlags::MS_NOEXEC
        | MsFlags::MS_RELATIME;
    for point in mountinfo
        .lines()
        .filter_map(point)
        .filter(|point| is_own(point, spec))
    {
        mount(None::<&str>, point, None::<&str>, flags, None::<&str>)
            .with_context(|| format!("make {point} read-only"))?;
    }
    Ok(())
}

/// The spec asks for a read-only cgroup mount.
pub(super) fn wanted_readonly(spec: &Spec) -> bool {
    spec.mounts().iter().flatten().any(|mount| {
        mount.typ().as_deref() == Some("cgroup")
            && mount
                .options()
                .iter()
                .flatten()
                .any(|option| option == "ro")
    })
}

/// Whether a mount at `point` is the runtime's own, and no volume that the pod has put there.
pub(super) fn is_own(point: &str, spec: &Spec) -> bool {
    let point = Path::new(point);
    let volume = spec.mounts().iter().flatten().any(|mount| {
        mount.typ().as_deref() == Some("bind")
            && mount.destination().starts_with(ROOT)
            && point.starts_with(mount.destination())
    });
    point.starts_with(ROOT) && !volume
}

fn point(line: &str) -> Option<&str> {
    line.split(' ').nth(4)
}
