//! The container runtime behind CRI's verbs.
//!
//! [`RuntimeService`] and [`ImageService`] are what the agent's sync loop sees; fakes of both live
//! beside the real ones behind `feature = "testing"`. The real runtime talks to one shim a pod and
//! never links libcontainer.

mod attach;
mod binaries;
mod cgroup;
mod checkpoint;
mod container_create;
mod container_remove;
mod container_start;
mod container_stop;
mod container_update;
mod entries;
mod erase;
mod exec;
#[cfg(any(test, feature = "testing"))]
pub mod fake;
mod held_layers;
pub mod local;
mod lost_pods;
pub mod oci_spec;
mod past;
mod port_forward;
mod recover;
mod sandbox_remove;
mod sandbox_run;
mod sandbox_stop;
mod sandbox_update;
mod shim_client;
mod streams;
pub mod types;

use std::{path::PathBuf, sync::Arc, time::Duration};

use async_trait::async_trait;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::{broadcast, mpsc},
};

pub use local::{LocalRuntime, RuntimeConfig};
pub use lost_pods::OwnPods;
pub use types::*;

use crate::image::error::{PullError, StoreError};

pub(crate) use cgroup::remove as remove_cgroups;
pub(crate) use checkpoint::unknown as lost_in_a_reboot;
#[cfg(test)]
pub(crate) use held_layers::holders;
pub(crate) use held_layers::{HELD_LAYERS, held as held_layers, runtime_root};

/// A container or sandbox changed: look again. Lossy (a lagging receiver relists).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuntimeEvent {
    /// Whose state to look at.
    pub pod_uid: PodUid,
}

/// A running exec or attach. Dropping it hangs up; the process goes on if it was attached, and is
/// killed if it was exec'ed.
pub struct StreamSession {
    /// Write end of stdin, if asked for.
    pub stdin: Option<Box<dyn AsyncWrite + Send + Unpin>>,
    /// Read end of stdout (the terminal's output with `tty`).
    pub stdout: Option<Box<dyn AsyncRead + Send + Unpin>>,
    /// Read end of stderr.
    pub stderr: Option<Box<dyn AsyncRead + Send + Unpin>>,
    /// Send `(columns, rows)` here to resize the terminal.
    pub resize: mpsc::Sender<(u16, u16)>,
    /// Resolves with the exit code once the process has ended and its output is drained.
    pub exit: futures::future::BoxFuture<'static, Result<i32, RuntimeError>>,
}

