//! What a container is made of, as an OCI runtime spec. Pure: no I/O, same input, same output.
//!
//! What only the mounted image can tell (numeric user, HOME, where volumes end up) is left to the
//! helper, which gets it as [`UserRequest`] and [`VolumeMount`]. Network, IPC and UTS namespaces
//! are absent from the spec on purpose: the helper runs inside the sandbox's already. Source:
//! containerd `internal/cri/server/container_create.go` and `pkg/oci/spec.go`.

mod capabilities;
pub mod seccomp;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use coracle_shim_protocol::{CreateSpec, UserRequest, VolumeMount, layout};
use serde_json::{Value, json};

use super::{
    ContainerConfig, ImageConfig, MountPropagation, Resources, SandboxConfig, SeccompProfile,
};

/// Search path of an image that names none.
const DEFAULT_PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// As containerd's and Docker's.
const MASKED_PATHS: &[&str] = &[
    "/proc/asound",
    "/proc/acpi",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
    "/sys/devices/virtual/powercap",
];

const READONLY_PATHS: &[&str] = &[
    "/proc/bus",
    "/proc/fs",
    "/proc/irq",
    "/proc/sys",
    "/proc/sysrq-trigger",
];

/// Facts about the node that shape every container.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Node {
    /// Only the unified cgroup hierarchy is mounted.
    pub cgroup_v2: bool,
    /// The lowest `oom_score_adj` this node may give.
    pub min_oom_score_adj: i32,
}

/// Everything a spec depends on.
pub struct Input<'a> {
    /// The pod.
    pub sandbox: &'a SandboxConfig,
    /// The sandbox's directory.
    pub sandbox_dir: &'a Path,
    /// The container.
    pub container: &'a ContainerConfig,
    /// Its ID.
    pub id: &'a str,
    /// Its image.
    pub image: &'a ImageConfig,
    /// The image's layers, lowest first.
    pub layers: Vec<PathBuf>,
    /// Directory of its writable layer.
    pub writable: &'a Path,
    /// The text of its `Localhost` seccomp profile.
    pub localhost_profile: Option<&'a str>,
    /// Directory of compiled seccomp filters.
    pub compiled_filters: &'a Path,
    /// The node.
    pub node: Node,
}

