//! What rules are made of: a Service with its ports and the endpoints behind them. Plain data.

use std::{
    fmt,
    net::{Ipv4Addr, SocketAddrV4},
};

use ipnet::Ipv4Net;

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

    pub(super) fn parse(text: Option<&str>) -> Option<Self> {
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

/// One port with its endpoints, each list sorted and without duplicates.
///
/// The lists are upstream's, `CategorizeEndpoints` in `pkg/proxy/topology.go`: ready endpoints, and where there is none
/// those that are terminating but still serve. Which list is asked depends on where a packet comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortView {
    /// The port.
    pub port: Port,
    /// For traffic policy `Cluster`. Empty only if nobody anywhere can take traffic.
    pub cluster: Vec<Endpoint>,
    /// For traffic policy `Local`: those on this node.
    pub local: Vec<Endpoint>,
    /// Addresses that still answer, chosen or not: flows to them are not cut.
    pub serving: Vec<Ipv4Addr>,
}

/// A Service as rules need it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServiceView {
    /// `metadata.uid`, for events about it.
    pub uid: Option<String>,
    /// Cluster IPs.
    pub cluster_ips: Vec<Ipv4Addr>,
    /// `spec.externalIPs`.
    pub external_ips: Vec<Ipv4Addr>,
    /// Load balancer addresses, except of those that want to see the traffic themselves (`ipMode: Proxy`).
    pub balancer_ips: Vec<Ipv4Addr>,
    /// `spec.loadBalancerSourceRanges`: who may use the balancer addresses. `None`: everybody.
    pub source_ranges: Option<Vec<Ipv4Net>>,
    /// Seconds of `sessionAffinity: ClientIP`.
    pub affinity_secs: Option<u32>,
    /// `internalTrafficPolicy: Local`: what comes to the cluster IPs stays on the node.
    pub internal_local: bool,
    /// `externalTrafficPolicy: Local`: what comes from outside stays on the node and keeps its source address.
    pub external_local: bool,
    /// Every port.
    pub ports: Vec<PortView>,
}

impl ServiceView {
    /// Whether `port` is reachable under more than the cluster IPs.
    #[must_use]
    pub fn is_externally_accessible(&self, port: &Port) -> bool {
        port.node_port.is_some() || !self.external_ips.is_empty() || !self.balancer_ips.is_empty()
    }
}
