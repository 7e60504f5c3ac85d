//! Child processes of a test: their output goes to a file, they end with their owner.

use std::{
    fs::File,
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Output, Stdio},
    time::Duration,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::wait;

/// How long a process may take to end after SIGTERM.
const STOP_DEADLINE: Duration = Duration::from_secs(15);

/// A running child.
#[derive(Debug)]
pub struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts `command` with its output in `log`.
    pub fn start(mut command: Command, log: &Path) -> Self {
        let file = File::options()
            .create(true)
            .append(true)
            .open(log)
            .expect("open the log");
        command
            .stdin(Stdio::null())
            .stdout(file.try_clone().expect("clone"))
            .stderr(file);
        let child = command
            .spawn()
            .unwrap_or_else(|error| panic!("start {command:?}: {error}"));
        Self {
            child,
            log: log.to_owned(),
        }
    }

    /// Its PID.
    pub fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).expect("PIDs are positive"))
    }

    /// What it has written so far.
    pub fn output(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// Its status, if it has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("wait for the child")
    }

    /// SIGKILL; returns once it is gone.
    pub fn kill(&mut self) -> ExitStatus {
        let _gone_already = kill(self.pid(), Signal::SIGKILL);
        self.child.wait().expect("wait for the child")
    }

    /// SIGTERM, then SIGKILL after a while.
    pub fn stop(&mut self) -> ExitStatus {
        if let Some(status) = self.ended() {
            return status;
        }
        let _gone_already = kill(self.pid(), Signal::SIGTERM);
        match wait::quietly(STOP_DEADLINE, || self.ended()) {
            Some(status) => status,
            None => {
                eprintln!(
                    "PID {} did not stop on SIGTERM; its log:\n{}",
                    self.pid(),
                    tail(&self.output(), 40)
                );
                self.kill()
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.stop();
        if std::thread::panicking() {
            eprintln!(
                "--- {} ---\n{}",
                self.log.display(),
                tail(&self.output(), 60)
            );
        }
    }
}

/// Runs to the end; panics with everything it said unless it succeeds.
pub fn succeed(command: &mut Command) -> String {
    let output = run(command);
    assert!(
        output.status.success(),
        "{command:?} ended with {}\n{}{}",
        describe(output.status),
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Runs to the end.
pub fn run(command: &mut Command) -> Output {
    command
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|error| panic!("run {command:?}: {error}"))
}

fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("status {code}"),
        (None, signal) => format!("signal {signal:?}"),
    }
}

fn tail(text: &str, lines: usize) -> String {
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}
