//! The plan for Services: addresses, ports and the endpoints behind them. Plain data, of no engine
//! in particular.

pub mod way;

use std::{
    collections::BTreeSet,
    fmt,
    net::{IpAddr, Ipv4Addr, SocketAddr},
};

use ipnet::{IpNet, Ipv4Net};

const LOOPBACK: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::new(127, 0, 0, 0), 8);

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
    /// As packet filters write it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Sctp => "sctp",
        }
    }

    /// As packets have it: `IPPROTO_*`.
    #[must_use]
    pub fn number(self) -> u8 {
        match self {
            Self::Tcp => 6,
            Self::Udp => 17,
            Self::Sctp => 132,
        }
    }

    /// Of the number that packets have.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        let all = [Self::Tcp, Self::Udp, Self::Sctp];
        all.into_iter().find(|one| one.number() == number)
    }

    /// As the API writes it: TCP if it says nothing; `None` for what it does not know.
    #[must_use]
    pub fn parse(text: Option<&str>) -> Option<Self> {
        match text {
            None | Some("TCP") => Some(Self::Tcp),
            Some("UDP") => Some(Self::Udp),
            Some("SCTP") => Some(Self::Sctp),
            Some(_) => None,
        }
    }
}

/// What is the same for all Services.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServiceNetwork {
    /// Addresses of pods: traffic from elsewhere to a cluster IP is masqueraded. Empty: none is.
    pub cluster_cidrs: Vec<IpNet>,
    /// Addresses of Services: what has no rule there is rejected instead of leaving the node.
    pub service_cidrs: Vec<IpNet>,
    /// The link that packets of this node's pods come from, if they all come from one.
    pub pod_interface: Option<String>,
    /// The node's own address.
    pub node_ip: Option<IpAddr>,
    /// An address among the Services' at which the node answers itself.
    pub own_service_ip: Option<IpAddr>,
    /// Which of the node's addresses have node ports. Empty: all but those of loopback.
    pub node_port_cidrs: Vec<IpNet>,
}

impl ServiceNetwork {
    /// With these addresses of pods and of Services.
    #[must_use]
    pub fn new(cluster_cidrs: &[IpNet], service_cidrs: &[IpNet]) -> Self {
        let whole = |cidrs: &[IpNet]| cidrs.iter().map(IpNet::trunc).collect();
        Self {
            cluster_cidrs: whole(cluster_cidrs),
            service_cidrs: whole(service_cidrs),
            ..Self::default()
        }
    }

    /// Keeps pods of this node apart from those of others, by the link that their packets come
    /// from.
    #[must_use]
    pub fn with_pod_interface(mut self, name: Option<String>) -> Self {
        self.pod_interface = name;
        self
    }

    /// The node's own address.
    #[must_use]
    pub fn with_node_ip(mut self, address: Option<IpAddr>) -> Self {
        self.node_ip = address;
        self
    }

    /// An address among the Services' at which the node answers itself: it is no Service's, and
    /// not refused.
    #[must_use]
    pub fn with_own_service_ip(mut self, address: Option<IpAddr>) -> Self {
        self.own_service_ip = address;
        self
    }

    /// With node ports on those addresses of the node alone that are in these ranges; not on
    /// loopback, whatever range it is in.
    #[must_use]
    pub fn with_node_port_cidrs(mut self, cidrs: &[IpNet]) -> Self {
        let cidrs = cidrs.iter().flat_map(|cidr| match cidr.trunc() {
            IpNet::V4(cidr) => around(cidr, LOOPBACK),
            IpNet::V6(cidr) => vec![IpNet::V6(cidr)],
        });
        self.node_port_cidrs = cidrs.collect();
        self
    }

    /// What of it is of IPv4.
    #[must_use]
    pub fn ipv4(mut self) -> Self {
        self.cluster_cidrs
            .retain(|cidr| matches!(cidr, IpNet::V4(_)));
        self.service_cidrs
            .retain(|cidr| matches!(cidr, IpNet::V4(_)));
        self.node_port_cidrs
            .retain(|cidr| matches!(cidr, IpNet::V4(_)));
        self.node_ip = self.node_ip.filter(IpAddr::is_ipv4);
        self.own_service_ip = self.own_service_ip.filter(IpAddr::is_ipv4);
        self
    }

    /// Whether `address` is a pod's.
    #[must_use]
    pub fn is_of_pods(&self, address: &IpAddr) -> bool {
        self.cluster_cidrs.iter().any(|cidr| cidr.contains(address))
    }

