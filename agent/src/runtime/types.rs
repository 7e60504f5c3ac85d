//! The words of the Container Runtime Interface (CRI) that the agent and its runtime exchange.
//!
//! Plain data, no I/O. Names follow `k8s.io/cri-api` `runtime/v1`; what Coracle does not need is
//! left out.

use std::{collections::BTreeMap, fmt, net::IpAddr, path::PathBuf, time::SystemTime};

use serde::{Deserialize, Serialize};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub String);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

id!(
    /// `metadata.uid` of a Pod.
    PodUid
);
id!(
    /// 64 lower-case hex digits, made by the runtime.
    SandboxId
);
id!(
    /// 64 lower-case hex digits, made by the runtime.
    ContainerId
);

/// Names a pod in every message and log line.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PodRef {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`.
    pub uid: PodUid,
}

impl fmt::Display for PodRef {
    /// `namespace/name`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// A port of the sandbox published on the node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortMapping {
    /// Port on the node.
    pub host_port: u16,
    /// Port in the pod.
    pub container_port: u16,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: String,
    /// Node address; empty for all.
    pub host_ip: String,
}

/// What resolvers in a pod ask, as its `resolv.conf` has it. Told to CNI plugins, which may want to
/// tell others.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodDns {
    /// Name servers.
    pub servers: Vec<String>,
    /// Search path.
    pub searches: Vec<String>,
    /// Such as `ndots:5`.
    pub options: Vec<String>,
}

/// Everything `run_pod_sandbox` needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxConfig {
    /// Whose sandbox.
    pub pod: PodRef,
    /// 0 for the first sandbox of the pod, counted up when it is made anew.
    pub attempt: u32,
    /// Hostname inside; the node's for host network.
    pub hostname: String,
    /// Use the node's network namespace; CNI is not called.
    pub host_network: bool,
    /// Use the node's PID namespace.
    pub host_pid: bool,
    /// Use the node's IPC namespace.
    pub host_ipc: bool,
    /// All containers share one PID namespace.
    pub share_process_namespace: bool,
    /// A user namespace of the pod's own. The runtime has none yet and refuses.
    #[serde(default)]
    pub user_namespace: bool,
    /// The handler of the pod's RuntimeClass; empty for the default. The runtime refuses those that
    /// it does not have.
    #[serde(default)]
    pub runtime_handler: String,
    /// Published ports.
    pub port_mappings: Vec<PortMapping>,
    /// What its resolvers ask.
    #[serde(default)]
    pub dns: PodDns,
    /// The pod's cgroup relative to the mount of each hierarchy, absolute form, such as
    /// `/coracle/kubepods/burstable/pod<uid>`. Its limits are written by `run_pod_sandbox`.
    pub cgroup_parent: String,
    /// Limits of the pod's cgroup as a whole.
    pub resources: Resources,
    /// `net.*` and IPC sysctls of the pod's namespaces.
    pub sysctls: BTreeMap<String, String>,
    /// Where the containers' logs go: `/var/log/pods`-style directory of this pod.
    pub log_directory: PathBuf,
    /// The pod's labels, handed to CNI and kept for listing.
    pub labels: BTreeMap<String, String>,
    /// The pod's annotations.
    pub annotations: BTreeMap<String, String>,
}

/// cgroup limits, in the kernel's terms. `None` leaves the kernel's default.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resources {
    /// cgroup v1 `cpu.shares` (2 to 262144); converted to `cpu.weight` on v2.
    pub cpu_shares: Option<u64>,
    /// Microseconds of CPU per period.
    pub cpu_quota_us: Option<i64>,
    /// Microseconds; 100000 if unset.
    pub cpu_period_us: Option<u64>,
    /// Hard limit in bytes.
    pub memory_limit_bytes: Option<i64>,
    /// Most processes.
    pub pids_limit: Option<i64>,
    /// -1000 to 1000; clamped (and logged once) where the node may not lower it.
    pub oom_score_adj: Option<i32>,
}

/// How a mount spreads, as in `core/v1 VolumeMount.mountPropagation`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum MountPropagation {
    /// `None`.
    #[default]
    Private,
    /// `HostToContainer`.
    HostToContainer,
    /// `Bidirectional`.
    Bidirectional,
}

/// One bind mount into a container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    /// Absolute path inside.
    pub container_path: String,
    /// Absolute path on the node; exists already.
    pub host_path: PathBuf,
    /// Read-only inside.
    pub readonly: bool,
    /// Read-only with everything that is mounted below it.
    #[serde(default)]
    pub recursive_readonly: bool,
    /// Propagation.
    pub propagation: MountPropagation,
}

/// Which seccomp profile applies.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum SeccompProfile {
    /// The default profile of CRI runtimes.
    #[default]
    RuntimeDefault,
    /// None.
    Unconfined,
    /// A JSON file on the node in the docker/OCI profile format.
    Localhost(PathBuf),
}

/// A container's security settings, resolved from pod and container `securityContext` and the
/// image's `USER`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecurityContext {
    /// All capabilities and devices, no seccomp, no masking.
    pub privileged: bool,
    /// User as the image names it (`uid`, `name`, `uid:gid`...); resolved against the image's
    /// /etc/passwd unless `run_as_user` is set.
    pub image_user: Option<String>,
    /// Overrides the user.
    pub run_as_user: Option<u32>,
    /// Overrides the group.
    pub run_as_group: Option<u32>,
    /// Refuse UID 0.
    pub run_as_non_root: bool,
    /// More groups, `fsGroup` among them.
    pub supplemental_groups: Vec<u32>,
    /// `supplementalGroupsPolicy: Strict`: the groups that the image gives its user do not count.
    #[serde(default)]
    pub strict_groups: bool,
    /// Root file system read-only.
    pub readonly_rootfs: bool,
    /// Sets `no_new_privs` when false. `None` is false for unprivileged containers as
    /// RuntimeDefault has it: see `oci_spec`.
    pub allow_privilege_escalation: Option<bool>,
    /// Capabilities to add, without `CAP_`, upper case, or `ALL`.
    pub cap_add: Vec<String>,
    /// Capabilities to drop.
    pub cap_drop: Vec<String>,
    /// Seccomp.
    pub seccomp: SeccompProfile,
    /// Joins the PID namespace of this container of its sandbox, which is debugged.
    #[serde(default)]
    pub debug_target: Option<ContainerId>,
    /// A loaded AppArmor profile to start under.
    #[serde(default)]
    pub apparmor_profile: Option<String>,
}

