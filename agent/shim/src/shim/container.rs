//! One container as the shim keeps it.
//!
//! ```text
//! Creating --helper made it--> Created --start--> Running
//!     | helper failed             \--process ended--/--> Ended --output drained--> Exited (on disk) --delete--> (gone)
//!     v (gone)
//! ```

use std::{
    fs,
    io::{self, Write},
    os::{fd::AsRawFd, unix::net::UnixStream},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use coracle_shim_protocol::{ContainerRecord, Exit, Phase, layout};
use nix::{
    mount::{MntFlags, MsFlags, mount, umount2},
    sys::{
        signal::{Signal, kill},
        wait::WaitStatus,
    },
    unistd::Pid,
};

use super::{cgroup, log::Log, start_status::StartStatus, streams::Streams};

/// How long output may outlive its container: processes that left its PID namespace's fate can hold
/// the pipes.
const DRAIN_LIMIT: Duration = Duration::from_secs(2);

/// Exit code of a program that was not executed. Source: containerd
/// `internal/cri/server/container_start.go`, `errorStartExitCode`.
const START_ERROR_CODE: i32 = 128;

/// See the module's description.
pub(super) struct Container {
    pub(super) id: String,
    pub(super) directory: PathBuf,
    pub(super) cgroup: String,
    pub(super) log: Log,
    pub(super) streams: Streams,
    pub(super) start_status: StartStatus,
    pub(super) state: State,
}

/// Where it is.
pub(super) enum State {
    Creating,
    Created { pid: i32 },
    Running { pid: i32, started_at: u64 },
    Ended { exit: Exit, drain_until: Instant },
    Exited(Exit),
}

impl Container {
    /// PID of its first process, as long as that is not reaped.
    pub(super) fn pid(&self) -> Option<i32> {
        match self.state {
            State::Created { pid } | State::Running { pid, .. } => Some(pid),
            _ => None,
        }
    }

    pub(super) fn record(&self) -> ContainerRecord {
        let phase = match &self.state {
            State::Creating => Phase::Creating,
            State::Created { pid } => Phase::Created { pid: *pid },
            State::Running { pid, started_at } => Phase::Running {
                pid: *pid,
                started_at: *started_at,
            },
            // Told as running until its record is on disk.
            State::Ended { exit, .. } => Phase::Running {
                pid: 0,
                started_at: exit.started_at,
            },
            State::Exited(exit) => Phase::Exited(exit.clone()),
        };
        ContainerRecord {
            container: self.id.clone(),
            phase,
        }
    }

    /// Says "go" to the waiting process: libcontainer's `NotifySocket::notify_container_start`.
    pub(super) fn start(&mut self, oci: &Path, now: u64) -> io::Result<i32> {
        let State::Created { pid } = self.state else {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "container is not in state created",
            ));
        };
        let directory = fs::File::open(oci.join(&self.id))?;
        // A socket's path is limited to 108 bytes; the detour by descriptor keeps it short.
        let short = Path::new("/proc/self/fd")
            .join(directory.as_raw_fd().to_string())
            .join(layout::NOTIFY);
        UnixStream::connect(short)?.write_all(b"start container")?;
        self.state = State::Running {
            pid,
            started_at: now,
        };
        Ok(pid)
    }

    /// Its first process was reaped.
    pub(super) fn ended(&mut self, status: WaitStatus, now: u64) {
        let started_at = match self.state {
            State::Running { started_at, .. } => started_at,
            _ => 0,
        };
        let start_error = self.start_status.error().map(str::to_owned);
        let (exit_code, signal) = match start_error {
            Some(_) => (START_ERROR_CODE, None),
            None => exit_code(status),
        };
        let oom_killed = exit_code != 0 && cgroup::oom_kills(&self.cgroup) > 0;
        // In a shared PID namespace the others live on; they are the container's all the same.
        cgroup::kill_all(&self.cgroup);
        let exit = Exit {
            exit_code,
            signal,
            oom_killed,
            started_at: if start_error.is_some() { 0 } else { started_at },
            finished_at: now,
            start_error,
        };
        self.state = State::Ended {
            exit,
            drain_until: Instant::now() + DRAIN_LIMIT,
        };
    }

    /// When all output is read (or has been waited for long enough), makes the end official: log,
    /// disk, then the caller may tell. Returns what to tell.
    pub(super) fn settle(&mut self, now: u64) -> Option<Exit> {
        let State::Ended { exit, drain_until } = &self.state else {
            return None;
        };
        if !self.streams.drained() && Instant::now() < *drain_until {
            return None;
        }
        let exit = exit.clone();
        self.streams.close();
        self.log.finish(now);
        if let Err(error) = write_exit(&self.directory, &exit) {
            super::complain(format_args!("record the exit of {}: {error}", self.id));
        }
        self.state = State::Exited(exit.clone());
        Some(exit)
    }

    /// When [`Container::settle`] or its start has to be asked for again at the latest.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let drained = match self.state {
            State::Ended { drain_until, .. } => Some(drain_until),
            _ => None,
        };
        drained
            .into_iter()
            .chain(self.start_status.deadline())
            .min()
    }

    pub(super) fn signal(&self, signal: Signal, all: bool) -> Result<(), nix::errno::Errno> {
        if all && signal == Signal::SIGKILL {
            cgroup::kill_all(&self.cgroup);
        }
        match self.pid() {
            Some(pid) => kill(Pid::from_raw(pid), signal),
            None => Ok(()),
        }
    }

    /// Removes what the shim and the helper made for it: mounts, libcontainer's state, cgroup.
    pub(super) fn purge(&self, oci: &Path) {
        purge(&self.directory, &self.cgroup, &oci.join(&self.id));
    }
}

/// As [`Container::purge`]; also for a container that was never finished.
pub(super) fn purge(directory: &Path, cgroup_path: &str, state: &Path) {
    cgroup::kill_all(cgroup_path);
    let volumes = fs::read_dir(directory.join(layout::MOUNTS))
        .into_iter()
        .flatten()
        .flatten();
    for path in volumes
        .map(|entry| entry.path())
        .chain([directory.join(layout::ROOTFS)])
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
    let _ = fs::remove_dir_all(state);
    cgroup::remove(cgroup_path);
}

pub(super) fn exit_code(status: WaitStatus) -> (i32, Option<i32>) {
    match status {
        WaitStatus::Exited(_, code) => (code, None),
        WaitStatus::Signaled(_, signal, _) => (128 + signal as i32, Some(signal as i32)),
        _ => (255, None),
    }
}

fn write_exit(directory: &Path, exit: &Exit) -> io::Result<()> {
    let (target, temporary) = (directory.join(layout::EXIT), directory.join("exit.tmp"));
    let mut file = fs::File::create(&temporary)?;
    file.write_all(&serde_json::to_vec(exit)?)?;
    file.sync_all()?;
    fs::rename(&temporary, &target)?;
    fs::File::open(directory)?.sync_all()
}
