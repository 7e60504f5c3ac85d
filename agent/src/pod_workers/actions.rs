//! Carries out what [`crate::pod_actions::plan`] decided.
//!
//! Sandbox, volumes and images are made at the same time; then the containers are started one after
//! the other, each as soon as its own image is there.

use std::{net::IpAddr, sync::Arc, time::Duration};

use coracle_telemetry::{ErrorChain, span};
use k8s_openapi::api::core::v1::{Container, Pod};
use tokio::time::Instant;
use tracing::Instrument as _;

use super::{PodWorker, Progress, RuntimeState, images};
use crate::{
    container_config::{self, ContainerConfigError, ContainerInput},
    events::EventType,
    objects::FRESH,
    pod::{PodExt, spec_hash},
    pod_actions::PodActions,
    runtime::{
        Image, RuntimeError,
        types::{
            ContainerId, ContainerState, ContainerStatus, SandboxId, SandboxState, SandboxStatus,
        },
    },
    status_reason::StatusReason,
    volume::MountedVolumes,
};

/// How the start of one container went.
enum Start {
    Started,
    /// In back-off for this long.
    Later(Duration),
    Failed,
}

/// The running container whose PID namespace an ephemeral container joins, if it names one.
fn debugged(
    pod: &Pod,
    name: &str,
    state: &RuntimeState,
) -> Result<Option<ContainerId>, ContainerConfigError> {
    let mut containers = pod.spec_or_default().ephemeral_containers.iter().flatten();
    let named = containers
        .find(|one| one.name == name)
        .and_then(|one| one.target_container_name.as_deref());
    let Some(target) = named.filter(|target| !target.is_empty()) else {
        return Ok(None);
    };
    let is_target = |one: &&ContainerStatus| {
        one.name == target && matches!(one.state, ContainerState::Running { .. })
    };
    let found = state
        .containers
        .iter()
        .find(is_target)
        .map(|one| one.id.clone());
    found
        .map(Some)
        .ok_or_else(|| ContainerConfigError::NoTarget {
            target: target.to_owned(),
        })
}

impl PodWorker {
    /// Whether the pod has been asked to go since this sync began: then nothing more of it is
    /// started.
    fn must_stop(&self) -> bool {
        self.desired.borrow().must_stop()
    }

    pub(super) async fn act(&mut self, actions: &PodActions, state: &RuntimeState) -> Progress {
        if actions.kill_pod {
            if !self.kill_pod(state).await {
                return Progress::Failed;
            }
            if actions.create_sandbox.is_none() {
                return Progress::Settled(None);
            }
            self.ctx.events.pod(
                &self.pod,
                None,
                EventType::Normal,
                "SandboxChanged",
                "Pod sandbox changed, it will be killed and re-created.",
            );
        }
        if !self.kill_containers(&actions.to_kill).await {
            return Progress::Failed;
        }
        if self.must_stop() {
            return Progress::Settled(None);
        }
        let mut failed = actions.resizes() && !self.resize(actions, state).await;
        let pod = Arc::clone(&self.pod);
        let ephemeral = pod.ephemeral_containers();
        let named = actions
            .init_to_start
            .iter()
            .chain(&actions.to_start)
            .filter_map(|name| pod.container(name));
        let mut containers: Vec<&Container> = named
            .chain(
                ephemeral
                    .iter()
                    .filter(|one| actions.ephemeral_to_start.contains(&one.name)),
            )
            .collect();
        let mut pause: Option<Duration> = None;
        // Who waits out a crash needs no image yet.
        let fresh = if actions.to_kill.is_empty() {
            None
        } else {
            self.observe().await
        };
        let state = fresh.as_ref().unwrap_or(state);
        containers.retain(|container| !self.hooks.hold_back(&pod, &container.name));
        containers.retain(|container| match self.crash_backoff(container, state) {
            Some(left) => {
                pause = Some(pause.map_or(left, |pause| pause.min(left)));
                false
            }
            None => true,
        });
        if containers.is_empty() && actions.create_sandbox.is_none() {
            return if failed {
                Progress::Failed
            } else {
                Progress::Settled(pause)
            };
        }
        let Some((sandbox, volumes, images)) = self.prepare(actions, state, &containers).await
        else {
            return Progress::Failed;
        };
        for (container, image) in containers.into_iter().zip(images) {
            if self.must_stop() {
                break;
            }
            if self.hooks.hold_back(&pod, &container.name) {
                continue;
            }
            let start = match image {
                Ok(image) => {
                    self.start_container(container, &image, &sandbox, &volumes, state)
                        .await
                }
                Err(images::Unavailable { why, retry }) => {
                    self.waiting.insert(container.name.clone(), why);
                    retry.map_or(Start::Failed, Start::Later)
                }
            };
            match start {
                Start::Started => {}
                Start::Later(left) => pause = Some(pause.map_or(left, |pause| pause.min(left))),
                Start::Failed => failed = true,
            }
        }
        if failed {
            Progress::Failed
        } else {
            Progress::Settled(pause)
        }
    }

