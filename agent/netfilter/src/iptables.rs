//! The engine over iptables, and the only place that executes `iptables-restore` and
//! `iptables-save`.
//!
//! Works with both variants of iptables (nft, legacy). Every call has a deadline and waits for the
//! lock of others. Services become rules in [`rules`] (pure), what to write of them is decided in
//! [`plan`] (pure), and [`Writer`] keeps them. Never flushes what is not Coracle's.

pub mod envelopes;
pub mod host_ports;
pub mod masquerade;
mod node;
pub(crate) mod other;
pub mod plan;
mod removal;
pub mod rules;
pub mod untracked;
mod writer;

use std::{
    io::{self, Read, Write},
    os::fd::AsFd,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

pub use self::{
    node::{NodeRemoval, NodeRules},
    untracked::Untracked,
    writer::{Removal, Writer},
};

/// Longer than any small transaction takes on a busy machine.
const DEADLINE: Duration = Duration::from_secs(30);
/// One more second for each of these: what is written at once grows with the cluster (5,000
/// Services: 3 MB, 5 s).
const BYTES_A_SECOND: usize = 64 * 1024;
/// `-w`: seconds to wait for the lock of another writer.
const LOCK_WAIT_SECS: &str = "5";
/// Where the tools are when PATH does not say.
const SEARCH: [&str; 4] = ["/usr/sbin", "/sbin", "/usr/local/sbin", "/usr/bin"];

/// Why rules could not be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IptablesError {
    /// Not installed.
    #[error("{tool} not found in PATH or {}: install the package iptables", SEARCH.join(", "))]
    NotFound {
        /// Which.
        tool: &'static str,
    },
    /// Could not be run.
    #[error("run {tool}")]
    Exec {
        /// Which.
        tool: &'static str,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It ended with an error; nothing of the table was changed.
    #[error("{tool} failed: {message}")]
    Failed {
        /// Which.
        tool: &'static str,
        /// Its standard error.
        message: String,
    },
    /// What is removed comes back each time.
    #[error(
        "the rules in the table {table} are written again as soon as they are removed: end what writes them first"
    )]
    Rewritten {
        /// Such as nat or filter.
        table: String,
    },
    /// It was killed after the deadline.
    #[error("{tool} took longer than {} s", limit.as_secs())]
    Timeout {
        /// Which.
        tool: &'static str,
        /// How long.
        limit: Duration,
    },
}

impl IptablesError {
    /// Whether the rules themselves were not taken: the same text will fail again. Otherwise the
    /// tool could not do its work, and may later.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        // Both variants end with the same code for a rule that the kernel refuses and for a lock
        // that is not free.
        matches!(self, Self::Failed { message, .. } if !message.contains("xtables lock"))
    }
}

/// The installed tools.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Iptables {
    restore: PathBuf,
    save: PathBuf,
    /// The nft variant.
    nft: bool,
}

impl Iptables {
    /// Looks the tools up.
    ///
    /// # Errors
    /// [`IptablesError::NotFound`].
    pub fn find() -> Result<Self, IptablesError> {
        Self::from_names("iptables-restore", "iptables-save")
    }

    /// Uses one variant: `iptables-nft` or `iptables-legacy`.
    ///
    /// # Errors
    /// [`IptablesError::NotFound`].
    pub fn variant(nft: bool) -> Result<Self, IptablesError> {
        let (restore, save) = if nft {
            ("iptables-nft-restore", "iptables-nft-save")
        } else {
            ("iptables-legacy-restore", "iptables-legacy-save")
        };
        Self::from_names(restore, save)
    }

    fn from_names(restore: &'static str, save: &'static str) -> Result<Self, IptablesError> {
        let (restore, save) = (look_up(restore)?, look_up(save)?);
        // Every name of a variant is a link to one executable.
        let executable = std::fs::canonicalize(&save).unwrap_or_else(|_| save.clone());
        let nft = executable
            .file_name()
            .and_then(|name| name.to_str())
            .is_some_and(|name| name.contains("nft"));
        Ok(Self { restore, save, nft })
    }

    /// Whether it is the nft variant, whose tables are some of nftables.
    pub(crate) fn is_nft(&self) -> bool {
        self.nft
    }

