//! Whether this node is the right one for a pod, and has room for it: what the scheduler asks as
//! well (pure).
//!
//! Source: `pkg/kubelet/lifecycle/predicate.go` and `AdmissionCheck` in
//! `pkg/scheduler/eventhandlers.go` at v1.37.

use std::collections::BTreeMap;

use coracle_api::{
    quantity::Quantity as Amount,
    resource_list,
    scheduling::{self, HostPort, NodeView, is_extended, required_affinity_matches, tolerates_any},
};
use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::api::resource::Quantity};

use super::NodeInfo;
use crate::{pod::PodExt, status_reason::StatusReason};

/// What is asked of a node, or what it has: thousandths of `cpu`, whole units of everything else.
pub(crate) type Amounts = BTreeMap<String, i64>;

const OS_LABEL: &str = "kubernetes.io/os";
const OS: &str = "linux";
/// Begins the reason of a pod that asks for too much, such as `OutOfcpu`.
const INSUFFICIENT: &str = "OutOf";
pub(crate) const NODE_AFFINITY: &str = "NodeAffinity";

pub(super) fn operating_system_label(pod: &Pod, _: &NodeInfo, _: &[&Pod]) -> Option<StatusReason> {
    let asked = pod
        .metadata
        .labels
        .as_ref()
        .and_then(|labels| labels.get(OS_LABEL));
    let message = "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label";
    asked
        .filter(|os| *os != OS)
        .map(|_| StatusReason::new("PodOSSelectorNodeLabelDoesNotMatch", message))
}

pub(super) fn node_affinity(pod: &Pod, node: &NodeInfo, _: &[&Pod]) -> Option<StatusReason> {
    let spec = pod.spec_or_default();
    let view = NodeView {
        name: &node.name,
        labels: &node.labels,
    };
    let matches =
        required_affinity_matches(spec.node_selector.as_ref(), spec.affinity.as_ref(), view);
    (!matches).then(|| {
        failed(
            NODE_AFFINITY,
            "node(s) didn't match Pod's node affinity/selector",
        )
    })
}

/// Among the pods, as upstream. Beyond that, a port is not published over one that the node listens
/// on: it would be taken away from its owner, such as the API server. In the node's own network the
/// kernel sees to that.
pub(super) fn host_ports(pod: &Pod, node: &NodeInfo, others: &[&Pod]) -> Option<StatusReason> {
    let ports = |pod: &Pod| scheduling::host_ports(pod.spec_or_default()).collect::<Vec<_>>();
    let wanted = ports(pod);
    if wanted.is_empty() {
        return None;
    }
    let publishes = pod.spec_or_default().host_network != Some(true);
    let listening = if publishes {
        node.listeners.look()
    } else {
        Vec::new()
    };
    const LACKING: &str = "node(s) didn't have free ports for the requested pod ports";
    let is_wanted = |taken: &HostPort| wanted.iter().any(|wanted| wanted.conflicts(taken));
    if others
        .iter()
        .flat_map(|other| ports(other))
        .any(|taken| is_wanted(&taken))
    {
        return Some(failed("NodePorts", LACKING));
    }
    let listener = listening.iter().find(|one| is_wanted(one))?;
    let HostPort { ip, protocol, port } = listener;
    let why = format!(
        "{LACKING}: the node itself listens at {ip}, {protocol} port {port}; choose another hostPort, or a hostIP where nobody listens"
    );
    Some(failed("NodePorts", &why))
}

/// As upstream: what must not be scheduled here is the scheduler's affair.
pub(super) fn taints(pod: &Pod, node: &NodeInfo, _: &[&Pod]) -> Option<StatusReason> {
    let tolerations = pod
        .spec_or_default()
        .tolerations
        .as_deref()
        .unwrap_or_default();
    let mut hard = node
        .taints
        .iter()
        .filter(|taint| taint.effect == "NoExecute");
    let untolerated = hard.any(|taint| !tolerates_any(tolerations, taint));
    untolerated.then(|| {
        failed(
            "TaintToleration",
            "node(s) had taints that the pod didn't tolerate",
        )
    })
}

fn failed(name: &str, text: &str) -> StatusReason {
    StatusReason::new(name, format!("Predicate {name} failed: {text}"))
}

/// Whether the node has too little of something.
pub(super) fn resources(pod: &Pod, node: &NodeInfo, others: &[&Pod]) -> Option<StatusReason> {
    let allocatable = &node.allocatable;
    let have = |name: &str| allocatable.get(name).copied().unwrap_or(0);
    let used: Vec<Amounts> = others.iter().map(|other| requests(other)).collect();
    let used = |name: &str| {
        used.iter()
            .filter_map(|one| one.get(name))
            .fold(0_i64, |sum, one| sum.saturating_add(*one))
    };
    let count = i64::try_from(others.len()).unwrap_or(i64::MAX);
    let asked = requests(pod);
    let first = ["cpu", "memory", "ephemeral-storage"];
    let rest = asked
        .keys()
        .map(String::as_str)
        .filter(|name| !first.contains(name));
    // What the node does not know of is shared by the whole cluster, or somebody else's to hand
    // out.
    let rest = rest.filter(|name| !is_extended(name) || allocatable.contains_key(*name));
    let named = first
        .into_iter()
        .chain(rest)
        .map(|name| (name, asked.get(name).copied().unwrap_or(0), used(name)));
    let short = std::iter::once(("pods", 1, count))
        .chain(named)
        .find(|(name, asked, used)| *asked > 0 && *asked > have(name).saturating_sub(*used));
    let (name, asked, used) = short?;
    let capacity = have(name);
    let message = format!(
        "Node didn't have enough resource: {name}, requested: {asked}, used: {used}, capacity: {capacity}"
    );
    Some(StatusReason::new(format!("{INSUFFICIENT}{name}"), message))
}

/// What a pod asks for, in numbers.
fn requests(pod: &Pod) -> Amounts {
    numbers(&scheduling::pod_requests(pod.spec_or_default()))
}

/// A list of the API in numbers.
pub(crate) fn amounts(list: &BTreeMap<String, Quantity>) -> Amounts {
    numbers(&resource_list::amounts(list))
}

fn numbers(amounts: &resource_list::Amounts) -> Amounts {
    let number = |(name, amount): (&String, &Amount)| {
        (
            name.clone(),
            if name == "cpu" {
                amount.milli_value()
            } else {
                amount.value()
            },
        )
    };
    amounts.iter().map(number).collect()
}

#[cfg(test)]
mod tests;
