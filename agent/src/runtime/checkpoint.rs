//! What the runtime keeps on disk, so that the next agent knows what this one did.
//!
//! ```text
//! RUN/sandboxes/<id>/sandbox.json             SandboxCheckpoint, written before anything else is made
//!                   /containers/<id>/container.json   ContainerCheckpoint, written before the container is made
//!                                   /exit.json        the shim's
//! ```
//!
//! Written to a temporary name and renamed: a reader sees all or nothing. Not synced: a reboot ends
//! the containers too, and what must be known of them then is in [`super::past`].

use std::{
    fs, io,
    net::IpAddr,
    os::fd::AsFd,
    path::{Path, PathBuf},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use coracle_shim_protocol::{Exit, layout};
use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{ContainerConfig, ContainerState, RuntimeError, SandboxConfig, SandboxState};

const SANDBOX: &str = "sandbox.json";
const CONTAINER: &str = "container.json";

/// A sandbox as it was made.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct SandboxCheckpoint {
    pub(super) config: SandboxConfig,
    pub(super) created_at: SystemTime,
    pub(super) state: SandboxState,
    /// False until `run_pod_sandbox` has succeeded: nobody else has heard of it.
    pub(super) complete: bool,
    pub(super) ips: Vec<IpAddr>,
    pub(super) shim: Option<Process>,
    /// It was stopped, and holds nothing but records.
    #[serde(default)]
    pub(super) released: bool,
    /// Boot in which it was made: PIDs of another mean nothing.
    pub(super) boot_id: String,
}

/// A process that a reused PID cannot be mistaken for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Process {
    pub(super) pid: i32,
    /// Field 22 of `/proc/<pid>/stat`.
    pub(super) start_time: u64,
}

/// A container as it was made.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct ContainerCheckpoint {
    pub(super) config: ContainerConfig,
    pub(super) created_at: SystemTime,
    /// Of the image, unless the configuration says otherwise.
    pub(super) stop_signal: i32,
}

impl Process {
    /// The process that has this PID now.
    pub(super) fn current(pid: i32) -> Option<Self> {
        let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let start_time = text[text.rfind(')')? + 1..]
            .split_whitespace()
            .nth(19)?
            .parse()
            .ok()?;
        Some(Self { pid, start_time })
    }

    /// Kills it, if it is still the same. A pidfd holds it between the look and the signal.
    pub(super) fn kill(self) {
        let Some(pid) = rustix::process::Pid::from_raw(self.pid) else {
            return;
        };
        let Ok(handle) = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty())
        else {
            return;
        };
        if Self::current(self.pid) == Some(self) {
            let _ = rustix::process::pidfd_send_signal(handle, rustix::process::Signal::KILL);
        }
    }

    /// Waits until it has ended or `limit` has passed; true if it has ended.
    pub(super) fn wait(self, limit: Duration) -> bool {
        let Some(pid) = rustix::process::Pid::from_raw(self.pid) else {
            return true;
        };
        let Ok(handle) = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty())
        else {
            return true;
        };
        if Self::current(self.pid) != Some(self) {
            return true;
        }
        let end = Instant::now() + limit;
        let mut set = [PollFd::new(handle.as_fd(), PollFlags::POLLIN)];
        loop {
            let left = end.saturating_duration_since(Instant::now());
            match poll(
                &mut set,
                PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX),
            ) {
                // The end of any child of this process may be told to this thread.
                Err(Errno::EINTR) => {}
                outcome => return outcome.is_ok_and(|ready| ready > 0),
            }
        }
    }
}

pub(super) fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .unwrap_or_default()
        .trim()
        .to_owned()
}

pub(super) fn write_sandbox(
    directory: &Path,
    checkpoint: &SandboxCheckpoint,
) -> Result<(), RuntimeError> {
    write(&directory.join(SANDBOX), checkpoint)
}

pub(super) fn read_sandbox(directory: &Path) -> Option<SandboxCheckpoint> {
    read(&directory.join(SANDBOX))
}

pub(super) fn write_container(
    directory: &Path,
    checkpoint: &ContainerCheckpoint,
) -> Result<(), RuntimeError> {
    write(&directory.join(CONTAINER), checkpoint)
}

pub(super) fn read_container(directory: &Path) -> Option<ContainerCheckpoint> {
    read(&directory.join(CONTAINER))
}

/// The shim's record of a container's end.
pub(super) fn read_exit(directory: &Path) -> Option<Exit> {
    read(&directory.join(layout::EXIT))
}

/// Directories below one, by name.
pub(super) fn subdirectories(path: &Path) -> Vec<(String, PathBuf)> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .filter_map(|entry| Some((entry.file_name().into_string().ok()?, entry.path())))
        .collect()
}

pub(super) fn write<T: Serialize>(path: &Path, value: &T) -> Result<(), RuntimeError> {
    let attempt = || -> io::Result<()> {
        let temporary = path.with_extension("tmp");
        fs::write(&temporary, serde_json::to_vec(value)?)?;
        fs::rename(&temporary, path)
    };
    attempt().map_err(|source| RuntimeError::State {
        operation: "write",
        path: path.to_owned(),
        source,
    })
}

/// What cannot be read or parsed is as good as absent: the owner makes it anew or cleans up.
fn read<T: DeserializeOwned>(path: &Path) -> Option<T> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

pub(super) fn time(nanoseconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_nanos(nanoseconds)
}

/// How a recorded end looks to CRI. Source: containerd `internal/cri/server/container_start.go`,
/// `errorStartReason`, for what was never executed.
pub(super) fn exited(exit: &Exit) -> ContainerState {
    let reason = match exit {
        Exit {
            start_error: Some(_),
            ..
        } => "StartError",
        Exit {
            oom_killed: true, ..
        } => "OOMKilled",
        Exit { exit_code: 0, .. } => "Completed",
        _ => "Error",
    };
    let finished_at = time(exit.finished_at);
    ContainerState::Exited {
        started_at: if exit.started_at == 0 {
            finished_at
        } else {
            time(exit.started_at)
        },
        finished_at,
        exit_code: exit.exit_code,
        signal: exit.signal,
        reason: reason.to_owned(),
        message: exit.start_error.clone().unwrap_or_default(),
    }
}

/// How an end looks that a reboot brought. Source: containerd `internal/cri/server/restart.go`,
/// `unknownExitCode` and `unknownExitReason`.
pub(crate) fn unknown(started_at: SystemTime) -> ContainerState {
    ContainerState::Exited {
        started_at,
        finished_at: SystemTime::now(),
        exit_code: 255,
        signal: None,
        reason: "Unknown".to_owned(),
        message: String::new(),
    }
}

/// How an end looks that nobody has seen.
pub(super) fn lost(started_at: SystemTime) -> ContainerState {
    ContainerState::Exited {
        started_at,
        finished_at: SystemTime::now(),
        exit_code: 137,
        signal: None,
        reason: "ContainerStatusUnknown".to_owned(),
        message: "The container could not be located when the pod was terminated".to_owned(),
    }
}
