//! What Services and EndpointSlices say, and which Services changed since last asked. No I/O.
//!
//! Keeps the few fields that rules are made of, not the objects. Watches are restarted with a complete list: objects
//! that are not in it are dropped when it ends. IPv4 only.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    fmt,
    net::{Ipv4Addr, SocketAddrV4},
};

use k8s_openapi::api::{core::v1::Service, discovery::v1::EndpointSlice};
use kube::runtime::watcher::Event;

/// Label of a slice that names its Service.
const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// Label of objects that another proxy takes care of.
const PROXY_NAME: &str = "service.kubernetes.io/service-proxy-name";
/// Seconds of session affinity if the Service does not say.
const DEFAULT_AFFINITY_SECS: u32 = 10_800;

/// `namespace/name` of a Service.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServiceKey {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
}

impl fmt::Display for ServiceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Transport of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}

impl Protocol {
    /// As iptables writes it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Sctp => "sctp",
        }
    }

    fn parse(text: Option<&str>) -> Option<Self> {
        match text {
            None | Some("TCP") => Some(Self::Tcp),
            Some("UDP") => Some(Self::Udp),
            Some("SCTP") => Some(Self::Sctp),
            Some(_) => None,
        }
    }
}

/// One port of a Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    /// Empty if it has none.
    pub name: String,
    /// Transport.
    pub protocol: Protocol,
    /// On the Service's addresses.
    pub port: u16,
    /// On the nodes' addresses.
    pub node_port: Option<u16>,
}

/// Where one port's traffic goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Endpoint {
    /// Address and target port.
    pub address: SocketAddrV4,
    /// It runs on this node.
    pub local: bool,
}

