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
        signal::{SigHandler, SigSet, Signal, signal},
    },
    unistd::{chdir, pause, pivot_root},
};

/// Clones it; returns its PID in the node's namespace.
#[allow(unsafe_code, reason = "clone into a new PID namespace has no fork-like wrapper")]
pub(super) fn spawn(empty: &Path) -> Result<i32, Errno> {
    let flags = libc::CLONE_NEWPID as libc::c_ulong | libc::SIGCHLD as libc::c_ulong;
    // SAFETY: without CLONE_VM this is fork in a process of one thread; unused arguments are zero on every architecture.
    let pid = unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) };
    match pid {
        0 => {
            let _ = live(empty);
            // SAFETY: ends this process at once.
            unsafe { libc::_exit(1) }
        }
        -1 => Err(Errno::last()),
        pid => Ok(i32::try_from(pid).expect("a PID fits")),
    }
}

#[allow(unsafe_code, reason = "signal dispositions")]
fn live(empty: &Path) -> Result<(), Errno> {
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    let _ = prctl::set_name(c"pause");
    prctl::set_dumpable(false)?;
    unshare(CloneFlags::CLONE_NEWNS)?;
    mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>)?;
    mount(Some("tmpfs"), empty, Some("tmpfs"), MsFlags::MS_RDONLY, Some("size=0"))?;
    chdir(empty)?;
    pivot_root(".", ".")?;
    umount2(".", MntFlags::MNT_DETACH)?;
    chdir("/")?;
    super::close_from(0);
    // SAFETY: sets a disposition, installs no code. Ignored children are reaped by the kernel.
    unsafe { signal(Signal::SIGCHLD, SigHandler::SigIgn) }?;
    SigSet::empty().thread_set_mask()?;
    loop {
        pause();
    }
}
