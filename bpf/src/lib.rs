//! bpf(2): loads small programs that are written by hand, and attaches those that filter devices.
//!
//! No ELF, no maps, no relocations: a program is a list of [`Instruction`]s. The unsafe code of
//! this crate is the system call, and nothing else.

#![allow(
    unsafe_code,
    reason = "bpf(2) has no safe wrapper among our dependencies"
)]

use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
};

/// One instruction, as in `linux/bpf.h`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Instruction {
    /// Class, operation, source.
    pub code: u8,
    /// Destination in the low four bits, source in the high ones.
    pub registers: u8,
    /// Of a jump, from the next instruction; of a load, in bytes.
    pub offset: i16,
    /// The constant.
    pub immediate: i32,
}

/// What a program is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProgramType {
    /// Traffic at a network link: `BPF_PROG_TYPE_SCHED_CLS`.
    Classifier,
    /// What the processes of a cgroup may do with device files: `BPF_PROG_TYPE_CGROUP_DEVICE`.
    CgroupDevice,
}

/// The part of `union bpf_attr` that BPF_PROG_LOAD has had since the beginning, and the program's
/// name.
#[repr(C)]
#[derive(Default)]
struct ProgLoad {
    prog_type: u32,
    insn_cnt: u32,
    insns: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buf: u64,
    kern_version: u32,
    prog_flags: u32,
    prog_name: [u8; 16],
}

/// The part of it that BPF_PROG_ATTACH has had since the beginning.
#[repr(C)]
struct ProgAttach {
    target_fd: u32,
    attach_bpf_fd: u32,
    attach_type: u32,
    attach_flags: u32,
}

const BPF_PROG_LOAD: libc::c_int = 5;
const BPF_PROG_ATTACH: libc::c_int = 8;
const BPF_PROG_TYPE_SCHED_CLS: u32 = 3;
const BPF_PROG_TYPE_CGROUP_DEVICE: u32 = 15;
const BPF_CGROUP_DEVICE: u32 = 6;
const BPF_F_ALLOW_MULTI: u32 = 2;

/// Has the kernel verify and load a program. Of `name` the first 15 bytes count.
///
/// # Errors
/// EPERM without CAP_BPF (and CAP_NET_ADMIN for a classifier); EINVAL or EACCES if the verifier
/// refuses the program.
pub fn load(kind: ProgramType, name: &str, program: &[Instruction]) -> io::Result<OwnedFd> {
    let mut attributes = ProgLoad {
        prog_type: match kind {
            ProgramType::Classifier => BPF_PROG_TYPE_SCHED_CLS,
            ProgramType::CgroupDevice => BPF_PROG_TYPE_CGROUP_DEVICE,
        },
        insn_cnt: u32::try_from(program.len()).map_err(io::Error::other)?,
        insns: program.as_ptr() as u64,
        license: c"Apache-2.0".as_ptr() as u64,
        ..ProgLoad::default()
    };
    for (slot, byte) in attributes.prog_name[..15].iter_mut().zip(name.bytes()) {
        *slot = byte;
    }
    // SAFETY: the kernel reads `size_of::<ProgLoad>()` bytes of a live repr(C) value without
    // padding, and through it the instructions and a NUL-terminated string, all of which outlive
    // the call; it writes nothing back. JUSTIFICATION: neither nix nor rustix wraps bpf(2), and the
    // loaders that do are larger than what uses this.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            BPF_PROG_LOAD,
            &raw const attributes,
            size_of::<ProgLoad>(),
        )
    };
    let fd = i32::try_from(fd).map_err(io::Error::other)?;
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a non-negative answer is a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Attaches a device filter to the cgroup (v2) that `cgroup` is open on, beside any that are there:
/// all must agree. It stays as long as the cgroup does.
///
/// # Errors
/// EPERM if the cgroup, or one above it, does not let programs be added.
pub fn attach_device_filter(cgroup: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
    let attributes = ProgAttach {
        target_fd: u32::try_from(cgroup.as_raw_fd()).map_err(io::Error::other)?,
        attach_bpf_fd: u32::try_from(program.as_raw_fd()).map_err(io::Error::other)?,
        attach_type: BPF_CGROUP_DEVICE,
        attach_flags: BPF_F_ALLOW_MULTI,
    };
    // SAFETY: the kernel reads `size_of::<ProgAttach>()` bytes of a live repr(C) value without
    // padding, and writes nothing.
    let outcome = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            BPF_PROG_ATTACH,
            &raw const attributes,
            size_of::<ProgAttach>(),
        )
    };
    if outcome == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
