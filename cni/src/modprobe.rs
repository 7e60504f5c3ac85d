//! `modprobe`: loads a module of the kernel that nobody has loaded yet.

use std::{
    io::{self, Read as _},
    os::fd::AsFd as _,
    process::{Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
};

/// Reading a module and its dependencies from the disk takes milliseconds.
const LIMIT: Duration = Duration::from_secs(10);

/// Why a module is not loaded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ModprobeError {
    #[error("run modprobe {module}")]
    Run {
        module: String,
        #[source]
        source: io::Error,
    },
    #[error("modprobe {module} ended with {status}")]
    Failed { module: String, status: ExitStatus },
}

/// Loads `module` with what it needs. Succeeds if it is there. Blocks.
pub(crate) fn load(module: &str) -> Result<(), ModprobeError> {
    let mut modprobe = Command::new("modprobe");
    modprobe.arg(module).env("LC_ALL", "C");
    match run(&mut modprobe, LIMIT) {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(ModprobeError::Failed {
            module: module.to_owned(),
            status,
        }),
        Err(source) => Err(ModprobeError::Run {
            module: module.to_owned(),
            source,
        }),
    }
}

/// Its end is seen by that of its output: no thread and no signal is needed to wait for it.
fn run(command: &mut Command, limit: Duration) -> io::Result<ExitStatus> {
    let end = Instant::now() + limit;
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    if let Some(mut output) = child.stdout.take() {
        let mut said = [0; 1024];
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let left = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
            match poll(&mut [PollFd::new(output.as_fd(), PollFlags::POLLIN)], left) {
                Err(Errno::EINTR) => {}
                Ok(0) => {
                    child.kill()?;
                    // Not waited for: what hangs in the kernel does not end by being killed.
                    child.try_wait()?;
                    return Err(io::ErrorKind::TimedOut.into());
                }
                Ok(_) if output.read(&mut said)? == 0 => break,
                Ok(_) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    child.wait()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_hangs_is_ended() {
        let sh = |script: &str, limit| run(Command::new("sh").args(["-c", script]), limit);
        assert!(sh("echo loading", LIMIT).expect("run").success());
        assert_eq!(sh("exit 3", LIMIT).expect("run").code(), Some(3));
        let late = sh("echo loading; exec sleep 60", Duration::from_millis(50));
        assert_eq!(late.expect_err("too slow").kind(), io::ErrorKind::TimedOut);
    }
}
