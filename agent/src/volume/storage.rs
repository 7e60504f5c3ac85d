//! The node's storage directory: a directory in it for each volume that the cluster has made for
//! this node.
//!
//! A pod's first mount of such a volume makes its directory. From then on there is a record, and a
//! directory that is not there any more, because a disk is not mounted or somebody has removed it,
//! is an error and not made again: an empty one would look to its pod as if all data were gone.
//!
//! ```text
//! (none) --record--> making --mkdir, fsync--> made --the volume goes--> going --removed--> (none)
//! ```
//! PersistentVolumes are written by users of the cluster. A path counts only if it is what the
//! name of the volume and its claim make of the storage directory, and what is removed is what the
//! record says that was made: nothing else on the node, whatever a volume names. Blocking.
//!
//! State: `<agent>/local-volumes/<uid of the volume>`, written here alone.

mod record;

use std::{
    fs,
    io::{self, ErrorKind},
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use coracle_api::{
    name,
    volume::{PROVISIONED_BY, annotation, claim_of, local_path},
};
use coracle_trust::private_file;
use k8s_openapi::api::core::v1::PersistentVolume;
use parking_lot::Mutex;
use rustix::{
    fs::{CWD, Mode, OFlags, RenameFlags, ResolveFlags},
    io::Errno,
};

pub(crate) use self::record::recorded;
use self::record::{Record, State, read, records, write};
use crate::removal;

/// In the storage directory: tells it from the place where a disk should be.
pub(crate) const MARKER: &str = ".coracle-storage";
/// Everybody may write: who its pod runs as is not known.
const MODE: Mode = Mode::from_raw_mode(0o777);

/// Why there is no directory for a volume.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StorageError {
    #[error("path {path:?} of the volume is not the one that this node makes for it, {expected:?}")]
    Foreign { path: String, expected: String },
    #[error(
        "directory {path:?} of the volume is gone from this node; it is not made again, because its pod would take an \
         empty one for its data"
    )]
    Gone { path: String },
    #[error("the volume is being removed from this node")]
    Going,
    #[error(
        "directory {path:?} of the volume is not there, and {base:?} is not the storage directory that it was made in: is \
         its disk mounted? It is removed once it is"
    )]
    Away { path: String, base: String },
    #[error(
        "storage directory {base:?} is not the one that this node has made volumes in: is its disk mounted? A new one is \
         begun by removing what is in {records:?}"
    )]
    AnotherDisk { base: String, records: String },
    #[error("{uid:?} is no uid of a volume")]
    Uid { uid: String },
    #[error("{operation} {path}")]
    Io {
        operation: &'static str,
        path: PathBuf,
        source: io::Error,
    },
}

impl StorageError {
    fn io(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io {
            operation,
            path,
            source,
        }
    }
}

/// The storage directory.
pub(crate) struct Storage {
    node: String,
    /// Absolute and without detours.
    base: PathBuf,
    records: PathBuf,
    /// Of the records: one writer at a time.
    turn: Mutex<()>,
}

impl Storage {
    pub(crate) fn new(node: &str, base: &Path, records: &Path) -> Self {
        Self {
            node: node.to_owned(),
            base: base.to_owned(),
            records: records.to_owned(),
            turn: Mutex::new(()),
        }
    }

    /// Whether the cluster has made a volume for this node.
    pub(crate) fn is_ours(&self, volume: &PersistentVolume) -> bool {
        let labels = volume.metadata.labels.as_ref();
        annotation(&volume.metadata, PROVISIONED_BY) == Some(local_path::PROVISIONER)
            && labels.and_then(|labels| labels.get(local_path::NODE)) == Some(&self.node)
    }

    /// Writes down that the volume is here, before anybody else hears of it.
    pub(crate) fn note(&self, volume: &PersistentVolume) -> Result<(), StorageError> {
        let _turn = self.turn.lock();
        self.noted(volume).map(drop)
    }

