//! PID 1 of a shared PID namespace (`shareProcessNamespace`): adopts orphans and does nothing else.
//!
//! In an empty root of its own: containers see it under `/proc/1`.

use std::path::Path;

use nix::{
    errno::Errno,
    mount::{MntFlags, MsFlags, mount, umount2},
    sched::{CloneFlags, unshare},
    sys::{
        prctl,
        signal::{SigSet, Signal},
    },
    unistd::{chdir, pause, pivot_root},
};

use crate::sys;

/// Clones it; returns its PID in the node's namespace.
pub(super) fn spawn(empty: &Path) -> Result<i32, Errno> {
    match sys::clone(CloneFlags::CLONE_NEWPID)? {
        0 => {
            let _ = live(empty);
            sys::exit(1)
        }
        pid => Ok(pid),
    }
}

fn live(empty: &Path) -> Result<(), Errno> {
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    let _ = prctl::set_name(c"pause");
    prctl::set_dumpable(false)?;
    unshare(CloneFlags::CLONE_NEWNS)?;
    mount(
        None::<&str>,
        "/",
        None::<&str>,
        MsFlags::MS_REC | MsFlags::MS_PRIVATE,
        None::<&str>,
    )?;
    mount(
        Some("tmpfs"),
        empty,
        Some("tmpfs"),
        MsFlags::MS_RDONLY,
        Some("size=0"),
    )?;
    chdir(empty)?;
    pivot_root(".", ".")?;
    umount2(".", MntFlags::MNT_DETACH)?;
    chdir("/")?;
    sys::close_from(0);
    // Its children are then reaped by the kernel.
    sys::ignore(Signal::SIGCHLD)?;
    SigSet::empty().thread_set_mask()?;
    loop {
        pause();
    }
}
