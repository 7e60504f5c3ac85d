//! The shim: one thread, one poll loop, one pod.
//!
//! ```text
//! agent --exec, socketpair on fd 0--> coracle-shim --fork--> (first process ends, the agent reaps it)
//!                                         | setsid, subreaper
//!                                         | Init: namespaces, pins, own mount namespace, listening socket
//!                                         v
//!                             poll: signals, connections, helpers, containers' streams
//! ```
//!
//! It survives the agent: its truth is the kernel's (its children) and what it wrote below the
//! sandbox directory, without which it ends (`home`). It never links libcontainer, never runs a
//! second thread and never blocks on anybody but the file system.

pub(crate) mod cgroup;
mod connection;
mod container;
mod descendants;
mod helper;
mod home;
mod log;
mod namespaces;
mod outcomes;
mod reaper;
mod requests;
mod server;
mod start_status;
mod streams;

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    process::ExitCode,
    time::{SystemTime, UNIX_EPOCH},
};

use coracle_shim_protocol::{Call, Failure, FailureKind, Message, Reply, Request, socket};
use nix::{
    sys::prctl,
    unistd::{ForkResult, dup2_stdin, dup2_stdout, setsid},
};

use crate::sys;

/// Runs the shim. Its bootstrap socket is descriptor 0, its log descriptor 2.
#[must_use]
pub fn main() -> ExitCode {
    // Independent of the agent before it does anything.
    match sys::fork() {
        Ok(ForkResult::Parent { .. }) => ExitCode::SUCCESS,
        Ok(ForkResult::Child) => run(),
        Err(_) => ExitCode::FAILURE,
    }
}

fn run() -> ExitCode {
    let Ok(bootstrap) = become_daemon() else {
        return ExitCode::FAILURE;
    };
    let mut buffer = Vec::new();
    let (call, mut descriptors) = match socket::receive::<Call>(bootstrap.as_fd(), &mut buffer) {
        Ok(Some(received)) => received,
        // The agent has gone before it said what it wants: nothing is made yet.
        _ => return ExitCode::FAILURE,
    };
    drop(buffer);
    let outcome = match (call.request, descriptors.pop()) {
        (Request::Init(init), Some(helper)) => server::Server::start(init, helper),
        _ => Err(failure(
            FailureKind::State,
            "the first request must be init with the helper's descriptor",
        )),
    };
    match outcome {
        Ok(mut server) => {
            let reply = Reply::Ready { pid: pid() };
            if server
                .adopt(
                    bootstrap,
                    &Message::Reply {
                        id: call.id,
                        result: Ok(reply),
                    },
                )
                .is_err()
            {
                // The agent died meanwhile, and the next one may have looked before there was
                // anything to find.
                server.abandon();
                return ExitCode::FAILURE;
            }
            server.run()
        }
        Err(error) => {
            let _ = socket::send(
                bootstrap.as_fd(),
                &Message::Reply {
                    id: call.id,
                    result: Err(error),
                },
                &[],
            );
            ExitCode::FAILURE
        }
    }
}

/// Own session, orphans come here, the bootstrap socket off descriptor 0, no other descriptors.
fn become_daemon() -> io::Result<OwnedFd> {
    setsid()?;
    prctl::set_child_subreaper(true)?;
    let _ = prctl::set_name(c"coracle-shim");
    // Its own memory holds nothing secret, but its descriptors lead to the node.
    let _ = prctl::set_dumpable(false);
    // What the agent may have left open is nobody's here.
    sys::close_from(3);
    let bootstrap = rustix::io::fcntl_dupfd_cloexec(sys::borrow(0), 3)?;
    let null = std::fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/null")?;
    dup2_stdin(&null)?;
    dup2_stdout(&null)?;
    let _ = nix::unistd::chdir("/");
    nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o022));
    // Better the containers than what supervises them. Not every node may.
    let _ = std::fs::write("/proc/self/oom_score_adj", "-998");
    Ok(bootstrap)
}

fn pid() -> i32 {
    nix::unistd::getpid().as_raw()
}

/// Nanoseconds since the epoch.
fn now() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

fn failure(kind: FailureKind, message: impl Into<String>) -> Failure {
    Failure {
        kind,
        message: message.into(),
    }
}

/// For the shim's own log, which only people read.
fn complain(text: std::fmt::Arguments<'_>) {
    use std::io::Write;
    let mut line = Vec::with_capacity(128);
    log::write_timestamp(&mut line, now());
    let _ = writeln!(line, " {text}");
    let _ = std::io::stderr().write_all(&line);
}