/// A Service as rules need it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceView {
    /// Cluster IPs.
    pub cluster_ips: Vec<Ipv4Addr>,
    /// External IPs and load balancer addresses.
    pub external_ips: Vec<Ipv4Addr>,
    /// Seconds of `sessionAffinity: ClientIP`.
    pub affinity_secs: Option<u32>,
    /// Every port with its endpoints, sorted; empty when none can take traffic.
    pub ports: Vec<(Port, Vec<Endpoint>)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Spec {
    cluster_ips: Vec<Ipv4Addr>,
    external_ips: Vec<Ipv4Addr>,
    ports: Vec<Port>,
    affinity_secs: Option<u32>,
    /// `internalTrafficPolicy: Local`.
    local_only: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Slice {
    ports: Vec<(String, Protocol, u16)>,
    endpoints: Vec<SliceEndpoint>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SliceEndpoint {
    address: Ipv4Addr,
    ready: bool,
    /// Still answers although it is terminating.
    fallback: bool,
    local: bool,
}

/// Everything known.
#[derive(Debug, Default)]
pub struct ChangeTracker {
    node_name: String,
    services: HashMap<ServiceKey, Spec>,
    /// Slices by Service, then by their own name.
    slices: HashMap<ServiceKey, BTreeMap<String, Slice>>,
    /// Which Service a slice belongs to, by the slice's namespace and name.
    slice_owner: HashMap<ServiceKey, ServiceKey>,
    changed: BTreeSet<ServiceKey>,
    relisted_services: Option<HashSet<ServiceKey>>,
    relisted_slices: Option<HashSet<ServiceKey>>,
    services_known: bool,
    slices_known: bool,
}

impl ChangeTracker {
    /// Knows nothing yet.
    #[must_use]
    pub fn new(node_name: &str) -> Self {
        Self { node_name: node_name.to_owned(), ..Self::default() }
    }

    /// Whether both lists were seen completely: before, rules made from this would tear down what works.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.services_known && self.slices_known
    }

    /// Takes an event of the Services' watch in.
    pub fn service(&mut self, event: Event<Service>) {
        match event {
            Event::Apply(service) => {
                self.apply_service(&service);
            }
            Event::Delete(service) => {
                if let Some(key) = key(&service.metadata) {
                    self.drop_service(&key);
                }
            }
            Event::Init => self.relisted_services = Some(HashSet::new()),
            Event::InitApply(service) => {
                if let Some(key) = self.apply_service(&service)
                    && let Some(seen) = &mut self.relisted_services
                {
                    seen.insert(key);
                }
            }
            Event::InitDone => {
                let seen = self.relisted_services.take().unwrap_or_default();
                let gone: Vec<_> = self.services.keys().filter(|key| !seen.contains(*key)).cloned().collect();
                gone.iter().for_each(|key| self.drop_service(key));
                self.services_known = true;
            }
        }
    }

    /// Takes an event of the EndpointSlices' watch in.
    pub fn slice(&mut self, event: Event<EndpointSlice>) {
        match event {
            Event::Apply(slice) => {
                self.apply_slice(&slice);
            }
            Event::Delete(slice) => {
                if let Some(key) = key(&slice.metadata) {
                    self.drop_slice(&key);
                }
            }
            Event::Init => self.relisted_slices = Some(HashSet::new()),
            Event::InitApply(slice) => {
                if let Some(key) = self.apply_slice(&slice)
                    && let Some(seen) = &mut self.relisted_slices
                {
                    seen.insert(key);
                }
            }
            Event::InitDone => {
                let seen = self.relisted_slices.take().unwrap_or_default();
                let gone: Vec<_> = self.slice_owner.keys().filter(|key| !seen.contains(*key)).cloned().collect();
                gone.iter().for_each(|key| self.drop_slice(key));
                self.slices_known = true;
            }
        }
    }

    /// The Services that changed since the last call, with what they are now (`None`: gone).
    pub fn take_changes(&mut self) -> Vec<(ServiceKey, Option<ServiceView>)> {
        let changed = std::mem::take(&mut self.changed);
        changed
            .into_iter()
            .map(|key| {
                let view = self.view(&key);
                (key, view)
            })
            .collect()
    }

    /// Whether [`Self::take_changes`] would return anything.
    #[must_use]
    pub fn has_changes(&self) -> bool {
        !self.changed.is_empty()
    }

    fn view(&self, key: &ServiceKey) -> Option<ServiceView> {
        let spec = self.services.get(key)?;
        let ports = spec.ports.iter().map(|port| (port.clone(), self.endpoints(key, spec, port))).collect();
        Some(ServiceView {
            cluster_ips: spec.cluster_ips.clone(),
            external_ips: spec.external_ips.clone(),
            affinity_secs: spec.affinity_secs,
            ports,
        })
    }

    fn endpoints(&self, key: &ServiceKey, spec: &Spec, port: &Port) -> Vec<Endpoint> {
        let mut ready = BTreeSet::new();
        let mut fallback = BTreeSet::new();
        for slice in self.slices.get(key).into_iter().flat_map(BTreeMap::values) {
            for (_, _, target) in slice.ports.iter().filter(|(n, p, _)| *n == port.name && *p == port.protocol) {
                for endpoint in slice.endpoints.iter().filter(|e| e.local || !spec.local_only) {
                    let address = SocketAddrV4::new(endpoint.address, *target);
                    let target = Endpoint { address, local: endpoint.local };
                    if endpoint.ready {
                        ready.insert(target);
                    } else if endpoint.fallback {
                        fallback.insert(target);
                    }
                }
            }
        }
        // Terminating pods serve only when nobody else does, as upstream has it (KEP-1669).
        let chosen = if ready.is_empty() { fallback } else { ready };
        chosen.into_iter().collect()
    }

    fn apply_service(&mut self, service: &Service) -> Option<ServiceKey> {
        let key = key(&service.metadata)?;
        match parse_service(service) {
            Some(spec) => {
                if self.services.get(&key) != Some(&spec) {
                    self.changed.insert(key.clone());
                    self.services.insert(key.clone(), spec);
                }
                Some(key)
            }
            None => {
                self.drop_service(&key);
                None
            }
        }
    }

    fn drop_service(&mut self, key: &ServiceKey) {
        if self.services.remove(key).is_some() {
            self.changed.insert(key.clone());
        }
    }

    fn apply_slice(&mut self, object: &EndpointSlice) -> Option<ServiceKey> {
        let key = key(&object.metadata)?;
        let Some((service, slice)) = parse_slice(object, &self.node_name) else {
            self.drop_slice(&key);
            return None;
        };
        if self.slice_owner.get(&key).is_some_and(|before| *before != service) {
            self.drop_slice(&key);
        }
        let slices = self.slices.entry(service.clone()).or_default();
        if slices.get(&key.name) != Some(&slice) {
            slices.insert(key.name.clone(), slice);
            self.changed.insert(service.clone());
        }
        self.slice_owner.insert(key.clone(), service);
        Some(key)
    }

    fn drop_slice(&mut self, key: &ServiceKey) {
        let Some(service) = self.slice_owner.remove(key) else { return };
        if let Some(slices) = self.slices.get_mut(&service) {
            slices.remove(&key.name);
            if slices.is_empty() {
                self.slices.remove(&service);
            }
        }
        self.changed.insert(service);
    }
}

fn key(metadata: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta) -> Option<ServiceKey> {
    Some(ServiceKey { namespace: metadata.namespace.clone()?, name: metadata.name.clone()? })
}

fn parse_service(service: &Service) -> Option<Spec> {
    let spec = service.spec.as_ref()?;
    let other_proxy = service.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(PROXY_NAME));
    if other_proxy || spec.type_.as_deref() == Some("ExternalName") {
        return None;
    }
    // Headless Services have `None` here, which is no address.
    let parse = |ips: &[String]| -> Vec<Ipv4Addr> { ips.iter().filter_map(|ip| ip.parse().ok()).collect() };
    let mut cluster_ips = parse(spec.cluster_ips.as_deref().unwrap_or_default());
    if cluster_ips.is_empty() {
        cluster_ips = parse(spec.cluster_ip.as_slice());
    }
    if cluster_ips.is_empty() {
        return None;
    }
    let mut external_ips = parse(spec.external_ips.as_deref().unwrap_or_default());
    let balancers = service.status.as_ref().and_then(|s| s.load_balancer.as_ref()).and_then(|l| l.ingress.as_ref());
    external_ips.extend(balancers.into_iter().flatten().filter_map(|i| i.ip.as_ref()?.parse::<Ipv4Addr>().ok()));
    external_ips.sort_unstable();
    external_ips.dedup();
    let ports = spec.ports.iter().flatten().filter_map(|port| {
        Some(Port {
            name: port.name.clone().unwrap_or_default(),
            protocol: Protocol::parse(port.protocol.as_deref())?,
            port: u16::try_from(port.port).ok()?,
            node_port: port.node_port.and_then(|p| u16::try_from(p).ok()).filter(|p| *p != 0),
        })
    });
    let affinity_secs = (spec.session_affinity.as_deref() == Some("ClientIP")).then(|| {
        let configured = spec.session_affinity_config.as_ref().and_then(|c| c.client_ip.as_ref()?.timeout_seconds);
        configured.and_then(|secs| u32::try_from(secs).ok()).unwrap_or(DEFAULT_AFFINITY_SECS)
    });
    Some(Spec {
        cluster_ips,
        external_ips,
        ports: ports.collect(),
        affinity_secs,
        local_only: spec.internal_traffic_policy.as_deref() == Some("Local"),
    })
}

