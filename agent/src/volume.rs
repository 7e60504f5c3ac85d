//! Volumes: makes what a pod's containers mount, keeps it current, takes it away.
//!
//! One directory a volume, `<pods>/<uid>/volumes/kubernetes.io~<kind>/<name>`; host paths are used where they are.
//! [`VolumeManager::ensure`] is idempotent and doubles as the refresh of ConfigMaps, Secrets and tokens: what has not
//! changed is not touched. Sizes, attach/detach and claims are not here yet: a volume of an unknown kind is an error that
//! the pod waits with.

mod atomic_writer;
mod config_map;
mod downward_api;
mod empty_dir;
mod host_path;
mod mounter;
mod ownership;
mod projected;
mod secret;
mod service_account_token;
mod sub_path;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use coracle_telemetry::Chain;
use k8s_openapi::api::core::v1::{KeyToPath, Pod, Volume};

use crate::{
    container_config::fields::FieldError,
    node::facts::Machine,
    objects::{FetchError, Objects},
    pod::PodExt,
    removal,
    runtime::types::PodUid,
};

#[cfg(test)]
pub(crate) use mounter::NoMounts;
use mounter::Tmpfs;
pub(crate) use mounter::{Mounter, SystemMounter};
pub(crate) use sub_path::SubPathError;

/// Volume name to the directory or file on the node.
pub(crate) type MountedVolumes = BTreeMap<String, PathBuf>;

/// Why a volume is not there: the event `FailedMount`.
#[derive(Debug, thiserror::Error)]
pub(crate) enum VolumeError {
    // Ends with a blank as upstream's, before what follows from the cause.
    #[error("MountVolume.SetUp failed for volume \"{volume}\" ")]
    SetUp { volume: String, source: KindError },
}

