//! Which requests and limits of a resized pod are in force: the new ones, if the node has room for
//! them (pure).
//!
//! Nothing is remembered here. What a pod has is what its status says of its containers
//! (`allocatedResources`, `resources`); a resize that does not fit leaves that as it is, and says
//! why.
//!
//! Source: `pkg/kubelet/allocation/allocation_manager.go` at v1.37.

use std::{collections::HashMap, sync::Arc};

use k8s_openapi::api::core::v1::{
    Container, ContainerStatus, Pod, PodStatus, ResourceRequirements,
};

use crate::{
    container_config::{
        fields::Allocatable,
        resources::{self, Amounts},
    },
    pod::PodExt,
    status_reason::StatusReason,
};

/// Reason of a resize that fits once others have gone.
pub(crate) const DEFERRED: &str = "Deferred";
/// Reason of a resize that never fits.
const INFEASIBLE: &str = "Infeasible";

/// The pod as it is to run.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Allocation {
    /// With the requests and limits that are in force.
    pub(crate) pod: Arc<Pod>,
    /// Why they are not the ones that are wanted.
    pub(crate) pending: Option<StatusReason>,
}

/// Decides for `pod`, of which `known` is the last status. `others` tells what all other pods of
/// the node ask for; it is asked only if this one wants something else than it has.
pub(crate) fn allocate(
    pod: &Arc<Pod>,
    known: &PodStatus,
    allocatable: Allocatable,
    others: impl FnOnce() -> Amounts,
) -> Allocation {
    let Some(held) = held(pod, known) else {
        return Allocation {
            pod: Arc::clone(pod),
            pending: None,
        };
    };
    match why_not(
        &resources::pod_amounts(pod),
        &resources::pod_amounts(&held),
        allocatable,
        others,
    ) {
        Some(why) => Allocation {
            pod: Arc::new(held),
            pending: Some(why),
        },
        None => Allocation {
            pod: Arc::clone(pod),
            pending: None,
        },
    }
}

/// The pod with what its containers have, or `None` if that is what its spec says.
pub(crate) fn held(pod: &Pod, known: &PodStatus) -> Option<Pod> {
    let statuses = || {
        known
            .container_statuses
            .iter()
            .chain(&known.init_container_statuses)
            .flatten()
    };
    let differing = |container: &Container| {
        let had = allocated(
            statuses().find(|status| status.name == container.name)?,
            container,
        )?;
        let wanted = container.resources.as_ref();
        let differs = wanted != Some(&had) && Amounts::of(wanted) != Amounts::of(Some(&had));
        differs.then(|| (container.name.clone(), had))
    };
    let mut had: HashMap<String, ResourceRequirements> =
        pod.all_containers().filter_map(differing).collect();
    if had.is_empty() {
        return None;
    }
    let mut held = pod.clone();
    let spec = held.spec.as_mut()?;
    for container in spec
        .containers
        .iter_mut()
        .chain(spec.init_containers.iter_mut().flatten())
    {
        if let Some(had) = had.remove(&container.name) {
            container.resources = Some(had);
        }
    }
    Some(held)
}

/// The requirements of a container with the cpu and memory that its status tells, if it tells any.
fn allocated(status: &ContainerStatus, container: &Container) -> Option<ResourceRequirements> {
    let told = status.resources.as_ref()?;
    let mut had = container.resources.clone().unwrap_or_default();
    let requests = status
        .allocated_resources
        .as_ref()
        .or(told.requests.as_ref());
    for (list, told) in [
        (&mut had.limits, told.limits.as_ref()),
        (&mut had.requests, requests),
    ] {
        for name in ["cpu", "memory"] {
            resources::set(list, name, told.and_then(|told| told.get(name)).cloned());
        }
    }
    Some(had)
}

