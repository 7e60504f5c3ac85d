//! The configuration and the result of every ADD, on disk: one file a sandbox, named by its ID.
//!
//! Written before ADD and again after it, so that whatever happens in between can be undone.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    blocking::blocking,
    network::{NetworkError, cni::conflist::NetworkList},
    runtime::types::{PodRef, PortMapping, SandboxId},
};

/// What the name of a record ends in until it is complete.
const UNFINISHED: &str = ".tmp";

/// What is remembered of an attachment. Written without a result before ADD, with one after it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Cached {
    pub(super) list: NetworkList,
    pub(super) pod: PodRef,
    pub(super) netns: PathBuf,
    pub(super) port_mappings: Vec<PortMapping>,
    pub(super) result: Option<Value>,
}

/// All that is remembered.
#[derive(Debug)]
pub(super) struct Cache {
    dir: PathBuf,
}

impl Cache {
    pub(super) fn new(dir: PathBuf) -> Self {
        Self { dir }
    }

    /// `None` also for what cannot be read: DEL then gets what the configuration says now.
    pub(super) async fn get(&self, id: &SandboxId) -> Option<Cached> {
        let path = self.dir.join(&id.0);
        blocking(move || serde_json::from_slice(&fs::read(path).ok()?).ok()).await
    }

    pub(super) async fn put(&self, id: &SandboxId, cached: &Cached) -> Result<(), NetworkError> {
        let (dir, path) = (self.dir.clone(), self.dir.join(&id.0));
        let unfinished = self.dir.join(format!("{}{UNFINISHED}", id.0));
        let record = serde_json::to_vec(cached).map_err(io::Error::from);
        blocking(move || {
            let write = || {
                fs::create_dir_all(dir)?;
                fs::write(&unfinished, record?)?;
                fs::rename(&unfinished, &path)
            };
            write().map_err(|source| failed("remember", &path, &source))
        })
        .await
    }

    pub(super) async fn remove(&self, id: &SandboxId) -> Result<(), NetworkError> {
        let path = self.dir.join(&id.0);
        blocking(move || match fs::remove_file(&path) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                Err(failed("forget", &path, &source))
            }
            _ => Ok(()),
        })
        .await
    }

    /// Whose attachments are remembered. Removes what a killed write has left: nothing depends on
    /// it.
    pub(super) async fn ids(&self) -> Vec<SandboxId> {
        let dir = self.dir.clone();
        blocking(move || {
            let mut ids = Vec::new();
            for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
                match entry.file_name().into_string() {
                    Ok(name) if name.ends_with(UNFINISHED) => drop(fs::remove_file(entry.path())),
                    Ok(name) => ids.push(SandboxId(name)),
                    Err(_) => {}
                }
            }
            ids
        })
        .await
    }
}

fn failed(operation: &str, path: &Path, source: &io::Error) -> NetworkError {
    NetworkError::NotReady {
        why: format!("{operation} {}: {source}", path.display()),
    }
}
