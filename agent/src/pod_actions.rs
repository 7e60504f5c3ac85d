//! What to do about a pod: compares its spec with what runs (pure).
//!
//! The rules are kubelet's `computePodActions` (`pkg/kubelet/kuberuntime/kuberuntime_manager.go` at
//! v1.37). No clock and no I/O: back-off is applied by the caller when it starts what [`plan`]
//! names, probe verdicts come in as data.

mod init_containers;

use std::collections::HashMap;

use k8s_openapi::api::core::v1::{Container, Pod};

use crate::{
    container_config::resources::{self, Difference},
    pod::{PodExt, RestartPolicy, restart_policy, restarts_after, spec_hash},
    runtime::types::{
        ContainerId, ContainerState, ContainerStatus, SandboxId, SandboxState, SandboxStatus,
    },
};

/// What the probes of a running container say.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// The liveness probe has failed for good.
    pub(crate) liveness_failed: bool,
    /// The startup probe has failed for good.
    pub(crate) startup_failed: bool,
    /// No startup probe, or it has succeeded.
    pub(crate) started: bool,
}

/// What runs for a pod, as the runtime tells.
pub(crate) struct Observed<'a> {
    pub(crate) sandboxes: &'a [SandboxStatus],
    pub(crate) containers: &'a [ContainerStatus],
    pub(crate) verdicts: &'a HashMap<ContainerId, Verdict>,
}

impl<'a> Observed<'a> {
    /// The newest instance of a container.
    pub(crate) fn latest(&self, name: &str) -> Option<&'a ContainerStatus> {
        self.containers
            .iter()
            .filter(|c| c.name == name)
            .max_by_key(|c| (c.attempt, c.created_at))
    }

    /// The newest instance within one sandbox.
    fn latest_in(&self, sandbox: &SandboxId, name: &str) -> Option<&'a ContainerStatus> {
        self.containers
            .iter()
            .filter(|c| c.name == name && c.sandbox_id == *sandbox)
            .max_by_key(|c| (c.attempt, c.created_at))
    }

    /// The newest sandbox.
    pub(crate) fn sandbox(&self) -> Option<&'a SandboxStatus> {
        self.sandboxes
            .iter()
            .max_by_key(|s| (s.attempt, s.created_at))
    }

    fn verdict(&self, id: &ContainerId) -> Verdict {
        self.verdicts.get(id).copied().unwrap_or_default()
    }
}

/// Why a running container must go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KillReason {
    SpecChanged,
    /// A resource changes whose `resizePolicy` is a restart.
    Resized,
    LivenessProbe,
    StartupProbe,
}

/// A container to be stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ContainerToKill {
    pub(crate) id: ContainerId,
    pub(crate) name: String,
    pub(crate) reason: KillReason,
    /// In upstream's words, for the event `Killing`.
    pub(crate) message: String,
}

/// A running container whose cgroup gets other limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ContainerToResize {
    pub(crate) id: ContainerId,
    pub(crate) name: String,
}

/// What has to happen, in the order of the fields.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PodActions {
    /// Stop everything that runs, and the sandbox.
    pub(crate) kill_pod: bool,
    /// Make a sandbox, with this attempt.
    pub(crate) create_sandbox: Option<u32>,
    /// Stop these.
    pub(crate) to_kill: Vec<ContainerToKill>,
    /// Give the pod's cgroup other limits.
    pub(crate) resize_pod: bool,
    /// Give these other limits.
    pub(crate) to_resize: Vec<ContainerToResize>,
    /// Start these init containers (names, in order).
    pub(crate) init_to_start: Vec<String>,
    /// Start these containers (names, in order).
    pub(crate) to_start: Vec<String>,
    /// Start these ephemeral containers (names, in order), each once in its life.
    pub(crate) ephemeral_to_start: Vec<String>,
}

impl PodActions {
    /// Whether any cgroup gets other limits.
    pub(crate) fn resizes(&self) -> bool {
        self.resize_pod || !self.to_resize.is_empty()
    }

    /// Nothing to do.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Compares and decides. Calling it again after its actions were carried out gives no actions, or
/// the next step.
pub(crate) fn plan(pod: &Pod, observed: &Observed<'_>) -> PodActions {
    let mut actions = PodActions::default();
    let sandbox = match usable_sandbox(pod, observed) {
        Ok(sandbox) => sandbox,
        Err(attempt) => {
            plan_new_sandbox(pod, observed, attempt, &mut actions);
            return actions;
        }
    };
    let initialized = init_containers::plan(pod, observed, sandbox, &mut actions);
    if !actions.kill_pod && initialized {
        plan_containers(pod, observed, &mut actions);
    }
    // They may come before the pod is initialized: to see why it is not.
    if !actions.kill_pod && !pod.is_deleting() {
        actions.resize_pod =
            Difference::between(&resources::for_pod(pod), &sandbox.resources).any();
        let containers = pod.spec_or_default().ephemeral_containers.iter().flatten();
        let new = containers.filter(|container| observed.latest(&container.name).is_none());
        actions.ephemeral_to_start = new.map(|container| container.name.clone()).collect();
    }
    actions
}

/// The sandbox to use, or the attempt number of the one to make.
fn usable_sandbox<'a>(pod: &Pod, observed: &Observed<'a>) -> Result<&'a SandboxStatus, u32> {
    let Some(newest) = observed.sandbox() else {
        return Err(0);
    };
    let ready = observed
        .sandboxes
        .iter()
        .filter(|s| s.state == SandboxState::Ready)
        .count();
    let has_address = newest.host_network || !newest.ips.is_empty();
    if ready > 1
        || newest.state != SandboxState::Ready
        || newest.host_network != pod.host_network()
        || !has_address
    {
        return Err(newest.attempt + 1);
    }
    Ok(newest)
}

