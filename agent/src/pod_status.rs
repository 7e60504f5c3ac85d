//! A pod's status, computed from what runs (pure).
//!
//! The rules are kubelet's `generateAPIPodStatus`, `getPhase` and the condition generators of
//! `pkg/kubelet/status` at v1.37. Nothing here talks to anybody; [`crate::status_manager`] writes
//! what [`generate`] returns.

mod conditions;
mod containers;
mod lost;
mod phase;

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    net::IpAddr,
    time::SystemTime,
};

use k8s_openapi::api::core::v1::{HostIP, Pod, PodIP, PodStatus};

use crate::{
    pod::{PodExt, api_time},
    pod_actions::Observed,
    runtime::types::ContainerId,
    status_reason::StatusReason,
};

pub(crate) use conditions::is_own as is_own_condition;
pub(crate) use containers::ID_SCHEME;
pub(crate) use phase::Phase;

/// Begins the message of a pod that the node does not take.
pub(crate) const REJECTED: &str = "Pod was rejected: ";

/// What the probes say about a running container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProbeState {
    pub(crate) started: bool,
    pub(crate) ready: bool,
}

/// Everything a status is computed from.
pub(crate) struct StatusInput<'a> {
    pub(crate) pod: &'a Pod,
    /// What was written last: conditions keep their transition times, lost containers their counts.
    pub(crate) previous: &'a PodStatus,
    pub(crate) observed: &'a Observed<'a>,
    pub(crate) waiting: &'a BTreeMap<String, StatusReason>,
    /// By container; one that is missing runs without having been probed yet.
    pub(crate) probes: &'a HashMap<ContainerId, ProbeState>,
    /// By container: what it left in its termination message file.
    pub(crate) termination_messages: &'a HashMap<ContainerId, String>,
    pub(crate) node_ip: IpAddr,
    pub(crate) now: SystemTime,
    /// The pod is on its way out: never ready.
    pub(crate) terminating: bool,
    /// Nothing of it runs any more and nothing will.
    pub(crate) terminated: bool,
    /// A verdict on the whole pod (`DeadlineExceeded`...), with reason and message: the phase is
    /// Failed.
    pub(crate) failed: Option<&'a StatusReason>,
    /// Running containers whose postStart hook is not done.
    pub(crate) hooked: &'a HashSet<ContainerId>,
    /// Why the pod does not have the requests and limits of its spec.
    pub(crate) resize_pending: Option<&'a StatusReason>,
    /// Why its cgroups could not be changed.
    pub(crate) resize_error: Option<&'a str>,
}

/// Computes the status.
pub(crate) fn generate(input: &StatusInput<'_>) -> PodStatus {
    let pod = input.pod;
    if let Some(status) = rejected(input) {
        return status;
    }
    let mut init_container_statuses = containers::statuses(input, pod.init_containers(), true);
    let mut container_statuses = containers::statuses(input, pod.containers(), false);
    let mut ephemeral_container_statuses = containers::ephemeral_statuses(input);
    let phase = match input.failed {
        Some(_) => Phase::Failed,
        None => phase::compute(
            pod,
            &init_container_statuses,
            &container_statuses,
            input.terminated,
            input.previous,
        ),
    };
    // Only now: the phase comes of what the containers did, not of what they count as from here on.
    if input.terminated {
        lost::close(pod, &mut init_container_statuses, &mut container_statuses);
        lost::close_all(&mut ephemeral_container_statuses);
    }
    let conditions =
        conditions::generate(input, phase, &init_container_statuses, &container_statuses);
    let ips = pod_ips(input);
    let previous = input.previous;
    PodStatus {
        phase: Some(phase.as_str().to_owned()),
        conditions: Some(conditions),
        reason: input
            .failed
            .map(|why| why.reason.clone())
            .or_else(|| previous.reason.clone()),
        message: input
            .failed
            .map(|why| why.message.clone())
            .or_else(|| previous.message.clone()),
        host_ip: Some(input.node_ip.to_string()),
        host_ips: Some(vec![HostIP {
            ip: input.node_ip.to_string(),
        }]),
        pod_ip: ips.first().cloned(),
        pod_ips: (!ips.is_empty()).then(|| ips.into_iter().map(|ip| PodIP { ip }).collect()),
        start_time: previous
            .start_time
            .clone()
            .or_else(|| Some(api_time(input.now))),
        qos_class: Some(
            previous
                .qos_class
                .clone()
                .unwrap_or_else(|| pod.qos_class().as_str().to_owned()),
        ),
        observed_generation: pod.metadata.generation,
        init_container_statuses: (!init_container_statuses.is_empty())
            .then_some(init_container_statuses),
        container_statuses: Some(container_statuses),
        ephemeral_container_statuses: (!ephemeral_container_statuses.is_empty())
            .then_some(ephemeral_container_statuses),
        ..of_others(previous)
    }
}

/// What others alone write into a status, besides their conditions: the scheduler, and who
/// allocates resources.
pub(crate) fn of_others(status: &PodStatus) -> PodStatus {
    PodStatus {
        nominated_node_name: status.nominated_node_name.clone(),
        resource_claim_statuses: status.resource_claim_statuses.clone(),
        extended_resource_claim_status: status.extended_resource_claim_status.clone(),
        node_allocatable_resource_claim_statuses: status
            .node_allocatable_resource_claim_statuses
            .clone(),
        ..PodStatus::default()
    }
}

/// Of a pod that the node does not take, or did not when it was asked: nothing of it was ever made.
/// Conditions of others stay. Source: `rejectPod` in `pkg/kubelet/kubelet.go` at v1.37.
fn rejected(input: &StatusInput<'_>) -> Option<PodStatus> {
    let previous = input.previous;
    let told = input
        .failed
        .map(|why| (Some(why.reason.clone()), Some(why.message.clone())));
    let earlier = || {
        (previous.phase.as_deref() == Some("Failed"))
            .then(|| (previous.reason.clone(), previous.message.clone()))
    };
    let (reason, message) = told.or_else(earlier)?;
    if !message
        .as_deref()
        .is_some_and(|message| message.starts_with(REJECTED))
    {
        return None;
    }
    Some(PodStatus {
        phase: Some(Phase::Failed.as_str().to_owned()),
        reason,
        message,
        conditions: previous.conditions.clone(),
        start_time: previous
            .start_time
            .clone()
            .or_else(|| Some(api_time(input.now))),
        qos_class: Some(
            previous
                .qos_class
                .clone()
                .unwrap_or_else(|| input.pod.qos_class().as_str().to_owned()),
        ),
        observed_generation: input.pod.metadata.generation,
        ..of_others(previous)
    })
}

/// Addresses of the pod: the node's with host network; the last known ones when the sandbox has
/// gone.
fn pod_ips(input: &StatusInput<'_>) -> Vec<String> {
    match input.observed.sandbox() {
        Some(sandbox) if sandbox.host_network => vec![input.node_ip.to_string()],
        Some(sandbox) if !sandbox.ips.is_empty() => {
            sandbox.ips.iter().map(ToString::to_string).collect()
        }
        _ => input
            .previous
            .pod_ips
            .iter()
            .flatten()
            .map(|ip| ip.ip.clone())
            .collect(),
    }
}

/// Whether a Ready condition in this status is True.
pub(crate) fn is_ready(status: &PodStatus) -> bool {
    condition_is_true(status, "Ready")
}

/// Whether the condition is True.
pub(crate) fn condition_is_true(status: &PodStatus, kind: &str) -> bool {
    status
        .conditions
        .iter()
        .flatten()
        .any(|condition| condition.type_ == kind && condition.status == "True")
}

#[cfg(test)]
mod tests;
