//! What is known of a directory that was made here: a file each, `<agent>/local-volumes/<uid>`.

use std::{
    fs,
    io::{self, ErrorKind},
    path::{Path, PathBuf},
};

use coracle_trust::private_file;
use serde::{Deserialize, Serialize};

use super::StorageError;

/// How far a directory is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum State {
    Making,
    Made,
    Going,
}

/// A directory that was made here, or is about to be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) volume: String,
    /// The storage directory of the time.
    pub(super) base: PathBuf,
    /// In there.
    pub(super) directory: String,
    pub(super) state: State,
    /// What the storage directory says that it is. An earlier release asked for nothing.
    #[serde(default)]
    pub(super) storage: Option<String>,
}

impl Record {
    pub(super) fn path(&self) -> PathBuf {
        self.base.join(&self.directory)
    }

    /// What its directory is called until it is as it is to be.
    pub(super) fn unfinished(&self) -> String {
        format!(".{}.new", self.volume)
    }
}

/// Where directories are, or were, that were made here.
pub(crate) fn recorded(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let all = records(dir)?;
    Ok(all.iter().map(Record::path).collect())
}

pub(super) fn records(dir: &Path) -> io::Result<Vec<Record>> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let json = fs::read(entry?.path())?;
        found.push(serde_json::from_slice(&json)?);
    }
    Ok(found)
}

pub(super) fn read(file: &Path) -> Result<Option<Record>, StorageError> {
    let json = match fs::read(file) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        other => other.map_err(StorageError::io("read", file))?,
    };
    let parsed = serde_json::from_slice(&json).map_err(io::Error::from);
    parsed.map(Some).map_err(StorageError::io("read", file))
}

pub(super) fn write(file: &Path, record: &Record) -> Result<(), StorageError> {
    let json = serde_json::to_vec(record).map_err(io::Error::from);
    json.and_then(|json| private_file::write(file, &json))
        .map_err(StorageError::io("write", file))
}
