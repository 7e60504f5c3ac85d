//! The status of each container of a pod, as the API shows it (pure).

use coracle_api::scheduling::is_sidecar;
use k8s_openapi::api::core::v1::{
    Container, ContainerState as ApiState, ContainerStateRunning, ContainerStateTerminated,
    ContainerStateWaiting, ContainerStatus as ApiStatus, Pod, VolumeMountStatus,
};

use super::{
    StatusInput,
    lost::{state_terminated, unlocated},
};
use crate::{
    container_config::resources,
    pod::{PodExt, api_time},
    pod_actions::should_start,
    runtime::types::{ContainerState, ContainerStatus},
};

/// Prefix of `containerID`.
pub(crate) const ID_SCHEME: &str = "coracle://";

/// One status for each container of the spec, in its order.
pub(super) fn statuses(
    input: &StatusInput<'_>,
    containers: &[Container],
    init: bool,
) -> Vec<ApiStatus> {
    containers
        .iter()
        .map(|container| status(input, container, init))
        .collect()
}

/// One status for each ephemeral container. They are never ready, and never started again.
pub(super) fn ephemeral_statuses(input: &StatusInput<'_>) -> Vec<ApiStatus> {
    let mut statuses = statuses(input, &input.pod.ephemeral_containers(), false);
    for status in &mut statuses {
        status.ready = false;
        status.started = None;
        (status.resources, status.allocated_resources) = (None, None);
        status.restart_count = 0;
    }
    statuses
}

fn status(input: &StatusInput<'_>, container: &Container, init: bool) -> ApiStatus {
    let mut records: Vec<&ContainerStatus> = input
        .observed
        .containers
        .iter()
        .filter(|c| c.name == container.name)
        .collect();
    records.sort_by_key(|record| std::cmp::Reverse((record.attempt, record.created_at)));
    let earlier = earlier_status(input, &container.name, init);
    let mut status = match records.first() {
        Some(latest) => from_records(input, latest, records.get(1).copied(), earlier),
        None => without_record(input, container, earlier),
    };
    override_with_waiting(
        input,
        container,
        records.first().copied(),
        init,
        &mut status,
    );
    set_resources(input.pod, container, records.first().copied(), &mut status);
    set_probes(
        input,
        container,
        records.first().copied(),
        init,
        &mut status,
    );
    status.volume_mounts = volume_mounts(container);
    status
}

/// What it mounts; whether what is mounted below a read-only volume can be written to is told of
/// such volumes alone.
fn volume_mounts(container: &Container) -> Option<Vec<VolumeMountStatus>> {
    let mounts = container
        .volume_mounts
        .iter()
        .flatten()
        .map(|mount| VolumeMountStatus {
            name: mount.name.clone(),
            mount_path: mount.mount_path.clone(),
            read_only: mount.read_only.filter(|read_only| *read_only),
            recursive_read_only: (mount.read_only == Some(true)).then(|| "Disabled".to_owned()),
            ..VolumeMountStatus::default()
        });
    let mounts: Vec<_> = mounts.collect();
    (!mounts.is_empty()).then_some(mounts)
}

fn earlier_status<'a>(input: &StatusInput<'a>, name: &str, init: bool) -> Option<&'a ApiStatus> {
    let previous = input.previous;
    let list = if init {
        &previous.init_container_statuses
    } else {
        &previous.container_statuses
    };
    list.iter()
        .chain(&previous.ephemeral_container_statuses)
        .flatten()
        .find(|status| status.name == name)
}

fn from_records(
    input: &StatusInput<'_>,
    latest: &ContainerStatus,
    before: Option<&ContainerStatus>,
    earlier: Option<&ApiStatus>,
) -> ApiStatus {
    // Without a record of the instance before, the API may still remember it.
    let last_state = before
        .and_then(|record| terminated(input, record))
        .map(state_terminated)
        .or_else(|| {
            earlier.and_then(|earlier| {
                let same =
                    earlier.container_id.as_deref() == Some(&format!("{ID_SCHEME}{}", latest.id));
                if same {
                    earlier.last_state.clone()
                } else {
                    earlier
                        .state
                        .clone()
                        .filter(|state| state.terminated.is_some())
                        .or_else(|| earlier.last_state.clone())
                }
            })
        });
    let state = match &latest.state {
        ContainerState::Created => waiting(default_reason(input.pod), None),
        // As upstream: not before its postStart hook is done.
        ContainerState::Running { .. } if input.hooked.contains(&latest.id) => {
            waiting(default_reason(input.pod), None)
        }
        ContainerState::Running { started_at, .. } => ApiState {
            running: Some(ContainerStateRunning {
                started_at: Some(api_time(*started_at)),
            }),
            ..ApiState::default()
        },
        ContainerState::Exited { .. } => terminated(input, latest)
            .map(state_terminated)
            .unwrap_or_default(),
    };
    ApiStatus {
        name: latest.name.clone(),
        image: latest.image.clone(),
        image_id: if latest.image_ref.is_empty() {
            latest.image_id.clone()
        } else {
            latest.image_ref.clone()
        },
        container_id: Some(format!("{ID_SCHEME}{}", latest.id)),
        restart_count: i32::try_from(latest.attempt).unwrap_or(i32::MAX),
        state: Some(state),
        last_state: Some(last_state.unwrap_or_default()),
        ..ApiStatus::default()
    }
}

