//! A layer's tar stream becomes a directory that overlayfs can stack.
//!
//! Nothing ever lands outside the target: every parent is opened with `openat2(RESOLVE_IN_ROOT)`, every last
//! component is made or replaced by its name in that parent, never followed. Whiteouts become overlayfs'
//! (character device 0:0, `trusted.overlay.opaque`). Owners, modes, times, xattrs, hard links and device nodes
//! are kept. Memory is bounded whatever the stream says; blocking.
//!
//! Source: OCI image-spec `layer.md` at v1.1; overlayfs.rst.

use std::{
    collections::HashMap,
    ffi::OsStr,
    io::{self, Read},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Component, Path, PathBuf},
};

use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, ResolveFlags, Timespec, Timestamps, Uid, XattrFlags};
use tar::{EntryType, Header};

use super::allowance::Allowance;

/// Most entries of one layer: far above any real image, far below what exhausts a disk's inodes unnoticed.
const ENTRIES_MAX: u64 = 2_000_000;
/// Most unpacked bytes of one layer.
const BYTES_MAX: u64 = 64 << 30;
/// Longest PAX or GNU extension record (a path, an xattr): the kernel takes no xattr above 64 KiB.
const EXTENSION_MAX: u64 = 1 << 20;
/// Most bytes of headers before one entry's content: the archive reader keeps extension records in memory.
pub(super) const HEADERS_MAX: u64 = 2 * EXTENSION_MAX;
const WHITEOUT_PREFIX: &[u8] = b".wh.";
const WHITEOUT_OPAQUE: &[u8] = b".wh..wh..opq";