/// Why a configuration cannot become a spec.
#[derive(Debug, thiserror::Error)]
pub enum SpecError {
    /// Neither image nor pod says what to run.
    #[error("no command specified")]
    NoCommand,
    /// Not a capability of Linux.
    #[error("unknown capability {0:?}")]
    UnknownCapability(String),
    /// A `Localhost` profile that is none.
    #[error("seccomp profile is not usable")]
    Seccomp(#[from] seccomp::ProfileError),
    /// The kernel would take its beginning for the whole.
    #[error("{what} {text:?} contains a NUL byte")]
    Nul {
        /// Such as `command`.
        what: &'static str,
        /// As written.
        text: String,
    },
    /// Empty or with `=` or NUL.
    #[error("invalid environment variable name {0:?}")]
    EnvironmentName(String),
}

/// The container's cgroup path relative to every hierarchy.
#[must_use]
pub fn cgroup_path(sandbox: &SandboxConfig, id: &str) -> String {
    format!("{}/{id}", sandbox.cgroup_parent.trim_end_matches('/'))
}

/// Plans the container.
///
/// # Errors
/// [`SpecError`]: permanent until the pod or its image changes.
pub fn plan(input: &Input<'_>) -> Result<CreateSpec, SpecError> {
    let (container, security) = (input.container, &input.container.security);
    let args = command(container, input.image)?;
    let caps = capabilities::compute(security)?;
    let no_new_privileges =
        !security.privileged && security.allow_privilege_escalation == Some(false);
    let cwd = container
        .working_dir
        .as_deref()
        .or(input.image.working_dir.as_deref())
        .filter(|dir| !dir.is_empty());
    let mut process = json!({
        "terminal": container.tty,
        "user": { "uid": 0, "gid": 0 },
        "args": args,
        "env": environment(input)?,
        "cwd": cwd.unwrap_or("/"),
        "capabilities": { "bounding": caps, "effective": caps, "permitted": caps },
    });
    if no_new_privileges {
        process["noNewPrivileges"] = json!(true);
    }
    if let Some(profile) = &security.apparmor_profile {
        process["apparmorProfile"] = json!(profile);
    }
    if let Some(score) = container.resources.oom_score_adj {
        process["oomScoreAdj"] = json!(score.clamp(input.node.min_oom_score_adj, 1000));
    }
    let spec = json!({
        "ociVersion": "1.2.0",
        "process": process,
        "root": { "path": "rootfs", "readonly": security.readonly_rootfs },
        "mounts": mounts(input),
        "linux": linux(input, &caps)?,
    });
    Ok(CreateSpec {
        spec,
        layers: input.layers.clone(),
        upper: input.writable.join("upper"),
        work: input.writable.join("work"),
        mounts: container.mounts.iter().map(volume).collect(),
        user: UserRequest {
            image_user: security
                .image_user
                .clone()
                .or_else(|| input.image.user.clone()),
            uid: security.run_as_user,
            gid: security.run_as_group,
            non_root: security.run_as_non_root,
            supplemental_groups: security.supplemental_groups.clone(),
            strict_groups: security.strict_groups,
        },
        volumes: input.image.volumes.clone(),
        privileged: security.privileged,
        compiled_filters: input.compiled_filters.to_owned(),
    })
}

/// `command` replaces the image's entrypoint and its command; `args` replaces its command only.
fn command(container: &ContainerConfig, image: &ImageConfig) -> Result<Vec<String>, SpecError> {
    let entrypoint = if container.command.is_empty() {
        &image.entrypoint
    } else {
        &container.command
    };
    let cmd = match (container.args.is_empty(), container.command.is_empty()) {
        (false, _) => container.args.as_slice(),
        (true, true) => image.cmd.as_slice(),
        (true, false) => &[],
    };
    let args: Vec<String> = entrypoint.iter().chain(cmd).cloned().collect();
    args.iter()
        .try_for_each(|text| without_nul("command", text))?;
    if args.is_empty() {
        Err(SpecError::NoCommand)
    } else {
        Ok(args)
    }
}

fn without_nul(what: &'static str, text: &str) -> Result<(), SpecError> {
    if text.contains('\0') {
        Err(SpecError::Nul {
            what,
            text: text.to_owned(),
        })
    } else {
        Ok(())
    }
}

fn environment(input: &Input<'_>) -> Result<Vec<String>, SpecError> {
    let mut list: Vec<String> = Vec::new();
    let mut set = |name: &str, entry: String| {
        let same = |old: &String| old.split_once('=').is_some_and(|(old, _)| old == name);
        match list.iter_mut().find(|old| same(old)) {
            Some(old) => *old = entry,
            None => list.push(entry),
        }
    };
    set("PATH", DEFAULT_PATH.to_owned());
    set("HOSTNAME", format!("HOSTNAME={}", input.sandbox.hostname));
    if input.container.tty {
        set("TERM", "TERM=xterm".to_owned());
    }
    for entry in &input.image.env {
        without_nul("environment variable of the image", entry)?;
        if let Some((name, _)) = entry.split_once('=').filter(|(name, _)| !name.is_empty()) {
            set(name, entry.clone());
        }
    }
    for (name, value) in &input.container.env {
        if name.is_empty() || name.contains(['=', '\0']) {
            return Err(SpecError::EnvironmentName(name.clone()));
        }
        if value.contains('\0') {
            let (what, text) = ("the value of environment variable", name.clone());
            return Err(SpecError::Nul { what, text });
        }
        set(name, format!("{name}={value}"));
    }
    Ok(list)
}

fn mounts(input: &Input<'_>) -> Value {
    let security = &input.container.security;
    let access = if security.privileged { "rw" } else { "ro" };
    let shm = if input.sandbox.host_ipc {
        PathBuf::from("/dev/shm")
    } else {
        input.sandbox_dir.join(layout::SHM)
    };
    let mut list = vec![
        json!({ "destination": "/proc", "type": "proc", "source": "proc", "options": ["nosuid", "noexec", "nodev"] }),
        json!({ "destination": "/dev", "type": "tmpfs", "source": "tmpfs",
                "options": ["nosuid", "strictatime", "mode=755", "size=65536k"] }),
        json!({ "destination": "/dev/pts", "type": "devpts", "source": "devpts",
                "options": ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"] }),
        json!({ "destination": "/dev/mqueue", "type": "mqueue", "source": "mqueue",
                "options": ["nosuid", "noexec", "nodev"] }),
        json!({ "destination": "/sys", "type": "sysfs", "source": "sysfs",
                "options": ["nosuid", "noexec", "nodev", access] }),
        json!({ "destination": "/sys/fs/cgroup", "type": "cgroup", "source": "cgroup",
                "options": ["nosuid", "noexec", "nodev", "relatime", access] }),
    ];
    if !input
        .container
        .mounts
        .iter()
        .any(|mount| mount.container_path == "/dev/shm")
    {
        list.push(
            json!({ "destination": "/dev/shm", "type": "bind", "source": shm,
                          "options": ["rbind", "nosuid", "noexec", "nodev", "rw"] }),
        );
    }
    Value::Array(list)
}

fn volume(mount: &super::Mount) -> VolumeMount {
    let propagation = match mount.propagation {
        MountPropagation::Private => "rprivate",
        MountPropagation::HostToContainer => "rslave",
        MountPropagation::Bidirectional => "rshared",
    };
    let access = match (mount.recursive_readonly, mount.readonly) {
        (true, _) => "rro",
        (false, true) => "ro",
        (false, false) => "rw",
    };
    VolumeMount {
        source: mount.host_path.clone(),
        destination: mount.container_path.clone(),
        options: ["rbind", propagation, access].map(str::to_owned).to_vec(),
    }
}

fn linux(input: &Input<'_>, caps: &[String]) -> Result<Value, SpecError> {
    let security = &input.container.security;
    let mut namespaces = vec![json!({ "type": "mount" })];
    if !input.sandbox.host_pid {
        // The shim knows which one, if it is another's.
        namespaces.push(json!({ "type": "pid" }));
    }
    if input.node.cgroup_v2 && !security.privileged {
        namespaces.push(json!({ "type": "cgroup" }));
    }
    let mut linux = json!({
        "namespaces": namespaces,
        "cgroupsPath": cgroup_path(input.sandbox, input.id),
        "resources": resources(&input.container.resources, security.privileged, input.node.cgroup_v2),
    });
    // Bidirectional volumes need a root that lets mounts out.
    let spread = input.container.mounts.iter().map(|mount| mount.propagation);
    if spread
        .clone()
        .any(|propagation| propagation == MountPropagation::Bidirectional)
    {
        linux["rootfsPropagation"] = json!("shared");
    } else if spread
        .clone()
        .any(|propagation| propagation == MountPropagation::HostToContainer)
    {
        linux["rootfsPropagation"] = json!("slave");
    }
    if !security.privileged {
        linux["maskedPaths"] = json!(MASKED_PATHS);
        linux["readonlyPaths"] = json!(READONLY_PATHS);
    }
    let profile = match (&security.seccomp, security.privileged) {
        (SeccompProfile::Unconfined, _) | (_, true) => None,
        (SeccompProfile::RuntimeDefault, false) => Some(seccomp::runtime_default(caps)),
        (SeccompProfile::Localhost(_), false) => Some(seccomp::from_profile(
            input.localhost_profile.unwrap_or_default(),
            caps,
        )?),
    };
    if let Some(profile) = profile {
        linux["seccomp"] = profile;
    }
    Ok(linux)
}

fn resources(resources: &Resources, privileged: bool, cgroup_v2: bool) -> Value {
    let mut out = json!({ "devices": devices(privileged) });
    let mut cpu = json!({});
    if let Some(shares) = resources.cpu_shares {
        cpu["shares"] = json!(shares.clamp(2, 262_144));
    }
    if let Some(quota) = resources.cpu_quota_us {
        cpu["quota"] = json!(quota);
        cpu["period"] = json!(resources.cpu_period_us.unwrap_or(100_000));
    }
    out["cpu"] = cpu;
    if let Some(limit) = resources.memory_limit_bytes {
        out["memory"] = json!({ "limit": limit });
        if cgroup_v2 && limit > 0 {
            // A container that has lost one process to the limit is no longer whole: as kubelet,
            // all of it goes.
            out["unified"] = json!({ "memory.oom.group": "1" });
        }
    }
    if let Some(limit) = resources.pids_limit {
        out["pids"] = json!({ "limit": limit });
    }
    out
}

/// Nothing but the harmless, as runc's `AllowedDevices`; everything for privileged containers.
fn devices(privileged: bool) -> Value {
    if privileged {
        return json!([{ "allow": true, "access": "rwm" }]);
    }
    let character = |major: i64, minor: i64, access: &str| {
        let mut rule = json!({ "allow": true, "type": "c", "access": access });
        for (name, number) in [("major", major), ("minor", minor)] {
            if number >= 0 {
                rule[name] = json!(number);
            }
        }
        rule
    };
    let mut rules = vec![
        json!({ "allow": false, "access": "rwm" }),
        // mknod is harmless where the device may not be opened.
        character(-1, -1, "m"),
        json!({ "allow": true, "type": "b", "access": "m" }),
    ];
    // null, zero, full, tty, random, urandom, console, ptmx, pts/*.
    for (major, minor) in [
        (1, 3),
        (1, 5),
        (1, 7),
        (5, 0),
        (1, 8),
        (1, 9),
        (5, 1),
        (5, 2),
        (136, -1),
    ] {
        rules.push(character(major, minor, "rwm"));
    }
    Value::Array(rules)
}
