//! Containers of which only the API knows that they ran (pure).
//!
//! The runtime's records are the truth as long as there are any. A disk that was replaced, or a
//! power cut just after a start, takes them away; what the pod's status in the API says of a
//! container then stands for its record, so that what must run once does not run twice and restarts
//! are counted on.

use std::{path::PathBuf, time::SystemTime};

use k8s_openapi::api::core::v1::{
    Container, ContainerStateTerminated, ContainerStatus as ApiStatus, Pod,
};

use crate::{
    pod::{PodExt, RestartPolicy, restart_policy, system_time},
    pod_status::ID_SCHEME,
    runtime::types::{ContainerId, ContainerState, ContainerStatus, Resources, SandboxId},
};

/// What the API tells of containers that `known` has no record of.
pub(super) fn containers(pod: &Pod, known: &[ContainerStatus]) -> Vec<ContainerStatus> {
    let status = pod.status_or_default();
    let lists = [
        &status.init_container_statuses,
        &status.container_statuses,
        &status.ephemeral_container_statuses,
    ];
    let told = lists.into_iter().flatten().flatten();
    told.filter(|told| !known.iter().any(|known| known.name == told.name))
        .filter_map(|told| container(pod, told))
        .collect()
}

/// Whether nothing may be started on the word of a copy on disk: a pod of which something runs only
/// once, and of which there is no record. It may have run, and the copy be older than that.
pub(super) fn must_be_told(pod: &Pod, known: &[ContainerStatus]) -> bool {
    let once = |container: &Container| restart_policy(pod, container) != RestartPolicy::Always;
    known.is_empty()
        && (pod.containers().iter().any(once) || !pod.ephemeral_containers().is_empty())
}

fn container(pod: &Pod, told: &ApiStatus) -> Option<ContainerStatus> {
    let id = told.container_id.as_deref()?.strip_prefix(ID_SCHEME)?;
    let state = told.state.as_ref()?;
    let waits_again = || {
        told.last_state
            .as_ref()
            .filter(|_| state.waiting.is_some())?
            .terminated
            .as_ref()
    };
    let state = match (
        &state.running,
        state.terminated.as_ref().or_else(waits_again),
    ) {
        (Some(running), _) => {
            let started_at = running
                .started_at
                .as_ref()
                .map_or(SystemTime::UNIX_EPOCH, system_time);
            crate::runtime::lost_in_a_reboot(started_at)
        }
        (None, Some(end)) => exited(end),
        // Made, but never started.
        (None, None) => return None,
    };
    Some(ContainerStatus {
        id: ContainerId(id.to_owned()),
        sandbox_id: SandboxId(String::new()),
        pod: pod.reference(),
        name: told.name.clone(),
        attempt: u32::try_from(told.restart_count).unwrap_or(0),
        image: told.image.clone(),
        image_id: told.image_id.clone(),
        image_ref: told.image_id.clone(),
        spec_hash: String::new(),
        created_at: SystemTime::UNIX_EPOCH,
        resources: Resources::default(),
        state,
        log_path: PathBuf::new(),
    })
}

fn exited(end: &ContainerStateTerminated) -> ContainerState {
    let time = |time: &Option<_>| time.as_ref().map_or(SystemTime::UNIX_EPOCH, system_time);
    ContainerState::Exited {
        started_at: time(&end.started_at),
        finished_at: time(&end.finished_at),
        exit_code: end.exit_code,
        signal: end.signal,
        reason: end.reason.clone().unwrap_or_default(),
        message: end.message.clone().unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(state: Value, last: Value) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": "p", "uid": "u"},
            "spec": {"containers": [{"name": "a"}]},
            "status": {"containerStatuses": [{"name": "a", "image": "i", "imageID": "", "ready": false,
                "restartCount": 3, "containerID": "coracle://x", "state": state, "lastState": last}]}}))
        .expect("pod")
    }

    #[test]
    fn what_the_api_tells_stands_for_a_lost_record() {
        let ended = json!({"terminated": {"exitCode": 4, "reason": "Error"}});
        let waits = json!({"waiting": {"reason": "CrashLoopBackOff"}});
        let cases = [
            (
                json!({"running": {"startedAt": "2026-01-01T00:00:00Z"}}),
                json!({}),
                Some(255),
            ),
            (ended.clone(), json!({}), Some(4)),
            (waits.clone(), ended, Some(4)),
            (waits, json!({}), None),
        ];
        for (state, last, expected) in cases {
            let found = containers(&pod(state.clone(), last), &[]);
            let code = found.first().map(|one| match one.state {
                ContainerState::Exited { exit_code, .. } => exit_code,
                _ => -1,
            });
            assert_eq!(code, expected, "{state}");
            assert!(
                found
                    .iter()
                    .all(|one| (one.attempt, &*one.id.0) == (3, "x")),
                "{state}"
            );
        }
    }

    #[test]
    fn a_record_is_worth_more_than_what_the_api_tells() {
        let pod = pod(json!({"running": {}}), json!({}));
        let record = containers(&pod, &[]);
        assert_eq!(record.len(), 1);
        assert_eq!(containers(&pod, &record), []);
    }
}