/// Why a layer cannot be unpacked.
#[derive(Debug, thiserror::Error)]
pub enum UnpackError {
    /// The tar stream itself is broken.
    #[error("read the layer archive")]
    Archive(#[source] io::Error),
    /// One entry cannot be made.
    #[error("{operation} {path:?}")]
    Entry {
        /// Doing what.
        operation: &'static str,
        /// The entry's path as the archive has it.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The layer is refused.
    #[error("layer refused: {why}")]
    Refused {
        /// The reason.
        why: String,
    },
}

/// Unpacks the uncompressed tar `stream` into the existing, empty directory `target`. Returns the bytes written.
///
/// # Errors
/// See [`UnpackError`]; the target is then half made and the caller removes it.
pub(crate) fn unpack(stream: impl Read, target: &Path) -> Result<u64, UnpackError> {
    let root = rustix::fs::openat(CWD, target, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .map_err(|e| entry_error("open", target)(e.into()))?;
    let mut unpacker = Unpacker { root, bytes: 0, times: Vec::new() };
    let allowance = Allowance::new(HEADERS_MAX);
    let mut archive = tar::Archive::new(allowance.limit(stream));
    let entries = archive.entries().map_err(UnpackError::Archive)?;
    for (count, entry) in (0_u64..).zip(entries) {
        let mut entry = entry.map_err(UnpackError::Archive)?;
        if count >= ENTRIES_MAX {
            return Err(UnpackError::Refused { why: format!("more than {ENTRIES_MAX} entries") });
        }
        allowance.lift();
        if entry.header().entry_type() == EntryType::XGlobalHeader {
            // `git archive` writes one; nothing in it concerns a layer.
            skip(&mut entry, &allowance)?;
            continue;
        }
        if entry.size() > BYTES_MAX {
            return Err(UnpackError::Refused { why: format!("an entry claims {} bytes", entry.size()) });
        }
        unpacker.add(&mut entry)?;
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
    /// Directory times are set last: making children changes them. One entry a directory of the layer.
    times: Vec<(PathBuf, i64)>,
}

/// What an entry is, besides its content.
struct Meta {
    mode: Mode,
    uid: u32,
    gid: u32,
    mtime: i64,
    xattrs: HashMap<Vec<u8>, Vec<u8>>,
}

impl Unpacker {
    fn add<R: Read>(&mut self, entry: &mut tar::Entry<'_, R>) -> Result<(), UnpackError> {
        let path = entry.path().map_err(UnpackError::Archive)?.into_owned();
        let meta = read_meta(entry).map_err(entry_error("read the metadata of", &path))?;
        let relative = relative_path(&path)?;
        let Some(name) = relative.file_name().map(OsStr::to_owned) else {
            return self.set_root(&meta, &path);
        };
        let parent = self.parent(&relative).map_err(entry_error("open the parent of", &path))?;
        if name.as_bytes() == WHITEOUT_OPAQUE {
            return set_opaque(parent.as_fd()).map_err(entry_error("mark opaque the parent of", &path));
        }
        if let Some(hidden) = name.as_bytes().strip_prefix(WHITEOUT_PREFIX) {
            return whiteout(parent.as_fd(), hidden, &path);
        }
        self.make(entry, parent.as_fd(), &name, &relative, &meta).map_err(entry_error("unpack", &path))
    }

    /// Opens the parent inside the root, making it (0755, root) where a layer leaves it out.
    fn parent(&self, relative: &Path) -> io::Result<OwnedFd> {
        let parent = relative.parent().unwrap_or(Path::new(""));
        if parent.as_os_str().is_empty() {
            return self.root.try_clone();
        }
        match open_in_root(self.root.as_fd(), parent, OFlags::DIRECTORY) {
            Ok(fd) => Ok(fd),
            Err(rustix::io::Errno::NOENT) => self.make_parents(parent),
            Err(errno) => Err(errno.into()),
        }
    }

    fn make_parents(&self, parent: &Path) -> io::Result<OwnedFd> {
        let mut made = PathBuf::new();
        let mut fd = self.root.try_clone()?;
        for component in parent.components() {
            made.push(component);
            fd = match open_in_root(self.root.as_fd(), &made, OFlags::DIRECTORY) {
                Ok(next) => next,
                Err(rustix::io::Errno::NOENT) => {
                    rustix::fs::mkdirat(&fd, component.as_os_str(), Mode::from_raw_mode(0o755))?;
                    open_in_root(self.root.as_fd(), &made, OFlags::DIRECTORY)?
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
            make_directory(parent, name)?;
            self.times.push((relative.to_owned(), meta.mtime));
            return set_meta(parent, name, meta, false);
        }
        remove_existing(parent, name)?;
        match kind {
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
                self.write_file(entry, parent, name)?;
            }
            EntryType::Link => return self.hard_link(entry, parent, name),
            EntryType::Symlink => {
                let target = entry.link_name()?.ok_or_else(|| invalid("symlink without a target"))?;
                rustix::fs::symlinkat(target.as_os_str(), parent, name)?;
                return set_meta(parent, name, meta, true);
            }
            EntryType::Char | EntryType::Block | EntryType::Fifo => {
                make_node(parent, name, entry.header(), meta)?;
            }
            other => return Err(invalid(&format!("entry type {other:?} is not known"))),
        }
        set_meta(parent, name, meta, false)
    }

    fn write_file<R: Read>(
        &mut self,
        entry: &mut tar::Entry<'_, R>,
        parent: BorrowedFd<'_>,
        name: &OsStr,
    ) -> io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(parent, name, flags, Mode::from_raw_mode(0o600))?;
        let mut file = std::fs::File::from(fd);
        let left = BYTES_MAX.saturating_sub(self.bytes);
        let written = io::copy(&mut entry.take(left + 1), &mut file)?;
        self.bytes += written;
        if written > left {
            return Err(invalid("the layer is larger than this node accepts"));
        }
        Ok(())
    }

    fn hard_link<R: Read>(&self, entry: &tar::Entry<'_, R>, parent: BorrowedFd<'_>, name: &OsStr) -> io::Result<()> {
        let target = entry.link_name()?.ok_or_else(|| invalid("hard link without a target"))?;
        let target = relative_path(&target).map_err(|error| invalid(&error.to_string()))?;
        let file = target.file_name().ok_or_else(|| invalid("hard link to the root"))?;
        let from = self.parent(&target)?;
        // No AT_SYMLINK_FOLLOW: a link to a symlink is a link to that symlink, wherever it points.
        Ok(rustix::fs::linkat(&from, file, parent, name, AtFlags::empty())?)
    }

    /// The entry `./`: the root directory's own metadata.
    fn set_root(&self, meta: &Meta, path: &Path) -> Result<(), UnpackError> {
        let set = || -> io::Result<()> {
            rustix::fs::chownat(&self.root, c"", uid(meta), gid(meta), AtFlags::EMPTY_PATH)?;
            let dot = open_in_root(self.root.as_fd(), Path::new("."), OFlags::DIRECTORY | OFlags::RDONLY)?;
            Ok(rustix::fs::chmodat(&dot, ".", meta.mode, AtFlags::empty())?)
        };
        set().map_err(entry_error("set the metadata of", path))
    }

    fn finish(self) -> Result<u64, UnpackError> {
        // Deepest first, so that no later change touches a parent that is done.
        for (path, mtime) in self.times.iter().rev() {
            // A directory may have been replaced or removed by a later entry of the same layer.
            if let Ok(parent) = self.parent(path)
                && let Some(name) = path.file_name()
            {
                let _replaced_meanwhile = set_time(parent.as_fd(), name, *mtime);
            }
        }
        Ok(self.bytes)
    }
}

fn open_in_root(root: BorrowedFd<'_>, path: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let flags =
        if flags.contains(OFlags::RDONLY) && !flags.contains(OFlags::DIRECTORY) { flags } else { flags | OFlags::PATH };
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
                return Err(UnpackError::Refused { why: format!("path {path:?} leaves the layer") });
            }
        }
    }
    Ok(relative)
}

fn read_meta<R: Read>(entry: &mut tar::Entry<'_, R>) -> io::Result<Meta> {
    let mut xattrs = HashMap::new();
    if let Some(extensions) = entry.pax_extensions()? {
        for extension in extensions {
            let extension = extension?;
            if extension.value_bytes().len() as u64 > EXTENSION_MAX {
                return Err(invalid("an extended header is too long"));
            }
            if let Some(name) = extension.key_bytes().strip_prefix(b"SCHILY.xattr.") {
                xattrs.insert(name.to_vec(), extension.value_bytes().to_vec());
            }
        }
    }
    let header = entry.header();
    let id = |value: u64| u32::try_from(value).map_err(|_| invalid("owner is not a 32-bit number"));
    Ok(Meta {
        mode: Mode::from_raw_mode(header.mode()? & 0o7777),
        uid: id(header.uid()?)?,
        gid: id(header.gid()?)?,
        mtime: i64::try_from(header.mtime()?).unwrap_or(0),
        xattrs,
    })
}

fn make_directory(parent: BorrowedFd<'_>, name: &OsStr) -> io::Result<()> {
    match rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(0o755)) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::EXIST) => {
            let stat = rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
            if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
                return Ok(());
            }
            rustix::fs::unlinkat(parent, name, AtFlags::empty())?;
            Ok(rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(0o755))?)
        }
        Err(errno) => Err(errno.into()),
    }
}

