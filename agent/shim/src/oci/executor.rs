//! The last steps before a container's own program: confine the process, find the program, tie its
//! life to the shim's, exec it.
//!
//! Replaces libcontainer's default executor, which wants execute permission for others even when
//! the owner runs it.

use std::{
    convert::Infallible,
    ffi::{CString, OsStr},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use coracle_shim_protocol::START_ERROR_MAX_BYTES;
use libcontainer::workload::{Executor, ExecutorError, ExecutorValidationError};
use nix::{
    errno::Errno,
    sys::{prctl, signal::Signal},
    unistd::{AccessFlags, access, execve, write},
};
use oci_spec::runtime::Spec;

use super::{cgroup_mounts, confinement::Confinement};
use crate::sys;

/// Search path of a process that has none.
pub(super) const DEFAULT_PATH: &str =
    "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// See the module's description.
#[derive(Clone)]
pub(super) struct ShimExecutor {
    pub(super) confinement: Confinement,
    /// Descriptor to tell on why the program was not executed.
    pub(super) start_status: Option<i32>,
}

impl Executor for ShimExecutor {
    fn exec(&self, spec: &Spec) -> Result<(), ExecutorError> {
        let (args, env) = command(spec).ok_or(ExecutorError::InvalidArg)?;
        match replace_process(&args, &env) {
            Ok(never) => match never {},
            Err(error) => {
                self.tell(&error);
                Err(ExecutorError::Execution(error.into()))
            }
        }
    }

    /// Comes once, before the process waits for its start: what follows runs confined. The program
    /// is not looked for yet: that it cannot be executed is an end of the container, not of its
    /// making.
    fn validate(&self, spec: &Spec) -> Result<(), ExecutorValidationError> {
        let confined = cgroup_mounts::make_readonly(spec)
            .and_then(|()| self.confinement.drop_privileges())
            .and_then(|()| self.confinement.seal());
        confined
            .map_err(|error| ExecutorValidationError::ArgValidationError(format!("{error:#}")))?;
        command(spec).ok_or_else(|| {
            ExecutorValidationError::ArgValidationError("no command specified".to_owned())
        })?;
        // Who waits to be started goes with the shim as well: nobody else could start it.
        prctl::set_pdeathsig(Signal::SIGKILL).map_err(|errno| {
            ExecutorValidationError::ArgValidationError(format!("tie to the shim: {errno}"))
        })
    }
}

impl ShimExecutor {
    /// Best effort: without it the container's exit code is all there is.
    fn tell(&self, error: &ProgramError) {
        let Some(number) = self.start_status else {
            return;
        };
        let mut message = format!("unable to start container process: {error}");
        message.truncate(message.floor_char_boundary(START_ERROR_MAX_BYTES));
        let _ = write(sys::borrow(number), message.as_bytes());
    }
}

/// Why a program cannot run; worded as users of other runtimes know it.
#[derive(Debug, thiserror::Error)]
pub(super) enum ProgramError {
    /// Not in any directory of PATH.
    #[error("exec: {0:?}: executable file not found in $PATH")]
    NotInPath(String),
    /// There, but unusable.
    #[error("exec: {program:?}: {}", .errno.desc().to_lowercase())]
    Unusable {
        /// As written.
        program: String,
        /// What the kernel said.
        errno: Errno,
    },
}

fn command(spec: &Spec) -> Option<(Vec<String>, Vec<String>)> {
    let process = spec.process().as_ref()?;
    let args = process.args().clone().filter(|args| !args.is_empty())?;
    Some((args, process.env().clone().unwrap_or_default()))
}

/// Looks a program up as `execvp` would, in the file system and with the identity of this very
/// process.
pub(super) fn find_program(program: &str, env: &[String]) -> Result<PathBuf, ProgramError> {
    let unusable = |errno| ProgramError::Unusable {
        program: program.to_owned(),
        errno,
    };
    if program.is_empty() {
        return Err(unusable(Errno::ENOENT));
    }
    if program.contains('/') {
        return runnable(Path::new(program))
            .map(|()| program.into())
            .map_err(unusable);
    }
    let path = env
        .iter()
        .rev()
        .find_map(|entry| entry.strip_prefix("PATH="))
        .unwrap_or(DEFAULT_PATH);
    let mut refused = None;
    for directory in path.split(':') {
        let candidate = Path::new(if directory.is_empty() { "." } else { directory }).join(program);
        match runnable(&candidate) {
            Ok(()) => return Ok(candidate),
            Err(Errno::EACCES) => refused = Some(Errno::EACCES),
            Err(_) => {}
        }
    }
    Err(refused.map_or_else(|| ProgramError::NotInPath(program.to_owned()), unusable))
}

fn runnable(path: &Path) -> Result<(), Errno> {
    access(path, AccessFlags::X_OK)?;
    let is_file = std::fs::metadata(path).is_ok_and(|metadata| metadata.is_file());
    if is_file { Ok(()) } else { Err(Errno::EACCES) }
}

/// Executes the program with exactly this environment. Should the shim die, the kernel kills the
/// process.
pub(super) fn replace_process(args: &[String], env: &[String]) -> Result<Infallible, ProgramError> {
    let unusable = |errno| ProgramError::Unusable {
        program: args[0].clone(),
        errno,
    };
    let program = find_program(&args[0], env)?;
    // Set last: changing credentials clears it.
    prctl::set_pdeathsig(Signal::SIGKILL).map_err(unusable)?;
    let strings = |list: &[String]| {
        list.iter()
            .map(|item| c_string(item.as_ref()))
            .collect::<Result<Vec<_>, _>>()
    };
    let (argv, envp) = (
        strings(args).map_err(unusable)?,
        strings(env).map_err(unusable)?,
    );
    let path = c_string(program.as_os_str()).map_err(unusable)?;
    execve(&path, &argv, &envp).map_err(unusable)
}

fn c_string(text: &OsStr) -> Result<CString, Errno> {
    CString::new(text.as_bytes()).map_err(|_| Errno::EINVAL)
}
