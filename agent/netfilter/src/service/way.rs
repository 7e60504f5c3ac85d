//! Where the rules of Services lead the first packet of a connection, by the plan. Pure.
//!
//! The tests of `packets` send each of their packets this way, too, beside the rules of
//! both engines.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
};

use super::{Endpoint, PortView, Protocol, ServiceKey, ServiceNetwork, ServiceView};

/// Where a packet comes from, as rules tell it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sender {
    /// A pod of this node.
    Pod,
    /// The node itself.
    Node,
    /// Anybody else, pods of other nodes among them.
    Elsewhere,
}

/// The first packet of a connection, before any translation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opening {
    /// What kind of sender.
    pub sender: Sender,
    /// Its address.
    pub source: IpAddr,
    /// The transport.
    pub protocol: Protocol,
    /// What it asks for.
    pub to: SocketAddr,
}

/// What rules are made of.
#[derive(Debug, Clone, Copy)]
pub struct Ground<'a> {
    /// The same for all Services.
    pub network: &'a ServiceNetwork,
    /// All that have rules.
    pub services: &'a BTreeMap<ServiceKey, ServiceView>,
    /// The node's addresses, those of loopback among them.
    pub own: &'a BTreeSet<IpAddr>,
}

/// Under which of its addresses a Service is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Door {
    /// One of its cluster IPs.
    ClusterIp,
    /// One of its `externalIPs`.
    ExternalIp,
    /// One of its balancer's addresses.
    LoadBalancer,
    /// Its port on the node's addresses.
    NodePort,
}

/// A port of a Service, and how it was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Which Service.
    pub service: &'a ServiceKey,
    /// As rules see it.
    pub view: &'a ServiceView,
    /// Which port of it.
    pub port: &'a PortView,
    /// Under which address.
    pub door: Door,
}

/// Why an answer has to come back through this node, so that the endpoint sees the node's address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The packet does not come from a pod's address.
    NotFromAPod,
    /// `externalTrafficPolicy: Cluster`.
    ExternalCluster,
    /// The node itself asks for an external address under `externalTrafficPolicy: Local`.
    NodeItself,
}

/// To whom a packet goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Translated<'a> {
    /// By which port of which Service.
    pub entry: Entry<'a>,
    /// One of these is drawn, each as likely as the others; at least one.
    pub endpoints: &'a [Endpoint],
    /// They are only those of this node, because a traffic policy says so.
    pub only_local: bool,
    /// The endpoint sees the node's address. One that is the sender itself always does.
    pub masquerade: Option<Cause>,
}

