//! Containers whose end nobody saw: when nothing of the pod will run any more they count as ended.

use coracle_api::scheduling::is_sidecar;
use k8s_openapi::api::core::v1::{
    ContainerState, ContainerStateTerminated, ContainerStatus as ApiStatus, Pod,
};

use crate::pod::PodExt;

/// How a container ended that nobody saw end.
pub(super) fn unlocated() -> ContainerStateTerminated {
    ContainerStateTerminated {
        exit_code: 137,
        reason: Some("ContainerStatusUnknown".to_owned()),
        message: Some("The container could not be located when the pod was terminated".to_owned()),
        ..ContainerStateTerminated::default()
    }
}

/// Nothing of the pod will ever run: what has not ended counts as lost. Init containers that never
/// had their turn stay as they are, and with them all others. Source: `TerminatePod` in
/// `pkg/kubelet/status/status_manager.go` at v1.37.
pub(super) fn close(pod: &Pod, init: &mut [ApiStatus], containers: &mut [ApiStatus]) {
    let succeeded = |status: &ApiStatus| {
        status
            .state
            .as_ref()
            .and_then(|state| state.terminated.as_ref())
            .is_some_and(|end| end.exit_code == 0)
    };
    let sidecar = |status: &ApiStatus| pod.container(&status.name).is_some_and(is_sidecar);
    let had_its_turn = |status: &ApiStatus| {
        let waits = status
            .state
            .as_ref()
            .is_none_or(|state| state.waiting.is_some());
        !waits
            || status
                .last_state
                .as_ref()
                .is_some_and(|last| last.terminated.is_some())
    };
    let through = init
        .last()
        .is_none_or(|last| succeeded(last) || (sidecar(last) && last.container_id.is_some()));
    if through || containers.iter().any(had_its_turn) {
        close_all(containers);
    }
    let last = init.iter().rposition(had_its_turn).unwrap_or(0);
    close_all(init.get_mut(..=last).unwrap_or_default());
}

/// Whatever has not ended counts as lost.
pub(super) fn close_all(statuses: &mut [ApiStatus]) {
    for status in statuses.iter_mut().filter(|status| {
        status
            .state
            .as_ref()
            .is_none_or(|state| state.terminated.is_none())
    }) {
        status.state = Some(state_terminated(unlocated()));
        status.started = Some(false);
        status.ready = false;
    }
}

pub(super) fn state_terminated(end: ContainerStateTerminated) -> ContainerState {
    ContainerState {
        terminated: Some(end),
        ..ContainerState::default()
    }
}
