//! What controllers ask about a Pod. Pure.
//!
//! Source: `pkg/api/v1/pod/util.go` and `pkg/controller/controller_utils.go` at v1.37.

use std::time::Duration;

use coracle_api::{
    meta,
    scheduling::{HostPort, is_sidecar_policy},
};
use coracle_client::cache::Index;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use crate::pod::{Pod, PodCondition};

/// The condition that tells others why a pod goes.
pub(crate) const DISRUPTION_TARGET: &str = "DisruptionTarget";

/// `status.phase`, or empty.
pub(crate) fn phase(pod: &Pod) -> &str {
    pod.status
        .as_ref()
        .and_then(|status| status.phase.as_deref())
        .unwrap_or_default()
}

/// `spec.nodeName`, or empty.
pub(crate) fn node_name(pod: &Pod) -> &str {
    pod.spec
        .as_ref()
        .and_then(|spec| spec.node_name.as_deref())
        .unwrap_or_default()
}

/// The pods of each node; those that are not bound are not in it.
pub(crate) fn by_node() -> Index<Pod> {
    Index::new("node", |pod: &Pod, put| {
        let node = node_name(pod);
        if !node.is_empty() {
            put(node);
        }
    })
}

/// The ports that it takes on its node: as of `coracle_api::scheduling::host_ports`.
pub(crate) fn host_ports(pod: &Pod) -> impl Iterator<Item = &HostPort> {
    let spec = pod.spec.iter();
    let containers = spec.flat_map(|spec| {
        let init = spec.init_containers.iter().flatten();
        let sidecars = init.filter(|one| is_sidecar_policy(one.restart_policy.as_deref()));
        spec.containers.iter().chain(sidecars)
    });
    containers.flat_map(|container| &*container.asks.host_ports)
}

/// Whether all its containers have ended for good.
pub(crate) fn is_finished(pod: &Pod) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed")
}

/// Whether its node has ended it for want of resources.
pub(crate) fn is_evicted(pod: &Pod) -> bool {
    phase(pod) == "Failed" && pod.status.as_ref().is_some_and(|status| status.is_evicted)
}

pub(crate) fn is_terminating(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

/// Neither finished nor being deleted: it counts as a replica.
pub(crate) fn is_active(pod: &Pod) -> bool {
    !is_finished(pod) && !is_terminating(pod)
}

pub(crate) fn condition<'a>(pod: &'a Pod, kind: &str) -> Option<&'a PodCondition> {
    pod.status
        .as_ref()?
        .conditions
        .iter()
        .flatten()
        .find(|condition| condition.type_ == kind)
}

/// The pod's conditions, and the one that tells why it goes.
pub(crate) fn with_disruption(pod: &Pod, reason: &str, message: &str) -> Value {
    let present = pod
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    let others = present
        .filter(|condition| condition.type_ != DISRUPTION_TARGET)
        .map(|condition| json!(condition));
    let own = json!({
        "type": DISRUPTION_TARGET,
        "status": "True",
        "reason": reason,
        "message": message,
        "lastTransitionTime": meta::now(),
    });
    others.chain([own]).collect()
}

pub(crate) fn is_ready(pod: &Pod) -> bool {
    condition(pod, "Ready").is_some_and(|ready| ready.status == "True")
}

/// Since when the pod is ready.
pub(crate) fn ready_since(pod: &Pod) -> Option<Timestamp> {
    let ready = condition(pod, "Ready").filter(|ready| ready.status == "True")?;
    ready.last_transition_time.as_ref().map(|time| time.0)
}

/// How long until a ready pod counts as available: zero if it does already, `None` if it is not
/// ready.
pub(crate) fn until_available(
    pod: &Pod,
    min_ready_seconds: i32,
    now: Timestamp,
) -> Option<Duration> {
    if !is_ready(pod) {
        return None;
    }
    if min_ready_seconds <= 0 {
        return Some(Duration::ZERO);
    }
    let available_at = ready_since(pod)?
        .checked_add(Duration::from_secs(min_ready_seconds.unsigned_abs().into()))
        .ok()?;
    Some(Duration::try_from(available_at.duration_since(now)).unwrap_or(Duration::ZERO))
}
