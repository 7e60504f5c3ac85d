//! A runtime without containers, for tests of everything above it.
//!
//! Keeps sandboxes and containers in memory with the transitions of the real one; never runs
//! anything. Tests end containers with [`FakeRuntime::exit`], script failures with
//! [`FakeRuntime::fail_next`], commands with [`FakeRuntime::on_exec`], and read what was asked in
//! [`FakeRuntime::calls`].

mod faults;
mod images;
mod verbs;

use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    sync::atomic::{AtomicU64, Ordering},
    time::SystemTime,
};

use parking_lot::Mutex;
use tokio::sync::broadcast;

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
    panics: HashSet<&'static str>,
    refused_starts: VecDeque<String>,
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
        let panics = state.panics.remove(verb);
        assert!(!panics, "a bug in {verb}, as the test wants it");
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
        self.end_with(id, exit_code, signal, reason, String::new());
    }

    fn end_with(
        &self,
        id: &ContainerId,
        exit_code: i32,
        signal: Option<i32>,
        reason: &str,
        message: String,
    ) {
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
            let reason = reason.to_owned();
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