    /// Makes the directory of a volume that has none yet, and looks for that of one that has.
    pub(crate) fn ensure(&self, volume: &PersistentVolume) -> Result<(), StorageError> {
        let _turn = self.turn.lock();
        let (file, record) = self.noted(volume)?;
        match record.state {
            State::Going => Err(StorageError::Going),
            State::Made => look(&record),
            State::Making => {
                make(&record)?;
                let made = Record {
                    state: State::Made,
                    ..record
                };
                write(&file, &made)
            }
        }
    }

    /// The record of the volume, and where it is. One that the cluster says was made has been
    /// forgotten here, with its directory or without.
    fn noted(&self, volume: &PersistentVolume) -> Result<(PathBuf, Record), StorageError> {
        let spec = volume.spec.as_ref();
        let path = spec.and_then(|spec| spec.local.as_ref());
        let path = path.map(|local| local.path.as_str()).unwrap_or_default();
        let file = self.file(volume)?;
        if local_path::due(volume) != local_path::Due::Keep {
            return Err(StorageError::Going);
        }
        let record = match read(&file)? {
            Some(record) => record,
            None => {
                let mut record = self.first_record(volume);
                check(path, &record)?;
                record.storage = Some(self.identity()?);
                if annotation(&volume.metadata, local_path::MADE).is_some() {
                    look(&record)?;
                    record.state = State::Made;
                }
                write(&file, &record)?;
                record
            }
        };
        check(path, &record)?;
        Ok((file, record))
    }

    /// Forgets a volume, and removes the directory that was made for it unless that is to be
    /// `retained`. `false` if `is_used` says so: nothing is done then.
    ///
    /// Who is about to use the volume says so before [`Storage::ensure`] is asked; one of the two
    /// finds the other.
    pub(crate) fn let_go(
        &self,
        volume: &PersistentVolume,
        retained: bool,
        is_used: impl FnOnce() -> io::Result<bool>,
    ) -> Result<bool, StorageError> {
        let file = self.file(volume)?;
        let record = {
            let _turn = self.turn.lock();
            if is_used().map_err(StorageError::io("look for users of the volume of", &file))? {
                return Ok(false);
            }
            let Some(record) = read(&file)? else {
                return Ok(true);
            };
            if !retained {
                proves_to_be_there(&record)?;
            }
            let going = Record {
                state: State::Going,
                ..record
            };
            if !retained {
                write(&file, &going)?;
            }
            going
        };
        if !retained {
            for path in [record.path(), record.base.join(record.unfinished())] {
                removal::remove_tree(&path).map_err(StorageError::io("remove", &path))?;
            }
            sync(&record.base)?;
        }
        let _turn = self.turn.lock();
        fs::remove_file(&file).map_err(StorageError::io("remove", &file))?;
        Ok(true)
    }

    fn first_record(&self, volume: &PersistentVolume) -> Record {
        let name = volume.metadata.name.as_deref().unwrap_or_default();
        let claim =
            claim_of(volume).map(|claim| (claim.namespace.as_deref(), claim.name.as_deref()));
        let (namespace, claim) = claim.unwrap_or_default();
        let (namespace, claim) = (namespace.unwrap_or_default(), claim.unwrap_or_default());
        Record {
            volume: name.to_owned(),
            base: self.base.clone(),
            directory: local_path::directory_name(name, namespace, claim),
            state: State::Making,
            storage: None,
        }
    }

    /// What the storage directory says that it is: the first volume in it makes it say so. One that
    /// says nothing although volumes were made in it is the place where a disk should be.
    fn identity(&self) -> Result<String, StorageError> {
        let marker = self.base.join(MARKER);
        if let Some(identity) = said(&marker)? {
            return Ok(identity);
        }
        for known in records(&self.records).map_err(StorageError::io("read", &self.records))? {
            if known.base == self.base && known.storage.is_some() {
                return Err(StorageError::AnotherDisk {
                    base: self.base.display().to_string(),
                    records: self.records.display().to_string(),
                });
            }
        }
        let identity = uuid::Uuid::new_v4().to_string();
        private_file::write(&marker, identity.as_bytes())
            .map_err(StorageError::io("write", &marker))?;
        Ok(identity)
    }

