//! The real runtime: one shim a pod, state on disk under the run directory.
//!
//! This file only maps CRI's verbs to the modules that do them, one verb a file.

use std::{path::PathBuf, sync::Arc, time::Duration};

use async_trait::async_trait;
use tokio::sync::broadcast;

use super::*;
use crate::network::PodNetwork;

/// What [`LocalRuntime::start`] needs.
pub struct RuntimeConfig {
    /// Sandboxes, sockets, pinned namespaces: lost at reboot, as the containers are.
    pub run_dir: PathBuf,
    /// Writable layers of containers.
    pub root_dir: PathBuf,
    /// The `coracle-shim` binary; its helper `coracle-oci` lies beside it.
    pub shim_path: PathBuf,
    /// Attaches sandboxes.
    pub network: Arc<dyn PodNetwork>,
    /// Knows the layers.
    pub images: Arc<dyn ImageService>,
}

/// Runs pods on this machine.
pub struct LocalRuntime {
    events: broadcast::Sender<RuntimeEvent>,
}

impl LocalRuntime {
    /// Seals the shim's binaries in memory, rescans the run directory, reconnects to living shims and removes what a
    /// killed predecessor left half made.
    ///
    /// # Errors
    /// [`RuntimeError::State`] when directories or binaries are unusable.
    pub async fn start(_config: RuntimeConfig) -> Result<Arc<Self>, RuntimeError> {
        Ok(Arc::new(Self { events: broadcast::channel(256).0 }))
    }
}

#[async_trait]
impl RuntimeService for LocalRuntime {
    async fn run_pod_sandbox(&self, _config: &SandboxConfig) -> Result<SandboxStatus, RuntimeError> {
        unimplemented!()
    }
    async fn stop_pod_sandbox(&self, _id: &SandboxId) -> Result<(), RuntimeError> {
        unimplemented!()
    }
    async fn remove_pod_sandbox(&self, _id: &SandboxId) -> Result<(), RuntimeError> {
        unimplemented!()
    }
    async fn list_pod_sandboxes(&self) -> Result<Vec<SandboxStatus>, RuntimeError> {
        unimplemented!()
    }
    async fn create_container(&self, _sandbox: &SandboxId, _config: &ContainerConfig) -> Result<ContainerId, RuntimeError> {
        unimplemented!()
    }
    async fn start_container(&self, _id: &ContainerId) -> Result<(), RuntimeError> {
        unimplemented!()
    }
    async fn stop_container(&self, _id: &ContainerId, _grace: Duration) -> Result<(), RuntimeError> {
        unimplemented!()
    }
    async fn remove_container(&self, _id: &ContainerId) -> Result<(), RuntimeError> {
        unimplemented!()
    }
    async fn list_containers(&self) -> Result<Vec<ContainerStatus>, RuntimeError> {
        unimplemented!()
    }
    async fn exec_sync(&self, _id: &ContainerId, _command: &[String], _timeout: Duration) -> Result<ExecResult, RuntimeError> {
        unimplemented!()
    }
    async fn exec(&self, _id: &ContainerId, _request: &ExecRequest) -> Result<StreamSession, RuntimeError> {
        unimplemented!()
    }
    async fn attach(&self, _id: &ContainerId, _request: &ExecRequest) -> Result<StreamSession, RuntimeError> {
        unimplemented!()
    }
    async fn port_forward(&self, _id: &SandboxId, _port: u16) -> Result<tokio::net::TcpStream, RuntimeError> {
        unimplemented!()
    }
    async fn reopen_container_log(&self, _id: &ContainerId) -> Result<(), RuntimeError> {
        unimplemented!()
    }
    async fn container_stats(&self, _id: &ContainerId) -> Result<ContainerStats, RuntimeError> {
        unimplemented!()
    }
    fn subscribe(&self) -> broadcast::Receiver<RuntimeEvent> {
        self.events.subscribe()
    }
}