    /// Whether `address` is a Service's own.
    #[must_use]
    pub fn is_of_services(&self, address: &IpAddr) -> bool {
        self.service_cidrs.iter().any(|cidr| cidr.contains(address))
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
    pub address: SocketAddr,
    /// It runs on this node.
    pub local: bool,
}

/// One port with its endpoints, each list sorted and without duplicates.
///
/// The lists are upstream's, `CategorizeEndpoints` in `pkg/proxy/topology.go`: ready endpoints, and
/// where there is none those that are terminating but still serve. Which list is asked depends on
/// where a packet comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortView {
    /// The port.
    pub port: Port,
    /// For traffic policy `Cluster`. Empty only if nobody anywhere can take traffic.
    pub cluster: Vec<Endpoint>,
    /// For traffic policy `Local`: those on this node.
    pub local: Vec<Endpoint>,
    /// Addresses that still answer, chosen or not: flows to them are not cut.
    pub serving: Vec<IpAddr>,
}

/// A Service as rules need it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServiceView {
    /// `metadata.uid`, for events about it.
    pub uid: Option<String>,
    /// Cluster IPs.
    pub cluster_ips: Vec<IpAddr>,
    /// `spec.externalIPs`.
    pub external_ips: Vec<IpAddr>,
    /// Load balancer addresses, except of those that want to see the traffic themselves
    /// (`ipMode: Proxy`).
    pub balancer_ips: Vec<IpAddr>,
    /// `spec.loadBalancerSourceRanges` or the annotation in its place: who may use the balancer
    /// addresses. `None`: everybody.
    pub source_ranges: Option<Vec<IpNet>>,
    /// Seconds of `sessionAffinity: ClientIP`.
    pub affinity_secs: Option<u32>,
    /// `internalTrafficPolicy: Local`: what comes to the cluster IPs stays on the node.
    pub internal_local: bool,
    /// `externalTrafficPolicy: Local`: what comes from outside stays on the node and keeps its
    /// source address.
    pub external_local: bool,
    /// Every port.
    pub ports: Vec<PortView>,
    /// What of its external addresses somebody else is reached under: no rule touches that.
    pub withheld: BTreeSet<(IpAddr, Protocol, u16)>,
}

impl ServiceView {
    /// The external addresses that `port` may take.
    pub fn external_ips_of(&self, port: &Port) -> impl Iterator<Item = IpAddr> {
        self.free(&self.external_ips, port)
    }

    /// The load balancer's addresses that `port` may take.
    pub fn balancer_ips_of(&self, port: &Port) -> impl Iterator<Item = IpAddr> {
        self.free(&self.balancer_ips, port)
    }

    fn free(&self, ips: &[IpAddr], port: &Port) -> impl Iterator<Item = IpAddr> {
        ips.iter()
            .copied()
            .filter(|ip| !self.withheld.contains(&(*ip, port.protocol, port.port)))
    }

    /// Without those external addresses that are inside the Services' range or the pods': there one
    /// would take what is meant for another Service or for another's pod (CVE-2020-8554).
    pub(crate) fn without_stolen_addresses(
        &self,
        network: &ServiceNetwork,
        key: &ServiceKey,
    ) -> Self {
        let mut view = self.clone();
        for list in [&mut view.external_ips, &mut view.balancer_ips] {
            let before = list.len();
            list.retain(|ip| !network.is_of_services(ip) && !network.is_of_pods(ip));
            if list.len() != before {
                tracing::warn!(service = %key, "external addresses inside the service CIDR or the pods' are ignored");
            }
        }
        view
    }

    /// Whether `port` is reachable under more than the cluster IPs.
    #[must_use]
    pub fn is_externally_accessible(&self, port: &Port) -> bool {
        port.node_port.is_some() || !self.external_ips.is_empty() || !self.balancer_ips.is_empty()
    }
}

/// A range without `hole`, where that is a part of it.
fn around(range: Ipv4Net, hole: Ipv4Net) -> Vec<IpNet> {
    let mut parts = Vec::new();
    let mut rest = range;
    while rest.contains(&hole) && rest != hole {
        let halves = rest.subnets(rest.prefix_len() + 1).into_iter().flatten();
        let (with, without): (Vec<_>, Vec<_>) = halves.partition(|half| half.contains(&hole));
        parts.extend(without.into_iter().map(IpNet::V4));
        match with.first() {
            Some(half) => rest = *half,
            None => return parts,
        }
    }
    if rest == range {
        parts.push(IpNet::V4(range));
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_ports_are_not_on_loopback_whatever_range_it_is_in() {
        let check = |range: &str, expect: &[&str]| {
            let network = ServiceNetwork::default();
            let network = network.with_node_port_cidrs(&[range.parse().unwrap()]);
            let said = network.node_port_cidrs.iter().map(ToString::to_string);
            assert_eq!(said.collect::<Vec<_>>(), expect, "{range}");
        };
        check("10.0.0.9/8", &["10.0.0.0/8"]);
        check("128.0.0.0/1", &["128.0.0.0/1"]);
        check("126.0.0.0/7", &["126.0.0.0/8"]);
        let below = ["0.0.0.0/2", "64.0.0.0/3", "96.0.0.0/4", "112.0.0.0/5"];
        let next = ["120.0.0.0/6", "124.0.0.0/7", "126.0.0.0/8"];
        check("0.0.0.0/1", &[&below[..], &next].concat());
        check("::/0", &["::/0"]);
    }
}
