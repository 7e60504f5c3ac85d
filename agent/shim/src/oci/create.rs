//! Makes a container: mounts, resolves, hands the finished OCI spec to libcontainer.
//!
//! Leaves nothing behind when it fails.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context;
use coracle_shim_protocol::{CreateSpec, layout};
use libcontainer::{container::builder::ContainerBuilder, syscall::syscall::SyscallType};
use nix::{
    sys::{
        signal::{Signal, kill},
        stat::{SFlag, fstat},
    },
    unistd::{Pid, Uid, fchown},
};
use oci_spec::runtime::Spec;
use pathrs::Root;
use serde_json::{Value, json};

use super::{
    Made,
    confinement::Confinement,
    devices,
    executor::ShimExecutor,
    paths,
    reasons::Reasons,
    rootfs, terminal,
    user::{self, User},
    verify,
};
use crate::sys;

pub(super) struct Arguments<'a> {
    pub(super) sandbox_dir: &'a Path,
    pub(super) container: &'a str,
    pub(super) tty: bool,
    pub(super) host_mount_namespace: i32,
    pub(super) pid_namespace: Option<i32>,
    pub(super) start_status: Option<i32>,
}

pub(super) fn create(arguments: &Arguments<'_>) -> anyhow::Result<Made> {
    let directory = arguments
        .sandbox_dir
        .join(layout::CONTAINERS)
        .join(arguments.container);
    let mut create: CreateSpec = serde_json::from_slice(
        &fs::read(directory.join(layout::CREATE)).context("read create.json")?,
    )?;
    let mut guard = rootfs::MountGuard {
        directory: &directory,
        keep: false,
    };
    let (mut spec, uid) = prepare(arguments, &directory, &mut create)?;
    let confinement = Confinement::take(&mut spec, &create.compiled_filters)?;
    confinement.write(&directory)?;
    fs::write(directory.join("config.json"), serde_json::to_vec(&spec)?)
        .context("write config.json")?;
    give_streams(uid);
    let spec: Spec = serde_json::from_value(spec)?;
    let made = build(arguments, &directory, uid, confinement)?;
    if let Err(error) = devices::guard(&spec).and_then(|()| verify(&made, &spec)) {
        // It waits to be started: nothing of the image has run. The shim reaps it and removes its
        // cgroup.
        let _ = kill(Pid::from_raw(made.pid), Signal::SIGKILL);
        return Err(error);
    }
    guard.keep = true;
    Ok(made)
}

fn verify(made: &Made, spec: &Spec) -> anyhow::Result<()> {
    let mountinfo = fs::read_to_string(format!("/proc/{}/mountinfo", made.pid))
        .context("read the container's mounts")?;
    Ok(verify::inspect_mounts(&mountinfo, spec)?)
}

/// Mounts everything and completes the spec with what only the mounted image tells.
fn prepare(
    arguments: &Arguments<'_>,
    directory: &Path,
    create: &mut CreateSpec,
) -> anyhow::Result<(Value, u32)> {
    let target = directory.join(layout::ROOTFS);
    let mut spec = create.spec.take();
    rootfs::mount_overlay(create, &target)?;
    rootfs::inspect(&target)?;
    let root = Root::open(&target).context("open the root file system")?;
    for volume in &mut create.mounts {
        volume.destination = paths::destination(&target, &volume.destination)?;
    }
    let cwd = spec["process"]["cwd"].as_str().unwrap_or("/");
    let cwd = paths::working_dir(&target, cwd)?;
    let user = user::resolve(&root, &create.user)?;
    for path in &create.volumes {
        paths::inspect_volume(path)?;
        // Best effort: an image whose link leads nowhere has no directory there either.
        let _ = rootfs::make_directory(&root, path);
    }
    rootfs::make_directory(&root, &cwd)?;
    spec["process"]["cwd"] = json!(cwd);
    drop(root);

    let mounts = directory.join(layout::MOUNTS);
    rootfs::fetch_volumes(
        &create.mounts,
        &mounts,
        sys::borrow(arguments.host_mount_namespace),
    )?;
    spec["root"]["path"] = json!(target);
    let list = spec["mounts"]
        .as_array_mut()
        .context("spec without mounts")?;
    for (number, volume) in create.mounts.iter().enumerate() {
        list.push(json!({
            "destination": volume.destination, "type": "bind", "source": mounts.join(number.to_string()),
            "options": volume.options,
        }));
    }
    set_user(&mut spec, &user)?;
    if let Some(number) = arguments.pid_namespace {
        join_pid_namespace(&mut spec, number)?;
    }
    set_oom_score(&mut spec);
    Ok((spec, user.uid))
}