/// Why nobody gets a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lack<'a> {
    /// The address is among the Services', and no Service has it.
    NoService,
    /// The Service has the address, and no such port.
    NoPort(&'a ServiceKey),
    /// Nobody anywhere takes traffic.
    NoEndpoint(Entry<'a>),
    /// A traffic policy keeps it on this node, where nobody takes it; somebody elsewhere would.
    NoLocalEndpoint(Entry<'a>),
    /// The sender is not in `loadBalancerSourceRanges`.
    SourceRanges(Entry<'a>),
}

/// What rules do with a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way<'a> {
    /// Nothing: it goes on to where it says.
    Untouched,
    /// It gets another destination.
    Translated(Translated<'a>),
    /// The sender is told at once: a reset, or that the port is unreachable.
    Refused(Lack<'a>),
    /// Nobody is told anything.
    Dropped(Lack<'a>),
}

impl<'a> Ground<'a> {
    /// What the rules do with it.
    #[must_use]
    pub fn way(&self, opening: &Opening) -> Way<'a> {
        let entries = self.entries(opening);
        let Some(entry) = entries.first().copied() else {
            return self.unclaimed(opening.to.ip());
        };
        let (view, port) = (entry.view, entry.port);
        if port.cluster.is_empty() {
            return Way::Refused(Lack::NoEndpoint(entry));
        }
        if entry.door == Door::LoadBalancer && !self.may_enter(view, opening) {
            return Way::Dropped(Lack::SourceRanges(entry));
        }
        let (only_local, masquerade) = match entry.door {
            Door::ClusterIp => (view.internal_local, self.stranger(opening)),
            _ if !view.external_local => (false, Some(Cause::ExternalCluster)),
            _ => match opening.sender {
                Sender::Node => (false, Some(Cause::NodeItself)),
                Sender::Pod => (false, None),
                Sender::Elsewhere => (true, None),
            },
        };
        let endpoints = match only_local {
            true => &port.local,
            false => &port.cluster,
        };
        if endpoints.is_empty() {
            return Way::Dropped(Lack::NoLocalEndpoint(entry));
        }
        Way::Translated(Translated {
            entry,
            endpoints,
            only_local,
            masquerade,
        })
    }

    /// The ports that claim what is asked for. The first has it where no other had it before.
    #[must_use]
    pub fn entries(&self, opening: &Opening) -> Vec<Entry<'a>> {
        let (ip, number) = (opening.to.ip(), opening.to.port());
        let all = self.services.iter().flat_map(|(service, view)| {
            let ports = view.ports.iter();
            ports.map(move |port| (service, view, port))
        });
        let of_protocol = all.filter(|(.., port)| port.port.protocol == opening.protocol);
        let mut entries: Vec<Entry<'a>> = of_protocol
            .filter_map(|(service, view, port)| {
                let door = self.door(view, port, ip, number)?;
                Some(Entry {
                    service,
                    view,
                    port,
                    door,
                })
            })
            .collect();
        // An address of its own is looked up before ports of the node are.
        entries.sort_by_key(|entry| entry.door == Door::NodePort);
        entries
    }

    fn door(&self, view: &ServiceView, port: &PortView, ip: IpAddr, number: u16) -> Option<Door> {
        let port = &port.port;
        let is_free = || !self.network.is_of_services(&ip) && !self.network.is_of_pods(&ip);
        if port.port == number {
            if view.cluster_ips.contains(&ip) {
                return Some(Door::ClusterIp);
            }
            if view.external_ips_of(port).any(|one| one == ip) && is_free() {
                return Some(Door::ExternalIp);
            }
            if view.balancer_ips_of(port).any(|one| one == ip) && is_free() {
                return Some(Door::LoadBalancer);
            }
        }
        let is_node_port = port.node_port == Some(number) && self.has_node_ports(ip);
        is_node_port.then_some(Door::NodePort)
    }

    /// Whether node ports are on this address.
    #[must_use]
    pub fn has_node_ports(&self, ip: IpAddr) -> bool {
        let ranges = self.network.node_port_cidrs.iter();
        let mut of_family = ranges.filter(|range| range.addr().is_ipv4() == ip.is_ipv4());
        let is_chosen = match of_family.clone().next() {
            None => !ip.is_loopback(),
            Some(_) => of_family.any(|range| range.contains(&ip)),
        };
        is_chosen && self.own.contains(&ip)
    }

    fn unclaimed(&self, ip: IpAddr) -> Way<'a> {
        if !self.network.is_of_services(&ip) || self.network.own_service_ip == Some(ip) {
            return Way::Untouched;
        }
        let mut services = self.services.iter();
        let owner = services.find(|(_, view)| view.cluster_ips.contains(&ip));
        Way::Refused(owner.map_or(Lack::NoService, |(key, _)| Lack::NoPort(key)))
    }

    /// What comes from outside the pods to an address of Services.
    fn stranger(&self, opening: &Opening) -> Option<Cause> {
        let network = self.network;
        let is_stranger = network.is_of_services(&opening.to.ip())
            && !network.cluster_cidrs.is_empty()
            && !network.is_of_pods(&opening.source);
        is_stranger.then_some(Cause::NotFromAPod)
    }

    fn may_enter(&self, view: &ServiceView, opening: &Opening) -> bool {
        let Some(ranges) = &view.source_ranges else {
            return true;
        };
        let allows = |ip: IpAddr| ranges.iter().any(|range| range.contains(&ip));
        // Where the balancer's address is on the node, too, the node's packets come from there.
        let is_node = || {
            let is_here = self.network.node_ip.is_some_and(allows);
            is_here && view.balancer_ips.contains(&opening.source)
        };
        allows(opening.source) || is_node()
    }
}

impl Translated<'_> {
    /// Whether this endpoint sees the node's address instead of the sender's.
    #[must_use]
    pub fn is_masqueraded(&self, source: IpAddr, endpoint: &Endpoint) -> bool {
        let is_itself = endpoint.local && endpoint.address.ip() == source;
        self.masquerade.is_some() || is_itself
    }
}

impl Door {
    /// In words.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ClusterIp => "cluster IP",
            Self::ExternalIp => "external IP",
            Self::LoadBalancer => "load balancer's address",
            Self::NodePort => "node port",
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
