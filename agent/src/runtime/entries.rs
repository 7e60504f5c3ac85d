//! A sandbox and a container in memory, and how verbs run: as whole tasks, blocking work where it
//! may block.

use std::{path::PathBuf, sync::Arc, time::SystemTime};

use coracle_shim_protocol::{Exit, layout};
use parking_lot::Mutex;
use tokio::sync::watch;
use tracing::Instrument as _;

use super::{
    checkpoint::{self, ContainerCheckpoint, SandboxCheckpoint},
    shim_client::ShimClient,
    *,
};
use crate::network::PodNetworkRequest;

/// A sandbox in memory.
pub(super) struct Sandbox {
    pub(super) id: SandboxId,
    pub(super) directory: PathBuf,
    pub(super) checkpoint: Mutex<SandboxCheckpoint>,
    pub(super) client: Mutex<Option<Arc<ShimClient>>>,
    /// Held by stop and remove, one at a time.
    pub(super) ending: tokio::sync::Mutex<()>,
}

/// A container in memory.
pub(super) struct Container {
    pub(super) id: ContainerId,
    pub(super) sandbox: Arc<Sandbox>,
    pub(super) directory: PathBuf,
    /// Its writable layer, and its record for after a reboot.
    pub(super) writable: PathBuf,
    pub(super) syncs: past::Syncs,
    /// As it was made.
    pub(super) checkpoint: ContainerCheckpoint,
    /// Limits of its cgroup now.
    pub(super) resources: Mutex<Resources>,
    /// `None` until it is made: nobody has heard of it.
    pub(super) state: watch::Sender<Option<ContainerState>>,
}

impl Sandbox {
    pub(super) fn pod(&self) -> PodRef {
        self.checkpoint.lock().config.pod.clone()
    }

    pub(super) fn status(&self) -> SandboxStatus {
        let checkpoint = self.checkpoint.lock();
        SandboxStatus {
            id: self.id.clone(),
            pod: checkpoint.config.pod.clone(),
            attempt: checkpoint.config.attempt,
            state: checkpoint.state,
            created_at: checkpoint.created_at,
            ips: checkpoint.ips.clone(),
            host_network: checkpoint.config.host_network,
            resources: checkpoint.config.resources.clone(),
        }
    }

    /// The shim's client, or an error that names the operation.
    pub(super) fn client(&self, operation: &'static str) -> Result<Arc<ShimClient>, RuntimeError> {
        self.client
            .lock()
            .clone()
            .ok_or_else(|| RuntimeError::Shim {
                id: self.id.clone(),
                operation,
                source: std::io::ErrorKind::NotConnected.into(),
            })
    }

    /// Changes the checkpoint in memory and on disk.
    pub(super) fn update(
        &self,
        change: impl FnOnce(&mut SandboxCheckpoint),
    ) -> Result<(), RuntimeError> {
        let checkpoint = {
            let mut checkpoint = self.checkpoint.lock();
            change(&mut checkpoint);
            checkpoint.clone()
        };
        checkpoint::write_sandbox(&self.directory, &checkpoint)
    }

    pub(super) fn netns(&self) -> PathBuf {
        self.directory.join(layout::NAMESPACES).join("net")
    }

    pub(super) fn network_request(&self) -> PodNetworkRequest {
        let checkpoint = self.checkpoint.lock();
        PodNetworkRequest {
            sandbox_id: self.id.clone(),
            pod: checkpoint.config.pod.clone(),
            netns: self.netns(),
            port_mappings: checkpoint.config.port_mappings.clone(),
            dns: checkpoint.config.dns.clone(),
            cgroup_parent: checkpoint.config.cgroup_parent.clone(),
            labels: checkpoint.config.labels.clone(),
            annotations: checkpoint.config.annotations.clone(),
        }
    }
}

impl Container {
    /// Becomes Created, unless its end has been told already.
    pub(super) fn created(&self) {
        self.state.send_if_modified(|state| {
            let made = state.is_none();
            if made {
                *state = Some(ContainerState::Created);
            }
            made
        });
    }

    /// Becomes Exited, once. Without a record nobody knows how.
    pub(super) fn end(&self, exit: Option<&Exit>) {
        let ended = self.state.send_if_modified(|state| {
            let started_at = match state {
                Some(ContainerState::Exited { .. }) => return false,
                Some(ContainerState::Running { started_at, .. }) => *started_at,
                _ => SystemTime::now(),
            };
            *state = Some(exit.map_or_else(|| checkpoint::lost(started_at), checkpoint::exited));
            true
        });
        let end = self.state.borrow().clone().filter(|_| ended);
        if let Some(end) = end {
            let (directory, syncs) = (self.writable.clone(), self.syncs.clone());
            drop(tokio::task::spawn_blocking(move || {
                if past::note_end(&directory, end) {
                    syncs.soon(directory);
                }
            }));
        }
    }

    pub(super) fn has_exited(&self) -> bool {
        matches!(*self.state.borrow(), Some(ContainerState::Exited { .. }))
    }

    pub(super) fn status(&self) -> Option<ContainerStatus> {
        let state = self.state.borrow().clone()?;
        let config = &self.checkpoint.config;
        let sandbox = self.sandbox.checkpoint.lock();
        Some(ContainerStatus {
            id: self.id.clone(),
            sandbox_id: self.sandbox.id.clone(),
            pod: sandbox.config.pod.clone(),
            name: config.name.clone(),
            attempt: config.attempt,
            image: config.image.clone(),
            image_id: config.image_id.clone(),
            image_ref: config.image_ref.clone(),
            spec_hash: config.spec_hash.clone(),
            created_at: self.checkpoint.created_at,
            resources: self.resources.lock().clone(),
            state,
            log_path: sandbox.config.log_directory.join(&config.log_path),
        })
    }
}

/// Runs it to its end even if the caller goes away.
pub(super) async fn whole<T: Send + 'static>(
    work: impl Future<Output = Result<T, RuntimeError>> + Send + 'static,
) -> Result<T, RuntimeError> {
    joined(coracle_telemetry::spawn("a call of the runtime", work.in_current_span()).await)?
}

/// A panic goes on here; a cancelled task means that the process is ending.
pub(super) fn joined<T>(outcome: Result<T, tokio::task::JoinError>) -> Result<T, RuntimeError> {
    outcome.map_err(|error| match error.try_into_panic() {
        Ok(panic) => std::panic::resume_unwind(panic),
        Err(_) => RuntimeError::Ending,
    })
}
