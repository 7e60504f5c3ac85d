//! What comes of the helpers: a container or a command is there, or is not and nothing of it is
//! left.

use std::{io, os::fd::OwnedFd};

use coracle_shim_protocol::{Failure, FailureKind, HelperReply, Reply};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use super::{
    container::State,
    failure,
    helper::Purpose,
    server::{ExecProcess, Server},
    streams::{AfterInput, Streams},
};

impl Server {
    /// A helper has answered or ended.
    pub(super) fn helper_ready(&mut self, index: usize) {
        if matches!(self.helpers[index].purpose, Purpose::Done) {
            return;
        }
        let (reply, terminal) = match self.helpers[index].reply() {
            Ok(answer) => answer,
            Err(error)
                if error.kind() == io::ErrorKind::WouldBlock && !self.helpers[index].reaped =>
            {
                return;
            }
            Err(_) => {
                let ended = failure(
                    FailureKind::Oci,
                    "the helper ended without an answer (see the container's log)",
                );
                (HelperReply::Failed(ended), None)
            }
        };
        let outcome = match reply {
            HelperReply::Made { pid } => Ok((pid, terminal)),
            HelperReply::Failed(error) => Err(error),
        };
        self.helper_done(index, outcome);
    }

    /// A helper's time is up.
    pub(super) fn helper_late(&mut self, index: usize) {
        if matches!(self.helpers[index].purpose, Purpose::Done) {
            return;
        }
        self.helpers[index].kill();
        self.helper_done(
            index,
            Err(failure(FailureKind::Timeout, "the helper took too long")),
        );
    }

    fn helper_done(&mut self, index: usize, outcome: Result<(i32, Option<OwnedFd>), Failure>) {
        match std::mem::replace(&mut self.helpers[index].purpose, Purpose::Done) {
            Purpose::Create {
                connection,
                call,
                container,
                tty,
                stdin,
            } => {
                let outcome = outcome.and_then(|(pid, terminal)| {
                    self.created(container, pid, tty.then_some(terminal).flatten(), stdin)
                });
                if outcome.is_err()
                    && let Some(failed) = self.containers.remove(&container)
                {
                    failed.purge(&self.oci);
                }
                let pid = outcome.as_ref().ok().copied();
                self.reply(
                    connection,
                    call,
                    outcome.map(|pid| Reply::Created { pid }),
                    None,
                );
                // It may have ended by now: that is told after the reply that makes it known.
                pid.into_iter().for_each(|pid| self.claim_stray(pid));
            }
            Purpose::Exec {
                connection,
                call,
                container,
            } => match outcome {
                Ok((pid, terminal)) => {
                    let exec = self.number();
                    self.execs.insert(
                        exec,
                        ExecProcess {
                            pid,
                            container,
                            connection,
                        },
                    );
                    let wanted = self.connections.contains_key(&connection);
                    self.reply(
                        connection,
                        call,
                        Ok(Reply::Executing { exec, pid }),
                        terminal,
                    );
                    // Whoever asked has hung up: nobody else would end it.
                    if !wanted {
                        self.kill_exec(exec);
                    }
                    self.claim_stray(pid);
                }
                Err(error) => self.reply(connection, call, Err(error), None),
            },
            Purpose::Done => {}
        }
    }

    fn created(
        &mut self,
        number: u64,
        pid: i32,
        terminal: Option<OwnedFd>,
        stdin: Option<AfterInput>,
    ) -> Result<i32, Failure> {
        let Some(container) = self.containers.get_mut(&number) else {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
            return Err(failure(
                FailureKind::NotFound,
                "container was deleted while it was made",
            ));
        };
        // First: from here on it is killed if anything below fails.
        container.state = State::Created { pid };
        if let Some(master) = terminal {
            let feed = stdin.map(|_| master.try_clone()).transpose();
            container.streams = feed
                .and_then(|feed| {
                    Streams::new(feed, stdin.unwrap_or_default(), [Some(master), None])
                })
                .map_err(|error| {
                    failure(FailureKind::Oci, format!("take the terminal: {error}"))
                })?;
        }
        Ok(pid)
    }
}
