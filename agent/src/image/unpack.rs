//! A layer's tar stream becomes a directory that overlayfs can stack.
//!
//! Nothing ever lands outside the target: every parent is opened with `openat2(RESOLVE_IN_ROOT)`,
//! every last component is made or replaced by its name in that parent, never followed. Whiteouts
//! become overlayfs' (character device 0:0, `trusted.overlay.opaque`). Owners, modes, times,
//! xattrs, hard links and device nodes are kept. Memory and disk are bounded whatever the stream
//! says; blocking.
//!
//! Source: OCI image-spec `layer.md` at v1.1; overlayfs.rst.

mod budget;
mod inherit;
mod meta;
mod replace;

pub(super) use self::budget::most;
pub(crate) use self::inherit::inherit;

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    io::{self, Read},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Component, Path, PathBuf},
};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags};
use tar::{EntryType, Header};

use self::{budget::Budget, meta::Meta};
use super::{allowance::Allowance, error::UnpackError};

/// Most entries of one layer: far above any real image, far below what exhausts a disk's inodes
/// unnoticed.
const ENTRIES_MAX: u64 = 2_000_000;
/// Most bytes of one entry, also of one whose content is passed over.
const ENTRY_MAX: u64 = 64 << 30;
/// Longest PAX or GNU extension record (a path, an xattr): the kernel takes no xattr above 64 KiB.
const EXTENSION_MAX: u64 = 1 << 20;
/// Most bytes of headers before one entry's content: the archive reader keeps extension records in
/// memory.
pub(super) const HEADERS_MAX: u64 = 2 * EXTENSION_MAX;
const WHITEOUT_PREFIX: &[u8] = b".wh.";
const WHITEOUT_OPAQUE: &[u8] = b".wh..wh..opq";

/// What a layer has become.
#[derive(Debug, Default)]
pub(crate) struct Unpacked {
    /// Bytes of its files.
    pub(crate) bytes: u64,
    /// Directories that it has entries in but does not list: [`inherit`] knows what they look like.
    pub(crate) implied: Vec<(PathBuf, u64)>,
}

/// Unpacks the uncompressed tar `stream` into the existing, empty directory `target`. `blob_bytes`
/// is the compressed size, where that is known. What is skipped costs no disk: who gives the stream
/// bounds how long it is.
///
/// # Errors
/// See [`UnpackError`]; the target is then half made and the caller removes it.
pub(crate) fn unpack(
    stream: impl Read,
    target: &Path,
    blob_bytes: Option<u64>,
) -> Result<Unpacked, UnpackError> {
    let root = rustix::fs::openat(
        CWD,
        target,
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )
    .map_err(|e| entry_error("open", target)(e.into()))?;
    let budget = Budget::new(blob_bytes);
    let mut unpacker = Unpacker {
        root,
        bytes: 0,
        budget,
        times: Vec::new(),
        implied: BTreeMap::new(),
    };
    let allowance = Allowance::new(HEADERS_MAX);
    let mut archive = tar::Archive::new(allowance.limit(stream));
    let entries = archive.entries().map_err(UnpackError::Archive)?;
    for (count, entry) in (0_u64..).zip(entries) {
        let mut entry = entry.map_err(UnpackError::Archive)?;
        if count >= ENTRIES_MAX {
            return Err(UnpackError::Refused {
                why: format!("more than {ENTRIES_MAX} entries"),
            });
        }
        allowance.lift();
        if entry.size() > ENTRY_MAX {
            return Err(UnpackError::Refused {
                why: format!("an entry claims {} bytes", entry.size()),
            });
        }
        // `git archive` writes a global header; nothing in it concerns a layer.
        if entry.header().entry_type() != EntryType::XGlobalHeader {
            unpacker.add(&mut entry)?;
        }
        skip(&mut entry, &allowance)?;
    }
    unpacker.finish()
}

/// Reads what is left of an entry; from then on to the next entry only headers may come.
fn skip<R: Read>(entry: &mut tar::Entry<'_, R>, allowance: &Allowance) -> Result<(), UnpackError> {
    io::copy(entry, &mut io::sink()).map_err(UnpackError::Archive)?;
    allowance.set(HEADERS_MAX);
    Ok(())
}

struct Unpacker {
    root: OwnedFd,
    bytes: u64,
    budget: Budget,
    /// Directory times are set last: making children changes them. One entry a directory of the
    /// layer.
    times: Vec<(PathBuf, i64)>,
    /// Directories made because something is in them, by inode.
    implied: BTreeMap<u64, PathBuf>,
}

