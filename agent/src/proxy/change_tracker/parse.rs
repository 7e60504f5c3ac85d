//! From API objects to what is kept of them. Pure; IPv4 only.

use std::net::{IpAddr, Ipv4Addr};

use coracle_netfilter::service::{Port, Protocol, ServiceKey};
use ipnet::{IpNet, Ipv4Net};
use k8s_openapi::{
    api::{core::v1::Service, discovery::v1::EndpointSlice},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

/// Label of a slice that names its Service.
const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// Label of objects that another proxy takes care of.
pub(super) const PROXY_NAME: &str = "service.kubernetes.io/service-proxy-name";
/// Label of objects that no proxy takes care of.
pub(super) const HEADLESS: &str = "service.kubernetes.io/headless";
/// Seconds of session affinity if the Service does not say.
const DEFAULT_AFFINITY_SECS: u32 = 10_800;
/// `ipMode` of a balancer that must see the traffic itself.
const IP_MODE_PROXY: &str = "Proxy";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Spec {
    pub(super) uid: Option<String>,
    pub(super) cluster_ips: Vec<IpAddr>,
    pub(super) external_ips: Vec<IpAddr>,
    pub(super) balancer_ips: Vec<IpAddr>,
    pub(super) source_ranges: Option<Vec<IpNet>>,
    pub(super) ports: Vec<Port>,
    pub(super) affinity_secs: Option<u32>,
    pub(super) internal_local: bool,
    pub(super) external_local: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Slice {
    pub(super) ports: Vec<(String, Protocol, u16)>,
    pub(super) endpoints: Vec<SliceEndpoint>,
}

/// The conditions as the slice has them: `ready` already says whether the Service wants those that are not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SliceEndpoint {
    pub(super) address: IpAddr,
    pub(super) ready: bool,
    pub(super) serving: bool,
    pub(super) terminating: bool,
    pub(super) local: bool,
}

pub(super) fn key(metadata: &ObjectMeta) -> Option<ServiceKey> {
    Some(ServiceKey { namespace: metadata.namespace.clone()?, name: metadata.name.clone()? })
}

/// Whether no proxy or another one takes care of it.
fn is_not_ours(metadata: &ObjectMeta) -> bool {
    metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(PROXY_NAME) || labels.contains_key(HEADLESS))
}

pub(super) fn parse_service(service: &Service) -> Option<Spec> {
    let spec = service.spec.as_ref()?;
    if is_not_ours(&service.metadata) || spec.type_.as_deref() == Some("ExternalName") {
        return None;
    }
    // Headless Services have `None` here, which is no address.
    let mut cluster_ips = addresses(spec.cluster_ips.as_deref().unwrap_or_default());
    if cluster_ips.is_empty() {
        cluster_ips = addresses(spec.cluster_ip.as_slice());
    }
    if cluster_ips.is_empty() {
        return None;
    }
    let external_ips = sorted(addresses(spec.external_ips.as_deref().unwrap_or_default()));
    let balancers = service.status.as_ref().and_then(|s| s.load_balancer.as_ref()).and_then(|l| l.ingress.as_ref());
    let balancers = balancers.into_iter().flatten().filter(|one| one.ip_mode.as_deref() != Some(IP_MODE_PROXY));
    let mut balancer_ips = sorted(balancers.filter_map(|one| address(one.ip.as_ref()?)).collect());
    balancer_ips.retain(|ip| !external_ips.contains(ip));
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
        uid: service.metadata.uid.clone(),
        cluster_ips,
        external_ips,
        balancer_ips,
        source_ranges: source_ranges(spec.load_balancer_source_ranges.as_deref().unwrap_or_default()),
        ports: ports.collect(),
        affinity_secs,
        internal_local: spec.internal_traffic_policy.as_deref() == Some("Local"),
        external_local: spec.external_traffic_policy.as_deref() == Some("Local"),
    })
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

/// A list that names nobody of this address family lets nobody in: it was written to keep others out.
fn source_ranges(ranges: &[String]) -> Option<Vec<IpNet>> {
    if ranges.is_empty() {
        return None;
    }
    let parsed = ranges.iter().filter_map(|range| range.trim().parse().ok());
    let mut ranges: Vec<IpNet> = parsed.map(|range: Ipv4Net| range.trunc().into()).collect();
    ranges.sort_unstable();
    ranges.dedup();
    Some(ranges)
}

pub(super) fn parse_slice(object: &EndpointSlice, node_name: &str) -> Option<(ServiceKey, Slice)> {
    let labels = object.metadata.labels.as_ref()?;
    if object.address_type != "IPv4" || is_not_ours(&object.metadata) {
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
        let address = address(endpoint.addresses.first()?)?;
        Some(SliceEndpoint { address, ready, serving, terminating, local })
    });
    Some((service, Slice { ports: ports.collect(), endpoints: endpoints.collect() }))
}
