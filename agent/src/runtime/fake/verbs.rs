//! CRI's verbs of the fake: each writes its call down, fails if it shall, and makes the transition
//! that the real one makes.

use std::{
    net::{IpAddr, Ipv4Addr},
    path::PathBuf,
    time::{Duration, SystemTime},
};

use async_trait::async_trait;
use tokio::sync::{broadcast, mpsc};

use super::{
    super::{
        ContainerConfig, ContainerId, ContainerState, ContainerStats, ContainerStatus, ExecRequest,
        ExecResult, Resources, RuntimeError, RuntimeEvent, RuntimeService, SandboxConfig,
        SandboxId, SandboxState, SandboxStatus, StreamSession,
    },
    FakeRuntime, not_found,
};

#[async_trait]
impl RuntimeService for FakeRuntime {
    async fn run_pod_sandbox(&self, config: &SandboxConfig) -> Result<SandboxStatus, RuntimeError> {
        self.begin("run_pod_sandbox", &config.pod.name)?;
        self.released("run_pod_sandbox").await;
        let number = self.next();
        let last = u8::try_from(number % 250).expect("below 250") + 1;
        let status = SandboxStatus {
            id: SandboxId(format!("{number:064x}")),
            pod: config.pod.clone(),
            attempt: config.attempt,
            state: SandboxState::Ready,
            created_at: SystemTime::now(),
            ips: if config.host_network {
                vec![]
            } else {
                vec![IpAddr::V4(Ipv4Addr::new(10, 244, 0, last))]
            },
            host_network: config.host_network,
            resources: config.resources.clone(),
        };
        self.state
            .lock()
            .sandboxes
            .insert(status.id.clone(), (config.clone(), status.clone()));
        self.tell(config.pod.uid.clone());
        Ok(status)
    }

    async fn stop_pod_sandbox(&self, id: &SandboxId) -> Result<(), RuntimeError> {
        self.begin("stop_pod_sandbox", &id.0)?;
        let containers = {
            let mut state = self.state.lock();
            let Some((_, status)) = state.sandboxes.get_mut(id) else {
                return Ok(());
            };
            status.state = SandboxState::NotReady;
            state
                .containers
                .values()
                .filter(|(_, c)| &c.sandbox_id == id)
                .map(|(_, c)| c.id.clone())
                .collect::<Vec<_>>()
        };
        for container in containers {
            self.end(&container, 137, Some(9), "Error");
        }
        Ok(())
    }

    async fn remove_pod_sandbox(&self, id: &SandboxId) -> Result<(), RuntimeError> {
        self.begin("remove_pod_sandbox", &id.0)?;
        let mut state = self.state.lock();
        state.sandboxes.remove(id);
        state
            .containers
            .retain(|_, (_, status)| &status.sandbox_id != id);
        Ok(())
    }

    async fn list_pod_sandboxes(&self) -> Result<Vec<SandboxStatus>, RuntimeError> {
        self.begin("list_pod_sandboxes", "")?;
        Ok(self
            .state
            .lock()
            .sandboxes
            .values()
            .map(|(_, status)| status.clone())
            .collect())
    }

    async fn create_container(
        &self,
        sandbox: &SandboxId,
        config: &ContainerConfig,
    ) -> Result<ContainerId, RuntimeError> {
        self.begin("create_container", &config.name)?;
        let mut state = self.state.lock();
        let Some((sandbox_config, sandbox_status)) = state.sandboxes.get(sandbox) else {
            return Err(not_found("sandbox", &sandbox.0));
        };
        let id = ContainerId(format!("{:064x}", self.next()));
        let status = ContainerStatus {
            id: id.clone(),
            sandbox_id: sandbox.clone(),
            pod: sandbox_status.pod.clone(),
            name: config.name.clone(),
            attempt: config.attempt,
            image: config.image.clone(),
            image_id: config.image_id.clone(),
            image_ref: config.image_ref.clone(),
            spec_hash: config.spec_hash.clone(),
            created_at: SystemTime::now(),
            resources: config.resources.clone(),
            state: ContainerState::Created,
            log_path: sandbox_config.log_directory.join(&config.log_path),
        };
        state
            .containers
            .insert(id.clone(), (config.clone(), status));
        Ok(id)
    }