impl Unpacker {
    fn add<R: Read>(&mut self, entry: &mut tar::Entry<'_, R>) -> Result<(), UnpackError> {
        let path = entry.path().map_err(UnpackError::Archive)?.into_owned();
        let meta = meta::read(entry).map_err(entry_error("read the metadata of", &path))?;
        let relative = relative_path(&path)?;
        let Some(name) = relative.file_name().map(OsStr::to_owned) else {
            return self.set_root(&meta, &path);
        };
        let parent = self
            .parent(&relative)
            .map_err(entry_error("open the parent of", &path))?;
        if name.as_bytes() == WHITEOUT_OPAQUE {
            return replace::set_opaque(parent.as_fd())
                .map_err(entry_error("mark opaque the parent of", &path));
        }
        if let Some(hidden) = name.as_bytes().strip_prefix(WHITEOUT_PREFIX) {
            return replace::whiteout(parent.as_fd(), hidden, &path);
        }
        self.make(entry, parent.as_fd(), &name, &relative, &meta)
            .map_err(entry_error("unpack", &path))
    }

    /// Opens the parent inside the root, making it (0755, root) where a layer leaves it out.
    fn parent(&mut self, relative: &Path) -> io::Result<OwnedFd> {
        let parent = relative.parent().unwrap_or(Path::new(""));
        if parent.as_os_str().is_empty() {
            return self.root.try_clone();
        }
        match open_in_root(self.root.as_fd(), parent, OFlags::DIRECTORY) {
            Ok(fd) => Ok(fd),
            // Absent, or hidden by a whiteout of this layer.
            Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR) => self.make_parents(parent),
            Err(errno) => Err(errno.into()),
        }
    }

    fn make_parents(&mut self, parent: &Path) -> io::Result<OwnedFd> {
        let mut made = PathBuf::new();
        let mut fd = self.root.try_clone()?;
        for component in parent.components() {
            made.push(component);
            fd = match open_in_root(self.root.as_fd(), &made, OFlags::DIRECTORY) {
                Ok(next) => next,
                Err(errno)
                    if errno == rustix::io::Errno::NOENT
                        || errno == rustix::io::Errno::NOTDIR
                            && replace::is_whiteout(fd.as_fd(), component.as_os_str())? =>
                {
                    replace::make_directory(fd.as_fd(), component.as_os_str())?;
                    let next = open_in_root(self.root.as_fd(), &made, OFlags::DIRECTORY)?;
                    self.implied
                        .insert(rustix::fs::fstat(&next)?.st_ino, made.clone());
                    next
                }
                Err(errno) => return Err(errno.into()),
            };
        }
        Ok(fd)
    }

    fn make<R: Read>(
        &mut self,
        entry: &mut tar::Entry<'_, R>,
        parent: BorrowedFd<'_>,
        name: &OsStr,
        relative: &Path,
        meta: &Meta,
    ) -> io::Result<()> {
        let kind = entry.header().entry_type();
        if kind.is_dir() {
            replace::make_directory(parent, name)?;
            self.implied
                .remove(&rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)?.st_ino);
            self.times.push((relative.to_owned(), meta.mtime));
            return meta::set(parent, name, meta, false);
        }
        replace::remove_existing(parent, name)?;
        match kind {
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
                self.write_file(entry, parent, name)?;
            }
            // Owner, mode and times are those of the file that it is one more name of.
            EntryType::Link => return self.hard_link(entry, parent, name),
            EntryType::Symlink => {
                let target = entry
                    .link_name()?
                    .ok_or_else(|| invalid("symlink without a target"))?;
                rustix::fs::symlinkat(target.as_os_str(), parent, name)?;
                return meta::set(parent, name, meta, true);
            }
            EntryType::Char | EntryType::Block | EntryType::Fifo => {
                make_node(parent, name, entry.header(), meta)?;
            }
            other => return Err(invalid(&format!("entry type {other:?} is not known"))),
        }
        meta::set(parent, name, meta, false)
    }

    fn write_file<R: Read>(
        &mut self,
        entry: &mut tar::Entry<'_, R>,
        parent: BorrowedFd<'_>,
        name: &OsStr,
    ) -> io::Result<()> {
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(parent, name, flags, Mode::from_raw_mode(0o600))?;
        let mut file = std::fs::File::from(fd);
        loop {
            let step = self.budget.step();
            let written = io::copy(&mut entry.by_ref().take(step), &mut file)?;
            self.budget.take(written, self.root.as_fd())?;
            self.bytes += written;
            if written < step {
                return Ok(());
            }
        }
    }

    fn hard_link<R: Read>(
        &mut self,
        entry: &tar::Entry<'_, R>,
        parent: BorrowedFd<'_>,
        name: &OsStr,
    ) -> io::Result<()> {
        let target = entry
            .link_name()?
            .ok_or_else(|| invalid("hard link without a target"))?;
        let target = relative_path(&target).map_err(|error| invalid(&error.to_string()))?;
        let file = target
            .file_name()
            .ok_or_else(|| invalid("hard link to the root"))?;
        let from = self.parent(&target)?;
        // No AT_SYMLINK_FOLLOW: a link to a symlink is a link to that symlink, wherever it points.
        Ok(rustix::fs::linkat(
            &from,
            file,
            parent,
            name,
            AtFlags::empty(),
        )?)
    }

    /// The entry `./`: the root directory's own metadata.
    fn set_root(&self, meta: &Meta, path: &Path) -> Result<(), UnpackError> {
        let set = || -> io::Result<()> {
            rustix::fs::chownat(
                &self.root,
                c"",
                meta::uid(meta),
                meta::gid(meta),
                AtFlags::EMPTY_PATH,
            )?;
            let dot = open_in_root(
                self.root.as_fd(),
                Path::new("."),
                OFlags::DIRECTORY | OFlags::RDONLY,
            )?;
            Ok(rustix::fs::chmodat(&dot, ".", meta.mode, AtFlags::empty())?)
        };
        set().map_err(entry_error("set the metadata of", path))
    }

    fn finish(mut self) -> Result<Unpacked, UnpackError> {
        // Deepest first, so that no later change touches a parent that is done.
        for (path, mtime) in std::mem::take(&mut self.times).iter().rev() {
            // A directory may have been replaced or removed by a later entry of the same layer.
            let parent = path
                .parent()
                .filter(|parent| !parent.as_os_str().is_empty())
                .unwrap_or(Path::new("."));
            if let Ok(parent) = open_in_root(self.root.as_fd(), parent, OFlags::DIRECTORY)
                && let Some(name) = path.file_name()
            {
                let _replaced_meanwhile = meta::set_time(parent.as_fd(), name, *mtime);
            }
        }
        let implied = self
            .implied
            .into_iter()
            .map(|(inode, path)| (path, inode))
            .collect();
        Ok(Unpacked {
            bytes: self.bytes,
            implied,
        })
    }
}

