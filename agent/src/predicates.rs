//! Whether this node is the right one for a pod that is bound to it, and has room for it (pure).
//!
//! Not every pod comes from the scheduler, and what the scheduler saw may have changed: the node has the last word. A pod
//! that it does not take fails with upstream's reason and message, and whoever made it makes another. Only pods that have
//! not started yet are asked about; one that runs goes on running, whatever the node has become.
//!
//! Not here: preemption for critical pods, devices.
//!
//! Source: `pkg/kubelet/lifecycle/predicate.go` and `AdmissionCheck` in `pkg/scheduler/eventhandlers.go` at v1.37.

use std::collections::BTreeMap;

use coracle_api::{
    quantity::Quantity as Amount,
    resource_list,
    scheduling::{self, NodeView, host_ports, is_extended, required_affinity_matches, tolerates_any},
};
use k8s_openapi::{
    api::core::v1::{Pod, Taint},
    apimachinery::pkg::api::resource::Quantity,
};

use crate::{pod::PodExt, pod_status::WaitingReason};

/// What is asked of a node, or what it has: thousandths of `cpu`, whole units of everything else.
pub(crate) type Amounts = BTreeMap<String, i64>;

const OS_LABEL: &str = "kubernetes.io/os";
const OS: &str = "linux";
/// Begins the reason of a pod that asks for too much, such as `OutOfcpu`.
const INSUFFICIENT: &str = "OutOf";
pub(crate) const NODE_AFFINITY: &str = "NodeAffinity";

/// The node, as far as it matters here.
#[derive(Debug, Clone, Default)]
pub(crate) struct NodeInfo {
    pub(crate) name: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) taints: Vec<Taint>,
    pub(crate) allocatable: Amounts,
}

/// Why the node does not take `pod`, beside the `others` that it has taken; `None` if it does.
pub(crate) fn why_not(pod: &Pod, node: &NodeInfo, others: &[&Pod]) -> Option<WaitingReason> {
    let why = |reason: &str, message: String| Some(WaitingReason { reason: reason.to_owned(), message });
    let spec = pod.spec_or_default();
    let labels = pod.metadata.labels.as_ref();
    if labels.and_then(|labels| labels.get(OS_LABEL)).is_some_and(|os| os != OS) {
        let message = "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label";
        return why("PodOSSelectorNodeLabelDoesNotMatch", message.to_owned());
    }
    if let Some((reason, message)) = lack(pod, &node.allocatable, others) {
        return why(&reason, message);
    }
    let failed = |name: &str, text: &str| why(name, format!("Predicate {name} failed: {text}"));
    let view = NodeView { name: &node.name, labels: &node.labels };
    if !required_affinity_matches(spec.node_selector.as_ref(), spec.affinity.as_ref(), view) {
        return failed(NODE_AFFINITY, "node(s) didn't match Pod's node affinity/selector");
    }
    let mut taken = others.iter().flat_map(|other| host_ports(other.spec_or_default()));
    if taken.any(|taken| host_ports(spec).any(|wanted| wanted.conflicts(&taken))) {
        return failed("NodePorts", "node(s) didn't have free ports for the requested pod ports");
    }
    // As upstream: what must not be scheduled here is the scheduler's affair.
    let tolerations = spec.tolerations.as_deref().unwrap_or_default();
    let mut hard = node.taints.iter().filter(|taint| taint.effect == "NoExecute");
    if hard.any(|taint| !tolerates_any(tolerations, taint)) {
        return failed("TaintToleration", "node(s) had taints that the pod didn't tolerate");
    }
    None
}

/// What the node has too little of, as reason and message.
fn lack(pod: &Pod, allocatable: &Amounts, others: &[&Pod]) -> Option<(String, String)> {
    let have = |name: &str| allocatable.get(name).copied().unwrap_or(0);
    let used: Vec<Amounts> = others.iter().map(|other| requests(other)).collect();
    let used =
        |name: &str| used.iter().filter_map(|one| one.get(name)).fold(0_i64, |sum, one| sum.saturating_add(*one));
    let count = i64::try_from(others.len()).unwrap_or(i64::MAX);
    let asked = requests(pod);
    let first = ["cpu", "memory", "ephemeral-storage"];
    let rest = asked.keys().map(String::as_str).filter(|name| !first.contains(name));
    // What the node does not know of is shared by the whole cluster, or somebody else's to hand out.
    let rest = rest.filter(|name| !is_extended(name) || allocatable.contains_key(*name));
    let named = first.into_iter().chain(rest).map(|name| (name, asked.get(name).copied().unwrap_or(0), used(name)));
    let short = std::iter::once(("pods", 1, count))
        .chain(named)
        .find(|(name, asked, used)| *asked > 0 && *asked > have(name).saturating_sub(*used));
    let (name, asked, used) = short?;
    let capacity = have(name);
    let message =
        format!("Node didn't have enough resource: {name}, requested: {asked}, used: {used}, capacity: {capacity}");
    Some((format!("{INSUFFICIENT}{name}"), message))
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
        (name.clone(), if name == "cpu" { amount.milli_value() } else { amount.value() })
    };
    amounts.iter().map(number).collect()
}

#[cfg(test)]
mod tests;