    async fn start_container(&self, id: &ContainerId) -> Result<(), RuntimeError> {
        self.begin("start_container", &self.name_of(id))?;
        self.refused(id)?;
        let uid = {
            let mut state = self.state.lock();
            let (_, status) = state
                .containers
                .get_mut(id)
                .ok_or_else(|| not_found("container", &id.0))?;
            let pid = i32::try_from(1000 + self.next()).expect("few calls");
            status.state = ContainerState::Running {
                started_at: SystemTime::now(),
                pid,
            };
            status.pod.uid.clone()
        };
        self.tell(uid);
        Ok(())
    }

    async fn stop_container(&self, id: &ContainerId, _grace: Duration) -> Result<(), RuntimeError> {
        self.begin("stop_container", &self.name_of(id))?;
        self.end(id, 0, None, "Completed");
        Ok(())
    }

    async fn remove_container(&self, id: &ContainerId) -> Result<(), RuntimeError> {
        self.begin("remove_container", &self.name_of(id))?;
        self.state.lock().containers.remove(id);
        Ok(())
    }

    async fn update_container_resources(
        &self,
        id: &ContainerId,
        resources: &Resources,
    ) -> Result<(), RuntimeError> {
        self.begin("update_container_resources", &self.name_of(id))?;
        if let Some((_, status)) = self.state.lock().containers.get_mut(id) {
            status.resources = resources.clone();
        }
        Ok(())
    }

    async fn update_pod_sandbox_resources(
        &self,
        id: &SandboxId,
        resources: &Resources,
    ) -> Result<(), RuntimeError> {
        self.begin("update_pod_sandbox_resources", &id.0)?;
        if let Some((_, status)) = self.state.lock().sandboxes.get_mut(id) {
            status.resources = resources.clone();
        }
        Ok(())
    }

    async fn update_class_cgroup(
        &self,
        path: &str,
        resources: &Resources,
    ) -> Result<(), RuntimeError> {
        self.begin("update_class_cgroup", path)?;
        self.state
            .lock()
            .class_cgroups
            .insert(path.to_owned(), resources.clone());
        Ok(())
    }

    async fn list_containers(&self) -> Result<Vec<ContainerStatus>, RuntimeError> {
        Ok(self
            .state
            .lock()
            .containers
            .values()
            .map(|(_, status)| status.clone())
            .collect())
    }

    async fn exec_sync(
        &self,
        id: &ContainerId,
        command: &[String],
        _timeout: Duration,
    ) -> Result<ExecResult, RuntimeError> {
        self.begin("exec_sync", &self.name_of(id))?;
        Ok(self.run(&self.container(id)?, command))
    }

    async fn exec(
        &self,
        id: &ContainerId,
        request: &ExecRequest,
    ) -> Result<StreamSession, RuntimeError> {
        self.begin("exec", &self.name_of(id))?;
        let result = self.run(&self.container(id)?, &request.command);
        let exit_code = result.exit_code;
        Ok(StreamSession {
            stdin: request.stdin.then(|| Box::new(tokio::io::sink()) as _),
            stdout: request
                .stdout
                .then(|| Box::new(std::io::Cursor::new(result.stdout)) as _),
            stderr: request
                .stderr
                .then(|| Box::new(std::io::Cursor::new(result.stderr)) as _),
            resize: mpsc::channel(1).0,
            exit: Box::pin(async move { Ok(exit_code) }),
        })
    }

    async fn attach(
        &self,
        id: &ContainerId,
        request: &ExecRequest,
    ) -> Result<StreamSession, RuntimeError> {
        self.begin("attach", &self.name_of(id))?;
        self.exec(id, request).await
    }

    async fn port_forward(
        &self,
        id: &SandboxId,
        port: u16,
    ) -> Result<tokio::net::TcpStream, RuntimeError> {
        self.begin("port_forward", &port.to_string())?;
        tokio::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port))
            .await
            .map_err(|source| RuntimeError::Shim {
                id: id.clone(),
                operation: "connect to a port",
                source,
            })
    }

    async fn reopen_container_log(&self, id: &ContainerId) -> Result<(), RuntimeError> {
        self.begin("reopen_container_log", &self.name_of(id))
    }

    async fn container_stats(&self, id: &ContainerId) -> Result<ContainerStats, RuntimeError> {
        self.container(id).map(|_| ContainerStats::default())
    }

    async fn writable_layer(&self, id: &ContainerId) -> Result<PathBuf, RuntimeError> {
        Err(not_found("writable layer of container", &id.0))
    }

    fn subscribe(&self) -> broadcast::Receiver<RuntimeEvent> {
        self.events.subscribe()
    }
}
