//! One more process in a running container.
//!
//! Not through libcontainer's tenant builder: that drops the container's seccomp filter and
//! resolves users and paths again. Order as in runc's `setns_init_linux.go`: everything of the node
//! is opened first, then the container's namespaces are entered by pidfd, then the process is
//! cloned as the shim's child.

use std::{
    convert::Infallible,
    fs,
    io::{Read, Write},
    os::fd::{AsFd, OwnedFd},
    path::Path,
};

use anyhow::{Context, bail};
use coracle_shim_protocol::layout;
use libcontainer::{apparmor, capabilities, syscall::syscall::create_syscall};
use nix::{
    fcntl::OFlag,
    sched::{CloneFlags, setns},
    sys::prctl,
    unistd::{Gid, chdir, dup2_stderr, dup2_stdin, dup2_stdout, getcwd, pipe2, setgroups, setsid},
};
use oci_spec::runtime::{Process, Spec};
use rustix::{
    process::{PidfdFlags, ioctl_tiocsctty, pidfd_open},
    thread::{set_thread_res_gid, set_thread_res_uid},
};

use super::{Made, confinement::Confinement, executor, paths, terminal};
use crate::sys;

/// Everything that the new process needs, opened before it is cloned.
struct Plan {
    spec: Spec,
    confinement: Confinement,
    args: Vec<String>,
    env: Vec<String>,
    cgroups: Vec<fs::File>,
    terminal: Option<terminal::Terminal>,
}

pub(super) fn exec(
    sandbox_dir: &Path,
    container: &str,
    pid: i32,
    args: Vec<String>,
    tty: bool,
) -> anyhow::Result<Made> {
    let directory = sandbox_dir.join(layout::CONTAINERS).join(container);
    let config = fs::read(directory.join("config.json")).context("read config.json")?;
    let spec: Spec = serde_json::from_slice(&config)?;
    let process = spec.process().as_ref().context("spec without process")?;
    let confinement = Confinement::read(&directory, process)?;
    let env = process.env().clone().unwrap_or_default();
    paths::inspect_working_dir(&process.cwd().to_string_lossy())?;
    let cgroups = cgroups_of(pid)?;
    if let Ok(score) = fs::read(format!("/proc/{pid}/oom_score_adj")) {
        let _ = fs::write("/proc/self/oom_score_adj", score);
    }
    let uid = process.user().uid();
    enter(pid)?;
    let terminal = tty.then(terminal::open_inside).transpose()?;
    match &terminal {
        Some(terminal) => terminal::give_slave(&terminal.slave, uid)?,
        None => super::create::give_streams(uid),
    }
    let mut plan = Plan {
        spec,
        confinement,
        args,
        env,
        cgroups,
        terminal,
    };
    let pid = spawn(&mut plan)?;
    Ok(Made {
        pid,
        terminal: plan.terminal.map(|terminal| terminal.master),
    })
}

/// Opens `cgroup.procs` of every hierarchy the process is in.
fn cgroups_of(pid: i32) -> anyhow::Result<Vec<fs::File>> {
    let own =
        fs::read_to_string(format!("/proc/{pid}/cgroup")).context("container is not running")?;
    let mut files = Vec::new();
    for (mount, path) in
        crate::shim::cgroup::locate(&own, &fs::read_to_string("/proc/self/mountinfo")?)
    {
        let procs = mount
            .join(path.trim_start_matches('/'))
            .join("cgroup.procs");
        files.push(
            fs::OpenOptions::new()
                .write(true)
                .open(&procs)
                .with_context(|| format!("open {}", procs.display()))?,
        );
    }
    Ok(files)
}

/// Enters all namespaces of the container's first process, which the shim has not reaped: the PID
/// is its own.
fn enter(pid: i32) -> anyhow::Result<()> {
    // Before anything of the container can look at this process.
    prctl::set_dumpable(false)?;
    let pid = rustix::process::Pid::from_raw(pid).context("container is not running")?;
    let pidfd = pidfd_open(pid, PidfdFlags::empty()).context("container is not running")?;
    let flags = CloneFlags::CLONE_NEWPID
        | CloneFlags::CLONE_NEWNET
        | CloneFlags::CLONE_NEWIPC
        | CloneFlags::CLONE_NEWUTS
        | CloneFlags::CLONE_NEWCGROUP
        | CloneFlags::CLONE_NEWNS;
    setns(pidfd.as_fd(), flags).context("enter the container's namespaces")
}