    /// Sandbox, volumes and images, all at once.
    async fn prepare(
        &mut self,
        actions: &PodActions,
        state: &RuntimeState,
        containers: &[&Container],
    ) -> Option<(
        SandboxStatus,
        MountedVolumes,
        Vec<Result<Image, images::Unavailable>>,
    )> {
        let ctx = Arc::clone(&self.ctx);
        let pod = Arc::clone(&self.pod);
        let sandbox = async {
            match (actions.create_sandbox, state.ready_sandbox()) {
                (None, Some(sandbox)) => Ok(Some(sandbox.clone())),
                (None, None) => Ok(None),
                (Some(attempt), _) => {
                    let config = container_config::sandbox(&ctx, &pod, attempt).await?;
                    ctx.runtime
                        .run_pod_sandbox(&config)
                        .instrument(span!("RunPodSandbox"))
                        .await
                        .map(Some)
                }
            }
        };
        let volumes = ctx.volumes.ensure(&pod, FRESH).instrument(span!("volumes"));
        let images = self
            .ensure_images(containers)
            .instrument(span!("EnsureImageExists"));
        // While an image comes, a status is due that says so; the status manager holds it back if
        // all goes fast.
        let (sandbox, volumes, images) = tokio::join!(sandbox, volumes, images);
        self.volumes_checked = Some(Instant::now());
        let volumes = match volumes {
            Ok(volumes) => volumes,
            Err(error) => {
                let message = ErrorChain(&error).to_string();
                self.ctx
                    .events
                    .pod(&self.pod, None, EventType::Warning, "FailedMount", message);
                self.record_unavailable(containers, images);
                return None;
            }
        };
        match sandbox {
            Ok(sandbox) => Some((sandbox?, volumes, images)),
            Err(error) => {
                let message = format!("Failed to create pod sandbox: {}", ErrorChain(&error));
                self.ctx.events.pod(
                    &self.pod,
                    None,
                    EventType::Warning,
                    "FailedCreatePodSandBox",
                    message,
                );
                self.record_unavailable(containers, images);
                None
            }
        }
    }

    fn record_unavailable(
        &mut self,
        containers: &[&Container],
        images: Vec<Result<Image, images::Unavailable>>,
    ) {
        for (container, image) in containers.iter().zip(images) {
            if let Err(unavailable) = image {
                self.waiting.insert(container.name.clone(), unavailable.why);
            }
        }
    }

    /// How long the container must still wait after its last end.
    fn crash_backoff(&mut self, container: &Container, state: &RuntimeState) -> Option<Duration> {
        let latest = state
            .containers
            .iter()
            .filter(|c| c.name == container.name)
            .max_by_key(|c| (c.attempt, c.created_at))?;
        let ContainerState::Exited { .. } = latest.state else {
            return None;
        };
        // When its end was seen, not when it was: the machine's clock may have been set since.
        let now = Instant::now();
        self.ended
            .retain(|id, _| state.containers.iter().any(|known| known.id == *id));
        let ended = *self.ended.entry(latest.id.clone()).or_insert(now);
        let key = backoff_key(container);
        let Some((left, delay)) = self.restarts.remaining(&key, ended, now) else {
            self.restarts.next(&key, ended, now);
            return None;
        };
        let (name, pod) = (&container.name, self.pod.display());
        let why = StatusReason {
            reason: "CrashLoopBackOff".to_owned(),
            message: format!(
                "back-off {} restarting failed container={name} pod={pod}",
                go_duration(delay)
            ),
        };
        self.waiting.insert(name.clone(), why);
        let message = format!("Back-off restarting failed container {name} in pod {pod}");
        self.ctx.events.pod(
            &self.pod,
            Some(name),
            EventType::Warning,
            "BackOff",
            message,
        );
        Some(left)
    }

