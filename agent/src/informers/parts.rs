//! What is kept of Services, EndpointSlices and Nodes. Pure; rules and routes are of IPv4 only,
//! names are of both families.

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
};

use coracle_api::{load_balancer, pod_network};
use coracle_netfilter::service::{Port, Protocol};
use ipnet::{IpNet, Ipv4Net};
use k8s_openapi::{
    api::{
        core::v1::{LoadBalancerIngress, Node, PortStatus, Service, ServiceSpec},
        discovery::v1::EndpointSlice,
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use super::source_ranges;

/// Label of a Node that names its zone.
const ZONE: &str = "topology.kubernetes.io/zone";
/// Label of a slice that names its Service.
const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// Label of objects that another proxy takes care of.
const PROXY_NAME: &str = "service.kubernetes.io/service-proxy-name";
/// Label of objects that no proxy takes care of.
const HEADLESS: &str = "service.kubernetes.io/headless";
/// Type of a Service that is another name.
const EXTERNAL_NAME: &str = "ExternalName";
/// Seconds of session affinity if the Service does not say.
const DEFAULT_AFFINITY_SECS: u32 = 10_800;
/// `ipMode` of a balancer that must see the traffic itself.
const IP_MODE_PROXY: &str = "Proxy";

/// Whether no proxy or another one takes care of it: the labels that kube-proxy leaves out.
fn is_not_ours(metadata: &ObjectMeta) -> bool {
    metadata
        .labels
        .as_ref()
        .is_some_and(|labels| labels.contains_key(PROXY_NAME) || labels.contains_key(HEADLESS))
}

/// What is kept of a Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServicePart {
    /// The first, of any family; `None` for those without an address of their own.
    pub(crate) cluster_ip: Option<IpAddr>,
    /// Of those that are another name.
    pub(crate) external_name: Option<Box<str>>,
    /// Every port.
    pub(crate) ports: Vec<Port>,
    /// `None` if there are none to write.
    pub(crate) rules: Option<RulesPart>,
}

/// What rules are made of beside the ports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RulesPart {
    pub(crate) cluster_ips: Vec<IpAddr>,
    pub(crate) external_ips: Vec<IpAddr>,
    pub(crate) balancer_ips: Vec<IpAddr>,
    /// Ports that are not its own at some of these, as its status says.
    pub(crate) not_given: BTreeSet<(IpAddr, Protocol, u16)>,
    pub(crate) source_ranges: Option<Vec<IpNet>>,
    pub(crate) affinity_secs: Option<u32>,
    pub(crate) internal_local: bool,
    pub(crate) external_local: bool,
    /// Where load balancers ask whether there are endpoints here.
    pub(crate) health_port: Option<u16>,
}

impl From<Service> for ServicePart {
    fn from(service: Service) -> Self {
        let spec = service.spec.as_ref();
        // Headless Services have `None` here, which is no address.
        let cluster_ip = spec.and_then(|spec| spec.cluster_ip.as_ref()?.parse().ok());
        let ports = spec
            .and_then(|spec| spec.ports.as_ref())
            .into_iter()
            .flatten()
            .filter_map(|port| {
                Some(Port {
                    name: port.name.clone().unwrap_or_default(),
                    protocol: Protocol::parse(port.protocol.as_deref())?,
                    port: u16::try_from(port.port).ok()?,
                    node_port: port
                        .node_port
                        .and_then(|p| u16::try_from(p).ok())
                        .filter(|p| *p != 0),
                })
            });
        let is_external = |spec: &&ServiceSpec| spec.type_.as_deref() == Some(EXTERNAL_NAME);
        let external = spec
            .filter(is_external)
            .and_then(|spec| spec.external_name.as_deref());
        Self {
            cluster_ip,
            external_name: external.map(Box::from),
            ports: ports.collect(),
            rules: rules(&service),
        }
    }
}

