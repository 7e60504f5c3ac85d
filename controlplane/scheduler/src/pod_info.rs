//! A Pod, as far as placing it needs: computed once when the Pod is seen.

use std::{
    collections::BTreeMap,
    sync::{Arc, LazyLock},
};

use coracle_api::{
    quantity::{Format, Quantity as Amount},
    resource_list::{self, Amounts},
    scheduling::{HostPort, host_ports, pod_requests_in_force},
};
use k8s_openapi::{
    api::core::v1::{Affinity, Pod, Toleration},
    apimachinery::pkg::api::resource::Quantity,
};

mod unsupported;

use unsupported::unsupported;

/// CPU and memory counted for a container that asks for none, so that such pods spread all the same.
/// Source: `pkg/scheduler/util/pod_resources.go` at v1.37.
static COUNTED_AT_LEAST: LazyLock<Amounts> = LazyLock::new(|| {
    let memory = Amount::from_units(200 << 20, Format::BinarySi);
    Amounts::from([("cpu".to_owned(), Amount::from_milli(100)), ("memory".to_owned(), memory)])
});

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
    pub(crate) fn from_list(list: &BTreeMap<String, Quantity>) -> Self {
        Self::from_amounts(&resource_list::amounts(list))
    }

    fn from_amounts(amounts: &Amounts) -> Self {
        let mut resources = Self::default();
        for (name, amount) in amounts {
            resources.set(name, amount);
        }
        resources
    }

    fn set(&mut self, name: &str, quantity: &Amount) {
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
    pub(crate) node_selector: BTreeMap<String, String>,
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
        let of = |unsaid: &Amounts| Resources::from_amounts(&pod_requests_in_force(pod, unsaid));
        Some(Self {
            uid: PodUid(pod.metadata.uid.as_deref()?.into()),
            namespace: pod.metadata.namespace.clone()?,
            name: pod.metadata.name.clone()?,
            resource_version: pod.metadata.resource_version.clone().unwrap_or_default(),
            node_name: spec.node_name.clone().filter(|name| !name.is_empty()),
            scheduler_name: spec.scheduler_name.clone().unwrap_or_default(),
            priority: spec.priority.unwrap_or(0),
            requests: of(&Amounts::new()),
            nonzero: of(&COUNTED_AT_LEAST),
            host_ports: host_ports(spec).collect(),
            node_selector: spec.node_selector.clone().unwrap_or_default(),
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
    fn containers_without_requests_count_a_little() {
        let info = pod_with("p", json!({"containers": [{"name": "a"}]}));
        assert_eq!(info.requests, Resources::default());
        assert_eq!((info.nonzero.milli_cpu, info.nonzero.memory_bytes), (100, 200 << 20));
    }

    #[test]
    fn every_named_resource_is_counted() {
        let asked = json!({"requests": {"example.org/gpu": "2", "hugepages-2Mi": "4Mi", "cpu": "1", "memory": "1Gi",
            "ephemeral-storage": "1Ki", "pods": "7"}});
        let info = pod_with("p", json!({"containers": [{"name": "a", "resources": asked}]}));
        let scalars = [("example.org/gpu".to_owned(), 2), ("hugepages-2Mi".to_owned(), 4 << 20)].into();
        let expected = Resources { milli_cpu: 1000, memory_bytes: 1 << 30, ephemeral_storage_bytes: 1024, scalars };
        assert_eq!((&info.requests, &info.nonzero), (&expected, &expected));
    }
}
