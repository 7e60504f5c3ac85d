//! Removes the containers and sandboxes of a pod that nobody asks for any more.

use coracle_telemetry::ErrorChain;

use super::{PodWorker, RuntimeState};
use crate::{
    pod::PodExt,
    runtime::types::{ContainerId, ContainerState, ContainerStatus, SandboxId, SandboxState},
};

impl PodWorker {
    /// Removes what was made and never started, as by an agent that was killed in between, once
    /// there is a newer instance: that has its number.
    async fn collect_unstarted(&self, state: &RuntimeState) {
        for unstarted in state.containers.iter().filter(|c| !was_started(c)) {
            let is_newer = |c: &ContainerStatus| {
                c.name == unstarted.name
                    && (c.attempt, c.created_at) > (unstarted.attempt, unstarted.created_at)
            };
            if state.containers.iter().any(is_newer)
                && let Err(error) = self.ctx.runtime.remove_container(&unstarted.id).await
            {
                tracing::warn!(pod = %self.pod.display(), error = %ErrorChain(&error), "cannot remove a container that was never started");
            }
        }
    }

    /// Keeps one dead instance of each container, removes older ones and what is left of older
    /// sandboxes.
    pub(super) async fn collect_dead(&mut self, state: &RuntimeState) {
        self.collect_unstarted(state).await;
        // The newest one's exit code and log are still asked for, as by `kubectl logs --previous`.
        let mut dead: Vec<_> = state
            .containers
            .iter()
            .filter(|c| matches!(c.state, ContainerState::Exited { .. }))
            .collect();
        dead.sort_by(|a, b| {
            (&a.name, b.attempt, b.created_at).cmp(&(&b.name, a.attempt, a.created_at))
        });
        let mut kept: Vec<&ContainerId> = Vec::new();
        for (index, container) in dead.iter().enumerate() {
            if index == 0 || dead[index - 1].name != container.name {
                kept.push(&container.id);
                continue;
            }
            match self.ctx.runtime.remove_container(&container.id).await {
                Ok(()) => {
                    self.termination_messages.remove(&container.id);
                    // One that was never started shares it with the one that took its number.
                    if !state
                        .containers
                        .iter()
                        .any(|c| c.id != container.id && c.log_path == container.log_path)
                    {
                        crate::gc::remove_container_logs(&container.log_path).await;
                    }
                }
                Err(error) => {
                    tracing::warn!(pod = %self.pod.display(), error = %ErrorChain(&error), "cannot remove a dead container")
                }
            }
        }
        let newest = state.sandboxes.iter().map(|s| s.attempt).max();
        let in_use = |id: &SandboxId| {
            state.containers.iter().any(|c| {
                c.sandbox_id == *id
                    && (kept.contains(&&c.id) || !matches!(c.state, ContainerState::Exited { .. }))
            })
        };
        for sandbox in state.sandboxes.iter().filter(|s| {
            Some(s.attempt) != newest && s.state == SandboxState::NotReady && !in_use(&s.id)
        }) {
            if let Err(error) = self.ctx.runtime.remove_pod_sandbox(&sandbox.id).await {
                tracing::warn!(pod = %self.pod.display(), error = %ErrorChain(&error), "cannot remove an old sandbox");
            }
        }
    }
}

/// Whether its command may have run.
pub(super) fn was_started(container: &ContainerStatus) -> bool {
    !matches!(container.state, ContainerState::Created)
}