/// Later entries of a layer replace earlier ones; a directory only goes if it is empty of this layer's own files.
fn remove_existing(parent: BorrowedFd<'_>, name: &OsStr) -> io::Result<()> {
    match rustix::fs::unlinkat(parent, name, AtFlags::empty()) {
        Ok(()) | Err(rustix::io::Errno::NOENT) => Ok(()),
        Err(rustix::io::Errno::ISDIR) => Ok(rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR)?),
        Err(errno) => Err(errno.into()),
    }
}

fn make_node(parent: BorrowedFd<'_>, name: &OsStr, header: &Header, meta: &Meta) -> io::Result<()> {
    let kind = match header.entry_type() {
        EntryType::Char => FileType::CharacterDevice,
        EntryType::Block => FileType::BlockDevice,
        _ => FileType::Fifo,
    };
    let device = rustix::fs::makedev(header.device_major()?.unwrap_or(0), header.device_minor()?.unwrap_or(0));
    Ok(rustix::fs::mknodat(parent, name, kind, meta.mode, device)?)
}

fn set_meta(parent: BorrowedFd<'_>, name: &OsStr, meta: &Meta, symlink: bool) -> io::Result<()> {
    // The owner first: chown clears set-user-ID bits and file capabilities.
    rustix::fs::chownat(parent, name, uid(meta), gid(meta), AtFlags::SYMLINK_NOFOLLOW)?;
    if !symlink {
        rustix::fs::chmodat(parent, name, meta.mode, AtFlags::empty())?;
        set_xattrs(parent, name, meta)?;
    }
    set_time(parent, name, meta.mtime)
}

fn set_xattrs(parent: BorrowedFd<'_>, name: &OsStr, meta: &Meta) -> io::Result<()> {
    if meta.xattrs.is_empty() {
        return Ok(());
    }
    let fd = rustix::fs::openat(parent, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    for (key, value) in &meta.xattrs {
        // An image may not speak to overlayfs itself.
        if key.starts_with(b"trusted.overlay.") {
            continue;
        }
        set_xattr(fd.as_fd(), key, value)?;
    }
    Ok(())
}

fn set_xattr(fd: BorrowedFd<'_>, key: &[u8], value: &[u8]) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    // An O_PATH descriptor takes no fsetxattr; its /proc link is the file itself, not a name that could move.
    let link = format!("/proc/self/fd/{}", fd.as_raw_fd());
    Ok(rustix::fs::setxattr(&*link, OsStr::from_bytes(key), value, XattrFlags::empty())?)
}

fn set_time(parent: BorrowedFd<'_>, name: &OsStr, mtime: i64) -> io::Result<()> {
    let at = Timespec { tv_sec: mtime, tv_nsec: 0 };
    let times = Timestamps { last_access: at, last_modification: at };
    Ok(rustix::fs::utimensat(parent, name, &times, AtFlags::SYMLINK_NOFOLLOW)?)
}

fn set_opaque(parent: BorrowedFd<'_>) -> io::Result<()> {
    set_xattr(parent, b"trusted.overlay.opaque", b"y")
}

fn whiteout(parent: BorrowedFd<'_>, hidden: &[u8], path: &Path) -> Result<(), UnpackError> {
    if hidden.is_empty() || hidden == b"." || hidden == b".." || hidden.starts_with(b".wh.") {
        return Err(UnpackError::Refused { why: format!("whiteout {path:?} names no file") });
    }
    let name = OsStr::from_bytes(hidden);
    let make = || -> io::Result<()> {
        remove_existing(parent, name)?;
        Ok(rustix::fs::mknodat(parent, name, FileType::CharacterDevice, Mode::empty(), rustix::fs::makedev(0, 0))?)
    };
    make().map_err(entry_error("white out", path))
}

fn uid(meta: &Meta) -> Option<Uid> {
    Some(Uid::from_raw(meta.uid))
}

fn gid(meta: &Meta) -> Option<Gid> {
    Some(Gid::from_raw(meta.gid))
}

fn invalid(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.to_owned())
}

fn entry_error(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> UnpackError {
    let path = path.to_owned();
    move |source| UnpackError::Entry { operation, path, source }
}

#[cfg(test)]
mod tests;
