//! Whether this node is the right one for a pod that is bound to it, and has room for it (pure).
//!
//! Not every pod comes from the scheduler, and what the scheduler saw may have changed: the node has the last word. A pod
//! that it does not take fails with upstream's reason and message, and whoever made it makes another. Only pods that have
//! not started yet are asked about; one that runs goes on running, whatever the node has become.
//!
//! Not here: preemption for critical pods, devices.
//!
//! Source: `pkg/kubelet/lifecycle/predicate.go` and `AdmissionCheck` in `pkg/scheduler/eventhandlers.go` at v1.37.

mod affinity;

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{Container, ContainerPort, Pod, Taint, Toleration},
    apimachinery::pkg::api::resource::Quantity,
};

use crate::{
    pod::{PodExt, is_sidecar},
    pod_status::WaitingReason,
    quantity,
};

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
    if !affinity::matches(spec, node) {
        return failed(NODE_AFFINITY, "node(s) didn't match Pod's node affinity/selector");
    }
    let mut taken = others.iter().flat_map(|other| host_ports(other));
    if taken.any(|taken| host_ports(pod).any(|wanted| conflict(wanted, taken))) {
        return failed("NodePorts", "node(s) didn't have free ports for the requested pod ports");
    }
    // As upstream: what must not be scheduled here is the scheduler's affair.
    let tolerations = spec.tolerations.as_deref().unwrap_or_default();
    let mut hard = node.taints.iter().filter(|taint| taint.effect == "NoExecute");
    if hard.any(|taint| !tolerations.iter().any(|toleration| tolerates(toleration, taint))) {
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

/// Source: `IsExtendedResourceName` in `pkg/apis/core/v1/helper/helpers.go` at v1.37.
fn is_extended(name: &str) -> bool {
    let native = !name.contains('/') || name.contains("kubernetes.io/");
    !native && !name.starts_with("requests.")
}

/// Sum of the containers and sidecars, or the largest init container beside the sidecars before it; the pod's own in
/// place of that where it names them; plus overhead.
///
/// Source: `PodRequests` in `k8s.io/component-helpers/resource/helpers.go` at v1.37.
pub(crate) fn requests(pod: &Pod) -> Amounts {
    let of = |container: &Container| {
        container.resources.as_ref().and_then(|resources| resources.requests.as_ref()).map(amounts).unwrap_or_default()
    };
    let (mut sidecars, mut peak) = (Amounts::new(), Amounts::new());
    for container in pod.init_containers() {
        let mut at_once = sidecars.clone();
        add(&mut at_once, &of(container));
        if is_sidecar(container) {
            sidecars.clone_from(&at_once);
        }
        for (name, amount) in at_once {
            let most = peak.entry(name).or_insert(0);
            *most = amount.max(*most);
        }
    }
    let mut total = sidecars;
    pod.containers().iter().for_each(|container| add(&mut total, &of(container)));
    for (name, amount) in peak {
        let most = total.entry(name).or_insert(0);
        *most = amount.max(*most);
    }
    let spec = pod.spec_or_default();
    let own = spec.resources.as_ref().and_then(|resources| resources.requests.as_ref());
    total.extend(own.map(amounts).unwrap_or_default());
    add(&mut total, &spec.overhead.as_ref().map(amounts).unwrap_or_default());
    total
}

/// A list of the API in numbers.
pub(crate) fn amounts(list: &BTreeMap<String, Quantity>) -> Amounts {
    let number = |name: &str, text: &str| if name == "cpu" { quantity::milli(text) } else { quantity::value(text) };
    list.iter().map(|(name, amount)| (name.clone(), number(name, &amount.0))).collect()
}

fn add(total: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        let sum = total.entry(name.clone()).or_insert(0);
        *sum = sum.saturating_add(*amount);
    }
}

fn host_ports(pod: &Pod) -> impl Iterator<Item = &ContainerPort> {
    let sidecars = pod.init_containers().iter().filter(|container| is_sidecar(container));
    let ports = pod.containers().iter().chain(sidecars).flat_map(|container| container.ports.iter().flatten());
    ports.filter(|port| port.host_port.is_some_and(|port| port > 0))
}

/// A wildcard address takes the port on all of them.
fn conflict(one: &ContainerPort, other: &ContainerPort) -> bool {
    let protocol = |port: &ContainerPort| port.protocol.clone().unwrap_or_else(|| "TCP".to_owned());
    let address = |port: &ContainerPort| port.host_ip.clone().filter(|ip| !matches!(&**ip, "" | "0.0.0.0" | "::"));
    let (first, second) = (address(one), address(other));
    one.host_port == other.host_port
        && protocol(one) == protocol(other)
        && (first.is_none() || second.is_none() || first == second)
}

/// Source: `ToleratesTaint` in `k8s.io/component-helpers/scheduling/corev1` at v1.37.
fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    let (key, effect) = (text(&toleration.key), text(&toleration.effect));
    if (!effect.is_empty() && effect != taint.effect) || (!key.is_empty() && key != taint.key) {
        return false;
    }
    match toleration.operator.as_deref().unwrap_or_default() {
        "Exists" => true,
        "" | "Equal" => !key.is_empty() && text(&toleration.value) == text(&taint.value),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
