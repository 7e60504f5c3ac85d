//! A Pod, as far as placing it needs: computed once when the Pod is seen.

use std::{collections::BTreeMap, sync::Arc};

use coracle_api::quantity;
use k8s_openapi::{
    api::core::v1::{Affinity, Container, Pod, PodSpec, Toleration},
    apimachinery::pkg::api::resource::Quantity,
};

mod requests;
mod unsupported;

use requests::requests;
use unsupported::unsupported;

/// Names one pod object.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct PodUid(pub(crate) Arc<str>);

/// Amounts of what a node has to give.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Resources {
    pub(crate) milli_cpu: i64,
    pub(crate) memory_bytes: i64,
    pub(crate) ephemeral_storage_bytes: i64,
    /// Everything else that is counted, by name: extended resources, huge pages.
    pub(crate) scalars: BTreeMap<String, i64>,
}

impl Resources {
    /// Reads a resource list; what does not parse (the API server admits no such thing) counts as nothing.
    pub(crate) fn from_list(list: &BTreeMap<String, Quantity>) -> Self {
        let mut resources = Self::default();
        for (name, quantity) in list {
            let Ok(quantity) = quantity::Quantity::parse(&quantity.0) else { continue };
            resources.set(name, &quantity);
        }
        resources
    }

    fn set(&mut self, name: &str, quantity: &quantity::Quantity) {
        match name {
            "cpu" => self.milli_cpu = quantity.milli_value(),
            "memory" => self.memory_bytes = quantity.value(),
            "ephemeral-storage" => self.ephemeral_storage_bytes = quantity.value(),
            // Counted by the number of pods.
            "pods" => {}
            _ => drop(self.scalars.insert(name.to_owned(), quantity.value())),
        }
    }

    /// How much of a resource beside CPU, memory and storage there is.
    pub(crate) fn scalar(&self, name: &str) -> i64 {
        self.scalars.get(name).copied().unwrap_or(0)
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.milli_cpu += other.milli_cpu;
        self.memory_bytes += other.memory_bytes;
        self.ephemeral_storage_bytes += other.ephemeral_storage_bytes;
        for (name, amount) in &other.scalars {
            *self.scalars.entry(name.clone()).or_default() += amount;
        }
    }

    pub(crate) fn subtract(&mut self, other: &Self) {
        self.milli_cpu -= other.milli_cpu;
        self.memory_bytes -= other.memory_bytes;
        self.ephemeral_storage_bytes -= other.ephemeral_storage_bytes;
        for (name, amount) in &other.scalars {
            *self.scalars.entry(name.clone()).or_default() -= amount;
        }
        self.scalars.retain(|_, amount| *amount != 0);
    }

    /// Of each resource the larger amount.
    fn max(mut self, other: &Self) -> Self {
        self.milli_cpu = self.milli_cpu.max(other.milli_cpu);
        self.memory_bytes = self.memory_bytes.max(other.memory_bytes);
        self.ephemeral_storage_bytes = self.ephemeral_storage_bytes.max(other.ephemeral_storage_bytes);
        for (name, amount) in &other.scalars {
            let own = self.scalars.entry(name.clone()).or_default();
            *own = (*own).max(*amount);
        }
        self
    }
}

/// A port that a pod takes on its node.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct HostPort {
    pub(crate) ip: String,
    pub(crate) protocol: String,
    pub(crate) port: i32,
}

impl HostPort {
    /// Whether both cannot be taken on one node: a wildcard address takes the port on all of them.
    pub(crate) fn conflicts(&self, other: &Self) -> bool {
        let wildcard = |ip: &str| ip.is_empty() || ip == "0.0.0.0" || ip == "::";
        self.port == other.port
            && self.protocol == other.protocol
            && (self.ip == other.ip || wildcard(&self.ip) || wildcard(&other.ip))
    }
}

/// See the module.
#[derive(Debug, Clone)]
pub(crate) struct PodInfo {
    pub(crate) uid: PodUid,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) resource_version: String,
    /// `spec.nodeName`; for a pod that is not placed yet, the only node that may take it (never set by clients).
    pub(crate) node_name: Option<String>,
    pub(crate) scheduler_name: String,
    pub(crate) priority: i32,
    pub(crate) requests: Resources,
    /// As `requests`, with a minimum for containers that ask for nothing.
    pub(crate) nonzero: Resources,
    pub(crate) host_ports: Vec<HostPort>,
    pub(crate) node_selector: Vec<(String, String)>,
    pub(crate) affinity: Option<Affinity>,
    pub(crate) tolerations: Vec<Toleration>,
    pub(crate) images: Vec<String>,
    pub(crate) gated: bool,
    pub(crate) terminating: bool,
    pub(crate) finished: bool,
    /// The message of its condition, if that says that the pod fits nowhere.
    pub(crate) unschedulable: Option<String>,
    /// What the pod requires and this scheduler cannot see to.
    pub(crate) unsupported: Vec<&'static str>,
}

