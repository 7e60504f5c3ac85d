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
    let init = InitCounts::of(pod, init, containers);
    let proper = Counts::of(pod, containers);
    if init.lost > 0 || (init.failed > 0 && terminated) {
        return Phase::Failed;
    }
    let all_succeeded = proper.stopped == proper.succeeded;
    if terminated {
        // What never ran will not run any more: not all was done.
        let all_ran = proper.waiting == 0 && proper.running == 0 && proper.stopped > 0;
        return if all_ran && all_succeeded {
            Phase::Succeeded
        } else {
            Phase::Failed
        };
    }
    if init.pending > 0 || init.failed > 0 || proper.waiting > 0 {
        Phase::Pending
    } else if proper.running > 0 {
        Phase::Running
    } else if proper.stopped > 0 {
        match all_succeeded {
            // All are down, but not for good.
            _ if proper.restarting > 0 => Phase::Running,
            true => Phase::Succeeded,
            false => Phase::Failed,
        }
    } else {
        Phase::Pending
    }
}

/// How many init containers hold the pod up.
#[derive(Default)]
struct InitCounts {
    /// Not through yet.
    pending: usize,
    /// Ended with an error.
    failed: usize,
    /// Of the failed ones, those that are not started again.
    lost: usize,
}

impl InitCounts {
    fn of(pod: &Pod, init: &[ContainerStatus], containers: &[ContainerStatus]) -> Self {
        // As upstream: once a container proper was made, no init container that starts again makes
        // the pod pending.
        let none_made = containers.iter().all(|c| c.container_id.is_none());
        let mut counts = Self::default();
        for (container, status) in pod.init_containers().iter().zip(init) {
            let ended = exit_code(status);
            if is_sidecar(container) {
                let started =
                    status.started.unwrap_or(false) || status.restart_count > 0 || ended.is_some();
                counts.pending += usize::from(!started && none_made);
                continue;
            }
            match ended {
                Some(0) => {}
                Some(code) => {
                    counts.failed += 1;
                    counts.lost += usize::from(!restarts_after(pod, container, code));
                }
                None => counts.pending += usize::from(none_made),
            }
        }
        counts
    }
}

/// How many containers proper are in each state.
#[derive(Default)]
struct Counts {
    running: usize,
    waiting: usize,
    stopped: usize,
    /// Of the stopped ones, those without an error.
    succeeded: usize,
    /// Of the stopped ones, those that are started again.
    restarting: usize,
}

impl Counts {
    fn of(pod: &Pod, containers: &[ContainerStatus]) -> Self {
        let mut counts = Self::default();
        for status in containers {
            let state = status.state.as_ref();
            if state.is_some_and(|state| state.running.is_some()) {
                counts.running += 1;
            } else if let Some(code) = exit_code(status) {
                counts.stopped += 1;
                counts.succeeded += usize::from(code == 0);
                let container = pod.container(&status.name);
                counts.restarting += usize::from(
                    container.is_some_and(|container| restarts_after(pod, container, code)),
                );
            } else {
                counts.waiting += 1;
            }
        }
        counts
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
