//! bpf(2): loads a classifier program. The crate's only unsafe code.

use std::{
    io,
    os::fd::{FromRawFd, OwnedFd},
};

/// One instruction, as in `linux/bpf.h`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Instruction {
    pub(crate) code: u8,
    /// Destination in the low four bits, source in the high ones.
    pub(crate) registers: u8,
    pub(crate) offset: i16,
    pub(crate) immediate: i32,
}

/// The part of `union bpf_attr` that BPF_PROG_LOAD has had since the beginning, and the program's name.
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

const BPF_PROG_LOAD: libc::c_int = 5;
const BPF_PROG_TYPE_SCHED_CLS: u32 = 3;

/// Has the kernel verify and load a traffic classifier.
///
/// # Errors
/// EPERM without CAP_BPF and CAP_NET_ADMIN; EINVAL or EACCES if the verifier refuses the program.
pub(crate) fn load_classifier(program: &[Instruction]) -> io::Result<OwnedFd> {
    let mut attributes = ProgLoad {
        prog_type: BPF_PROG_TYPE_SCHED_CLS,
        insn_cnt: u32::try_from(program.len()).map_err(io::Error::other)?,
        insns: program.as_ptr() as u64,
        license: c"Apache-2.0".as_ptr() as u64,
        ..ProgLoad::default()
    };
    attributes.prog_name[..12].copy_from_slice(b"coracle_port");
    // SAFETY: the kernel reads `size_of::<ProgLoad>()` bytes of a live repr(C) value without padding, and through it
    // the instructions and a NUL-terminated string, all of which outlive the call; it writes nothing back.
    // JUSTIFICATION: neither nix nor rustix wraps bpf(2), and the loaders that do are larger than this plugin.
    let fd = unsafe { libc::syscall(libc::SYS_bpf, BPF_PROG_LOAD, &raw const attributes, size_of::<ProgLoad>()) };
    let fd = i32::try_from(fd).map_err(io::Error::other)?;
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a non-negative answer is a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