    fn file(&self, volume: &PersistentVolume) -> Result<PathBuf, StorageError> {
        let uid = volume.metadata.uid.as_deref().unwrap_or_default();
        // It becomes the name of a file.
        match name::dns_subdomain_error(uid) {
            None => Ok(self.records.join(uid)),
            Some(_) => Err(StorageError::Uid {
                uid: uid.to_owned(),
            }),
        }
    }
}

/// A directory that is not there has gone only if what it was made in is.
fn proves_to_be_there(record: &Record) -> Result<(), StorageError> {
    let (path, Some(storage)) = (record.path(), &record.storage) else {
        return Ok(());
    };
    let is_gone =
        matches!(fs::symlink_metadata(&path), Err(error) if error.kind() == ErrorKind::NotFound);
    if record.state != State::Made || !is_gone {
        return Ok(());
    }
    if said(&record.base.join(MARKER))?.as_ref() == Some(storage) {
        return Ok(());
    }
    Err(StorageError::Away {
        path: path.display().to_string(),
        base: record.base.display().to_string(),
    })
}

/// What a marker says.
fn said(marker: &Path) -> Result<Option<String>, StorageError> {
    match fs::read_to_string(marker) {
        Ok(identity) => Ok(Some(identity.trim().to_owned())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(StorageError::io("read", marker)(error)),
    }
}

/// Whether a volume's path is the directory that was made for it, or is to be.
fn check(path: &str, record: &Record) -> Result<(), StorageError> {
    let expected = record.path();
    let is_one = !record.directory.is_empty()
        && !record.directory.contains('/')
        && !record.directory.starts_with('.');
    if is_one && expected.as_os_str() == path {
        return Ok(());
    }
    Err(StorageError::Foreign {
        path: path.to_owned(),
        expected: expected.display().to_string(),
    })
}

fn base(record: &Record) -> Result<OwnedFd, StorageError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat(CWD, &record.base, flags, Mode::empty())
        .map_err(|error| StorageError::io("open", &record.base)(error.into()))
}

/// The directory itself, whatever somebody may have put in its place.
fn open(base: &OwnedFd, directory: &str) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    rustix::fs::openat2(base, directory, flags, Mode::empty(), resolve)
}

fn look(record: &Record) -> Result<(), StorageError> {
    let gone = || StorageError::Gone {
        path: record.path().display().to_string(),
    };
    let base = match base(record) {
        // Where the disk of all volumes is not there, so are they.
        Err(StorageError::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {
            return Err(gone());
        }
        other => other?,
    };
    match open(&base, &record.directory) {
        Ok(_) => Ok(()),
        Err(Errno::NOENT) => Err(gone()),
        Err(error) => Err(StorageError::io("open", &record.path())(error.into())),
    }
}

/// Beside its place, then there: it appears with its mode. One that is there already stays as it
/// is, made by a try that was cut off, or restored together with its volume.
fn make(record: &Record) -> Result<(), StorageError> {
    let path = record.path();
    let failed = |error: Errno| StorageError::io("make", &path)(error.into());
    let (base, unfinished) = (base(record)?, record.unfinished());
    if open(&base, &record.directory).is_err() {
        match rustix::fs::mkdirat(&base, &unfinished, MODE) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(failed(error)),
        }
        let made = open(&base, &unfinished).map_err(failed)?;
        // The umask must not decide.
        rustix::fs::fchmod(&made, MODE).map_err(failed)?;
        rustix::fs::fsync(&made).map_err(failed)?;
        let (from, to) = (&unfinished, &record.directory);
        rustix::fs::renameat_with(&base, from, &base, to, RenameFlags::NOREPLACE)
            .map_err(failed)?;
    }
    rustix::fs::fsync(&base).map_err(failed)
}

fn sync(dir: &Path) -> Result<(), StorageError> {
    let synced = fs::File::open(dir).and_then(|dir| dir.sync_all());
    match synced {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        other => other.map_err(StorageError::io("sync", dir)),
    }
}

#[cfg(test)]
mod tests;