/// What went wrong with one volume.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KindError {
    #[error("{kind} \"{name}\" not found")]
    NotFound { kind: &'static str, name: String },
    #[error("references non-existent {kind} key: {key}")]
    NoKey { kind: &'static str, key: String },
    #[error("invalid path {path:?}: must be relative and without `..`")]
    BadPath { path: String },
    #[error("hostPath type check failed: {path} {problem}")]
    HostPath { path: String, problem: &'static str },
    #[error("this node knows no volume plugin for it")]
    Unsupported,
    #[error("this node has no storage medium {medium:?}")]
    Medium { medium: String },
    #[error(transparent)]
    Fetch(#[from] FetchError),
    #[error(transparent)]
    Field(#[from] FieldError),
    #[error("failed to fetch token")]
    Token { source: Box<kube::Error> },
    #[error("failed to fetch token: timed out waiting for the API server")]
    TokenTimeout,
    #[error("failed to fetch token: the API server's answer has none")]
    NoToken,
    #[error("{operation} {path}")]
    Io { operation: &'static str, path: PathBuf, source: std::io::Error },
}

impl KindError {
    /// The API server did not answer as it should, which says nothing about the volume.
    fn is_about_the_api(&self) -> bool {
        matches!(self, Self::Fetch(_) | Self::Token { .. } | Self::TokenTimeout | Self::NoToken)
    }

    fn io(operation: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { operation, path, source }
    }
}

/// A file inside a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileProjection {
    pub(crate) data: Vec<u8>,
    pub(crate) mode: u32,
    /// Root's when absent.
    pub(crate) owner: Option<u32>,
}

impl FileProjection {
    fn new(data: Vec<u8>, mode: u32) -> Self {
        Self { data, mode, owner: None }
    }
}

/// Relative path to file.
pub(crate) type Payload = BTreeMap<String, FileProjection>;

/// Makes, refreshes and removes volumes.
pub(crate) struct VolumeManager {
    pods_dir: PathBuf,
    client: kube::Client,
    objects: Arc<Objects>,
    mounter: Arc<dyn Mounter>,
    machine: Arc<Machine>,
    node_ip: std::net::IpAddr,
    tokens: service_account_token::Tokens,
}

impl VolumeManager {
    pub(crate) fn new(
        pods_dir: PathBuf,
        client: kube::Client,
        objects: Arc<Objects>,
        mounter: Arc<dyn Mounter>,
        machine: Arc<Machine>,
        node_ip: std::net::IpAddr,
    ) -> Self {
        Self { pods_dir, client, objects, mounter, machine, node_ip, tokens: service_account_token::Tokens::default() }
    }

    /// Makes all volumes of the pod, or brings them up to date with objects no older than `max_age`.
    ///
    /// # Errors
    /// The first volume that failed; the others are made all the same.
    pub(crate) async fn ensure(&self, pod: &Pod, max_age: Duration) -> Result<MountedVolumes, VolumeError> {
        let volumes = pod.spec_or_default().volumes.as_deref().unwrap_or_default();
        let made = futures::future::join_all(volumes.iter().map(|volume| async move {
            match self.ensure_one(pod, volume, max_age).await {
                Ok(path) => Ok((volume.name.clone(), path)),
                Err(source) => Err(VolumeError::SetUp { volume: volume.name.clone(), source }),
            }
        }))
        .await;
        made.into_iter().collect()
    }

    async fn ensure_one(&self, pod: &Pod, volume: &Volume, max_age: Duration) -> Result<PathBuf, KindError> {
        let fs_group = pod.spec_or_default().security_context.as_ref().and_then(|context| context.fs_group);
        let uid = pod.uid();
        if let Some(source) = &volume.host_path {
            return host_path::ensure(source).await;
        }
        if let Some(source) = &volume.empty_dir {
            let dir = self.empty_dir(&uid, &volume.name);
            let memory = self.machine.allocatable().memory_bytes;
            return empty_dir::ensure(dir, pod, source, fs_group, memory, Arc::clone(&self.mounter)).await;
        }
        let (kind, memory, payload) = if let Some(source) = &volume.config_map {
            ("configmap", false, config_map::collect(self, pod, source, max_age).await)
        } else if let Some(source) = &volume.secret {
            ("secret", true, secret::collect(self, pod, source, max_age).await)
        } else if let Some(source) = &volume.downward_api {
            ("downward-api", false, downward_api::collect(self, pod, source))
        } else if let Some(source) = &volume.projected {
            ("projected", true, projected::collect(self, pod, source, max_age).await)
        } else {
            return Err(KindError::Unsupported);
        };
        let dir = self.dir(&uid, kind, &volume.name);
        let payload = match payload {
            Ok(payload) => payload,
            // Without the control plane what is there already is good enough to restart a container.
            Err(error) if error.is_about_the_api() && atomic_writer::has_content(&dir) => {
                tracing::debug!(volume = volume.name, error = %Chain(&error), "keep the volume as it is");
                return Ok(dir);
            }
            Err(error) => return Err(error),
        };
        let mounter = Arc::clone(&self.mounter);
        blocking(move || {
            make_dir(&dir)?;
            if memory && !mounter.is_mount_point(&dir) {
                mounter.mount_tmpfs(&dir, &Tmpfs::default()).map_err(KindError::io("mount tmpfs on", &dir))?;
            }
            atomic_writer::write(&dir, &payload, fs_group)?;
            Ok(dir)
        })
        .await
    }

    /// A path below a volume, safe against symlinks that point out of it; bind-mounted so that it stays what it was.
    pub(crate) async fn sub_path(
        &self,
        uid: &PodUid,
        volume: &Path,
        place: &str,
        path: &str,
    ) -> Result<PathBuf, SubPathError> {
        let target = self.pod_dir(uid).join("volume-subpaths").join(place);
        let (volume, path, mounter) = (volume.to_owned(), path.to_owned(), Arc::clone(&self.mounter));
        match tokio::task::spawn_blocking(move || sub_path::prepare(&volume, &path, &target, mounter.as_ref())).await {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic.into_panic()),
        }
    }

    /// Unmounts and removes everything of the pod. Succeeds if there is nothing.
    pub(crate) async fn teardown(&self, uid: &PodUid) -> Result<(), KindError> {
        self.tokens.forget(uid);
        let dir = self.pod_dir(uid);
        let mounter = Arc::clone(&self.mounter);
        blocking(move || {
            if !dir.exists() {
                return Ok(());
            }
            mounter.unmount_below(&dir).map_err(KindError::io("unmount below", &dir))?;
            for part in ["volume-subpaths", "volumes"] {
                remove_tree(&dir.join(part))?;
            }
            Ok(())
        })
        .await
    }

    /// `<pods>/<uid>`.
    pub(crate) fn pod_dir(&self, uid: &PodUid) -> PathBuf {
        self.pods_dir.join(&uid.0)
    }

    /// Where the pod's emptyDir of that name is.
    pub(crate) fn empty_dir(&self, uid: &PodUid, name: &str) -> PathBuf {
        self.dir(uid, "empty-dir", name)
    }

    fn dir(&self, uid: &PodUid, kind: &str, name: &str) -> PathBuf {
        self.pod_dir(uid).join("volumes").join(format!("kubernetes.io~{kind}")).join(name)
    }
}

/// Removes a directory with all it holds; mount points below make it fail.
fn remove_tree(dir: &Path) -> Result<(), KindError> {
    removal::remove_tree(dir).map_err(KindError::io("remove", dir))
}

fn make_dir(dir: &Path) -> Result<(), KindError> {
    use std::os::unix::fs::PermissionsExt;
    if dir.is_dir() {
        return Ok(());
    }
    std::fs::create_dir_all(dir).map_err(KindError::io("create", dir))?;
    std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o755)).map_err(KindError::io("set the mode of", dir))
}

/// Runs file work off the async threads.
async fn blocking<T: Send + 'static, E: Send + 'static>(
    work: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> Result<T, E> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic.into_panic()),
    }
}

/// Picks and names the files of a ConfigMap or Secret.
fn select_items(
    kind: &'static str,
    data: &BTreeMap<String, Vec<u8>>,
    items: Option<&[KeyToPath]>,
    default_mode: Option<i32>,
    optional: bool,
) -> Result<Payload, KindError> {
    let default_mode = mode(default_mode, 0o644);
    let mut payload = Payload::new();
    match items.filter(|items| !items.is_empty()) {
        None => {
            for (key, value) in data {
                payload.insert(key.clone(), FileProjection::new(value.clone(), default_mode));
            }
        }
        Some(items) => {
            for item in items {
                match data.get(&item.key) {
                    Some(value) => {
                        let mode = item.mode.map_or(default_mode, |own| mode(Some(own), default_mode));
                        payload.insert(checked(&item.path)?, FileProjection::new(value.clone(), mode));
                    }
                    None if optional => {}
                    None => return Err(KindError::NoKey { kind, key: item.key.clone() }),
                }
            }
        }
    }
    Ok(payload)
}

fn mode(mode: Option<i32>, default: u32) -> u32 {
    mode.and_then(|mode| u32::try_from(mode).ok()).map_or(default, |mode| mode & 0o777)
}

/// A relative path without `..`, as it is.
fn checked(path: &str) -> Result<String, KindError> {
    let fine = !path.is_empty()
        && !path.starts_with('/')
        && !path.starts_with("..")
        && path.split('/').all(|part| part != "..");
    if fine { Ok(path.to_owned()) } else { Err(KindError::BadPath { path: path.to_owned() }) }
}

#[cfg(test)]
mod tests;