fn rules(service: &Service) -> Option<RulesPart> {
    let spec = service.spec.as_ref()?;
    if is_not_ours(&service.metadata) || spec.type_.as_deref() == Some(EXTERNAL_NAME) {
        return None;
    }
    let mut cluster_ips = addresses(spec.cluster_ips.as_deref().unwrap_or_default());
    if cluster_ips.is_empty() {
        cluster_ips = addresses(spec.cluster_ip.as_slice());
    }
    if cluster_ips.is_empty() {
        return None;
    }
    let external_ips = sorted(addresses(spec.external_ips.as_deref().unwrap_or_default()));
    let balancers = service
        .status
        .as_ref()
        .and_then(|s| s.load_balancer.as_ref())
        .and_then(|l| l.ingress.as_ref());
    let balancers = balancers
        .into_iter()
        .flatten()
        .filter(|one| one.ip_mode.as_deref() != Some(IP_MODE_PROXY));
    let balancers = balancers.filter_map(|one| Some((address(one.ip.as_ref()?)?, one)));
    let balancers: Vec<_> = balancers
        .filter(|(ip, _)| !external_ips.contains(ip))
        .collect();
    let balancer_ips = sorted(balancers.iter().map(|(ip, _)| *ip).collect());
    let affinity_secs = (spec.session_affinity.as_deref() == Some("ClientIP")).then(|| {
        let configured = spec
            .session_affinity_config
            .as_ref()
            .and_then(|c| c.client_ip.as_ref()?.timeout_seconds);
        configured
            .and_then(|secs| u32::try_from(secs).ok())
            .unwrap_or(DEFAULT_AFFINITY_SECS)
    });
    Some(RulesPart {
        cluster_ips,
        external_ips,
        balancer_ips,
        not_given: not_given(spec, &balancers),
        source_ranges: source_ranges::of(service),
        affinity_secs,
        internal_local: is_local(spec.internal_traffic_policy.as_deref()),
        external_local: is_local(spec.external_traffic_policy.as_deref()),
        health_port: spec
            .health_check_node_port
            .and_then(|port| u16::try_from(port).ok())
            .filter(|port| *port != 0 && is_local(spec.external_traffic_policy.as_deref())),
    })
}

/// An address that comes with ports is the Service's for these alone: a port that was added since
/// may be another's there. One that comes without is all its own.
fn not_given(
    spec: &ServiceSpec,
    balancers: &[(IpAddr, &LoadBalancerIngress)],
) -> BTreeSet<(IpAddr, Protocol, u16)> {
    let is_given = |ip: IpAddr, protocol: Protocol, port: i32| {
        let mut of_address = balancers.iter().filter(|(other, _)| *other == ip);
        of_address.any(|(_, one)| {
            let ports = one.ports.as_deref().unwrap_or_default();
            let is_it = |listed: &PortStatus| {
                listed.port == port && Protocol::parse(Some(&listed.protocol)) == Some(protocol)
            };
            ports.is_empty() || ports.iter().any(is_it)
        })
    };
    let places = balancers.iter().flat_map(|(ip, _)| {
        let ports = spec.ports.iter().flatten();
        ports.filter_map(move |port| {
            let protocol = Protocol::parse(port.protocol.as_deref())?;
            let place = (*ip, protocol, u16::try_from(port.port).ok()?);
            (!is_given(*ip, protocol, port.port)).then_some(place)
        })
    });
    places.collect()
}

/// Whether traffic stays on the node that it comes to.
fn is_local(policy: Option<&str>) -> bool {
    policy == Some("Local")
}

fn addresses(ips: &[String]) -> Vec<IpAddr> {
    ips.iter().filter_map(|ip| address(ip)).collect()
}

/// `None` also for IPv6.
fn address(ip: &str) -> Option<IpAddr> {
    ip.parse().ok().map(|ip: Ipv4Addr| ip.into())
}

fn sorted(mut ips: Vec<IpAddr>) -> Vec<IpAddr> {
    ips.sort_unstable();
    ips.dedup();
    ips
}

/// What is kept of an EndpointSlice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SlicePart {
    /// The name of its Service.
    pub(crate) service: Option<String>,
    /// Whether it is this proxy's: one of a Service that has rules.
    pub(crate) is_proxied: bool,
    pub(crate) ports: Vec<(String, Protocol, u16)>,
    pub(crate) endpoints: Vec<SliceEndpoint>,
    /// The nodes of the endpoints and those that they are meant for, until it is known which are
    /// here.
    nodes: Vec<(Option<String>, Vec<String>)>,
}

/// The conditions as the slice has them: `ready` already says whether the Service wants those that
/// are not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SliceEndpoint {
    pub(crate) address: IpAddr,
    /// The pod's, where it has chosen one: a name of its own.
    pub(crate) hostname: Option<Box<str>>,
    pub(crate) ready: bool,
    pub(crate) serving: bool,
    pub(crate) terminating: bool,
    pub(crate) local: bool,
    /// Whether it is meant for this node; `None` if it is meant for no node in particular.
    pub(crate) for_node: Option<bool>,
    /// The zones that it is meant for; none if for none in particular.
    pub(crate) for_zones: Option<Arc<[String]>>,
}