/// Everything `create_container` needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerConfig {
    /// `spec.containers[].name`.
    pub name: String,
    /// 0 for the first instance, counted up at every restart.
    pub attempt: u32,
    /// What the manifest says, such as `nginx`; shown in the status.
    pub image: String,
    /// What [`super::ImageService::pull_image`] returned.
    pub image_id: String,
    /// What it came as, such as `docker.io/library/nginx@sha256:...`; told in the status.
    #[serde(default)]
    pub image_ref: String,
    /// Overrides the image's ENTRYPOINT if not empty. Already expanded.
    pub command: Vec<String>,
    /// Overrides the image's CMD if not empty. Already expanded.
    pub args: Vec<String>,
    /// In order; later wins; put after the image's.
    pub env: Vec<(String, String)>,
    /// Overrides the image's.
    pub working_dir: Option<String>,
    /// In order.
    pub mounts: Vec<Mount>,
    /// Keep a stdin pipe.
    pub stdin: bool,
    /// Close stdin after the first attach ends.
    pub stdin_once: bool,
    /// Allocate a terminal.
    pub tty: bool,
    /// Limits of this container's cgroup.
    pub resources: Resources,
    /// Security.
    pub security: SecurityContext,
    /// Log file relative to [`SandboxConfig::log_directory`], such as `nginx/0.log`.
    pub log_path: String,
    /// Init container (for listing only; ordering is the agent's).
    pub init: bool,
    /// Signal that stops it, such as `SIGQUIT`; the image's `STOPSIGNAL`, else `SIGTERM`, when
    /// `None`.
    pub stop_signal: Option<String>,
    /// Opaque to the runtime: a hash of the spec that made it, for change detection.
    pub spec_hash: String,
}

/// Whether a sandbox can run containers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SandboxState {
    /// Namespaces, network and shim are there.
    Ready,
    /// Stopped, or its shim has died.
    NotReady,
}

/// A sandbox as it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxStatus {
    /// Its ID.
    pub id: SandboxId,
    /// Whose.
    pub pod: PodRef,
    /// Attempt.
    pub attempt: u32,
    /// State.
    pub state: SandboxState,
    /// When made.
    pub created_at: SystemTime,
    /// Addresses from CNI; empty for host network.
    pub ips: Vec<IpAddr>,
    /// As configured.
    pub host_network: bool,
    /// Limits of the pod's cgroup now.
    pub resources: Resources,
}

/// A container as it is.
///
/// ```text
/// Created --start--> Running --exit--> Exited --remove--> (gone)
///    \------------------------stop------^
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ContainerState {
    /// Made, its process waits.
    Created,
    /// Running since `started_at`.
    Running {
        /// Start.
        started_at: SystemTime,
        /// PID in the node's namespace.
        pid: i32,
    },
    /// Ended.
    Exited {
        /// Start; equal to `finished_at` if it never ran.
        started_at: SystemTime,
        /// End.
        finished_at: SystemTime,
        /// Exit code; 128 + signal if killed by one.
        exit_code: i32,
        /// The signal, if killed by one.
        signal: Option<i32>,
        /// `Completed`, `Error`, `OOMKilled`, `StartError`, `ContainerStatusUnknown`.
        reason: String,
        /// For people.
        message: String,
    },
}

/// A container with its identity.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerStatus {
    /// Its ID.
    pub id: ContainerId,
    /// Its sandbox.
    pub sandbox_id: SandboxId,
    /// Its pod.
    pub pod: PodRef,
    /// `spec.containers[].name`.
    pub name: String,
    /// Attempt.
    pub attempt: u32,
    /// As configured.
    pub image: String,
    /// As configured.
    pub image_id: String,
    /// As configured; empty if that was before it was kept.
    #[serde(default)]
    pub image_ref: String,
    /// As configured.
    pub spec_hash: String,
    /// When made.
    pub created_at: SystemTime,
    /// Limits of its cgroup now.
    pub resources: Resources,
    /// State.
    pub state: ContainerState,
    /// Absolute path of the log file.
    pub log_path: PathBuf,
}

/// What a short command in a container did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecResult {
    /// Exit code.
    pub exit_code: i32,
    /// At most 16 MiB; what came beyond was dropped.
    pub stdout: Vec<u8>,
    /// At most 16 MiB.
    pub stderr: Vec<u8>,
}

/// A command to run in a container with streams.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecRequest {
    /// argv.
    pub command: Vec<String>,
    /// Connect stdin.
    pub stdin: bool,
    /// Connect stdout.
    pub stdout: bool,
    /// Connect stderr (never with `tty`).
    pub stderr: bool,
    /// Allocate a terminal.
    pub tty: bool,
}

/// What a container uses of the machine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ContainerStats {
    /// Nanoseconds of CPU since start.
    pub cpu_usage_nanos: u64,
    /// Bytes not reclaimable without swapping.
    pub memory_working_set_bytes: u64,
    /// Processes and threads.
    pub processes: u64,
}