/// Why the runtime could not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RuntimeError {
    /// No such sandbox or container.
    #[error("{kind} {id} does not exist")]
    NotFound {
        /// `sandbox` or `container`.
        kind: &'static str,
        /// Its ID.
        id: String,
    },
    /// The spec cannot be carried out as it is: retrying without a change is useless.
    /// Becomes the waiting reason `CreateContainerConfigError`.
    #[error("{message}")]
    InvalidConfig {
        /// For people.
        message: String,
    },
    /// Setting up the network failed. Becomes the event `FailedCreatePodSandBox`.
    #[error("set up the network of sandbox {id}")]
    Network {
        /// Which sandbox.
        id: SandboxId,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// libcontainer (through the shim) could not make or start the container.
    /// Becomes `CreateContainerError` or `RunContainerError`.
    #[error("{operation}: {message}")]
    Oci {
        /// `create container nginx`...
        operation: String,
        /// What the shim reported, whole chain.
        message: String,
    },
    /// The shim did not answer.
    #[error("talk to the shim of sandbox {id} to {operation}")]
    Shim {
        /// Which sandbox.
        id: SandboxId,
        /// What was asked.
        operation: &'static str,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A deadline passed.
    #[error("{operation} took longer than {} s", limit.as_secs())]
    Timeout {
        /// What took too long.
        operation: String,
        /// The deadline.
        limit: Duration,
    },
    /// The agent ends: the task that was to do it was given up.
    #[error("the agent is ending")]
    Ending,
    /// The kernel does not tell where a process is; it may have ended.
    #[error("read the PID namespace of process {pid}")]
    PidNamespace {
        /// Which.
        pid: i32,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A file or directory of the runtime's own state.
    #[error("{operation} {path}")]
    State {
        /// `read`, `write`, `mount`...
        operation: &'static str,
        /// Which.
        path: std::path::PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

/// Runs pods. Methods named as in CRI, each bounded in time. Those that stop, remove, update and
/// read may be called again whatever came of the call before; those that make something say so if
/// they may not.
#[async_trait]
pub trait RuntimeService: Send + Sync + 'static {
    /// Makes namespaces, cgroup, shim and network. Leaves nothing behind when it fails. Every call
    /// makes another sandbox.
    async fn run_pod_sandbox(&self, config: &SandboxConfig) -> Result<SandboxStatus, RuntimeError>;
    /// Kills all containers, releases the network. The logs and records stay.
    async fn stop_pod_sandbox(&self, id: &SandboxId) -> Result<(), RuntimeError>;
    /// Removes every trace but the logs.
    async fn remove_pod_sandbox(&self, id: &SandboxId) -> Result<(), RuntimeError>;
    /// All of them, from memory (kept current by the shims), cheap.
    async fn list_pod_sandboxes(&self) -> Result<Vec<SandboxStatus>, RuntimeError>;
    /// Mounts the root file system, makes the container; its process waits for `start_container`.
    /// Every call makes another one.
    async fn create_container(
        &self,
        sandbox: &SandboxId,
        config: &ContainerConfig,
    ) -> Result<ContainerId, RuntimeError>;
    /// Lets the process run.
    async fn start_container(&self, id: &ContainerId) -> Result<(), RuntimeError>;
    /// Sends the stop signal, then SIGKILL after `grace`. Returns once it has exited.
    async fn stop_container(&self, id: &ContainerId, grace: Duration) -> Result<(), RuntimeError>;
    /// Removes a stopped container: mounts, cgroup, records. Its log stays.
    async fn remove_container(&self, id: &ContainerId) -> Result<(), RuntimeError>;
    /// Changes the limits of a running container's cgroup; what is absent becomes unlimited. One
    /// that has ended is left alone.
    ///
    /// # Errors
    /// [`RuntimeError::InvalidConfig`] if it uses more memory than it would get.
    async fn update_container_resources(
        &self,
        id: &ContainerId,
        resources: &Resources,
    ) -> Result<(), RuntimeError>;
    /// The same for the cgroup of the whole pod.
    async fn update_pod_sandbox_resources(
        &self,
        id: &SandboxId,
        resources: &Resources,
    ) -> Result<(), RuntimeError>;
    /// Makes a cgroup that holds those of many pods, and gives it these limits; it stays when the
    /// last of them goes. Idempotent.
    async fn update_class_cgroup(
        &self,
        path: &str,
        resources: &Resources,
    ) -> Result<(), RuntimeError>;
    /// All of them, exited ones included, from memory, cheap.
    async fn list_containers(&self) -> Result<Vec<ContainerStatus>, RuntimeError>;
    /// The sandboxes and containers of one pod, exited ones included, from memory.
    async fn pod_state(
        &self,
        uid: &PodUid,
    ) -> Result<(Vec<SandboxStatus>, Vec<ContainerStatus>), RuntimeError> {
        let mut sandboxes = self.list_pod_sandboxes().await?;
        sandboxes.retain(|sandbox| sandbox.pod.uid == *uid);
        let mut containers = self.list_containers().await?;
        containers.retain(|container| container.pod.uid == *uid);
        Ok((sandboxes, containers))
    }
    /// Runs a command to its end, with every call once more; kills it (and what it left behind) at
    /// `timeout`.
    async fn exec_sync(
        &self,
        id: &ContainerId,
        command: &[String],
        timeout: Duration,
    ) -> Result<ExecResult, RuntimeError>;
    /// Starts a command with streams: with every call once more.
    async fn exec(
        &self,
        id: &ContainerId,
        request: &ExecRequest,
    ) -> Result<StreamSession, RuntimeError>;
    /// Connects to the container's own streams, with every call once more; the field `command` is
    /// ignored.
    async fn attach(
        &self,
        id: &ContainerId,
        request: &ExecRequest,
    ) -> Result<StreamSession, RuntimeError>;
    /// Connects to a TCP port on the pod's loopback (from inside its network namespace): with every
    /// call once more.
    async fn port_forward(
        &self,
        id: &SandboxId,
        port: u16,
    ) -> Result<tokio::net::TcpStream, RuntimeError>;
    /// Makes the shim reopen the container's log file after rotation.
    async fn reopen_container_log(&self, id: &ContainerId) -> Result<(), RuntimeError>;
    /// Usage now.
    async fn container_stats(&self, id: &ContainerId) -> Result<ContainerStats, RuntimeError>;
    /// Where a container's own changes to its image are, on the node.
    async fn writable_layer(&self, id: &ContainerId) -> Result<PathBuf, RuntimeError>;
    /// Tells when to look again.
    fn subscribe(&self) -> broadcast::Receiver<RuntimeEvent>;
}

/// What an image says about how to run it, from its OCI config.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ImageConfig {
    /// ENTRYPOINT.
    pub entrypoint: Vec<String>,
    /// CMD.
    pub cmd: Vec<String>,
    /// `K=V`.
    pub env: Vec<String>,
    /// WORKDIR.
    pub working_dir: Option<String>,
    /// USER.
    pub user: Option<String>,
    /// STOPSIGNAL.
    pub stop_signal: Option<String>,
    /// VOLUME paths (made as empty directories inside the root only).
    pub volumes: Vec<String>,
}

/// An image in the local store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// `sha256:<config digest>`.
    pub id: String,
    /// Full references, such as `docker.io/library/nginx:latest`.
    pub repo_tags: Vec<String>,
    /// `docker.io/library/nginx@sha256:...`.
    pub repo_digests: Vec<String>,
    /// Unpacked size in bytes.
    pub size_bytes: u64,
    /// How to run it.
    pub config: ImageConfig,
}

/// One entry of a pull secret. What it does not have is empty.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct RegistryAuth {
    /// What it is for: a registry's host (with port), perhaps with wildcards, perhaps with a part
    /// of the repository's path.
    pub registry: String,
    /// User.
    pub username: String,
    /// Password.
    pub password: String,
    /// Exchanged for tokens (OAuth 2 refresh token).
    pub identity_token: String,
    /// Shown to the registry as it is.
    pub registry_token: String,
    /// Where it is kept, if in a Secret.
    pub secret: Option<Arc<SecretCoordinates>>,
}