    /// Changes whenever somebody changes any rule; `None` where that is not counted (legacy).
    ///
    /// Read it before [`Self::save`]: if it is the same later, so are the rules.
    #[must_use]
    pub fn generation(&self) -> Option<u32> {
        if self.nft {
            crate::generation::read().ok()
        } else {
            None
        }
    }

    /// Applies `text` with `--noflush`: every table in it changes completely or not at all, one
    /// after the other. The nft variant counts each as one change of [`Self::generation`].
    ///
    /// # Errors
    /// [`IptablesError`].
    pub fn restore(&self, text: &str) -> Result<(), IptablesError> {
        let mut command = Command::new(&self.restore);
        command.args(["--noflush", "-w", LOCK_WAIT_SECS]);
        run("iptables-restore", command, text.as_bytes()).map(drop)
    }

    /// The rules of one table as text.
    ///
    /// # Errors
    /// [`IptablesError`].
    pub fn save(&self, table: &str) -> Result<String, IptablesError> {
        let mut command = Command::new(&self.save);
        command.args(["-t", table]);
        run("iptables-save", command, b"").map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Makes `table` equal to `desired`; reads first and writes only differences. Returns whether
    /// it wrote.
    ///
    /// # Errors
    /// [`IptablesError`].
    pub fn ensure(&self, table: &str, desired: &plan::Desired) -> Result<bool, IptablesError> {
        let text = plan::transaction(
            table,
            &plan::reconcile(&plan::parse(&self.save(table)?), desired),
        );
        if text.is_empty() {
            return Ok(false);
        }
        self.restore(&text).map(|()| true)
    }
}

fn look_up(tool: &'static str) -> Result<PathBuf, IptablesError> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(SEARCH.iter().map(|dir| Path::new(dir).to_owned()))
        .map(|dir| dir.join(tool))
        .find(|candidate| candidate.is_file())
        .ok_or(IptablesError::NotFound { tool })
}

fn run(tool: &'static str, mut command: Command, input: &[u8]) -> Result<Vec<u8>, IptablesError> {
    let exec = |source| IptablesError::Exec { tool, source };
    let mut child = command
        .env("LC_ALL", "C")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(exec)?;
    let limit = DEADLINE + Duration::from_secs((input.len() / BYTES_A_SECOND) as u64);
    let deadline = Instant::now() + limit;
    let (mut stdin, mut stderr) = (child.stdin.take(), child.stderr.take());
    let stdout = child.stdout.take();
    let (output, errors) = thread::scope(|scope| {
        // The pipes end when the child does, or when it is killed below: no thread outlives the
        // deadline.
        scope.spawn(move || stdin.take().map(|mut pipe| pipe.write_all(input)));
        let errors = scope.spawn(move || {
            let mut bytes = Vec::new();
            if let Some(pipe) = &mut stderr {
                let _ = pipe.read_to_end(&mut bytes);
            }
            bytes
        });
        let output = read_until(stdout, deadline, &mut child);
        (output, errors.join().unwrap_or_default())
    });
    let output = output.map_err(exec)?;
    let status = child.wait().map_err(exec)?;
    match output {
        None => Err(IptablesError::Timeout { tool, limit }),
        Some(_) if !status.success() => {
            let message = String::from_utf8_lossy(&errors).trim().replace('\n', "; ");
            Err(IptablesError::Failed {
                tool,
                message: format!("{message} ({status})"),
            })
        }
        Some(output) => Ok(output),
    }
}

/// Reads to the end; `None`, and the child killed, if the deadline passes first.
fn read_until(
    pipe: Option<impl Read + AsFd>,
    deadline: Instant,
    child: &mut Child,
) -> io::Result<Option<Vec<u8>>> {
    let Some(mut pipe) = pipe else {
        return Ok(Some(Vec::new()));
    };
    let mut bytes = Vec::new();
    let mut chunk = [0; 16 * 1024];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        let ready = match poll(&mut [PollFd::new(pipe.as_fd(), PollFlags::POLLIN)], timeout) {
            Err(nix::errno::Errno::EINTR) => continue,
            other => other?,
        };
        if ready == 0 {
            child.kill()?;
            return Ok(None);
        }
        let read = pipe.read(&mut chunk)?;
        if read == 0 {
            return Ok(Some(bytes));
        }
        bytes.extend_from_slice(&chunk[..read]);
    }
}
