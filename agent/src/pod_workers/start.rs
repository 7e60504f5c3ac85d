//! Starts one container: its configuration, its record in the runtime, its process, its hook.

use std::{net::IpAddr, sync::Arc, time::Duration};

use coracle_telemetry::{ErrorChain, span};
use k8s_openapi::api::core::v1::{Container, Pod};
use tracing::Instrument as _;

use super::{PodWorker, RuntimeState, collect::was_started};
use crate::{
    container_config::{self, ContainerConfigError, ContainerInput},
    context::NodeContext,
    events::EventType,
    pod::PodExt,
    runtime::{
        Image, RuntimeError,
        types::{ContainerId, ContainerState, ContainerStatus, SandboxId, SandboxStatus},
    },
    status_reason::StatusReason,
    volume::MountedVolumes,
};

/// How the start of one container went.
pub(super) enum Start {
    Started,
    /// In back-off for this long.
    Later(Duration),
    Failed,
}

impl PodWorker {
    pub(super) async fn start_container(
        &mut self,
        container: &Container,
        image: &Image,
        sandbox: &SandboxStatus,
        volumes: &MountedVolumes,
        state: &RuntimeState,
    ) -> Start {
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
            attempt: self.next_attempt(&container.name, state),
            pod_ips: &pod_ips,
            volumes,
            max_age: self.freshness(),
        };
        let id = match create(&ctx, &input, &sandbox.id, state).await {
            Ok(id) => id,
            Err(error) => return self.start_failed(container, error.reason(), error.cause()),
        };
        let event = |reason: &'static str, message: &str| {
            ctx.events.pod(
                &pod,
                Some(&container.name),
                EventType::Normal,
                reason,
                message,
            );
        };
        event("Created", "Container created");
        // The pod may have had to go while this one was made: then it is not started at all.
        if self.must_stop() {
            return Start::Later(Duration::ZERO);
        }
        let starting = ctx.runtime.start_container(&id);
        if let Err(error) = starting
            .instrument(span!("StartContainer", container = container.name.as_str()))
            .await
        {
            return self.start_failed(container, "RunContainerError", &error);
        }
        self.waiting.remove(&container.name);
        event("Started", "Container started");
        self.start_hook(container, &id, pod_ips.first().copied());
        Start::Started
    }

    fn start_failed(
        &mut self,
        container: &Container,
        reason: &str,
        error: &(dyn std::error::Error + 'static),
    ) -> Start {
        let message = ErrorChain(error).to_string();
        self.ctx.events.pod(
            &self.pod,
            Some(&container.name),
            EventType::Warning,
            "Failed",
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
}

/// Why a container could not be made.
enum CreateError {
    Config(ContainerConfigError),
    Runtime(RuntimeError),
}

impl CreateError {
    /// The waiting reason: only with one of the two does a change of the spec help.
    fn reason(&self) -> &'static str {
        match self {
            Self::Config(_) | Self::Runtime(RuntimeError::InvalidConfig { .. }) => {
                "CreateContainerConfigError"
            }
            Self::Runtime(_) => "CreateContainerError",
        }
    }

    fn cause(&self) -> &(dyn std::error::Error + 'static) {
        match self {
            Self::Config(error) => error,
            Self::Runtime(error) => error,
        }
    }
}

/// Makes the container; its process waits.
async fn create(
    ctx: &NodeContext,
    input: &ContainerInput<'_>,
    sandbox: &SandboxId,
    state: &RuntimeState,
) -> Result<ContainerId, CreateError> {
    let name = input.container.name.as_str();
    let mut config = container_config::container(ctx, input)
        .await
        .map_err(CreateError::Config)?;
    config.security.debug_target = debugged(input.pod, name, state).map_err(CreateError::Config)?;
    ctx.runtime
        .create_container(sandbox, &config)
        .instrument(span!("CreateContainer", container = name))
        .await
        .map_err(CreateError::Runtime)
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
