//! Addresses and ports that are somebody's already: no Service takes them, whatever its owner
//! writes (CVE-2020-8554).
//!
//! Who may write a Service need not have any right over nodes or the API server. A node's address
//! is a common external address: on that node it stays one, on ports that nobody listens on, no
//! pod publishes and that are nobody else's node port; other nodes leave its packets to it.

use std::{
    collections::{BTreeSet, HashSet},
    net::IpAddr,
};

use coracle_netfilter::service::{Protocol, ServiceView};

use super::node_ports::NodePortRanges;
use crate::{
    admission::listening::Listeners, network::published::PublishedPort,
    node::address::own_addresses,
};

/// An address with transport and port.
pub(super) type Place = (IpAddr, Protocol, u16);

/// Who is where.
#[derive(Debug, Clone, Default)]
pub(super) struct Holdings {
    /// This machine's addresses.
    pub(super) own: BTreeSet<IpAddr>,
    /// What is listened on here, for others than the node itself; without an address: on all of
    /// them.
    pub(super) listening: HashSet<(Option<IpAddr>, Protocol, u16)>,
    /// Addresses of all nodes.
    pub(super) nodes: BTreeSet<IpAddr>,
    /// Where the API servers are.
    pub(super) api_servers: BTreeSet<Place>,
    /// Of the nodes' API, on every node.
    pub(super) api_port: Option<u16>,
    /// What pods publish here.
    pub(super) published: BTreeSet<PublishedPort>,
    /// Which addresses have node ports.
    pub(super) node_port_ranges: NodePortRanges,
}

impl Holdings {
    /// What this machine has. Blocks for as long as it takes to read the tables of sockets.
    pub(super) fn of_machine(listeners: &Listeners) -> Self {
        let own = own_addresses().into_iter().flatten();
        let listening = listeners.look().into_iter().filter_map(|one| {
            let address = one
                .ip
                .parse()
                .ok()
                .filter(|ip: &IpAddr| !ip.is_unspecified());
            Some((
                address,
                Protocol::parse(Some(&one.protocol))?,
                u16::try_from(one.port).ok()?,
            ))
        });
        Self {
            own: own.filter(IpAddr::is_ipv4).collect(),
            listening: listening.collect(),
            ..Self::default()
        }
    }

    /// What of a Service's external addresses somebody is reached under; `is_taken`: whether a port
    /// is another's node port.
    pub(super) fn among(
        &self,
        view: &ServiceView,
        is_taken: impl Fn(Protocol, u16) -> bool,
    ) -> BTreeSet<Place> {
        let ips = view.external_ips.iter().chain(&view.balancer_ips);
        let places = ips.flat_map(|ip| {
            view.ports
                .iter()
                .map(|one| (*ip, one.port.protocol, one.port.port))
        });
        let is_node_port =
            |(ip, protocol, port): Place| self.has_node_ports(ip) && is_taken(protocol, port);
        places
            .filter(|place| self.contain(*place) || is_node_port(*place))
            .collect()
    }

    /// Whether an address is another node's.
    pub(super) fn is_anothers(&self, ip: &IpAddr) -> bool {
        self.nodes.contains(ip) && !self.own.contains(ip)
    }

    fn has_node_ports(&self, ip: IpAddr) -> bool {
        self.own.contains(&ip) && self.node_port_ranges.include(ip)
    }

    fn contain(&self, (ip, protocol, port): Place) -> bool {
        if self.api_servers.contains(&(ip, protocol, port))
            || (protocol, Some(port)) == (Protocol::Tcp, self.api_port)
        {
            return true;
        }
        if !self.own.contains(&ip) {
            return self.nodes.contains(&ip);
        }
        [Some(ip), None].into_iter().any(|address| {
            let place = (address, protocol, port);
            self.listening.contains(&place) || self.published.contains(&place)
        })
    }
}