fn set_user(spec: &mut Value, user: &User) -> anyhow::Result<()> {
    spec["process"]["user"] =
        json!({ "uid": user.uid, "gid": user.gid, "additionalGids": user.groups });
    // Always set: libcontainer would look it up by getpwuid inside the container, which loads the
    // image's own libraries.
    let env = spec["process"]["env"]
        .as_array_mut()
        .context("spec without environment")?;
    if !env.iter().any(|entry| {
        entry
            .as_str()
            .is_some_and(|entry| entry.starts_with("HOME="))
    }) {
        env.push(json!(format!("HOME={}", user.home)));
    }
    Ok(())
}

/// Names the namespace of whoever opens it: libcontainer does so in a process that has inherited
/// the descriptor `number`.
fn join_pid_namespace(spec: &mut Value, number: i32) -> anyhow::Result<()> {
    let namespaces = spec["linux"]["namespaces"]
        .as_array_mut()
        .context("spec without namespaces")?;
    for namespace in namespaces {
        if namespace["type"] == "pid" {
            namespace["path"] = json!(format!("/proc/self/fd/{number}"));
        }
    }
    Ok(())
}

/// Sets it for this process, whose children inherit it, instead of by libcontainer, which fails
/// where the node may not lower it (no CAP_SYS_RESOURCE).
fn set_oom_score(spec: &mut Value) {
    let Some(process) = spec["process"].as_object_mut() else {
        return;
    };
    if let Some(score) = process
        .remove("oomScoreAdj")
        .and_then(|score| score.as_i64())
    {
        let _ = fs::write("/proc/self/oom_score_adj", score.to_string());
    }
}

fn build(
    arguments: &Arguments<'_>,
    directory: &Path,
    uid: u32,
    confinement: Confinement,
) -> anyhow::Result<Made> {
    let state = arguments.sandbox_dir.join(layout::OCI);
    let console = arguments
        .tty
        .then(|| terminal::ConsoleSocket::bind(directory.join("tty.sock")))
        .transpose()?;
    // Without them a failure only says less.
    let reasons = Reasons::catch();
    let built = ContainerBuilder::new(arguments.container.to_owned(), SyscallType::default())
        .with_root_path(state)?
        .with_executor(ShimExecutor {
            confinement,
            start_status: arguments.start_status,
        })
        .with_console_socket(console.as_ref().map(terminal::ConsoleSocket::path))
        .validate_id()?
        .as_init(PathBuf::from(directory))
        .with_systemd(false)
        .with_detach(true)
        .as_sibling(true)
        .build();
    let container = built.map_err(|error| match reasons {
        Ok(reasons) => reasons.explain(error.into()),
        Err(_) => error.into(),
    })?;
    let terminal = console.map(|console| console.receive()).transpose()?;
    if let Some(master) = &terminal {
        terminal::give(master, uid)?;
    }
    let pid = container
        .pid()
        .context("container without a process")?
        .as_raw();
    Ok(Made { pid, terminal })
}

/// Lets the container's user open `/dev/stdout` and the like by name. Pipes only: `/dev/null` is
/// everybody's.
pub(super) fn give_streams(uid: u32) {
    for stream in [sys::borrow(0), sys::borrow(1), sys::borrow(2)] {
        let is_pipe = fstat(stream).is_ok_and(|status| {
            SFlag::from_bits_truncate(status.st_mode) & SFlag::S_IFMT == SFlag::S_IFIFO
        });
        if is_pipe {
            let _ = fchown(stream, Some(Uid::from_raw(uid)), None);
        }
    }
}
