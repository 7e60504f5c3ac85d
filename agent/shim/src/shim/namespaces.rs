//! Makes the sandbox's namespaces around the shim itself and pins them as files.
//!
//! Order matters: network, IPC and UTS first, pinned in the node's mount namespace, where the agent
//! and CNI find them; then a mount namespace of the shim's own, in which all later mounts stay and
//! with which they vanish.

use std::{
    fs, io,
    os::fd::{BorrowedFd, OwnedFd},
    path::Path,
};

use coracle_shim_protocol::{Failure, FailureKind, Init, layout};
use nix::{
    mount::{MntFlags, MsFlags, mount, umount2},
    sched::{CloneFlags, setns, unshare},
    sys::socket::{AddressFamily, SockFlag, SockType, socket},
    unistd::sethostname,
};

use super::failure;
use crate::sys;

/// Carries [`Init`] out. Returns the node's mount namespace.
pub(super) fn set_up(init: &Init) -> Result<OwnedFd, Failure> {
    let mut flags = CloneFlags::empty();
    let mut pins = Vec::new();
    for (wanted, flag, name) in [
        (!init.host_network, CloneFlags::CLONE_NEWNET, "net"),
        (!init.host_ipc, CloneFlags::CLONE_NEWIPC, "ipc"),
        (init.hostname.is_some(), CloneFlags::CLONE_NEWUTS, "uts"),
    ] {
        if wanted {
            flags |= flag;
            pins.push(name);
        }
    }
    unshare(flags).map_err(|error| broken("make namespaces", error.into()))?;
    if let Some(hostname) = &init.hostname {
        sethostname(hostname).map_err(|error| broken("set the hostname", error.into()))?;
    }
    if !init.host_network {
        loopback_up().map_err(|error| broken("bring the loopback up", error))?;
    }
    for (name, value) in &init.sysctls {
        set_sysctl(name, value, init)?;
    }
    let directory = init.sandbox_dir.join(layout::NAMESPACES);
    fs::create_dir_all(&directory)
        .map_err(|error| broken("make the namespaces' directory", error))?;
    for name in pins {
        pin(&directory, name).map_err(|error| broken("pin a namespace", error))?;
    }
    let host = fs::File::open("/proc/self/ns/mnt")
        .map_err(|error| broken("open the mount namespace", error))?;
    own_mounts(&init.sandbox_dir).map_err(|error| broken("make the mount namespace", error))?;
    Ok(host.into())
}

fn pin(directory: &Path, name: &str) -> io::Result<()> {
    let target = directory.join(name);
    fs::File::create(&target)?;
    let source = Path::new("/proc/self/ns").join(name);
    mount(
        Some(&source),
        &target,
        None::<&str>,
        MsFlags::MS_BIND,
        None::<&str>,
    )?;
    Ok(())
}

/// Unmounts the pins in the node's mount namespace; this process stays there.
pub(super) fn unpin(sandbox_dir: &Path, host_mounts: BorrowedFd<'_>) {
    if setns(host_mounts, CloneFlags::CLONE_NEWNS).is_ok() {
        for name in ["net", "ipc", "uts"] {
            let _ = umount2(
                &sandbox_dir.join(layout::NAMESPACES).join(name),
                MntFlags::MNT_DETACH,
            );
        }
    }
}

fn own_mounts(sandbox_dir: &Path) -> io::Result<()> {
    unshare(CloneFlags::CLONE_NEWNS)?;
    // Slave: unmounts on the node arrive here too, so that nothing of the node's is held.
    mount(
        None::<&str>,
        "/",
        None::<&str>,
        MsFlags::MS_REC | MsFlags::MS_SLAVE,
        None::<&str>,
    )?;
    let shm = sandbox_dir.join(layout::SHM);
    fs::create_dir_all(&shm)?;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(
        Some("shm"),
        &shm,
        Some("tmpfs"),
        flags,
        Some("mode=1777,size=65536k"),
    )?;
    Ok(())
}

/// `/proc/sys/net` and the IPC sysctls show the writer's own namespaces. Everything else there is
/// the machine's, and no pod's business, whoever allowed it.
fn set_sysctl(name: &str, value: &str, init: &Init) -> Result<(), Failure> {
    let path = sysctl_path(name, init).ok_or_else(|| {
        failure(
            FailureKind::Invalid,
            format!("sysctl {name:?} is not one of the pod's own namespaces"),
        )
    })?;
    fs::write(Path::new("/proc/sys").join(path), value).map_err(|error| {
        failure(
            FailureKind::Invalid,
            format!("set sysctl {name}={value}: {error}"),
        )
    })
}

/// Where below `/proc/sys`. Of `.` and `/`, the first one separates and the other one is itself.
fn sysctl_path(name: &str, init: &Init) -> Option<String> {
    let dots_separate = name
        .find(['.', '/'])
        .is_some_and(|at| name.as_bytes()[at] == b'.');
    let swap = |c| match c {
        '.' => '/',
        '/' => '.',
        other => other,
    };
    let path: String = if dots_separate {
        name.chars().map(swap).collect()
    } else {
        name.to_owned()
    };
    let clean = path.split('/').all(|part| {
        !matches!(part, "" | "." | "..")
            && part
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"_-.".contains(&b))
    });
    let network = path.starts_with("net/");
    let ipc = path == "kernel/sem"
        || ["kernel/shm", "kernel/msg", "fs/mqueue/"]
            .iter()
            .any(|p| path.starts_with(p));
    let own = (network && !init.host_network) || (ipc && !init.host_ipc);
    (clean && own).then_some(path)
}

fn loopback_up() -> io::Result<()> {
    sys::loopback_up(socket(
        AddressFamily::Inet,
        SockType::Datagram,
        SockFlag::SOCK_CLOEXEC,
        None,
    )?)
}

fn broken(what: &str, error: io::Error) -> Failure {
    failure(FailureKind::Oci, format!("{what}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sysctls_of_own_namespaces_have_a_path() {
        let own = Init::default();
        let host = Init {
            host_network: true,
            host_ipc: true,
            ..Init::default()
        };
        for (name, path) in [
            (
                "net.ipv4.ip_local_port_range",
                Some("net/ipv4/ip_local_port_range"),
            ),
            (
                "net.ipv4.conf.eth0/1.forwarding",
                Some("net/ipv4/conf/eth0.1/forwarding"),
            ),
            (
                "net/ipv4/conf/eth0.1/forwarding",
                Some("net/ipv4/conf/eth0.1/forwarding"),
            ),
            ("kernel.shm_rmid_forced", Some("kernel/shm_rmid_forced")),
            ("kernel.core_pattern", None),
            ("kernel/core_pattern", None),
            ("net.//.kernel.core_pattern", None),
            ("net/../kernel/core_pattern", None),
            ("net...kernel.core_pattern", None),
            ("vm.overcommit_memory", None),
            ("net", None),
            ("", None),
        ] {
            assert_eq!(sysctl_path(name, &own).as_deref(), path, "{name:?}");
            assert_eq!(sysctl_path(name, &host), None, "{name:?}");
        }
    }
}
