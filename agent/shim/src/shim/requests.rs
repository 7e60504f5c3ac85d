//! What the agent may ask, one method a request. What needs a helper is answered in
//! [`super::outcomes`].

mod create;

use std::{
    fs, io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::FileTypeExt,
    },
    process::Stdio,
    time::{Duration, Instant},
};

use coracle_shim_protocol::{
    self as protocol, Call, Exec, Failure, FailureKind, HelperRequest, Message, Reply, Request,
    layout,
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use rustix::termios::{Winsize, tcsetwinsize};

use super::{
    cgroup,
    container::{self, Container, State},
    descendants, failure,
    helper::{Helper, Purpose},
    namespaces, now,
    server::{Server, Shutdown},
    streams::{Attached, Sink},
};

/// How long a shutdown waits for processes that were killed.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(10);

/// Longest helper deadline.
const MAX_HELPER_MS: u64 = 10 * 60 * 1000;

type Outcome = Result<Reply, Failure>;

impl Server {
    pub(super) fn call(&mut self, connection: u64, call: Call, descriptors: Vec<OwnedFd>) {
        let id = call.id;
        let outcome = match call.request {
            Request::Init(_) => Err(failure(FailureKind::State, "already initialized")),
            Request::State => Ok(Reply::State(self.state())),
            // This one and exec are answered when their helper is done.
            Request::Create(create) => match self.create(connection, id, create) {
                Ok(()) => return,
                Err(error) => Err(error),
            },
            // Answered when its program is executed.
            Request::Start { container } => {
                match self.start_container(connection, id, &container) {
                    Ok(()) => return,
                    Err(error) => Err(error),
                }
            }
            Request::Signal {
                container,
                signal,
                all,
            } => self.signal(&container, signal, all),
            Request::Delete { container } => self.delete(&container),
            Request::Exec(exec) => match self.exec(connection, id, exec, descriptors) {
                Ok(()) => return,
                Err(error) => Err(error),
            },
            Request::KillExec { exec } => {
                self.kill_exec(exec);
                Ok(Reply::Done)
            }
            Request::Attach {
                container,
                stdin,
                stdout,
                stderr,
            } => self.attach(&container, [stdin, stdout, stderr], descriptors),
            Request::Resize {
                container,
                columns,
                rows,
            } => self.resize(&container, columns, rows),
            Request::ReopenLog { container } => self.reopen_log(&container),
            Request::Shutdown => {
                self.begin_shutdown(Some((connection, id)));
                return;
            }
        };
        self.reply(connection, id, outcome, None);
    }

    pub(super) fn reply(
        &mut self,
        connection: u64,
        id: u64,
        result: Outcome,
        descriptor: Option<OwnedFd>,
    ) {
        self.send(connection, &Message::Reply { id, result }, descriptor);
    }

    fn state(&self) -> protocol::State {
        protocol::State {
            pid: super::pid(),
            containers: self.containers.values().map(Container::record).collect(),
        }
    }

    fn find(&self, id: &str) -> Result<u64, Failure> {
        let found = self
            .containers
            .iter()
            .find(|(_, container)| container.id == id);
        found.map(|(number, _)| *number).ok_or_else(|| {
            failure(
                FailureKind::NotFound,
                format!("container {id} does not exist"),
            )
        })
    }

    fn get(&mut self, id: &str) -> Result<&mut Container, Failure> {
        let number = self.find(id)?;
        Ok(self.containers.get_mut(&number).expect("just found"))
    }

    fn start_container(&mut self, connection: u64, call: u64, id: &str) -> Result<(), Failure> {
        let oci = self.oci.clone();
        let now = now();
        let container = self.get(id)?;
        match container.start(&oci, now) {
            Ok(pid) => {
                container.start_status.ask(connection, call, pid, now);
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                Err(failure(FailureKind::State, error.to_string()))
            }
            Err(error) => Err(failure(
                FailureKind::Oci,
                format!("start container: {error}"),
            )),
        }
    }

    fn signal(&mut self, id: &str, signal: i32, all: bool) -> Outcome {
        let signal = Signal::try_from(signal)
            .map_err(|_| failure(FailureKind::Invalid, format!("{signal} is not a signal")))?;
        self.get(id)?
            .signal(signal, all)
            .map_err(|error| failure(FailureKind::Oci, format!("signal: {error}")))?;
        Ok(Reply::Done)
    }

    fn delete(&mut self, id: &str) -> Outcome {
        let number = match self.find(id) {
            Ok(number) => number,
            Err(_) => return Ok(Reply::Done),
        };
        if !matches!(self.containers[&number].state, State::Exited(_)) {
            return Err(failure(
                FailureKind::State,
                format!("container {id} has not exited"),
            ));
        }
        if let Some(container) = self.containers.remove(&number) {
            container.purge(&self.oci);
        }
        Ok(Reply::Done)
    }

    fn exec(
        &mut self,
        connection: u64,
        call: u64,
        exec: Exec,
        mut descriptors: Vec<OwnedFd>,
    ) -> Result<(), Failure> {
        let number = self.find(&exec.container)?;
        let State::Running { pid, .. } = self.containers[&number].state else {
            return Err(failure(
                FailureKind::State,
                format!("container {} is not running", exec.container),
            ));
        };
        if exec.args.is_empty() {
            return Err(failure(FailureKind::Invalid, "no command specified"));
        }
        // The terminal's master comes with the helper's reply.
        let stdio = if exec.tty {
            [Stdio::null(), Stdio::null(), Stdio::null()]
        } else {
            let (Some(stderr), Some(stdout), Some(stdin)) =
                (descriptors.pop(), descriptors.pop(), descriptors.pop())
            else {
                return Err(failure(FailureKind::Invalid, "exec without streams"));
            };
            [Stdio::from(stdin), Stdio::from(stdout), Stdio::from(stderr)]
        };
        let request = HelperRequest::Exec {
            sandbox_dir: self.directory.clone(),
            container: exec.container,
            pid,
            args: exec.args,
            tty: exec.tty,
        };
        let limit = Duration::from_millis(exec.timeout_ms.min(MAX_HELPER_MS));
        let purpose = Purpose::Exec {
            connection,
            call,
            container: number,
        };
        let helper = Helper::spawn(self.helper.as_fd(), &request, stdio, limit, purpose)
            .map_err(|error| failure(FailureKind::Oci, format!("run the helper: {error}")))?;
        self.helpers.push(helper);
        Ok(())
    }

    /// Kills an exec'ed process with all descendants and everything in its session, even if it has
    /// ended itself.
    pub(super) fn kill_exec(&mut self, exec: u64) {
        let (pid, container, ended) = match self.execs.get(&exec) {
            Some(process) => (process.pid, process.container, false),
            None => match self.ended_execs.iter().find(|(id, ..)| *id == exec) {
                Some((_, pid, container)) => (*pid, *container, true),
                None => return,
            },
        };
        // Only the container's own processes: the PID of an ended command may be somebody else's by
        // now.
        let Some(container) = self.containers.get(&container) else {
            return;
        };
        descendants::kill(pid, ended, &cgroup::processes_of(&container.cgroup));
    }

    fn attach(&mut self, id: &str, wanted: [bool; 3], descriptors: Vec<OwnedFd>) -> Outcome {
        let container = self.get(id)?;
        if container.pid().is_none() {
            return Err(failure(
                FailureKind::State,
                format!("container {id} is not running"),
            ));
        }
        let mut descriptors = descriptors.into_iter();
        let mut next = |wanted: bool| if wanted { descriptors.next() } else { None };
        let [stdin, stdout, stderr] = wanted;
        let input = next(stdin);
        let outputs = [next(stdout).map(Sink::new), next(stderr).map(Sink::new)];
        container
            .streams
            .attach(Attached { input, outputs })
            .map_err(|error| failure(FailureKind::Oci, format!("attach: {error}")))?;
        Ok(Reply::Done)
    }

    fn resize(&mut self, id: &str, columns: u16, rows: u16) -> Outcome {
        let container = self.get(id)?;
        if let Some(terminal) = container.streams.terminal() {
            let size = Winsize {
                ws_row: rows,
                ws_col: columns,
                ws_xpixel: 0,
                ws_ypixel: 0,
            };
            let _ = tcsetwinsize(terminal, size);
        }
        Ok(Reply::Done)
    }

    fn reopen_log(&mut self, id: &str) -> Outcome {
        let container = self.get(id)?;
        if container.pid().is_some() {
            container
                .log
                .reopen()
                .map_err(|error| failure(FailureKind::Oci, format!("reopen log: {error}")))?;
        }
        Ok(Reply::Done)
    }

    /// Kills everything; `asked` by a connection's call.
    pub(super) fn begin_shutdown(&mut self, asked: Option<(u64, u64)>) {
        self.shutdown = Some(Shutdown {
            asked,
            deadline: Instant::now() + SHUTDOWN_LIMIT,
        });
        for index in 0..self.helpers.len() {
            self.helper_late(index);
        }
        for container in self.containers.values() {
            let _ = container.signal(Signal::SIGKILL, true);
        }
        if let Some(pid) = self.pid1 {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }

    /// True when everything is down and the shim may end.
    pub(super) fn finish_shutdown(&mut self) -> bool {
        let Some(shutdown) = &self.shutdown else {
            return false;
        };
        let (asked, deadline) = (shutdown.asked, shutdown.deadline);
        let down = self
            .containers
            .values()
            .all(|container| matches!(container.state, State::Exited(_)));
        if !down && Instant::now() < deadline {
            return false;
        }
        for container in self.containers.values() {
            container::purge(
                &container.directory,
                &container.cgroup,
                &self.oci.join(&container.id),
            );
        }
        let Some((connection, call)) = asked else {
            // No agent knows of them. What else has the directory's name is not this shim's.
            namespaces::unpin(&self.directory, self.host_mounts.as_fd());
            return true;
        };
        let socket = self.directory.join(layout::SOCKET);
        if fs::symlink_metadata(&socket).is_ok_and(|metadata| metadata.file_type().is_socket()) {
            let _ = fs::remove_file(&socket);
        }
        self.reply(connection, call, Ok(Reply::Done), None);
        true
    }
}
