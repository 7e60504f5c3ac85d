//! The poll loop: waits for everything at once and hands each event to its owner.
//!
//! Owns all state of the shim. Nothing in here blocks but file-system calls; every wait has a
//! deadline or an end.

mod connections;

use std::{
    collections::{BTreeMap, VecDeque},
    fs, io,
    os::fd::{AsFd, OwnedFd},
    path::PathBuf,
    process::ExitCode,
    time::{Duration, Instant},
};

use coracle_shim_protocol::{Event, Exit, Failure, FailureKind, Init, layout};
use nix::{
    errno::Errno,
    fcntl::{FcntlArg, FdFlag, fcntl},
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::{
        signal::{SigSet, Signal},
        signalfd::{SfdFlags, SignalFd},
        wait::{WaitPidFlag, WaitStatus, waitpid},
    },
    unistd::Pid,
};

use super::{
    connection::Connection,
    container::Container,
    failure,
    helper::{Helper, Purpose},
    home::{Home, NodeRoot},
    namespaces, now, reaper, streams,
};

/// After a poll that failed: the kernel is short of memory, or there are more descriptors than this
/// process may have.
const POLL_PAUSE: Duration = Duration::from_secs(1);
/// Leftovers are asked for within a command's timeout after its end.
const MAX_ENDED_EXECS: usize = 64;

/// All state of the shim.
pub(super) struct Server {
    pub(super) directory: PathBuf,
    pub(super) oci: PathBuf,
    pub(super) helper: OwnedFd,
    pub(super) host_mounts: OwnedFd,
    pub(super) pid1: Option<i32>,
    pub(super) connections: BTreeMap<u64, Connection>,
    pub(super) containers: BTreeMap<u64, Container>,
    pub(super) execs: BTreeMap<u64, ExecProcess>,
    pub(super) helpers: Vec<Helper<Purpose>>,
    pub(super) shutdown: Option<Shutdown>,
    /// Ended commands whose descendants may live on: `(exec, PID, container)`, latest last.
    pub(super) ended_execs: VecDeque<(u64, i32, u64)>,
    /// Children that ended before the helper that made them has said what they are.
    strays: Vec<(i32, WaitStatus)>,
    signals: SignalFd,
    listener: OwnedFd,
    home: Home,
    scratch: Vec<u8>,
    last_number: u64,
}

/// An exec'ed process that has not been reaped.
pub(super) struct ExecProcess {
    pub(super) pid: i32,
    pub(super) container: u64,
    /// It ends with the connection that asked for it.
    pub(super) connection: u64,
}

/// A shutdown in progress.
pub(super) struct Shutdown {
    /// By a connection's call; else the sandbox's directory is lost.
    pub(super) asked: Option<(u64, u64)>,
    pub(super) deadline: Instant,
}

/// What a descriptor in the poll set is.
#[derive(Clone, Copy)]
enum Token {
    Signals,
    Listener,
    Connection(u64),
    Helper(usize),
    Container(u64, streams::Port),
    Start(u64),
}

impl Server {
    /// Makes the sandbox and listens.
    pub(super) fn start(init: Init, helper: OwnedFd) -> Result<Self, Failure> {
        let broken =
            |what: &str, error: io::Error| failure(FailureKind::Oci, format!("{what}: {error}"));
        let mut mask = SigSet::empty();
        mask.add(Signal::SIGCHLD);
        mask.thread_block()
            .map_err(|error| broken("block SIGCHLD", error.into()))?;
        let signals = SignalFd::with_flags(&mask, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)
            .map_err(|error| broken("watch children", error.into()))?;
        let root = NodeRoot::open().map_err(|error| broken("open the node's root", error))?;
        let host_mounts = namespaces::set_up(&init)?;
        // The helper inherits it.
        fcntl(&host_mounts, FcntlArg::F_SETFD(FdFlag::empty()))
            .map_err(|error| broken("keep a descriptor", error.into()))?;
        let directory = init.sandbox_dir;
        let oci = directory.join(layout::OCI);
        fs::create_dir_all(&oci).map_err(|error| broken("make the state directory", error))?;
        let pid1 = match init.share_process_namespace {
            true => Some(
                reaper::spawn(&oci)
                    .map_err(|error| broken("make the shared PID namespace", error.into()))?,
            ),
            false => None,
        };
        let listener =
            connections::listen_in(&directory).map_err(|error| broken("listen", error))?;
        let home = Home::new(root, &directory).map_err(|error| broken("find the socket", error))?;
        Ok(Self {
            directory,
            oci,
            helper,
            host_mounts,
            pid1,
            connections: BTreeMap::new(),
            containers: BTreeMap::new(),
            execs: BTreeMap::new(),
            helpers: Vec::new(),
            shutdown: None,
            ended_execs: VecDeque::new(),
            strays: Vec::new(),
            signals,
            listener,
            home,
            scratch: vec![0; streams::READ_BYTES],
            last_number: 0,
        })
    }

