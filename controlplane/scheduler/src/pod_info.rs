//! A Pod, as far as placing it needs: computed once when the Pod is seen.

use std::sync::Arc;

use coracle_api::quantity::Quantity;
use k8s_openapi::api::core::v1::{Affinity, Container, Pod, Toleration};

/// CPU and memory counted for a container that asks for none, so that such pods spread all the same.
/// Source: `pkg/scheduler/util/pod_resources.go` at v1.37.
const DEFAULT_MILLI_CPU: i64 = 100;
const DEFAULT_MEMORY_BYTES: i64 = 200 << 20;

/// Names one pod object.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct PodUid(pub(crate) Arc<str>);

/// Amounts of what a node has to give.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Resources {
    pub(crate) milli_cpu: i64,
    pub(crate) memory_bytes: i64,
    pub(crate) ephemeral_storage_bytes: i64,
}

impl Resources {
    pub(crate) fn add(&mut self, other: &Self) {
        self.milli_cpu += other.milli_cpu;
        self.memory_bytes += other.memory_bytes;
        self.ephemeral_storage_bytes += other.ephemeral_storage_bytes;
    }

    pub(crate) fn subtract(&mut self, other: &Self) {
        self.milli_cpu -= other.milli_cpu;
        self.memory_bytes -= other.memory_bytes;
        self.ephemeral_storage_bytes -= other.ephemeral_storage_bytes;
    }

    fn max(&self, other: &Self) -> Self {
        Self {
            milli_cpu: self.milli_cpu.max(other.milli_cpu),
            memory_bytes: self.memory_bytes.max(other.memory_bytes),
            ephemeral_storage_bytes: self.ephemeral_storage_bytes.max(other.ephemeral_storage_bytes),
        }
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
            host_ports: host_ports(&spec.containers),
            node_selector: spec.node_selector.clone().unwrap_or_default().into_iter().collect(),
            affinity: spec.affinity.clone(),
            tolerations: spec.tolerations.clone().unwrap_or_default(),
            images: spec.containers.iter().filter_map(|container| container.image.clone()).collect(),
            gated: spec.scheduling_gates.as_ref().is_some_and(|gates| !gates.is_empty()),
            terminating: pod.metadata.deletion_timestamp.is_some(),
            finished: matches!(phase, "Succeeded" | "Failed"),
        })
    }

    /// `namespace/name`, for messages.
    pub(crate) fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

fn host_ports(containers: &[Container]) -> Vec<HostPort> {
    let ports = containers.iter().flat_map(|container| container.ports.iter().flatten());
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

/// Sum of the containers and sidecars, or the largest init container beside the sidecars before it; plus overhead.
///
/// Source: `k8s.io/component-helpers/resource/helpers.go` `PodRequests` at v1.37.
fn requests(pod: &Pod) -> (Resources, Resources) {
    let Some(spec) = pod.spec.as_ref() else { return Default::default() };
    let mut total = Pair::default();
    for container in &spec.containers {
        total.add(&Pair::of(container));
    }
    let (mut sidecars, mut init_peak) = (Pair::default(), Pair::default());
    for container in spec.init_containers.iter().flatten() {
        let own = Pair::of(container);
        let mut peak = sidecars;
        peak.add(&own);
        if container.restart_policy.as_deref() == Some("Always") {
            total.add(&own);
            sidecars.add(&own);
        }
        init_peak = init_peak.max(&peak);
    }
    let mut total = total.max(&init_peak);
    if let Some(overhead) = &spec.overhead {
        let overhead = from_list(|name| overhead.get(name).map(|quantity| quantity.0.as_str()));
        total.add(&Pair { requests: overhead, nonzero: overhead });
    }
    (total.requests, total.nonzero)
}

#[derive(Clone, Copy, Default)]
struct Pair {
    requests: Resources,
    nonzero: Resources,
}

impl Pair {
    fn of(container: &Container) -> Self {
        let list = container.resources.as_ref().and_then(|resources| resources.requests.as_ref());
        let get = |name: &str| list.and_then(|list| list.get(name)).map(|quantity| quantity.0.as_str());
        let requests = from_list(get);
        let mut nonzero = requests;
        if get("cpu").is_none() {
            nonzero.milli_cpu = DEFAULT_MILLI_CPU;
        }
        if get("memory").is_none() {
            nonzero.memory_bytes = DEFAULT_MEMORY_BYTES;
        }
        Self { requests, nonzero }
    }

    fn add(&mut self, other: &Self) {
        self.requests.add(&other.requests);
        self.nonzero.add(&other.nonzero);
    }

    fn max(&self, other: &Self) -> Self {
        Self { requests: self.requests.max(&other.requests), nonzero: self.nonzero.max(&other.nonzero) }
    }
}

/// Reads a resource list; what does not parse (the API server admits no such thing) counts as nothing.
pub(crate) fn from_list<'a>(get: impl Fn(&str) -> Option<&'a str>) -> Resources {
    let parse = |name: &str| get(name).and_then(|text| Quantity::parse(text).ok());
    Resources {
        milli_cpu: parse("cpu").map_or(0, |quantity| quantity.milli_value()),
        memory_bytes: parse("memory").map_or(0, |quantity| quantity.value()),
        ephemeral_storage_bytes: parse("ephemeral-storage").map_or(0, |quantity| quantity.value()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(spec: serde_json::Value) -> PodInfo {
        let value = serde_json::json!({"metadata": {"uid": "u", "namespace": "n", "name": "p"}, "spec": spec});
        PodInfo::new(&serde_json::from_value(value).expect("a pod")).expect("complete")
    }

    #[test]
    fn init_containers_count_where_they_need_more_than_the_rest() {
        let request = |cpu: &str| serde_json::json!({"requests": {"cpu": cpu}});
        let info = pod(serde_json::json!({
            "initContainers": [
                {"name": "big", "resources": request("3")},
                {"name": "side", "restartPolicy": "Always", "resources": request("500m")},
                {"name": "late", "resources": request("2700m")},
            ],
            "containers": [{"name": "a", "resources": request("1")}, {"name": "b", "resources": request("1")}],
        }));
        // Containers with sidecar: 2.5; first init: 3; last init beside the sidecar: 3.2.
        assert_eq!(info.requests.milli_cpu, 3200);
    }

    #[test]
    fn containers_without_requests_count_a_little() {
        let info = pod(serde_json::json!({"containers": [{"name": "a"}]}));
        assert_eq!(info.requests, Resources::default());
        assert_eq!((info.nonzero.milli_cpu, info.nonzero.memory_bytes), (100, 200 << 20));
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
