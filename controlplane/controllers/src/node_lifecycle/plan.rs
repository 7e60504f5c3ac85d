//! What a Node's silence, conditions and taints should lead to. Pure.
//!
//! Source: `pkg/controller/nodelifecycle/node_lifecycle_controller.go` at v1.37.

use std::time::Duration;

use k8s_openapi::{
    api::core::v1::{Node, NodeCondition, Taint},
    apimachinery::pkg::apis::meta::v1::Time,
    jiff::Timestamp,
};

use super::zones::Eviction;
use crate::{node_state::condition, pod::Pod};

pub(crate) const NOT_READY: &str = "node.kubernetes.io/not-ready";
pub(crate) const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";
const NO_SCHEDULE: &str = "NoSchedule";
pub(crate) const NO_EXECUTE: &str = "NoExecute";

/// The conditions that become Unknown together when a node is silent.
const CONDITIONS: [&str; 4] = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];

/// Whether a node serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Readiness {
    Ready,
    /// The agent says so.
    NotReady,
    /// The agent says nothing any more.
    Unknown,
    /// The agent has never said anything: it may be starting.
    Untold,
}

/// `status.conditions[Ready]`.
pub(super) fn readiness(node: &Node) -> Readiness {
    match condition(node, "Ready").map(|ready| ready.status.as_str()) {
        Some("True") => Readiness::Ready,
        Some("False") => Readiness::NotReady,
        Some(_) => Readiness::Unknown,
        None => Readiness::Untold,
    }
}

/// What was last heard from a node, and when the monitor saw it change. Only the monitor's own
/// clock counts.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Health {
    ready_heartbeat: Option<Timestamp>,
    renewed: Option<Timestamp>,
    /// By the monitor's monotonic clock.
    pub(super) seen: Duration,
}

/// Takes in the node's condition and the renew time of its Lease at the moment `now` of the
/// monitor's clock.
pub(super) fn observe(
    before: Option<Health>,
    node: &Node,
    lease_renewed: Option<Timestamp>,
    now: Duration,
) -> Health {
    let ready = condition(node, "Ready");
    let fresh = Health {
        ready_heartbeat: ready
            .and_then(|ready| ready.last_heartbeat_time.as_ref())
            .map(|time| time.0),
        renewed: lease_renewed,
        seen: now,
    };
    match before {
        // A lease only counts when it moves forward; a status that the monitor itself wrote is no
        // sign of life.
        Some(before)
            if before.ready_heartbeat == fresh.ready_heartbeat
                && before.renewed >= fresh.renewed =>
        {
            Health {
                seen: before.seen,
                ..fresh
            }
        }
        _ => fresh,
    }
}

/// The conditions of a node that has been silent too long; `None` if they say so already.
pub(super) fn silent_conditions(node: &Node, now: Timestamp) -> Option<Vec<NodeCondition>> {
    let mut conditions = node
        .status
        .as_ref()
        .and_then(|status| status.conditions.clone())
        .unwrap_or_default();
    let mut changed = false;
    for kind in CONDITIONS {
        match conditions
            .iter_mut()
            .find(|condition| condition.type_ == kind)
        {
            None => {
                changed = true;
                conditions.push(NodeCondition {
                    type_: kind.into(),
                    status: "Unknown".into(),
                    reason: Some("NodeStatusNeverUpdated".into()),
                    message: Some("Kubelet never posted node status.".into()),
                    last_heartbeat_time: node.metadata.creation_timestamp.clone(),
                    last_transition_time: Some(Time(now)),
                });
            }
            Some(condition) if condition.status != "Unknown" => {
                changed = true;
                condition.status = "Unknown".into();
                condition.reason = Some("NodeStatusUnknown".into());
                condition.message = Some("Kubelet stopped posting node status.".into());
                condition.last_transition_time = Some(Time(now));
            }
            Some(_) => {}
        }
    }
    changed.then_some(conditions)
}

