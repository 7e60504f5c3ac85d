//! The only place that executes `iptables-restore` and `iptables-save`.
//!
//! Works with both variants of iptables (nft, legacy). Every call has a deadline and waits for the lock of others.
//! What to write is decided in [`plan`] (pure). Never flushes what is not Coracle's.

mod generation;
pub mod plan;

use std::{
    io::{self, Read, Write},
    os::fd::AsFd,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// Longer than any transaction measured (5,000 services at once: 5 s).
const DEADLINE: Duration = Duration::from_secs(30);
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
    /// It was killed after the deadline.
    #[error("{tool} took longer than {} s", DEADLINE.as_secs())]
    Timeout {
        /// Which.
        tool: &'static str,
    },
}

/// The installed tools.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Iptables {
    restore: PathBuf,
    save: PathBuf,
}

impl Iptables {
    /// Looks the tools up.
    ///
    /// # Errors
    /// [`IptablesError::NotFound`].
    pub fn find() -> Result<Self, IptablesError> {
        Ok(Self { restore: look_up("iptables-restore")?, save: look_up("iptables-save")? })
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
        Ok(Self { restore: look_up(restore)?, save: look_up(save)? })
    }

    /// Changes whenever somebody changes any rule; `None` where that is not counted (legacy).
    ///
    /// Read it before [`Self::save`]: if it is the same later, so are the rules.
    #[must_use]
    pub fn generation(&self) -> Option<u32> {
        // Every name of a variant is a link to one executable.
        let executable = std::fs::canonicalize(&self.save).ok()?;
        let nft = executable.file_name()?.to_str()?.contains("nft");
        if nft { generation::read().ok() } else { None }
    }

    /// Applies `text` with `--noflush`: every table in it changes completely or not at all.
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

    /// Makes `table` equal to `desired`; reads first and writes only differences. Returns whether it wrote.
    ///
    /// # Errors
    /// [`IptablesError`].
    pub fn ensure(&self, table: &str, desired: &plan::Desired) -> Result<bool, IptablesError> {
        let text = plan::transaction(table, &plan::reconcile(&plan::parse(&self.save(table)?), desired));
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
    let deadline = Instant::now() + DEADLINE;
    let (mut stdin, mut stderr) = (child.stdin.take(), child.stderr.take());
    let stdout = child.stdout.take();
    let (output, errors) = thread::scope(|scope| {
        // The pipes end when the child does, or when it is killed below: no thread outlives the deadline.
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
        None => Err(IptablesError::Timeout { tool }),
        Some(_) if !status.success() => {
            let message = String::from_utf8_lossy(&errors).trim().replace('\n', "; ");
            Err(IptablesError::Failed { tool, message: format!("{message} ({status})") })
        }
        Some(output) => Ok(output),
    }
}

/// Reads to the end; `None`, and the child killed, if the deadline passes first.
fn read_until(pipe: Option<impl Read + AsFd>, deadline: Instant, child: &mut Child) -> io::Result<Option<Vec<u8>>> {
    let Some(mut pipe) = pipe else { return Ok(Some(Vec::new())) };
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
