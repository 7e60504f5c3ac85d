//! What to do about init containers and sidecars: one after the other, each once those before it
//! are through.

use coracle_api::scheduling::is_sidecar;
use k8s_openapi::api::core::v1::{Container, Pod};

use super::{Observed, PodActions, kill, plan_resize, reason_to_kill};
use crate::{
    pod::{PodExt, restarts_after},
    runtime::types::{ContainerState, ContainerStatus, SandboxStatus},
};

/// Whether the pod is initialized; if not, names the next step.
pub(super) fn plan(
    pod: &Pod,
    observed: &Observed<'_>,
    sandbox: &SandboxStatus,
    actions: &mut PodActions,
) -> bool {
    let init = pod.init_containers();
    if init.is_empty() {
        return true;
    }
    let latest: Vec<Option<&ContainerStatus>> = init
        .iter()
        .map(|c| observed.latest_in(&sandbox.id, &c.name))
        .collect();
    let initialized = pod
        .containers()
        .iter()
        .any(|c| observed.latest_in(&sandbox.id, &c.name).is_some());
    // Records of init containers may be collected: one that ran means that all before it are done.
    let furthest = latest.iter().rposition(Option::is_some);
    for (index, container) in init.iter().enumerate() {
        let status = latest[index];
        let passed = if is_sidecar(container) {
            plan_sidecar(pod, container, status, observed, actions)
        } else if initialized {
            true
        } else {
            match status.map(|s| &s.state) {
                None if furthest.is_some_and(|furthest| index < furthest) => true,
                None | Some(ContainerState::Created) => {
                    actions.init_to_start.push(container.name.clone());
                    false
                }
                Some(ContainerState::Running { .. }) => false,
                Some(ContainerState::Exited { exit_code: 0, .. }) => true,
                Some(ContainerState::Exited { exit_code, .. }) => {
                    if restarts_after(pod, container, *exit_code) {
                        actions.init_to_start.push(container.name.clone());
                    } else {
                        *actions = PodActions {
                            kill_pod: true,
                            ..PodActions::default()
                        };
                    }
                    false
                }
            }
        };
        if !passed && !initialized {
            return false;
        }
    }
    true
}

/// Whether what follows the sidecar may start.
fn plan_sidecar(
    pod: &Pod,
    container: &Container,
    status: Option<&ContainerStatus>,
    observed: &Observed<'_>,
    actions: &mut PodActions,
) -> bool {
    let Some(status) = status else {
        actions.init_to_start.push(container.name.clone());
        return false;
    };
    match &status.state {
        ContainerState::Running { .. } => {
            match reason_to_kill(pod, container, status, observed.verdict(&status.id)) {
                Some((reason, message)) => {
                    actions.to_kill.push(kill(
                        status,
                        reason,
                        format!("Init container {message}, will be restarted"),
                    ));
                    actions.init_to_start.push(container.name.clone());
                    false
                }
                None => {
                    plan_resize(pod, container, status, actions);
                    observed.verdict(&status.id).started || container.startup_probe.is_none()
                }
            }
        }
        ContainerState::Created | ContainerState::Exited { .. } => {
            actions.init_to_start.push(container.name.clone());
            false
        }
    }
}