/// Whether the pods of a node are to be evicted and are not: the node is down, and no NoExecute
/// taint says so yet.
pub(super) fn needs_eviction(node: &Node) -> bool {
    let taints = node
        .spec
        .iter()
        .flat_map(|spec| spec.taints.iter().flatten());
    let is_begun = taints
        .into_iter()
        .any(|taint| taint.effect == NO_EXECUTE && is_ours(taint));
    matches!(readiness(node), Readiness::NotReady | Readiness::Unknown) && !is_begun
}

/// The taints that a node should have, or `None` if it has them. Taints of others stay.
pub(super) fn plan_taints(node: &Node, eviction: Eviction, now: Timestamp) -> Option<Vec<Taint>> {
    let present = node
        .spec
        .as_ref()
        .and_then(|spec| spec.taints.clone())
        .unwrap_or_default();
    let evict = match eviction {
        Eviction::Begin => true,
        Eviction::Hold => !needs_eviction(node),
        Eviction::Stop => false,
    };
    let wanted = wanted_taints(node, evict);
    let owned = |taint: &Taint| is_ours(taint);
    let mut taints: Vec<Taint> = present
        .iter()
        .filter(|taint| !owned(taint))
        .cloned()
        .collect();
    for (key, effect) in wanted {
        let kept = present
            .iter()
            .find(|taint| taint.key == key && taint.effect == effect)
            .cloned();
        taints.push(kept.unwrap_or_else(|| Taint {
            key: key.into(),
            effect: effect.into(),
            value: None,
            time_added: Some(Time(now)),
        }));
    }
    let named = |taints: &[Taint]| {
        let mut names: Vec<(String, String)> = taints
            .iter()
            .map(|taint| (taint.key.clone(), taint.effect.clone()))
            .collect();
        names.sort();
        names
    };
    (named(&taints) != named(&present)).then_some(taints)
}

fn is_ours(taint: &Taint) -> bool {
    let key = taint.key.as_str();
    match taint.effect.as_str() {
        NO_EXECUTE => key == NOT_READY || key == UNREACHABLE,
        NO_SCHEDULE => {
            key == NOT_READY
                || key == UNREACHABLE
                || key == UNSCHEDULABLE
                || PRESSURES.iter().any(|(_, taint)| key == *taint)
        }
        _ => false,
    }
}

/// Conditions that keep new pods away while they are True.
const PRESSURES: [(&str, &str); 4] = [
    ("MemoryPressure", "node.kubernetes.io/memory-pressure"),
    ("DiskPressure", "node.kubernetes.io/disk-pressure"),
    ("PIDPressure", "node.kubernetes.io/pid-pressure"),
    (
        "NetworkUnavailable",
        "node.kubernetes.io/network-unavailable",
    ),
];

fn wanted_taints(node: &Node, evict: bool) -> Vec<(&'static str, &'static str)> {
    let mut wanted = Vec::new();
    let down = match readiness(node) {
        Readiness::Ready => None,
        Readiness::NotReady | Readiness::Untold => Some(NOT_READY),
        Readiness::Unknown => Some(UNREACHABLE),
    };
    if let Some(key) = down {
        wanted.push((key, NO_SCHEDULE));
        // One that never spoke has no pods to lose, and has its time to start.
        if evict && readiness(node) != Readiness::Untold {
            wanted.push((key, NO_EXECUTE));
        }
    }
    for (kind, key) in PRESSURES {
        if condition(node, kind).is_some_and(|condition| condition.status == "True") {
            wanted.push((key, NO_SCHEDULE));
        }
    }
    if node
        .spec
        .as_ref()
        .and_then(|spec| spec.unschedulable)
        .unwrap_or(false)
    {
        wanted.push((UNSCHEDULABLE, NO_SCHEDULE));
    }
    wanted
}

/// Whether the pod says that it is ready although its node does not answer.
pub(super) fn claims_ready(pod: &Pod) -> bool {
    crate::pod_state::is_ready(pod)
}