/// What a container waits for that nobody has tried to start.
fn default_reason(pod: &Pod) -> &'static str {
    if pod.init_containers().is_empty() {
        "ContainerCreating"
    } else {
        "PodInitializing"
    }
}

/// A container of which no record exists: never started, or lost.
fn without_record(
    input: &StatusInput<'_>,
    container: &Container,
    earlier: Option<&ApiStatus>,
) -> ApiStatus {
    let mut status = ApiStatus {
        name: container.name.clone(),
        image: container.image.clone().unwrap_or_default(),
        state: Some(waiting(default_reason(input.pod), None)),
        last_state: Some(ApiState::default()),
        ..ApiStatus::default()
    };
    let Some(earlier) = earlier else {
        return status;
    };
    status.restart_count = earlier.restart_count;
    status.last_state.clone_from(&earlier.last_state);
    let Some(state) = &earlier.state else {
        return status;
    };
    if let Some(end) = &state.terminated {
        // Its record was collected; the API remembers how it ended.
        status.container_id.clone_from(&earlier.container_id);
        status.image_id.clone_from(&earlier.image_id);
        status.state = Some(ApiState {
            terminated: Some(end.clone()),
            ..ApiState::default()
        });
    } else if state.running.is_some() {
        let lost = ContainerStateTerminated {
            container_id: earlier.container_id.clone(),
            ..unlocated()
        };
        if input.terminating || input.terminated {
            status.state = Some(state_terminated(lost));
        } else {
            let message = "The container could not be located when the pod was deleted.  The container used to be Running";
            status.last_state = Some(state_terminated(ContainerStateTerminated {
                message: Some(message.to_owned()),
                ..lost
            }));
            status.restart_count += 1;
        }
    }
    status
}

/// What the worker's last attempt says beats the runtime's view, as for `CrashLoopBackOff`.
fn override_with_waiting(
    input: &StatusInput<'_>,
    container: &Container,
    latest: Option<&ContainerStatus>,
    init: bool,
    status: &mut ApiStatus,
) {
    let Some(why) = input.waiting.get(&container.name) else {
        return;
    };
    if input.terminated || input.terminating {
        return;
    }
    let runs = latest.is_some_and(|record| matches!(record.state, ContainerState::Running { .. }));
    let restarts = if is_sidecar(container) {
        !input.pod.is_deleting()
    } else {
        should_start(input.pod, container, latest)
    };
    let done =
        init && latest.is_some_and(|record| {
            matches!(record.state, ContainerState::Exited { exit_code: 0, .. })
        }) && !is_sidecar(container);
    if runs || !restarts || done {
        return;
    }
    if let Some(end) = status
        .state
        .as_ref()
        .and_then(|state| state.terminated.clone())
    {
        status.last_state = Some(state_terminated(end));
    }
    status.state = Some(waiting(&why.reason, Some(&why.message)));
}

fn set_probes(
    input: &StatusInput<'_>,
    container: &Container,
    latest: Option<&ContainerStatus>,
    init: bool,
    status: &mut ApiStatus,
) {
    let running = status
        .state
        .as_ref()
        .is_some_and(|state| state.running.is_some());
    let probed = latest.and_then(|record| input.probes.get(&record.id));
    let started =
        running && probed.map_or(container.startup_probe.is_none(), |probe| probe.started);
    status.started = Some(started);
    status.ready = if init && !is_sidecar(container) {
        status
            .state
            .as_ref()
            .and_then(|state| state.terminated.as_ref())
            .is_some_and(|end| end.exit_code == 0)
    } else {
        running
            && started
            && !input.terminated
            && probed.map_or(container.readiness_probe.is_none(), |probe| probe.ready)
    };
}

/// What a running container has, and what any other would get.
fn set_resources(
    pod: &Pod,
    container: &Container,
    latest: Option<&ContainerStatus>,
    status: &mut ApiStatus,
) {
    let running = latest.filter(|record| matches!(record.state, ContainerState::Running { .. }));
    status.resources = Some(resources::in_effect(
        pod,
        container,
        running.map(|record| &record.resources),
    ));
    status.allocated_resources = container
        .resources
        .as_ref()
        .and_then(|resources| resources.requests.clone());
}

fn waiting(reason: &str, message: Option<&str>) -> ApiState {
    let waiting = ContainerStateWaiting {
        reason: Some(reason.to_owned()),
        message: message.filter(|m| !m.is_empty()).map(str::to_owned),
    };
    ApiState {
        waiting: Some(waiting),
        ..ApiState::default()
    }
}

fn terminated(
    input: &StatusInput<'_>,
    record: &ContainerStatus,
) -> Option<ContainerStateTerminated> {
    let ContainerState::Exited {
        started_at,
        finished_at,
        exit_code,
        reason,
        message,
        ..
    } = &record.state
    else {
        return None;
    };
    let message = input
        .termination_messages
        .get(&record.id)
        .unwrap_or(message);
    Some(ContainerStateTerminated {
        container_id: Some(format!("{ID_SCHEME}{}", record.id)),
        exit_code: *exit_code,
        started_at: Some(api_time(*started_at)),
        finished_at: Some(api_time(*finished_at)),
        reason: (!reason.is_empty()).then(|| reason.clone()),
        message: (!message.is_empty()).then(|| message.clone()),
        signal: None,
    })
}
