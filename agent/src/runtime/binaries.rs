//! The shim's and the helper's executables, copied once into sealed memory.
//!
//! Containers can reach `/proc/<pid>/exe` of what runs beside or before them; what they find there
//! cannot be written (CVE-2019-5736), and replacing the files on disk changes nothing under a
//! running pod.

use std::{
    fs::File,
    io::{self, Read, Write},
    os::fd::{AsRawFd, OwnedFd},
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use nix::{
    errno::Errno,
    fcntl::{FcntlArg, SealFlag, fcntl},
    sys::memfd::{MFdFlags, memfd_create},
};

use super::RuntimeError;

/// `linux/memfd.h`; not in nix yet.
const MFD_EXEC: MFdFlags = MFdFlags::from_bits_retain(0x10);

/// A second at most, while the agent starts.
const SEAL_ATTEMPTS: u32 = 20;
const SEAL_PAUSE: Duration = Duration::from_millis(50);

/// Both executables.
pub(super) struct Binaries {
    shim: OwnedFd,
    pub(super) helper: OwnedFd,
}

impl Binaries {
    /// Reads and seals `coracle-shim` and the `coracle-oci` beside it.
    pub(super) fn seal(shim: &Path) -> Result<Self, RuntimeError> {
        let load = |path: PathBuf, name: &str| {
            seal(&path, name).map_err(|source| RuntimeError::State {
                operation: "load the program",
                path,
                source,
            })
        };
        Ok(Self {
            shim: load(shim.to_owned(), "coracle-shim")?,
            helper: load(shim.with_file_name("coracle-oci"), "coracle-oci")?,
        })
    }

    /// A path that executes the shim from this process and its children.
    pub(super) fn shim_path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.shim.as_raw_fd()))
    }
}

#[allow(clippy::disallowed_methods, reason = "before the agent serves anybody")]
fn seal(path: &Path, name: &str) -> io::Result<OwnedFd> {
    let mut source = File::open(path)?;
    let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    // Since Linux 6.3 executable memory has to be asked for; before, the flag is unknown.
    let sealed = memfd_create(name, flags | MFD_EXEC).or_else(|_| memfd_create(name, flags))?;
    let mut sealed = File::from(sealed);
    let mut buffer = vec![0; 256 * 1024];
    loop {
        match source.read(&mut buffer)? {
            0 => break,
            length => sealed.write_all(&buffer[..length])?,
        }
    }
    let seals = SealFlag::F_SEAL_SEAL
        | SealFlag::F_SEAL_SHRINK
        | SealFlag::F_SEAL_GROW
        | SealFlag::F_SEAL_WRITE;
    // The kernel says "busy" while it looks at one of the pages itself (reclaim, migration): that
    // passes.
    let mut left = SEAL_ATTEMPTS;
    loop {
        left -= 1;
        match fcntl(&sealed, FcntlArg::F_ADD_SEALS(seals)) {
            Err(Errno::EBUSY) if left > 0 => thread::sleep(SEAL_PAUSE),
            outcome => return outcome.map(|_| sealed.into()).map_err(Into::into),
        }
    }
}
