//! CRI's verbs, each in the module that does it, one verb a file.
//!
//! Verbs that make or destroy run in tasks of their own, so that a caller who gives up leaves
//! nothing half done.

use std::{path::PathBuf, sync::Arc, time::Duration};

use async_trait::async_trait;
use tokio::sync::broadcast;

use super::{
    super::{
        ContainerConfig, ContainerId, ContainerStats, ContainerStatus, ExecRequest, ExecResult,
        PodUid, Resources, RuntimeError, RuntimeEvent, RuntimeService, SandboxConfig, SandboxId,
        SandboxStatus, StreamSession, attach, container_create, container_remove, container_start,
        container_stop, container_update, entries::whole, exec, oci_spec, port_forward,
        sandbox_remove, sandbox_run, sandbox_stop, sandbox_update,
    },
    LocalRuntime,
};
use crate::blocking::blocking;

#[async_trait]
impl RuntimeService for LocalRuntime {
    async fn run_pod_sandbox(&self, config: &SandboxConfig) -> Result<SandboxStatus, RuntimeError> {
        let (inner, config) = (Arc::clone(&self.inner), config.clone());
        whole(async move { sandbox_run::run(&inner, config).await }).await
    }

    async fn stop_pod_sandbox(&self, id: &SandboxId) -> Result<(), RuntimeError> {
        let (inner, id) = (Arc::clone(&self.inner), id.clone());
        whole(async move { sandbox_stop::stop(&inner, &id).await }).await
    }

    async fn remove_pod_sandbox(&self, id: &SandboxId) -> Result<(), RuntimeError> {
        let (inner, id) = (Arc::clone(&self.inner), id.clone());
        whole(async move { sandbox_remove::remove(&inner, &id).await }).await
    }

    async fn list_pod_sandboxes(&self) -> Result<Vec<SandboxStatus>, RuntimeError> {
        Ok(self
            .inner
            .sandboxes()
            .iter()
            .filter(|sandbox| sandbox.checkpoint.lock().complete)
            .map(|sandbox| sandbox.status())
            .collect())
    }

    async fn create_container(
        &self,
        sandbox: &SandboxId,
        config: &ContainerConfig,
    ) -> Result<ContainerId, RuntimeError> {
        let (inner, sandbox, config) = (Arc::clone(&self.inner), sandbox.clone(), config.clone());
        whole(async move { container_create::create(&inner, &sandbox, config).await }).await
    }

    async fn start_container(&self, id: &ContainerId) -> Result<(), RuntimeError> {
        container_start::start(&self.inner, id).await
    }

    async fn stop_container(&self, id: &ContainerId, grace: Duration) -> Result<(), RuntimeError> {
        container_stop::stop(&self.inner, id, grace).await
    }

    async fn remove_container(&self, id: &ContainerId) -> Result<(), RuntimeError> {
        let (inner, id) = (Arc::clone(&self.inner), id.clone());
        whole(async move { container_remove::remove(&inner, &id).await }).await
    }

    async fn update_container_resources(
        &self,
        id: &ContainerId,
        resources: &Resources,
    ) -> Result<(), RuntimeError> {
        container_update::update(&self.inner, id, resources).await
    }

    async fn update_pod_sandbox_resources(
        &self,
        id: &SandboxId,
        resources: &Resources,
    ) -> Result<(), RuntimeError> {
        sandbox_update::update(&self.inner, id, resources).await
    }

    async fn update_class_cgroup(
        &self,
        path: &str,
        resources: &Resources,
    ) -> Result<(), RuntimeError> {
        let (inner, path, resources) =
            (Arc::clone(&self.inner), path.to_owned(), resources.clone());
        let work = move || {
            inner
                .class_cgroups
                .lock()
                .insert(path.trim_matches('/').to_owned());
            inner.hierarchies.create(&path, &resources)
        };
        blocking(work).await
    }

    async fn list_containers(&self) -> Result<Vec<ContainerStatus>, RuntimeError> {
        let containers: Vec<_> = self
            .inner
            .state
            .lock()
            .containers
            .values()
            .cloned()
            .collect();
        Ok(containers
            .iter()
            .filter_map(|container| container.status())
            .collect())
    }

    async fn pod_state(
        &self,
        uid: &PodUid,
    ) -> Result<(Vec<SandboxStatus>, Vec<ContainerStatus>), RuntimeError> {
        // Chosen before they are described: a worker asks at every step of its pod, whatever else
        // runs here.
        let (mut sandboxes, mut containers): (Vec<_>, Vec<_>) = {
            let state = self.inner.state.lock();
            (
                state.sandboxes.values().cloned().collect(),
                state.containers.values().cloned().collect(),
            )
        };
        sandboxes.retain(|sandbox| sandbox.checkpoint.lock().config.pod.uid == *uid);
        containers.retain(|container| {
            sandboxes
                .iter()
                .any(|sandbox| Arc::ptr_eq(sandbox, &container.sandbox))
        });
        sandboxes.retain(|sandbox| sandbox.checkpoint.lock().complete);
        Ok((
            sandboxes.iter().map(|sandbox| sandbox.status()).collect(),
            containers
                .iter()
                .filter_map(|container| container.status())
                .collect(),
        ))
    }

    async fn exec_sync(
        &self,
        id: &ContainerId,
        command: &[String],
        timeout: Duration,
    ) -> Result<ExecResult, RuntimeError> {
        exec::exec_sync(&self.inner, id, command, timeout).await
    }

    async fn exec(
        &self,
        id: &ContainerId,
        request: &ExecRequest,
    ) -> Result<StreamSession, RuntimeError> {
        exec::exec(&self.inner, id, request).await
    }

    async fn attach(
        &self,
        id: &ContainerId,
        request: &ExecRequest,
    ) -> Result<StreamSession, RuntimeError> {
        attach::attach(&self.inner, id, request).await
    }

    async fn port_forward(
        &self,
        id: &SandboxId,
        port: u16,
    ) -> Result<tokio::net::TcpStream, RuntimeError> {
        port_forward::connect(&self.inner, id, port).await
    }

    async fn reopen_container_log(&self, id: &ContainerId) -> Result<(), RuntimeError> {
        container_start::reopen_log(&self.inner, id).await
    }

    async fn container_stats(&self, id: &ContainerId) -> Result<ContainerStats, RuntimeError> {
        let container = self.inner.container(id)?;
        let path = oci_spec::cgroup_path(&container.sandbox.checkpoint.lock().config, &id.0);
        let inner = Arc::clone(&self.inner);
        Ok(blocking(move || inner.hierarchies.stats(&path)).await)
    }

    async fn writable_layer(&self, id: &ContainerId) -> Result<PathBuf, RuntimeError> {
        self.inner
            .container(id)
            .map(|container| self.inner.writable_dir(&container.id))
    }

    fn subscribe(&self) -> broadcast::Receiver<RuntimeEvent> {
        self.inner.events.subscribe()
    }
}