/// Clones the process as a sibling (the shim's child) and waits until it has executed its program.
fn spawn(plan: &mut Plan) -> anyhow::Result<i32> {
    let (mut failures, report) = pipe2(OFlag::O_CLOEXEC)
        .map(|(read, write)| (fs::File::from(read), fs::File::from(write)))?;
    let pid = sys::clone(CloneFlags::CLONE_PARENT).context("clone the process")?;
    if pid == 0 {
        drop(failures);
        let mut report = report;
        let Err(error) = become_process(plan);
        let _ = report.write_all(super::failure(&error).message.as_bytes());
        // No destructors in the clone.
        sys::exit(127);
    }
    drop(report);
    let mut message = String::new();
    failures.read_to_string(&mut message)?;
    if message.is_empty() {
        Ok(pid)
    } else {
        bail!(message)
    }
}

fn become_process(plan: &mut Plan) -> anyhow::Result<Infallible> {
    setsid()?;
    if let Some(terminal) = &plan.terminal {
        take_terminal(&terminal.slave)?;
    }
    for file in &mut plan.cgroups {
        file.write_all(b"0")
            .context("join the container's cgroup")?;
    }
    let process = plan
        .spec
        .process()
        .as_ref()
        .context("spec without process")?;
    if plan.confinement.no_new_privileges {
        prctl::set_no_new_privs()?;
    }
    // Written through a procfs handle of its own, never by a path that the container has a say in.
    if let Some(profile) = process.apparmor_profile() {
        apparmor::apply_profile(profile).context("apply the AppArmor profile")?;
    }
    if let Some(umask) = process.user().umask() {
        nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(umask));
    }
    // As root first, for directories that only root may enter; as the user below where root may not
    // (NFS).
    let entered = chdir(process.cwd());
    set_identity(process)?;
    // Only 0 to 2 outlive the exec.
    sys::close_on_exec_from(3).context("close descriptors")?;
    plan.confinement.drop_privileges()?;
    if entered.is_err() {
        chdir(process.cwd()).context("enter the working directory")?;
    }
    // Outside of the root, getcwd fails or is not absolute.
    if !getcwd().is_ok_and(|path| path.is_absolute()) {
        bail!("working directory is outside of the container");
    }
    plan.confinement.seal()?;
    Ok(executor::replace_process(&plan.args, &plan.env)?)
}

fn take_terminal(slave: &OwnedFd) -> anyhow::Result<()> {
    ioctl_tiocsctty(slave).context("take the terminal")?;
    dup2_stdin(slave)?;
    dup2_stdout(slave)?;
    dup2_stderr(slave)?;
    Ok(())
}

/// Keeps capabilities over the change of user; they are cut to the container's afterwards.
fn set_identity(process: &Process) -> anyhow::Result<()> {
    let groups: Vec<Gid> = process
        .user()
        .additional_gids()
        .iter()
        .flatten()
        .map(|gid| Gid::from_raw(*gid))
        .collect();
    setgroups(&groups).context("set groups")?;
    let (uid, gid) = (process.user().uid(), process.user().gid());
    prctl::set_keepcaps(true)?;
    let (thread_uid, thread_gid) = (
        rustix::thread::Uid::from_raw(uid),
        rustix::thread::Gid::from_raw(gid),
    );
    set_thread_res_gid(thread_gid, thread_gid, thread_gid)
        .and_then(|()| set_thread_res_uid(thread_uid, thread_uid, thread_uid))
        .context("set user and group")?;
    if uid != 0 {
        capabilities::reset_effective(create_syscall().as_ref())?;
    }
    prctl::set_keepcaps(false)?;
    Ok(())
}