    /// Takes back what is visible outside; the rest goes with the process.
    pub(super) fn abandon(&self) {
        let _ = fs::remove_file(self.directory.join(layout::SOCKET));
        namespaces::unpin(&self.directory, self.host_mounts.as_fd());
    }

    /// Until a shutdown is done.
    pub(super) fn run(mut self) -> ExitCode {
        let mut failing = None;
        loop {
            let failed = self.turn().err();
            if let Some(error) = failed {
                // The log is on the node's disk, and what fails for good fails at every turn.
                if failing != failed {
                    super::complain(format_args!("poll: {error}"));
                }
                std::thread::sleep(POLL_PAUSE);
            }
            failing = failed;
            if self.finish_shutdown() {
                return ExitCode::SUCCESS;
            }
        }
    }

    pub(super) fn number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    fn turn(&mut self) -> Result<(), Errno> {
        let timeout = self.timeout();
        let ready = self.wait(timeout)?;
        let now = now();
        // Replies of helpers come before the deaths of what they made wherever both are there.
        for (token, events) in &ready {
            if let Token::Helper(index) = *token
                && !events.is_empty()
            {
                self.helper_ready(index);
            }
        }
        for (token, events) in ready {
            match token {
                Token::Signals => self.reap(),
                Token::Listener => self.accept(),
                Token::Connection(number) => self.connection_ready(number, events),
                Token::Container(number, port) => {
                    if let Some(container) = self.containers.get_mut(&number) {
                        container
                            .streams
                            .ready(port, &mut container.log, &mut self.scratch, now);
                    }
                }
                Token::Start(number) => self.answer_start(number),
                Token::Helper(_) => {}
            }
        }
        self.helpers
            .retain(|helper| !matches!(helper.purpose, Purpose::Done));
        if self.helpers.is_empty() {
            self.strays.clear();
        }
        self.check_deadlines();
        self.settle();
        self.end_without_home();
        Ok(())
    }

    fn wait(&self, timeout: PollTimeout) -> Result<Vec<(Token, PollFlags)>, Errno> {
        let mut tokens = vec![Token::Signals, Token::Listener];
        let mut set = vec![
            PollFd::new(self.signals.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.listener.as_fd(), PollFlags::POLLIN),
        ];
        for (number, connection) in &self.connections {
            let out = if connection.behind() {
                PollFlags::POLLOUT
            } else {
                PollFlags::empty()
            };
            tokens.push(Token::Connection(*number));
            set.push(PollFd::new(connection.fd(), PollFlags::POLLIN | out));
        }
        for (index, helper) in self.helpers.iter().enumerate() {
            tokens.push(Token::Helper(index));
            set.push(PollFd::new(helper.fd(), PollFlags::POLLIN));
        }
        for (number, container) in &self.containers {
            if let Some(fd) = container.start_status.fd() {
                tokens.push(Token::Start(*number));
                set.push(PollFd::new(fd, PollFlags::POLLIN));
            }
            for (fd, writing, port) in container.streams.ports() {
                tokens.push(Token::Container(*number, port));
                set.push(PollFd::new(
                    fd,
                    if writing {
                        PollFlags::POLLOUT
                    } else {
                        PollFlags::POLLIN
                    },
                ));
            }
        }
        match poll(&mut set, timeout) {
            Ok(_) => {}
            Err(Errno::EINTR) => return Ok(Vec::new()),
            Err(error) => return Err(error),
        }
        let fired = set
            .iter()
            .map(|polled| polled.revents().unwrap_or(PollFlags::POLLIN));
        Ok(tokens
            .into_iter()
            .zip(fired)
            .filter(|(_, events)| !events.is_empty())
            .collect())
    }