fn plan_new_sandbox(pod: &Pod, observed: &Observed<'_>, attempt: u32, actions: &mut PodActions) {
    actions.kill_pod = attempt > 0 || observed.containers.iter().any(is_alive);
    let never = |container: &Container| {
        restart_policy(pod, container) == RestartPolicy::Never
            && container.restart_policy_rules.is_none()
    };
    if pod.containers().iter().all(never) && !observed.containers.is_empty() {
        // A pod that must not restart ends with its sandbox, though no record of that may be left.
        actions.kill_pod = observed.containers.iter().any(is_alive)
            || observed
                .sandboxes
                .iter()
                .any(|s| s.state == SandboxState::Ready);
        return;
    }
    let to_start: Vec<String> = pod
        .containers()
        .iter()
        .filter(|c| !is_done(pod, c, observed.latest(&c.name)))
        .map(|c| c.name.clone())
        .collect();
    if to_start.is_empty() && !observed.containers.is_empty() {
        actions.kill_pod = observed
            .sandboxes
            .iter()
            .any(|s| s.state == SandboxState::Ready);
        return;
    }
    actions.create_sandbox = Some(attempt);
    match pod.init_containers().first() {
        Some(first) => actions.init_to_start = vec![first.name.clone()],
        None => actions.to_start = to_start,
    }
}

fn plan_containers(pod: &Pod, observed: &Observed<'_>, actions: &mut PodActions) {
    let mut kept = 0_usize;
    for container in pod.containers() {
        let status = observed.latest(&container.name);
        let Some(running) = status.filter(|s| matches!(s.state, ContainerState::Running { .. }))
        else {
            if should_start(pod, container, status) {
                actions.to_start.push(container.name.clone());
            }
            continue;
        };
        let Some((reason, message)) =
            reason_to_kill(pod, container, running, observed.verdict(&running.id))
        else {
            plan_resize(pod, container, running, actions);
            kept += 1;
            continue;
        };
        let restarts_on_failure = restart_policy(pod, container) != RestartPolicy::Never;
        let restart =
            restarts_on_failure || matches!(reason, KillReason::SpecChanged | KillReason::Resized);
        let message = if restart {
            format!("Container {message}, will be restarted")
        } else {
            format!("Container {message}")
        };
        actions.to_kill.push(kill(running, reason, message));
        if restart {
            actions.to_start.push(container.name.clone());
        }
    }
    if kept == 0 && actions.to_start.is_empty() {
        // All is done: sidecars stop, the sandbox lets go of its address.
        *actions = PodActions {
            kill_pod: true,
            ..PodActions::default()
        };
    }
}

fn reason_to_kill(
    pod: &Pod,
    container: &Container,
    status: &ContainerStatus,
    verdict: Verdict,
) -> Option<(KillReason, String)> {
    let name = &container.name;
    if !status.spec_hash.is_empty() && status.spec_hash != spec_hash(container) {
        Some((
            KillReason::SpecChanged,
            format!("{name} definition changed"),
        ))
    } else if must_restart(pod, container, status) {
        Some((
            KillReason::Resized,
            format!("{name} resize requires restart"),
        ))
    } else if verdict.liveness_failed {
        Some((
            KillReason::LivenessProbe,
            format!("{name} failed liveness probe"),
        ))
    } else if verdict.startup_failed {
        Some((
            KillReason::StartupProbe,
            format!("{name} failed startup probe"),
        ))
    } else {
        None
    }
}

/// Whether what changes cannot change while the container runs.
fn must_restart(pod: &Pod, container: &Container, status: &ContainerStatus) -> bool {
    let difference = Difference::between(&resources::limits_of(pod, container), &status.resources);
    container.resize_policy.iter().flatten().any(|policy| {
        policy.restart_policy == "RestartContainer"
            && match policy.resource_name.as_str() {
                "cpu" => difference.cpu,
                "memory" => difference.memory,
                _ => false,
            }
    })
}

fn plan_resize(
    pod: &Pod,
    container: &Container,
    status: &ContainerStatus,
    actions: &mut PodActions,
) {
    if Difference::between(&resources::limits_of(pod, container), &status.resources).any() {
        actions.to_resize.push(ContainerToResize {
            id: status.id.clone(),
            name: status.name.clone(),
        });
    }
}

fn kill(status: &ContainerStatus, reason: KillReason, message: String) -> ContainerToKill {
    ContainerToKill {
        id: status.id.clone(),
        name: status.name.clone(),
        reason,
        message,
    }
}

/// Whether a container that does not run should.
pub(crate) fn should_start(
    pod: &Pod,
    container: &Container,
    latest: Option<&ContainerStatus>,
) -> bool {
    if pod.is_deleting() {
        return false;
    }
    match latest.map(|s| &s.state) {
        None | Some(ContainerState::Created) => true,
        Some(ContainerState::Running { .. }) => false,
        Some(ContainerState::Exited { exit_code, .. }) => {
            restarts_after(pod, container, *exit_code)
        }
    }
}

/// Whether it has ended for good.
fn is_done(pod: &Pod, container: &Container, latest: Option<&ContainerStatus>) -> bool {
    latest.is_some_and(|latest| match latest.state {
        ContainerState::Exited { exit_code, .. } => !restarts_after(pod, container, exit_code),
        _ => false,
    })
}

fn is_alive(status: &ContainerStatus) -> bool {
    !matches!(status.state, ContainerState::Exited { .. })
}

#[cfg(test)]
mod tests;
