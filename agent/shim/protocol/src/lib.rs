//! What the agent, the shim and the OCI helper say to each other.
//!
//! Plain serde data plus the one way it travels: one JSON document a `SOCK_SEQPACKET` message, with
//! file descriptors attached ([`socket`]). No behaviour beyond that. Both ends are of one release;
//! fields are only ever added, because a shim outlives the agent that started it and must still
//! understand the next one.

#![forbid(unsafe_code)]

mod helper;
pub mod socket;

use std::{collections::BTreeMap, path::PathBuf};

use serde::{Deserialize, Serialize};

pub use self::helper::{
    CreateSpec, HelperReply, HelperRequest, START_ERROR_MAX_BYTES, UserRequest, VolumeMount,
};

/// File names inside a sandbox directory, known to all three.
pub mod layout {
    /// Listening socket of the shim.
    pub const SOCKET: &str = "shim.sock";
    /// Directory of pinned namespaces (`net`, `ipc`, `uts`).
    pub const NAMESPACES: &str = "ns";
    /// The sandbox's `/dev/shm`, a tmpfs in the shim's mount namespace.
    pub const SHM: &str = "shm";
    /// One directory a container: its bundle and records.
    pub const CONTAINERS: &str = "containers";
    /// libcontainer's own state.
    pub const OCI: &str = "oci";
    /// The shim's own messages.
    pub const SHIM_LOG: &str = "shim.log";
    /// In a container's directory: [`super::CreateSpec`].
    pub const CREATE: &str = "create.json";
    /// In a container's directory: [`super::Exit`].
    pub const EXIT: &str = "exit.json";
    /// In a container's directory: mount point of its root file system, in the shim's mount
    /// namespace.
    pub const ROOTFS: &str = "rootfs";
    /// In a container's directory: mount points of its volumes, in the shim's mount namespace.
    pub const MOUNTS: &str = "mnt";
    /// libcontainer's file for "go" in `oci/<container>/`.
    pub const NOTIFY: &str = "notify.sock";
}

/// A request with the number that its reply will carry.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Call {
    /// Chosen by the caller, unique among its calls in flight.
    pub id: u64,
    /// What to do.
    pub request: Request,
}

/// What the agent asks of a shim.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// First message on the inherited socket; carries the helper's executable as file descriptor.
    Init(Init),
    /// Everything the shim knows.
    State,
    /// Makes a container from the `create.json` in its directory.
    Create(Create),
    /// Lets a created container run; answered when its program is executed.
    Start {
        /// Which.
        container: String,
    },
    /// Signals a container's first process, or all of its processes.
    Signal {
        /// Which.
        container: String,
        /// Signal number.
        signal: i32,
        /// Every process, not just the first.
        all: bool,
    },
    /// Removes what is left of an exited (or never started) container in the shim's keeping:
    /// mounts, cgroup, state.
    Delete {
        /// Which.
        container: String,
    },
    /// Starts one more process in a container. Without `tty` it carries three file descriptors:
    /// stdin, stdout, stderr.
    Exec(Exec),
    /// Kills an exec'ed process, its descendants and its session. Fine if it has ended already.
    KillExec {
        /// As replied to [`Request::Exec`].
        exec: u64,
    },
    /// Joins a container's own streams. Carries one file descriptor for each stream named, in this
    /// order.
    Attach {
        /// Which.
        container: String,
        /// The shim reads from the descriptor and feeds the container.
        stdin: bool,
        /// The shim copies the container's stdout (terminal) to the descriptor.
        stdout: bool,
        /// The shim copies the container's stderr to the descriptor.
        stderr: bool,
    },
    /// Sets the size of a container's terminal.
    Resize {
        /// Which.
        container: String,
        /// Columns.
        columns: u16,
        /// Rows.
        rows: u16,
    },
    /// Opens the log file anew, after rotation.
    ReopenLog {
        /// Which.
        container: String,
    },
    /// Kills everything, removes mounts and cgroups of all containers, replies and exits.
    Shutdown,
}

/// How to set a sandbox up.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Init {
    /// Absolute, exists, mode 0700.
    pub sandbox_dir: PathBuf,
    /// `None` keeps the node's UTS namespace.
    pub hostname: Option<String>,
    /// Keep the node's network namespace.
    pub host_network: bool,
    /// Keep the node's IPC namespace.
    pub host_ipc: bool,
    /// Keep a PID 1 whose namespace all containers join.
    pub share_process_namespace: bool,
    /// Written below `/proc/sys` with dots as slashes.
    pub sysctls: BTreeMap<String, String>,
}