/// Names a Secret, not what it holds: that may be rotated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretCoordinates {
    /// Its UID: one that was made anew is another one.
    pub uid: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// Why an image is not there.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImageError {
    /// Waiting reason `InvalidImageName`; never retried.
    #[error("couldn't parse image name {reference:?}: {why}")]
    InvalidName {
        /// As written.
        reference: String,
        /// What is wrong.
        why: String,
    },
    /// Waiting reason `ErrImageNeverPull`.
    #[error("container image {reference:?} is not present with pull policy of Never")]
    NeverPull {
        /// As written.
        reference: String,
    },
    /// Waiting reason `ErrImageNeverPull`: somebody else's credentials brought it here.
    #[error(
        "container image {reference:?} is present with pull policy of Never but does not have the proper credentials"
    )]
    NeverPullForeign {
        /// As written.
        reference: String,
    },
    /// Waiting reason `ErrImagePull` or `RegistryUnavailable`, then `ImagePullBackOff`.
    #[error("failed to pull and unpack image {reference:?}")]
    Pull {
        /// In full.
        reference: String,
        /// Why.
        source: Box<PullError>,
    },
    /// It was there, and somebody has removed it.
    #[error("image {reference:?} is no longer in the store")]
    Absent {
        /// As asked for.
        reference: String,
    },
    /// The local store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Keeps images. Implemented by `crate::image`.
#[async_trait]
pub trait ImageService: Send + Sync + 'static {
    /// The image under this reference (short names are normalized: `nginx` is
    /// `docker.io/library/nginx:latest`) or ID, if present.
    async fn image_status(&self, reference: &str) -> Result<Option<Image>, ImageError>;
    /// Pulls (concurrent pulls of one image are one pull); returns it once unpacked.
    async fn pull_image(&self, reference: &str, auth: &[RegistryAuth])
    -> Result<Image, ImageError>;
    /// All of them.
    async fn list_images(&self) -> Result<Vec<Image>, ImageError>;
    /// Removes a tag, or by ID the image; layers nobody uses any more go with it.
    async fn remove_image(&self, reference: &str) -> Result<(), ImageError>;
    /// Whether who has these credentials may run the image without asking its registry: it was
    /// imported, or pulled without credentials, with the node's own or with one of these.
    async fn may_use(&self, _reference: &str, _auth: &[RegistryAuth]) -> Result<bool, ImageError> {
        Ok(true)
    }
    /// The unpacked layer directories of an image, lowest first: the runtime mounts them as an
    /// overlay. They stay as long as the directory `holder` does, whatever becomes of the image.
    async fn layers(
        &self,
        image_id: &str,
        holder: &std::path::Path,
    ) -> Result<Vec<std::path::PathBuf>, ImageError>;
    /// Removes layers that neither an image nor a holder has.
    async fn prune(&self) -> Result<(), ImageError> {
        Ok(())
    }
}