    async fn start_container(
        &mut self,
        container: &Container,
        image: &Image,
        sandbox: &SandboxStatus,
        volumes: &MountedVolumes,
        state: &RuntimeState,
    ) -> Start {
        let attempt = self.next_attempt(&container.name, state);
        let pod = Arc::clone(&self.pod);
        let ctx = Arc::clone(&self.ctx);
        let pod_ips: Vec<IpAddr> = if sandbox.host_network {
            vec![ctx.config.node_ip]
        } else {
            sandbox.ips.clone()
        };
        let input = ContainerInput {
            pod: &pod,
            container,
            image,
            attempt,
            pod_ips: &pod_ips,
            volumes,
        };
        let config = container_config::container(&ctx, &input)
            .await
            .and_then(|mut config| {
                config.security.debug_target = debugged(&pod, &container.name, state)?;
                Ok(config)
            });
        let config = match config {
            Ok(config) => config,
            Err(error) => {
                return self.start_failed(
                    container,
                    "CreateContainerConfigError",
                    &error,
                    "Failed",
                );
            }
        };
        let name = container.name.as_str();
        let creating = ctx.runtime.create_container(&sandbox.id, &config);
        let id = match creating
            .instrument(span!("CreateContainer", container = name))
            .await
        {
            Ok(id) => id,
            Err(error) => {
                let reason = if matches!(error, RuntimeError::InvalidConfig { .. }) {
                    "CreateContainerConfigError"
                } else {
                    "CreateContainerError"
                };
                return self.start_failed(container, reason, &error, "Failed");
            }
        };
        ctx.events.pod(
            &pod,
            Some(&container.name),
            EventType::Normal,
            "Created",
            "Container created",
        );
        // The pod may have had to go while this one was made: then it is not started at all.
        if self.must_stop() {
            return Start::Later(Duration::ZERO);
        }
        let starting = ctx.runtime.start_container(&id);
        if let Err(error) = starting
            .instrument(span!("StartContainer", container = name))
            .await
        {
            return self.start_failed(container, "RunContainerError", &error, "Failed");
        }
        self.waiting.remove(&container.name);
        ctx.events.pod(
            &pod,
            Some(&container.name),
            EventType::Normal,
            "Started",
            "Container started",
        );
        self.start_hook(container, &id, pod_ips.first().copied());
        Start::Started
    }

    fn start_failed(
        &mut self,
        container: &Container,
        reason: &str,
        error: &(dyn std::error::Error + 'static),
        event: &'static str,
    ) -> Start {
        let message = ErrorChain(error).to_string();
        self.ctx.events.pod(
            &self.pod,
            Some(&container.name),
            EventType::Warning,
            event,
            format!("Error: {message}"),
        );
        self.waiting
            .insert(container.name.clone(), StatusReason::new(reason, message));
        Start::Failed
    }

    /// 0 for the first instance that is started; counts on from what the API remembers if no record
    /// is left here.
    fn next_attempt(&self, name: &str, state: &RuntimeState) -> u32 {
        let started = state
            .containers
            .iter()
            .filter(|c| c.name == name && was_started(c));
        let recorded = started.map(|c| c.attempt + 1).max();
        let status = self.ctx.status.get(&self.uid);
        let status = status
            .as_ref()
            .unwrap_or_else(|| self.pod.status_or_default());
        let mut statuses = status
            .init_container_statuses
            .iter()
            .flatten()
            .chain(status.container_statuses.iter().flatten());
        let remembered = statuses.find(|status| status.name == name).map(|status| {
            let ran = status.container_id.is_some()
                && status
                    .state
                    .as_ref()
                    .is_some_and(|s| s.running.is_some() || s.terminated.is_some());
            u32::try_from(status.restart_count).unwrap_or(0) + u32::from(ran)
        });
        recorded.or(remembered).unwrap_or(0)
    }

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
                tracing::warn!(pod = %self.pod.display(), error = %ErrorChain(&error), "remove a container that was never started");
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
                    tracing::warn!(pod = %self.pod.display(), error = %ErrorChain(&error), "remove a dead container")
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
                tracing::warn!(pod = %self.pod.display(), error = %ErrorChain(&error), "remove an old sandbox");
            }
        }
    }
}

/// Whether its command may have run.
fn was_started(container: &ContainerStatus) -> bool {
    !matches!(container.state, ContainerState::Created)
}

/// What a container's back-off belongs to: another image, or other resources, may well mend what
/// made it crash. Source: `GetBackoffKey` in `pkg/kubelet/container/helpers.go` at v1.37.
fn backoff_key(container: &Container) -> String {
    let resources = serde_json::to_string(&container.resources).unwrap_or_default();
    format!("{}_{}_{resources}", container.name, spec_hash(container))
}

/// `10s`, `1m20s`, `5m0s`.
fn go_duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    if seconds < 60 {
        format!("{seconds}s")
    } else {
        format!("{}m{}s", seconds / 60, seconds % 60)
    }
}