/// How the shim keeps a container.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Create {
    /// Its ID; its directory is `containers/<id>` below the sandbox directory.
    pub container: String,
    /// Absolute path of the log file; its directory exists.
    pub log_path: PathBuf,
    /// Keep a stdin.
    pub stdin: bool,
    /// Close it when the first attach ends.
    pub stdin_once: bool,
    /// One terminal in place of pipes.
    pub tty: bool,
    /// Path of its cgroup relative to each hierarchy, absolute form.
    pub cgroup: String,
    /// `create container` is given up (and cleaned up) after this many milliseconds.
    pub timeout_ms: u64,
    /// The container whose PID namespace it joins, to debug that.
    #[serde(default)]
    pub pid_namespace_of: Option<String>,
}

/// One more process in a container.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Exec {
    /// Where.
    pub container: String,
    /// argv.
    pub args: Vec<String>,
    /// A terminal; the reply then carries its master as file descriptor.
    pub tty: bool,
    /// Given up after this many milliseconds (the start, not the run).
    pub timeout_ms: u64,
}

/// What the shim says.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Message {
    /// To a [`Call`].
    Reply {
        /// Of the call.
        id: u64,
        /// How it went.
        result: Result<Reply, Failure>,
    },
    /// Unasked, on every connection.
    Event(Event),
}

/// Answers, by request.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// To anything without a result.
    Done,
    /// To [`Request::Init`]: namespaces are pinned, the socket listens.
    Ready {
        /// The shim's PID.
        pid: i32,
    },
    /// To [`Request::State`].
    State(State),
    /// To [`Request::Create`].
    Created {
        /// PID of its first process in the node's namespace.
        pid: i32,
    },
    /// To [`Request::Start`].
    Started {
        /// Nanoseconds since the epoch.
        started_at: u64,
        /// PID in the node's namespace.
        pid: i32,
    },
    /// To [`Request::Exec`].
    Executing {
        /// Names it from now on.
        exec: u64,
        /// In the node's namespace.
        pid: i32,
    },
}

/// Why a request failed.
#[derive(Debug, Clone, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// For programs.
    pub kind: FailureKind,
    /// For people: the whole chain.
    pub message: String,
}

/// What sort of failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// No such container or exec.
    NotFound,
    /// Not in this state.
    State,
    /// What was asked can never work: user, working directory, image.
    Invalid,
    /// libcontainer or the kernel refused.
    Oci,
    /// A deadline passed.
    Timeout,
    /// The container's program could not be executed: it has ended.
    Start,
}

/// Unasked news.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// A container ended; its log is complete and its [`Exit`] on disk.
    ContainerExited {
        /// Which.
        container: String,
        /// How.
        exit: Exit,
    },
    /// An exec'ed process ended.
    ExecExited {
        /// Which.
        exec: u64,
        /// 128 + signal if killed by one.
        exit_code: i32,
    },
}

/// Everything the shim knows.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct State {
    /// The shim's PID.
    pub pid: i32,
    /// All containers not deleted.
    pub containers: Vec<ContainerRecord>,
}

/// A container as the shim sees it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ContainerRecord {
    /// Its ID.
    pub container: String,
    /// Where it is.
    pub phase: Phase,
}

/// Where a container is.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Being made.
    Creating,
    /// Its process waits.
    Created {
        /// PID in the node's namespace.
        pid: i32,
    },
    /// It runs.
    Running {
        /// PID in the node's namespace.
        pid: i32,
        /// Nanoseconds since the epoch.
        started_at: u64,
    },
    /// It ended.
    Exited(Exit),
}

/// How a container ended. Kept as `exit.json` in its directory, written atomically and synced
/// before it is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// 128 + signal if killed by one.
    pub exit_code: i32,
    /// The signal.
    pub signal: Option<i32>,
    /// The kernel killed a process of it for want of memory.
    pub oom_killed: bool,
    /// Nanoseconds since the epoch; 0 if it never ran.
    pub started_at: u64,
    /// Nanoseconds since the epoch.
    pub finished_at: u64,
    /// Why its program was not executed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_error: Option<String>,
}
