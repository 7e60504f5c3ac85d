//! Stops containers: preStop hook, stop signal, grace period, SIGKILL.

use std::time::Duration;

use coracle_api::scheduling::is_sidecar;
use coracle_telemetry::ErrorChain;
use k8s_openapi::api::core::v1::Container;
use tokio::time::Instant;

use super::{PodWorker, RuntimeState};
use crate::{
    events::EventType,
    lifecycle,
    pod::PodExt,
    pod_actions::{ContainerToKill, KillReason},
    runtime::types::{ContainerId, ContainerState, ContainerStatus},
};

/// Upstream's least grace: a signal must have a chance.
const MIN_GRACE: Duration = Duration::from_secs(1);

impl PodWorker {
    /// Stops everything, then the sandboxes. Whether all went well.
    pub(super) async fn kill_pod(&mut self, state: &RuntimeState) -> bool {
        let grace = self.grace();
        let stopped = self.kill_running(state, grace).await;
        let mut fine = stopped;
        // Also those that are not ready: a dead shim's still has its address and namespaces.
        for sandbox in &state.sandboxes {
            if let Err(error) = self.ctx.runtime.stop_pod_sandbox(&sandbox.id).await {
                tracing::warn!(pod = %self.pod.display(), error = %ErrorChain(&error), "cannot stop a sandbox");
                fine = false;
            }
        }
        fine
    }

    /// The grace period the pod has now.
    pub(super) fn grace(&self) -> Duration {
        let latest = self.desired.borrow();
        if latest.evicted.is_some() {
            return MIN_GRACE;
        }
        Duration::from_secs(u64::try_from(latest.pod.grace_period_secs()).unwrap_or(0))
            .max(MIN_GRACE)
    }

    /// Stops all running containers at once, sidecars after all others and in reverse order of
    /// their start.
    pub(super) async fn kill_running(&self, state: &RuntimeState, grace: Duration) -> bool {
        let deadline = Instant::now() + grace;
        let alive = |c: &&ContainerStatus| !matches!(c.state, ContainerState::Exited { .. });
        let is_side = |c: &ContainerStatus| self.pod.container(&c.name).is_some_and(is_sidecar);
        let (mut sidecars, others): (Vec<_>, Vec<_>) = state
            .containers
            .iter()
            .filter(alive)
            .partition(|c| is_side(c));
        let kills = others
            .into_iter()
            .map(|status| self.kill_by_status(status, deadline));
        let mut fine = futures::future::join_all(kills)
            .await
            .into_iter()
            .all(|ok| ok);
        let position = |c: &ContainerStatus| {
            self.pod
                .init_containers()
                .iter()
                .position(|init| init.name == c.name)
        };
        sidecars.sort_by_key(|c| std::cmp::Reverse(position(c)));
        // One by one, as each may serve those that were started after it; and however long all
        // before it took, each gets its signal and a moment to heed it.
        for status in sidecars {
            fine &= self
                .kill_by_status(status, deadline.max(Instant::now() + MIN_GRACE))
                .await;
        }
        fine
    }

    async fn kill_by_status(&self, status: &ContainerStatus, deadline: Instant) -> bool {
        let container = self
            .pod
            .container(&status.name)
            .cloned()
            .unwrap_or_else(|| Container {
                name: status.name.clone(),
                ..Container::default()
            });
        let message = format!("Stopping container {}", status.name);
        let running = matches!(status.state, ContainerState::Running { .. });
        self.stop(&container, &status.id, &message, deadline, running)
            .await
    }

    /// Stops what the plan named, all at once. Given up when the pod has to go: that has a grace
    /// period of its own.
    pub(super) async fn kill_containers(&self, to_kill: &[ContainerToKill]) -> bool {
        let kills = to_kill.iter().map(|kill| async move {
            let Some(container) = self.pod.container(&kill.name) else {
                return true;
            };
            let probe = match kill.reason {
                KillReason::LivenessProbe => container.liveness_probe.as_ref(),
                KillReason::StartupProbe => container.startup_probe.as_ref(),
                KillReason::SpecChanged | KillReason::Resized => None,
            };
            let own_grace = probe
                .and_then(|probe| probe.termination_grace_period_seconds)
                .and_then(|secs| u64::try_from(secs).ok());
            self.kill_container(
                container,
                &kill.id,
                &kill.message,
                own_grace.map(Duration::from_secs),
            )
            .await
        });
        let mut desired = self.desired.clone();
        tokio::select! {
            killed = futures::future::join_all(kills) => killed.into_iter().all(|ok| ok),
            _ = desired.wait_for(super::Desired::must_stop) => true,
        }
    }

    /// Stops one running container.
    pub(super) async fn kill_container(
        &self,
        container: &Container,
        id: &ContainerId,
        message: &str,
        grace: Option<Duration>,
    ) -> bool {
        let deadline = Instant::now() + grace.unwrap_or_else(|| self.grace()).max(MIN_GRACE);
        self.stop(container, id, message, deadline, true).await
    }

    async fn stop(
        &self,
        container: &Container,
        id: &ContainerId,
        message: &str,
        deadline: Instant,
        running: bool,
    ) -> bool {
        self.ctx.events.pod(
            &self.pod,
            Some(&container.name),
            EventType::Normal,
            "Killing",
            message,
        );
        let hook = container
            .lifecycle
            .as_ref()
            .and_then(|lifecycle| lifecycle.pre_stop.as_ref())
            .filter(|_| running);
        if let Some(hook) = hook {
            let ip = if self.pod.host_network() {
                Some(self.ctx.config.node_ip)
            } else {
                self.observe()
                    .await
                    .and_then(|state| state.ips().first().copied())
            };
            let left = deadline.saturating_duration_since(Instant::now());
            if let Err(error) =
                lifecycle::run(self.ctx.runtime.as_ref(), id, container, hook, ip, left).await
            {
                self.ctx.events.pod(
                    &self.pod,
                    Some(&container.name),
                    EventType::Warning,
                    "FailedPreStopHook",
                    format!("PreStopHook failed: {error}"),
                );
            }
        }
        // As upstream: the hook's time comes out of the grace period, but a signal still gets its
        // chance.
        let left = deadline
            .saturating_duration_since(Instant::now())
            .max(MIN_GRACE);
        match self.ctx.runtime.stop_container(id, left).await {
            Ok(()) | Err(crate::runtime::RuntimeError::NotFound { .. }) => true,
            Err(error) => {
                tracing::warn!(pod = %self.pod.display(), container = %container.name, error = %ErrorChain(&error), "cannot stop a container");
                false
            }
        }
    }
}
