//! A route for the node's own packets to Services where it has no default route.
//!
//! The kernel looks a route up before the rules translate the address: without any, `connect` to a
//! ClusterIP fails at once. The route only has to exist; translated packets are routed anew. Nodes
//! with a default route need none.

use std::net::{IpAddr, Ipv4Addr};

use coracle_cni::netlink::{Netlink, NetlinkError, Request, Route, RouteNetlinkMessage};
use coracle_netfilter::service::ServiceNetwork;
use coracle_telemetry::ErrorChain;
use ipnet::{IpNet, Ipv4Net};

use crate::network::routes::PROTOCOL;

const LOOPBACK_INDEX: u32 = 1;

/// Keeps the route.
#[derive(Debug, Clone)]
pub(super) struct ServiceRoute {
    cidrs: Vec<Ipv4Net>,
    node_ip: Option<Ipv4Addr>,
}

impl ServiceRoute {
    /// For the IPv4 part.
    pub(super) fn new(network: &ServiceNetwork) -> Self {
        let cidrs = network.service_cidrs.iter().filter_map(|cidr| {
            if let IpNet::V4(v4) = cidr {
                Some(*v4)
            } else {
                None
            }
        });
        let node_ip = network.node_ip.and_then(|ip| {
            if let IpAddr::V4(ip) = ip {
                Some(ip)
            } else {
                None
            }
        });
        Self {
            cidrs: cidrs.collect(),
            node_ip,
        }
    }

    /// Makes it if it is needed, missing and possible. Blocks for some microseconds.
    pub(super) fn ensure(&mut self) {
        if let Err(error) = self.try_ensure() {
            tracing::debug!(error = %ErrorChain(&error), "no route to Services; trying again");
        }
    }

    fn try_ensure(&self) -> Result<(), NetlinkError> {
        if self.cidrs.is_empty() {
            return Ok(());
        }
        let mut netlink = Netlink::open()?;
        let routes = netlink.routes()?;
        if routes
            .iter()
            .any(|route| route.destination.prefix_len() == 0)
        {
            return Ok(());
        }
        let missing: Vec<&Ipv4Net> = self
            .cidrs
            .iter()
            .filter(|cidr| !routes.iter().any(|route| route.destination.contains(*cidr)))
            .collect();
        if missing.is_empty() {
            return Ok(());
        }
        let addresses = netlink.addresses()?;
        let own = addresses
            .iter()
            .find(|(index, net)| *index != LOOPBACK_INDEX && Some(net.addr()) == self.node_ip);
        let any = || addresses.iter().find(|(index, _)| *index != LOOPBACK_INDEX);
        let Some((interface, address)) = own.or_else(any) else {
            return Ok(());
        };
        let requests = missing.into_iter().map(|cidr| {
            let route = Route {
                destination: *cidr,
                gateway: None,
                interface: Some(*interface),
                source: Some(address.addr()),
                protocol: PROTOCOL,
            };
            Request::replace(
                "route Services",
                RouteNetlinkMessage::NewRoute(route.message()),
            )
        });
        netlink.batch(requests.collect())
    }
}