/// What keeps the node from giving more, in upstream's words.
fn why_not(
    wanted: &Amounts,
    held: &Amounts,
    allocatable: Allocatable,
    others: impl FnOnce() -> Amounts,
) -> Option<StatusReason> {
    let grows = [
        (
            "cpu",
            wanted.cpu_request,
            held.cpu_request,
            allocatable.cpu_millis,
        ),
        (
            "memory",
            wanted.memory_request,
            held.memory_request,
            allocatable.memory_bytes,
        ),
    ];
    let mut grows = grows
        .into_iter()
        .filter(|(_, wanted, held, _)| wanted > held)
        .peekable();
    grows.peek()?;
    let used = others();
    let mut deferred = None;
    for (name, requested, _, capacity) in grows {
        let used = if name == "cpu" {
            used.cpu_request
        } else {
            used.memory_request
        };
        if requested > capacity {
            let message = format!(
                "Node didn't have enough capacity: {name}, requested: {requested}, capacity: {capacity}"
            );
            return Some(StatusReason::new(INFEASIBLE, message));
        }
        if used.saturating_add(requested) > capacity {
            let message = format!(
                "Node didn't have enough resource: {name}, requested: {requested}, used: {used}, capacity: {capacity}"
            );
            deferred.get_or_insert(StatusReason::new(DEFERRED, message));
        }
    }
    deferred
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(resources: Value) -> Arc<Pod> {
        let spec = json!({"containers": [{"name": "a", "resources": resources}]});
        Arc::new(
            serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": spec})).expect("pod"),
        )
    }

    fn status(resources: Value) -> PodStatus {
        serde_json::from_value(json!({"containerStatuses": [{
            "name": "a", "image": "", "imageID": "", "ready": true, "restartCount": 0,
            "resources": resources, "allocatedResources": resources["requests"]}]}))
        .expect("status")
    }

    fn decide(wanted: Value, has: Value) -> (Option<String>, Amounts) {
        let allocatable = Allocatable {
            cpu_millis: 4000,
            memory_bytes: 1 << 30,
            ephemeral_bytes: 0,
        };
        let others = Amounts {
            cpu_request: 2000,
            memory_request: 1 << 29,
            ..Amounts::default()
        };
        let found = allocate(&pod(wanted), &status(has), allocatable, || others);
        let pending = found
            .pending
            .map(|why| format!("{}: {}", why.reason, why.message));
        (pending, resources::pod_amounts(&found.pod))
    }

    #[test]
    fn resize_waits_for_room() {
        let has = json!({"requests": {"cpu": "1", "memory": "64Mi"}});
        let cases = [
            (
                json!({"requests": {"cpu": "1000m", "memory": "65536Ki"}}),
                None,
                1000,
            ),
            (
                json!({"requests": {"cpu": "2", "memory": "64Mi"}}),
                None,
                2000,
            ),
            (
                json!({"requests": {"cpu": "500m", "memory": "64Mi"}}),
                None,
                500,
            ),
            (
                json!({"requests": {"cpu": "2500m", "memory": "64Mi"}}),
                Some(
                    "Deferred: Node didn't have enough resource: cpu, requested: 2500, used: 2000, capacity: 4000",
                ),
                1000,
            ),
            (
                json!({"requests": {"cpu": "5", "memory": "600Mi"}}),
                Some(
                    "Infeasible: Node didn't have enough capacity: cpu, requested: 5000, capacity: 4000",
                ),
                1000,
            ),
            (
                json!({"requests": {"cpu": "1", "memory": "2Gi"}}),
                Some(
                    "Infeasible: Node didn't have enough capacity: memory, requested: 2147483648, capacity: 1073741824",
                ),
                1000,
            ),
        ];
        for (wanted, pending, cpu) in cases {
            let (found, amounts) = decide(wanted.clone(), has.clone());
            assert_eq!(
                (found.as_deref(), amounts.cpu_request),
                (pending, cpu),
                "{wanted}"
            );
        }
    }

    #[test]
    fn pod_without_a_status_has_what_it_wants() {
        let wanted = pod(json!({"requests": {"cpu": "100"}}));
        let found = allocate(
            &wanted,
            &PodStatus::default(),
            Allocatable::default(),
            Amounts::default,
        );
        assert_eq!(
            found,
            Allocation {
                pod: wanted,
                pending: None
            }
        );
    }
}
