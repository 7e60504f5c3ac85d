//! Every raw call of shim and helper: what neither `rustix` nor `nix` has as a safe function.
//!
//! One system call a function, or one number taken for a descriptor; nothing is decided here. That
//! both programs have one thread is what makes `fork` and `clone` sound: the copy is whole, and
//! nobody holds a lock in it.

#![allow(
    unsafe_code,
    reason = "these calls have no safe wrapper among our dependencies"
)]

use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
};

use nix::{
    errno::Errno,
    sched::CloneFlags,
    sys::signal::{SigHandler, SigSet, Signal},
    unistd::ForkResult,
};

/// Bytes of the kernel's `struct sock_filter`.
pub(crate) const INSTRUCTION_BYTES: usize = 8;

/// A descriptor that the parent has left open for this process, borrowed for good: 0 to 2, or a
/// number that it told. Nobody may close it.
pub(crate) fn borrow(number: i32) -> BorrowedFd<'static> {
    // SAFETY: by the contract above it stays open.
    unsafe { BorrowedFd::borrow_raw(number) }
}

/// The same, taken over: whoever calls this owns the number alone.
pub(crate) fn inherit(number: i32) -> OwnedFd {
    // SAFETY: the parent left this descriptor open for us, and by the contract above nothing else
    // here knows it.
    unsafe { OwnedFd::from_raw_fd(number) }
}

/// A copy of this process.
pub(crate) fn fork() -> Result<ForkResult, Errno> {
    // SAFETY: one thread: nothing is locked in the copy.
    unsafe { nix::unistd::fork() }
}

/// As [`fork`], with `flags` such as `CLONE_PARENT` or `CLONE_NEWPID`: 0 in the copy, else its PID.
/// `CLONE_VM` and its like are refused.
pub(crate) fn clone(flags: CloneFlags) -> Result<i32, Errno> {
    if flags.intersects(CloneFlags::CLONE_VM | CloneFlags::CLONE_VFORK | CloneFlags::CLONE_THREAD) {
        return Err(Errno::EINVAL);
    }
    let flags = libc::c_long::from(flags.bits() | libc::SIGCHLD);
    // SAFETY: without CLONE_VM this is fork, and this process has one thread. The argument order of
    // the raw call differs between architectures only behind the second, and all of those are zero.
    let pid = Errno::result(unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) })?;
    Ok(i32::try_from(pid).expect("a PID fits"))
}

/// Ends this process at once: no destructor runs, no buffer is written. For a copy of another
/// process.
pub(crate) fn exit(code: i32) -> ! {
    // SAFETY: takes a number and does not return.
    unsafe { libc::_exit(code) }
}

/// Closes every descriptor from `first` on, whoever has it: nothing of ours may be open there.
pub(crate) fn close_from(first: u32) {
    // SAFETY: plain numbers; by the contract above no owner is left behind. It fails only where the
    // kernel has no such call, and then they stay open.
    unsafe {
        libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, 0);
    }
}

/// Lets no descriptor from `first` on outlive the next exec.
pub(crate) fn close_on_exec_from(first: u32) -> Result<(), Errno> {
    // SAFETY: marks descriptors, closes none.
    let marked = unsafe {
        libc::syscall(
            libc::SYS_close_range,
            first,
            libc::c_uint::MAX,
            libc::CLOSE_RANGE_CLOEXEC,
        )
    };
    Errno::result(marked).map(drop)
}

/// Ignores a signal; children are then reaped by the kernel, if it is SIGCHLD.
pub(crate) fn ignore(signal: Signal) -> Result<(), Errno> {
    // SAFETY: sets a disposition, installs no code.
    unsafe { nix::sys::signal::signal(signal, SigHandler::SigIgn) }.map(drop)
}

/// Lets every signal do again what it does in a new process. What is blocked or ignored stays so
/// over exec, and a shell that waits for its children would wait for ever.
pub(crate) fn default_signals() -> Result<(), Errno> {
    for signal in Signal::iterator().filter(|one| !matches!(one, Signal::SIGKILL | Signal::SIGSTOP))
    {
        // SAFETY: sets a disposition, installs no code.
        unsafe { nix::sys::signal::signal(signal, SigHandler::SigDfl) }?;
    }
    SigSet::empty().thread_set_mask()
}

/// Confines this thread, and all that comes of it, by a compiled seccomp filter
/// (`struct sock_filter[]`).
pub(crate) fn load_filter(flags: u32, program: &[u8]) -> Result<(), Errno> {
    let program = libc::sock_fprog {
        len: u16::try_from(program.len() / INSTRUCTION_BYTES).map_err(|_| Errno::EINVAL)?,
        filter: program.as_ptr().cast_mut().cast(),
    };
    // SAFETY: `program` and what it points to outlive the call, which only reads them.
    let loaded = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            flags,
            &raw const program,
        )
    };
    Errno::result(loaded).map(drop)
}

/// Brings the loopback of this network namespace up. `socket` is any of its sockets.
pub(crate) fn loopback_up(socket: impl AsFd) -> io::Result<()> {
    // SAFETY: all-zero is a valid ifreq.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (slot, byte) in request.ifr_name.iter_mut().zip(*b"lo") {
        *slot = byte.cast_signed();
    }
    request.ifr_ifru.ifru_flags =
        libc::c_short::try_from(libc::IFF_UP | libc::IFF_RUNNING).expect("small flags");
    // SAFETY: the request lives over the call, its name is terminated.
    let done = unsafe {
        libc::ioctl(
            socket.as_fd().as_raw_fd(),
            libc::SIOCSIFFLAGS,
            &raw const request,
        )
    };
    Errno::result(done).map(drop).map_err(io::Error::from)
}
