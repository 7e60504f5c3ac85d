//! The configuration and the result of every ADD, on disk: one file a sandbox, named by its ID.
//!
//! Written before ADD and again after it, so that whatever happens in between can be undone.

use std::{
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    blocking::blocking,
    network::{
        NetworkError, PodNetworkRequest,
        cni::{
            IFNAME,
            capabilities::{self, Capabilities},
            conflist::NetworkList,
        },
    },
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
    /// Those of before anything else was told.
    #[serde(default)]
    port_mappings: Vec<PortMapping>,
    #[serde(default)]
    pub(super) capabilities: Capabilities,
    /// Where the plugins were, for an agent that is told of others or none.
    #[serde(default)]
    pub(super) plugin_dirs: Vec<PathBuf>,
    pub(super) result: Option<Value>,
}

impl Cached {
    pub(super) fn new(
        list: NetworkList,
        request: &PodNetworkRequest,
        capabilities: Capabilities,
    ) -> Self {
        Self {
            list,
            pod: request.pod.clone(),
            netns: request.netns.clone(),
            port_mappings: request.port_mappings.clone(),
            capabilities,
            plugin_dirs: Vec::new(),
            result: None,
        }
    }

    /// What a plugin's environment says of the attachment.
    pub(super) fn about(&self, id: &SandboxId, netns: Option<&Path>) -> [(&str, OsString); 4] {
        let PodRef {
            namespace,
            name,
            uid,
        } = &self.pod;
        let arguments = format!(
            "IgnoreUnknown=1;K8S_POD_NAMESPACE={namespace};K8S_POD_NAME={name};K8S_POD_INFRA_CONTAINER_ID={id};K8S_POD_UID={uid}"
        );
        [
            ("CNI_CONTAINERID", id.0.clone().into()),
            ("CNI_NETNS", netns.unwrap_or(Path::new("")).into()),
            ("CNI_IFNAME", IFNAME.into()),
            ("CNI_ARGS", arguments.into()),
        ]
    }
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
        let read = move || serde_json::from_slice(&fs::read(path).ok()?).ok();
        let mut cached: Cached = blocking(read).await?;
        if cached.capabilities.is_empty() {
            cached.capabilities = capabilities::of_ports(&cached.port_mappings);
        }
        Some(cached)
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
