//! A runtime without containers, for tests of everything above it.
//!
//! Keeps sandboxes and containers in memory with the transitions of the real one; never runs
//! anything. Tests end containers with [`FakeRuntime::exit`], script failures with
//! [`FakeRuntime::fail_next`], commands with [`FakeRuntime::on_exec`], and read what was asked in
//! [`FakeRuntime::calls`].

mod faults;
mod images;

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    net::{IpAddr, Ipv4Addr},
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, SystemTime},
};

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::sync::{broadcast, mpsc};

pub use images::FakeImages;

use super::*;

type ExecHandler = Box<dyn Fn(&ContainerStatus, &[String]) -> ExecResult + Send + Sync>;

/// See the module's description.
pub struct FakeRuntime {
    state: Mutex<FakeState>,
    exec: Mutex<Option<ExecHandler>>,
    events: broadcast::Sender<RuntimeEvent>,
    counter: AtomicU64,
}

#[derive(Default)]
struct FakeState {
    sandboxes: BTreeMap<SandboxId, (SandboxConfig, SandboxStatus)>,
    containers: BTreeMap<ContainerId, (ContainerConfig, ContainerStatus)>,
    failures: HashMap<&'static str, VecDeque<RuntimeError>>,
    held: HashMap<&'static str, tokio_util::sync::CancellationToken>,
    class_cgroups: BTreeMap<String, Resources>,
    calls: Vec<String>,
}

impl Default for FakeRuntime {
    fn default() -> Self {
        Self::new()
    }
}

impl FakeRuntime {
    /// An empty one.
    #[must_use]
    pub fn new() -> Self {
        Self {
            state: Mutex::default(),
            exec: Mutex::default(),
            events: broadcast::channel(256).0,
            counter: AtomicU64::new(1),
        }
    }

    /// The next call of this verb (such as `create_container`) fails so; several queue up.
    pub fn fail_next(&self, verb: &'static str, error: RuntimeError) {
        self.state
            .lock()
            .failures
            .entry(verb)
            .or_default()
            .push_back(error);
    }

    /// Answers `exec_sync` and the streams of `exec`; without it they exit 0 silently.
    pub fn on_exec(
        &self,
        handler: impl Fn(&ContainerStatus, &[String]) -> ExecResult + Send + Sync + 'static,
    ) {
        *self.exec.lock() = Some(Box::new(handler));
    }

    /// Ends a container and tells subscribers.
    pub fn exit(&self, id: &ContainerId, exit_code: i32, reason: &str) {
        self.end(
            id,
            exit_code,
            (exit_code > 128).then(|| exit_code - 128),
            reason,
        );
    }

    /// Makes a sandbox NotReady and ends its containers, as a dead shim does.
    pub fn kill_sandbox(&self, id: &SandboxId) {
        let containers = {
            let mut state = self.state.lock();
            let Some((_, status)) = state.sandboxes.get_mut(id) else {
                return;
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
            self.end(&container, 137, None, "ContainerStatusUnknown");
        }
    }

    /// Verbs with their subjects, in order, such as `start_container web`.
    #[must_use]
    pub fn calls(&self) -> Vec<String> {
        self.state.lock().calls.clone()
    }

    /// The configuration a container was made with.
    #[must_use]
    pub fn container_config(&self, id: &ContainerId) -> Option<ContainerConfig> {
        self.state
            .lock()
            .containers
            .get(id)
            .map(|(config, _)| config.clone())
    }

    /// The configuration a sandbox was made with.
    #[must_use]
    pub fn sandbox_config(&self, id: &SandboxId) -> Option<SandboxConfig> {
        self.state
            .lock()
            .sandboxes
            .get(id)
            .map(|(config, _)| config.clone())
    }

    /// The limits of a cgroup above those of pods.
    #[must_use]
    pub fn class_cgroup(&self, path: &str) -> Option<Resources> {
        self.state.lock().class_cgroups.get(path).cloned()
    }

    fn next(&self) -> u64 {
        self.counter.fetch_add(1, Ordering::Relaxed)
    }

    fn begin(&self, verb: &'static str, subject: &str) -> Result<(), RuntimeError> {
        let mut state = self.state.lock();
        state.calls.push(format!("{verb} {subject}"));
        match state.failures.get_mut(verb).and_then(VecDeque::pop_front) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    fn container(&self, id: &ContainerId) -> Result<ContainerStatus, RuntimeError> {
        let state = self.state.lock();
        state
            .containers
            .get(id)
            .map(|(_, status)| status.clone())
            .ok_or_else(|| not_found("container", &id.0))
    }

    fn name_of(&self, id: &ContainerId) -> String {
        self.container(id)
            .map_or_else(|_| id.0.clone(), |status| status.name)
    }

    fn end(&self, id: &ContainerId, exit_code: i32, signal: Option<i32>, reason: &str) {
        let uid = {
            let mut state = self.state.lock();
            let Some((_, status)) = state.containers.get_mut(id) else {
                return;
            };
            let finished_at = SystemTime::now();
            let started_at = match status.state {
                ContainerState::Exited { .. } => return,
                ContainerState::Running { started_at, .. } => started_at,
                ContainerState::Created => finished_at,
            };
            let (reason, message) = (reason.to_owned(), String::new());
            status.state = ContainerState::Exited {
                started_at,
                finished_at,
                exit_code,
                signal,
                reason,
                message,
            };
            status.pod.uid.clone()
        };
        self.tell(uid);
    }

    fn tell(&self, pod_uid: PodUid) {
        let _ = self.events.send(RuntimeEvent { pod_uid });
    }

    fn run(&self, status: &ContainerStatus, command: &[String]) -> ExecResult {
        match &*self.exec.lock() {
            Some(handler) => handler(status, command),
            None => ExecResult {
                exit_code: 0,
                stdout: Vec::new(),
                stderr: Vec::new(),
            },
        }
    }
}

fn not_found(kind: &'static str, id: &str) -> RuntimeError {
    RuntimeError::NotFound {
        kind,
        id: id.to_owned(),
    }
}

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
