//! The helper: one request on an inherited socket, one answer, end.
//!
//! Runs as a child of the shim in the shim's network, IPC, UTS and mount namespaces. What it makes
//! (a container's first process, an exec'ed process) becomes a child of the shim, not its own. It
//! keeps nothing.

mod cgroup_mounts;
mod confinement;
mod create;
mod devices;
mod exec;
mod executor;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod paths;
mod reasons;
mod rootfs;
mod seccomp;
mod terminal;
mod user;
mod verify;

use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    process::ExitCode,
};

use coracle_shim_protocol::{Failure, FailureKind, HelperReply, HelperRequest, socket};
use nix::{
    fcntl::{FcntlArg, FdFlag, fcntl},
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::{prctl, signal::Signal},
};

use crate::sys;

/// What a request made.
struct Made {
    pid: i32,
    terminal: Option<OwnedFd>,
}

/// Marks an error as one that no retry cures.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Invalid(String);

/// Runs the helper. Its only argument is the number of the inherited socket.
#[must_use]
pub fn main() -> ExitCode {
    // Nobody would clean up after a helper that outlives its shim.
    let _ = prctl::set_pdeathsig(Signal::SIGKILL);
    // The container's program inherits what the shim and this program's runtime have set.
    if crate::sys::default_signals().is_err() {
        return ExitCode::FAILURE;
    }
    let Some(socket) = std::env::args()
        .nth(1)
        .and_then(|number| number.parse().ok())
        .and_then(inherited)
    else {
        return ExitCode::from(64);
    };
    let mut buffer = Vec::new();
    if abandoned(socket.as_fd()) {
        return ExitCode::FAILURE;
    }
    let outcome = match socket::receive::<HelperRequest>(socket.as_fd(), &mut buffer) {
        Ok(Some((request, _))) => handle(request),
        Ok(None) => return ExitCode::from(64),
        Err(error) => Err(error.into()),
    };
    let (reply, terminal) = match outcome {
        Ok(made) => (HelperReply::Made { pid: made.pid }, made.terminal),
        Err(error) => (HelperReply::Failed(failure(&error)), None),
    };
    let descriptors: Vec<_> = terminal.iter().map(AsFd::as_fd).collect();
    match socket::send(socket.as_fd(), &reply, &descriptors) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Whether the shim died before it could be this process's death, too: its request is readable all
/// the same.
fn abandoned(socket: BorrowedFd<'_>) -> bool {
    let mut polled = [PollFd::new(socket, PollFlags::empty())];
    let _ = poll(&mut polled, PollTimeout::ZERO);
    polled[0]
        .revents()
        .is_some_and(|events| events.contains(PollFlags::POLLHUP))
}

fn handle(request: HelperRequest) -> anyhow::Result<Made> {
    match request {
        HelperRequest::Create {
            sandbox_dir,
            container,
            tty,
            host_mount_namespace,
            pid_namespace,
            start_status,
        } => create::create(&create::Arguments {
            sandbox_dir: &sandbox_dir,
            container: &container,
            tty,
            host_mount_namespace,
            pid_namespace,
            start_status,
        }),
        HelperRequest::Exec {
            sandbox_dir,
            container,
            pid,
            args,
            tty,
        } => exec::exec(&sandbox_dir, &container, pid, args, tty),
    }
}

fn failure(error: &anyhow::Error) -> Failure {
    let kind = if error.chain().any(|cause| cause.is::<Invalid>()) {
        FailureKind::Invalid
    } else {
        FailureKind::Oci
    };
    let mut message = String::new();
    for cause in error.chain() {
        let text = cause.to_string();
        // libcontainer's errors repeat their source in their own text.
        if !message.contains(&text) {
            if !message.is_empty() {
                message.push_str(": ");
            }
            message.push_str(&text);
        }
    }
    Failure { kind, message }
}

/// The socket that the shim has left open, by number.
fn inherited(number: i32) -> Option<OwnedFd> {
    if number < 3 {
        return None;
    }
    let socket = sys::inherit(number);
    fcntl(&socket, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)).ok()?;
    Some(socket)
}