fn open_in_root(root: BorrowedFd<'_>, path: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let flags = if flags.contains(OFlags::RDONLY) && !flags.contains(OFlags::DIRECTORY) {
        flags
    } else {
        flags | OFlags::PATH
    };
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    rustix::fs::openat2(root, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve)
}

/// The entry's path without root, `.`; a `..` is refused rather than interpreted.
fn relative_path(path: &Path) -> Result<PathBuf, UnpackError> {
    let mut relative = PathBuf::new();
    for component in path.components() {
        match component {
            Component::Normal(part) => relative.push(part),
            Component::RootDir | Component::CurDir => {}
            Component::ParentDir | Component::Prefix(_) => {
                return Err(UnpackError::Refused {
                    why: format!("path {path:?} leaves the layer"),
                });
            }
        }
    }
    Ok(relative)
}

fn make_node(parent: BorrowedFd<'_>, name: &OsStr, header: &Header, meta: &Meta) -> io::Result<()> {
    let kind = match header.entry_type() {
        EntryType::Char => FileType::CharacterDevice,
        EntryType::Block => FileType::BlockDevice,
        _ => FileType::Fifo,
    };
    // Other archivers leave these fields empty where they mean nothing.
    let device = match kind {
        FileType::Fifo => 0,
        _ => rustix::fs::makedev(
            header.device_major()?.unwrap_or(0),
            header.device_minor()?.unwrap_or(0),
        ),
    };
    Ok(rustix::fs::mknodat(parent, name, kind, meta.mode, device)?)
}

fn invalid(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.to_owned())
}

fn entry_error(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> UnpackError {
    let path = path.to_owned();
    move |source| UnpackError::Entry {
        operation,
        path,
        source,
    }
}

#[cfg(test)]
mod tests;