impl From<EndpointSlice> for SlicePart {
    fn from(object: EndpointSlice) -> Self {
        let mut part = Self {
            service: None,
            is_proxied: object.address_type == "IPv4" && !is_not_ours(&object.metadata),
            ports: Vec::new(),
            endpoints: Vec::new(),
            nodes: Vec::new(),
        };
        part.service = object
            .metadata
            .labels
            .unwrap_or_default()
            .remove(SERVICE_NAME);
        let ports = object.ports.into_iter().flatten().filter_map(|port| {
            let number = u16::try_from(port.port?).ok()?;
            let protocol = Protocol::parse(port.protocol.as_deref())?;
            Some((port.name.unwrap_or_default(), protocol, number))
        });
        part.ports = ports.collect();
        for endpoint in object.endpoints.into_iter().flatten() {
            let conditions = endpoint.conditions.unwrap_or_default();
            let ready = conditions.ready.unwrap_or(true);
            let serving = conditions.serving.unwrap_or(ready);
            let terminating = conditions.terminating.unwrap_or(false);
            // Consumers use the first address only, by the API's definition.
            let first = endpoint.addresses.first();
            let Some(address) = first.and_then(|ip| ip.parse::<IpAddr>().ok()) else {
                continue;
            };
            let hints = endpoint.hints.unwrap_or_default();
            let zones = hints.for_zones.into_iter().flatten().map(|zone| zone.name);
            let nodes = hints.for_nodes.into_iter().flatten().map(|node| node.name);
            part.endpoints.push(SliceEndpoint {
                address,
                hostname: endpoint.hostname.map(Box::from),
                ready,
                serving,
                terminating,
                local: false,
                for_node: None,
                for_zones: part.share_zones(zones.collect()),
            });
            part.nodes.push((endpoint.node_name, nodes.collect()));
        }
        part
    }
}

impl SlicePart {
    /// Tells the endpoints of this node, and those for it, from the others.
    pub(crate) fn locate(&mut self, node_name: &str) {
        for (endpoint, (node, meant_for)) in self
            .endpoints
            .iter_mut()
            .zip(std::mem::take(&mut self.nodes))
        {
            endpoint.local = node.as_deref() == Some(node_name);
            let is_meant = meant_for.iter().any(|name| name == node_name);
            endpoint.for_node = (!meant_for.is_empty()).then_some(is_meant);
        }
    }

    /// Most endpoints are meant for the zone of one before.
    fn share_zones(&self, zones: Vec<String>) -> Option<Arc<[String]>> {
        if zones.is_empty() {
            return None;
        }
        let known = self.endpoints.iter().rev();
        let known = known.filter_map(|endpoint| endpoint.for_zones.as_ref());
        let same = known.take(8).find(|known| ***known == *zones);
        Some(same.map_or_else(|| zones.as_slice().into(), Arc::clone))
    }
}

/// What is kept of a Node.
#[derive(Debug, Clone)]
pub(crate) struct NodePart {
    pub(crate) network: NodeNetwork,
    /// The object, if it is the own one.
    pub(crate) own: Option<Arc<Node>>,
}

/// What a node's object says about its network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NodeNetwork {
    pub(crate) address: Option<Ipv4Addr>,
    pub(crate) pod_cidrs: Vec<Ipv4Net>,
    /// What the server tells all nodes, not read yet. Only the own node's counts: others can write
    /// theirs.
    pub(crate) told: Option<String>,
}

impl From<Node> for NodePart {
    fn from(node: Node) -> Self {
        let spec = node.spec.as_ref();
        let mut pod_cidrs: Vec<Ipv4Net> = spec
            .and_then(|s| s.pod_cidrs.as_ref())
            .into_iter()
            .flatten()
            .filter_map(|c| c.parse().ok())
            .collect();
        if pod_cidrs.is_empty() {
            pod_cidrs.extend(spec.and_then(|s| s.pod_cidr.as_ref()?.parse::<Ipv4Net>().ok()));
        }
        let addresses = node
            .status
            .as_ref()
            .and_then(|s| s.addresses.as_ref())
            .into_iter()
            .flatten();
        let address = addresses
            .filter(|a| a.type_ == "InternalIP")
            .find_map(|a| a.address.parse().ok());
        let told = node
            .metadata
            .annotations
            .as_ref()
            .and_then(|all| all.get(pod_network::ANNOTATION))
            .cloned();
        Self {
            network: NodeNetwork {
                address,
                pod_cidrs,
                told,
            },
            own: Some(Arc::new(node)),
        }
    }
}

impl NodePart {
    /// Forgets what is read of the own Node alone.
    pub(super) fn forget_rest(&mut self) {
        (self.own, self.network.told) = (None, None);
    }

    /// Whether it is about to go: of the own Node alone.
    pub(crate) fn is_going(&self) -> bool {
        self.own.as_deref().is_some_and(load_balancer::is_leaving)
    }

    /// The zone of the own Node, if it says.
    pub(crate) fn own_zone(&self) -> Option<&str> {
        let labels = self.own.as_ref()?.metadata.labels.as_ref()?;
        labels.get(ZONE).map(String::as_str)
    }
}