fn parse_slice(object: &EndpointSlice, node_name: &str) -> Option<(ServiceKey, Slice)> {
    let labels = object.metadata.labels.as_ref()?;
    if object.address_type != "IPv4" || labels.contains_key(PROXY_NAME) {
        return None;
    }
    let service = ServiceKey { namespace: object.metadata.namespace.clone()?, name: labels.get(SERVICE_NAME)?.clone() };
    let ports = object.ports.iter().flatten().filter_map(|port| {
        let number = u16::try_from(port.port?).ok()?;
        Some((port.name.clone().unwrap_or_default(), Protocol::parse(port.protocol.as_deref())?, number))
    });
    let endpoints = object.endpoints.iter().flatten().filter_map(|endpoint| {
        let conditions = endpoint.conditions.as_ref();
        let ready = conditions.and_then(|c| c.ready).unwrap_or(true);
        let serving = conditions.and_then(|c| c.serving).unwrap_or(ready);
        let terminating = conditions.and_then(|c| c.terminating).unwrap_or(false);
        let local = endpoint.node_name.as_deref() == Some(node_name);
        // Consumers use the first address only, by the API's definition.
        endpoint.addresses.first().and_then(|address| address.parse().ok()).map(|address| SliceEndpoint {
            address,
            ready: ready && !terminating,
            fallback: serving && terminating,
            local,
        })
    });
    Some((service, Slice { ports: ports.collect(), endpoints: endpoints.collect() }))
}

#[cfg(test)]
mod tests;