impl PodInfo {
    pub(crate) fn new(pod: &Pod) -> Option<Self> {
        let spec = pod.spec.as_ref()?;
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or("");
        let (requests, nonzero) = requests(pod);
        Some(Self {
            uid: PodUid(pod.metadata.uid.as_deref()?.into()),
            namespace: pod.metadata.namespace.clone()?,
            name: pod.metadata.name.clone()?,
            resource_version: pod.metadata.resource_version.clone().unwrap_or_default(),
            node_name: spec.node_name.clone().filter(|name| !name.is_empty()),
            scheduler_name: spec.scheduler_name.clone().unwrap_or_default(),
            priority: spec.priority.unwrap_or(0),
            requests,
            nonzero,
            host_ports: host_ports(spec),
            node_selector: spec.node_selector.clone().unwrap_or_default().into_iter().collect(),
            affinity: spec.affinity.clone(),
            tolerations: spec.tolerations.clone().unwrap_or_default(),
            images: spec.containers.iter().filter_map(|container| container.image.clone()).collect(),
            gated: spec.scheduling_gates.as_ref().is_some_and(|gates| !gates.is_empty()),
            terminating: pod.metadata.deletion_timestamp.is_some(),
            finished: matches!(phase, "Succeeded" | "Failed"),
            unschedulable: unschedulable(pod),
            unsupported: unsupported(spec),
        })
    }

    /// `namespace/name`, for messages.
    pub(crate) fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

/// The ports of the containers and of the sidecars, which run beside them.
fn host_ports(spec: &PodSpec) -> Vec<HostPort> {
    let sidecars = spec.init_containers.iter().flatten().filter(|container| is_sidecar(container));
    let ports = spec.containers.iter().chain(sidecars).flat_map(|container| container.ports.iter().flatten());
    ports
        .filter_map(|port| {
            Some(HostPort {
                ip: port.host_ip.clone().unwrap_or_default(),
                protocol: port.protocol.clone().unwrap_or_else(|| "TCP".to_owned()),
                port: port.host_port.filter(|port| *port > 0)?,
            })
        })
        .collect()
}

pub(crate) fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

/// Of a pod's `PodScheduled` condition, what says that it fits nowhere.
fn unschedulable(pod: &Pod) -> Option<String> {
    let mut conditions = pod.status.as_ref()?.conditions.iter().flatten();
    let condition = conditions.find(|condition| condition.type_ == "PodScheduled")?;
    let says = condition.status == "False" && condition.reason.as_deref() == Some("Unschedulable");
    says.then(|| condition.message.clone().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::framework::testing::pod_with;

    #[test]
    fn sidecars_take_their_ports_and_other_init_containers_do_not() {
        let port = |number: i32| json!([{"containerPort": number, "hostPort": number}]);
        let info = pod_with(
            "p",
            json!({
                "initContainers": [
                    {"name": "once", "ports": port(1)},
                    {"name": "side", "restartPolicy": "Always", "ports": port(2)},
                ],
                "containers": [{"name": "c", "ports": port(3)}],
            }),
        );
        assert_eq!(info.host_ports.iter().map(|port| port.port).collect::<Vec<_>>(), [3, 2]);
    }

    #[test]
    fn host_ports_conflict_by_port_protocol_and_address() {
        let port = |ip: &str, protocol: &str, port| HostPort { ip: ip.to_owned(), protocol: protocol.to_owned(), port };
        for (a, b, expect) in [
            (port("", "TCP", 80), port("", "TCP", 80), true),
            (port("", "TCP", 80), port("10.0.0.1", "TCP", 80), true),
            (port("10.0.0.2", "TCP", 80), port("10.0.0.1", "TCP", 80), false),
            (port("", "TCP", 80), port("", "UDP", 80), false),
            (port("", "TCP", 80), port("", "TCP", 81), false),
        ] {
            assert_eq!(a.conflicts(&b), expect, "{a:?} {b:?}");
        }
    }
}