    fn timeout(&self) -> PollTimeout {
        let deadlines = self
            .containers
            .values()
            .filter_map(Container::deadline)
            .chain(self.helpers.iter().map(|helper| helper.deadline))
            .chain(self.home.due())
            .chain(self.shutdown.iter().map(|shutdown| shutdown.deadline));
        match deadlines.min() {
            None => PollTimeout::NONE,
            Some(deadline) => {
                let left =
                    deadline.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
                PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
            }
        }
    }

    fn reap(&mut self) {
        while let Ok(Some(_)) = self.signals.read_signal() {}
        while let Ok(status) = waitpid(None::<Pid>, Some(WaitPidFlag::WNOHANG)) {
            let Some(pid) = status.pid() else { break };
            if matches!(status, WaitStatus::Exited(..) | WaitStatus::Signaled(..)) {
                self.reaped(pid.as_raw(), status);
            }
        }
    }

    /// A child has ended: a container's first process, an exec'ed one, a helper, or somebody's
    /// orphan.
    pub(super) fn reaped(&mut self, pid: i32, status: WaitStatus) {
        if let Some(index) = self
            .helpers
            .iter()
            .position(|helper| helper.pid == pid && !helper.reaped)
        {
            self.helpers[index].reaped = true;
            return self.helper_ready(index);
        }
        if let Some(container) = self
            .containers
            .values_mut()
            .find(|container| container.pid() == Some(pid))
        {
            return container.ended(status, now());
        }
        if let Some(exec) = self
            .execs
            .iter()
            .find(|(_, exec)| exec.pid == pid)
            .map(|(id, _)| *id)
        {
            if let Some(process) = self.execs.remove(&exec) {
                self.ended_execs.push_back((exec, pid, process.container));
                if self.ended_execs.len() > MAX_ENDED_EXECS {
                    self.ended_execs.pop_front();
                }
            }
            let (exit_code, _) = super::container::exit_code(status);
            return self.tell(Event::ExecExited { exec, exit_code });
        }
        if self.pid1 == Some(pid) {
            super::complain(format_args!("the shared PID namespace is gone"));
            self.pid1 = None;
            return;
        }
        if !self.helpers.is_empty() {
            self.strays.push((pid, status));
        }
    }

    /// The end of a process that was made known only now.
    pub(super) fn claim_stray(&mut self, pid: i32) {
        if let Some(index) = self.strays.iter().position(|(stray, _)| *stray == pid) {
            let (_, status) = self.strays.swap_remove(index);
            self.reaped(pid, status);
        }
    }

    fn check_deadlines(&mut self) {
        let now = Instant::now();
        for index in 0..self.helpers.len() {
            if self.helpers[index].deadline <= now {
                self.helper_late(index);
            }
        }
        self.helpers
            .retain(|helper| !matches!(helper.purpose, Purpose::Done));
        for number in self.containers.keys().copied().collect::<Vec<_>>() {
            self.answer_start(number);
        }
    }

    /// Tells who asked for the start of a container what has come of it, once that is known.
    fn answer_start(&mut self, number: u64) {
        let known = self
            .containers
            .get_mut(&number)
            .and_then(|container| container.start_status.answer());
        if let Some(answer) = known {
            self.reply(answer.connection, answer.call, answer.outcome, None);
        }
    }

    fn settle(&mut self) {
        let now = now();
        let mut exited: Vec<(String, Exit)> = Vec::new();
        for container in self.containers.values_mut() {
            container.streams.sweep();
            if let Some(exit) = container.settle(now) {
                exited.push((container.id.clone(), exit));
            }
        }
        for (container, exit) in exited {
            self.tell(Event::ContainerExited { container, exit });
        }
    }
}
