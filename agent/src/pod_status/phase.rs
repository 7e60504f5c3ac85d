//! `status.phase` (pure): kubelet's `getPhase`.

use coracle_api::scheduling::is_sidecar;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodStatus};

use crate::pod::{PodExt, restarts_after};

/// `status.phase`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    Pending,
    Running,
    Succeeded,
    Failed,
}

impl Phase {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Running => "Running",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
        }
    }

    /// Nothing runs for the pod ever again.
    pub(crate) fn is_final(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

/// Computes the phase from the containers' statuses (in the order of the spec). A final phase
/// stays.
pub(crate) fn compute(
    pod: &Pod,
    init: &[ContainerStatus],
    containers: &[ContainerStatus],
    terminated: bool,
    previous: &PodStatus,
) -> Phase {
    match previous.phase.as_deref() {
        Some("Succeeded") => return Phase::Succeeded,
        Some("Failed") => return Phase::Failed,
        _ => {}
    }
    let (mut pending_init, mut failed_init, mut lost_init) = (0, 0, 0);
    for (container, status) in pod.init_containers().iter().zip(init) {
        let ended = exit_code(status);
        // As upstream: once a container proper was made, no init container that starts again makes
        // the pod pending.
        if is_sidecar(container) {
            let started =
                status.started.unwrap_or(false) || status.restart_count > 0 || ended.is_some();
            pending_init +=
                usize::from(!started && containers.iter().all(|c| c.container_id.is_none()));
        } else {
            match ended {
                Some(0) => {}
                Some(code) => {
                    failed_init += 1;
                    lost_init += usize::from(!restarts_after(pod, container, code));
                }
                None => {
                    pending_init += usize::from(containers.iter().all(|c| c.container_id.is_none()))
                }
            }
        }
    }
    let (mut running, mut waiting, mut stopped, mut succeeded, mut restarts) = (0, 0, 0, 0, 0);
    for status in containers {
        let state = status.state.as_ref();
        if state.is_some_and(|s| s.running.is_some()) {
            running += 1;
        } else if let Some(code) = exit_code(status) {
            stopped += 1;
            succeeded += usize::from(code == 0);
            let container = pod.container(&status.name);
            restarts += usize::from(
                container.is_some_and(|container| restarts_after(pod, container, code)),
            );
        } else {
            waiting += 1;
        }
    }
    if lost_init > 0 || (failed_init > 0 && terminated) {
        return Phase::Failed;
    }
    if terminated {
        // What never ran will not run any more: not all was done.
        let all_ran = waiting == 0 && running == 0 && stopped > 0;
        return if all_ran && stopped == succeeded {
            Phase::Succeeded
        } else {
            Phase::Failed
        };
    }
    if pending_init > 0 || failed_init > 0 || waiting > 0 {
        Phase::Pending
    } else if running > 0 {
        Phase::Running
    } else if stopped > 0 {
        match stopped == succeeded {
            // All are down, but not for good.
            _ if restarts > 0 => Phase::Running,
            true => Phase::Succeeded,
            false => Phase::Failed,
        }
    } else {
        Phase::Pending
    }
}

/// How the container ended, if it does not run; one that waits for its restart counts as ended.
fn exit_code(status: &ContainerStatus) -> Option<i32> {
    let state = status.state.as_ref()?;
    if let Some(end) = &state.terminated {
        return Some(end.exit_code);
    }
    state.waiting.as_ref()?;
    status
        .last_state
        .as_ref()?
        .terminated
        .as_ref()
        .map(|end| end.exit_code)
}
