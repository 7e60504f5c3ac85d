//! Routes to the pods of other nodes: direct (host-gw) to those of the same subnet, through an overlay (`vxlan`) to
//! the others.
//!
//! Watches Nodes and keeps `podCIDR via InternalIP` in the main table, tagged with Coracle's own protocol number, so
//! that routes of others are never touched and those of a killed predecessor are recognized. Which way is chosen for
//! each node by itself; both sides choose alike, because sharing a subnet is mutual.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr},
    pin::pin,
    sync::Arc,
    time::Duration,
};

use coracle_cni::netlink::{Netlink, NetlinkError, Request, Route, RouteNetlinkMessage};
use futures::StreamExt as _;
use ipnet::Ipv4Net;
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api,
    runtime::watcher::{self, Event},
};
use nix::errno::Errno;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::network::cni::CniNetwork;

pub(crate) mod vxlan;

/// Marks Coracle's routes (`ip route show proto 67`); free in iproute2's rt_protos.
pub const PROTOCOL: u8 = 67;

/// Of an uplink that says nothing.
const DEFAULT_MTU: u32 = 1500;

/// What [`run`] needs to know.
#[derive(Debug, Clone)]
pub struct RoutesConfig {
    /// Own node: no route to itself.
    pub node_name: String,
    /// Own InternalIP: decides which nodes are neighbours. `None`: any directly connected subnet.
    pub node_ip: Option<IpAddr>,
    /// Told the addresses of all nodes, which pods reach without NAT.
    pub network: Option<Arc<CniNetwork>>,
    /// How often the kernel's routes are compared even if no node changed.
    pub repair_interval: Duration,
    /// Told when the API is back after a silence.
    pub pulse: crate::watch::Pulse,
}

/// Why routes cannot be kept at all.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RoutesError {
    /// No rtnetlink socket.
    #[error("open a route socket")]
    Socket {
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

/// Keeps the routes until `shutdown`. They stay when it ends, so that running pods keep talking.
///
/// # Errors
/// Only what makes going on useless; failures of single routes are logged and tried again.
pub async fn run(client: kube::Client, config: RoutesConfig, shutdown: CancellationToken) -> Result<(), RoutesError> {
    let mut nodes = Nodes::default();
    let events = crate::watch::events(Api::<Node>::all(client), watcher::Config::default(), &config.pulse);
    let mut events = pin!(events);
    let mut last = Instant::now();
    let mut applied: Option<BTreeMap<String, NodeNetwork>> = None;
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return Ok(()),
            Some(event) = events.next() => match event {
                Ok(event) => nodes.take(event),
                Err(error) => tracing::debug!(%error, "watch of nodes; trying again"),
            },
            () = sleep_until(last + config.repair_interval) => {
                applied = None;
                last = Instant::now();
                if let Some(network) = &config.network
                    && let Err(error) = network.repair().await
                {
                    tracing::warn!(%error, "cannot repair the pod network; trying again");
                }
            }
        }
        // Most events are heartbeats.
        if nodes.complete && applied.as_ref() != Some(&nodes.known) {
            last = Instant::now();
            if apply(&nodes.known, &config).await {
                applied = Some(nodes.known.clone());
            }
        }
    }
}

/// What a node's object says about its network.
#[derive(Debug, Clone, PartialEq, Eq)]
struct NodeNetwork {
    address: Option<Ipv4Addr>,
    pod_cidrs: Vec<Ipv4Net>,
}

#[derive(Debug, Default)]
struct Nodes {
    known: BTreeMap<String, NodeNetwork>,
    relisted: BTreeMap<String, NodeNetwork>,
    /// A list was seen to its end: before, routes of nodes not seen yet would be removed.
    complete: bool,
}

impl Nodes {
    fn take(&mut self, event: Event<Node>) {
        match event {
            Event::Apply(node) => self.known.extend(parse(&node)),
            Event::Delete(node) => {
                self.known.remove(node.metadata.name.as_deref().unwrap_or_default());
            }
            Event::Init => self.relisted.clear(),
            Event::InitApply(node) => self.relisted.extend(parse(&node)),
            Event::InitDone => {
                self.known = std::mem::take(&mut self.relisted);
                self.complete = true;
            }
        }
    }
}

fn parse(node: &Node) -> Option<(String, NodeNetwork)> {
    let spec = node.spec.as_ref();
    let mut pod_cidrs: Vec<Ipv4Net> =
        spec.and_then(|s| s.pod_cidrs.as_ref()).into_iter().flatten().filter_map(|c| c.parse().ok()).collect();
    if pod_cidrs.is_empty() {
        pod_cidrs.extend(spec.and_then(|s| s.pod_cidr.as_ref()?.parse::<Ipv4Net>().ok()));
    }
    let addresses = node.status.as_ref().and_then(|s| s.addresses.as_ref()).into_iter().flatten();
    let address = addresses.filter(|a| a.type_ == "InternalIP").find_map(|a| a.address.parse().ok());
    Some((node.metadata.name.clone()?, NodeNetwork { address, pod_cidrs }))
}

/// Returns whether everything is as it should be.
async fn apply(known: &BTreeMap<String, NodeNetwork>, config: &RoutesConfig) -> bool {
    let others: Vec<NodeNetwork> =
        known.iter().filter(|(name, _)| **name != config.node_name).map(|(_, node)| node.clone()).collect();
    let own_cidr = known.get(&config.node_name).and_then(|own| own.pod_cidrs.first().copied());
    let node_ip = config.node_ip;
    let (near, mut done) = match tokio::task::spawn_blocking(move || sync(&others, node_ip, own_cidr)).await {
        Ok(Ok(near)) => (Some(near), true),
        Ok(Err(error)) => {
            tracing::warn!(%error, "cannot keep routes to other nodes; trying again");
            (None, false)
        }
        Err(_) => (None, false),
    };
    if let (Some(network), Some(near)) = (&config.network, near) {
        // A node of another subnet would answer a pod's own address into the void: its network does not know it.
        let is_own = |name: &str| name == config.node_name;
        let addresses = known.iter().filter_map(|(name, node)| Some((name, node.address?)));
        let addresses = addresses.filter(|(name, address)| is_own(name) || near.contains(address));
        let addresses = addresses.map(|(_, address)| IpAddr::V4(address)).collect();
        if let Err(error) = network.set_node_addresses(addresses).await {
            tracing::warn!(%error, "cannot exempt nodes from masquerading; trying again");
            done = false;
        }
    }
    done
}

/// Returns the addresses of the nodes that share a subnet with this one.
fn sync(
    others: &[NodeNetwork],
    node_ip: Option<IpAddr>,
    own_cidr: Option<Ipv4Net>,
) -> Result<Vec<Ipv4Addr>, NetlinkError> {
    let mut netlink = Netlink::open()?;
    let addresses = netlink.addresses()?;
    let ways = Ways::choose(others, node_ip, &addresses);
    let mut requests = Vec::new();
    let mut wanted = ways.direct;
    let mut overlay = None;
    if let (false, Some(IpAddr::V4(local)), Some(own_cidr)) = (ways.overlay.is_empty(), node_ip, own_cidr) {
        let uplink = addresses.iter().find(|(_, net)| net.addr() == local).map(|(index, _)| *index);
        let mtu = netlink.links()?.iter().find(|link| Some(link.index) == uplink).map_or(DEFAULT_MTU, |link| link.mtu);
        let link = vxlan::ensure_link(&mut netlink, local, own_cidr, mtu)?;
        overlay = Some(link.index);
        requests.extend(ways.overlay.iter().flat_map(|peer| vxlan::entries(peer, link.index)));
        wanted.extend(ways.overlay.iter().map(|peer| vxlan::route(peer, link.index)));
    } else if ways.overlay.is_empty() && netlink.link(vxlan::LINK)?.is_some() {
        vxlan::remove_link(&mut netlink)?;
    }
    let (wrong, missing) = plan(wanted, &netlink.routes()?);
    for route in missing {
        tracing::info!(cidr = %route.destination, gateway = ?route.gateway, "route the pods of a node");
        let message = if route.interface == overlay { vxlan::route_message(&route) } else { route.message() };
        requests.push(Request::replace("add a route", RouteNetlinkMessage::NewRoute(message)));
    }
    for route in wrong {
        tracing::info!(cidr = %route.destination, "remove the route to the pods of a node that is gone");
        let request = Request::change("remove a route", RouteNetlinkMessage::DelRoute(route.message()));
        requests.push(request.tolerate(&[Errno::ESRCH]));
    }
    if !requests.is_empty() {
        netlink.batch(requests)?;
    }
    Ok(ways.near)
}

/// How each of the other nodes is reached.
#[derive(Debug, Default, PartialEq, Eq)]
struct Ways {
    /// Addresses of the nodes that share a subnet with this one.
    near: Vec<Ipv4Addr>,
    /// Routes to their pods.
    direct: Vec<Route>,
    /// Pods of all others.
    overlay: Vec<vxlan::Peer>,
}

impl Ways {
    fn choose(others: &[NodeNetwork], node_ip: Option<IpAddr>, addresses: &[(u32, Ipv4Net)]) -> Self {
        let mut ways = Self::default();
        for node in others {
            let Some(gateway) = node.address else { continue };
            let reaches = |(_, net): &&(u32, Ipv4Net)| net.contains(&gateway) && net.addr() != gateway;
            let own = |(_, net): &&(u32, Ipv4Net)| node_ip.is_none_or(|ip| ip == IpAddr::V4(net.addr()));
            let Some((interface, _)) = addresses.iter().filter(reaches).find(own) else {
                let peers = node.pod_cidrs.iter().map(|cidr| vxlan::Peer { address: gateway, pod_cidr: *cidr });
                ways.overlay.extend(peers);
                continue;
            };
            ways.near.push(gateway);
            ways.direct.extend(node.pod_cidrs.iter().map(|cidr| Route {
                destination: cidr.trunc(),
                gateway: Some(gateway),
                interface: Some(*interface),
                source: None,
                protocol: PROTOCOL,
            }));
        }
        ways
    }
}

/// Which of our routes must go, and which must come. Routes that are replaced are only in the second list.
fn plan(mut wanted: Vec<Route>, present: &[Route]) -> (Vec<Route>, Vec<Route>) {
    // Routes without a gateway are the proxy's.
    let ours = present.iter().filter(|route| route.protocol == PROTOCOL && route.gateway.is_some());
    let wrong = ours.filter(|route| !wanted.iter().any(|w| w.destination == route.destination)).cloned().collect();
    wanted.retain(|route| !present.contains(route));
    (wrong, wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(address: &str, cidr: &str) -> NodeNetwork {
        NodeNetwork { address: address.parse().ok(), pod_cidrs: vec![cidr.parse().unwrap()] }
    }

    fn route(destination: &str, gateway: &str, protocol: u8) -> Route {
        Route {
            destination: destination.parse().unwrap(),
            gateway: gateway.parse().ok(),
            interface: Some(2),
            source: None,
            protocol,
        }
    }

    #[test]
    fn neighbours_are_routed_others_tunnelled_and_only_own_routes_removed() {
        let addresses = [(1, "127.0.0.1/8".parse().unwrap()), (2, "192.168.0.1/24".parse().unwrap())];
        let others = [node("192.168.0.2", "10.1.2.0/24"), node("172.16.0.3", "10.1.3.0/24")];
        let present = [
            route("10.1.9.0/24", "192.168.0.9", PROTOCOL),
            route("10.1.8.0/24", "192.168.0.8", 3),
            route("10.96.0.0/16", "", PROTOCOL),
        ];
        let ways = Ways::choose(&others, "192.168.0.1".parse().ok(), &addresses);
        assert_eq!(ways.near, ["192.168.0.2".parse::<Ipv4Addr>().unwrap()]);
        let far = vxlan::Peer { address: "172.16.0.3".parse().unwrap(), pod_cidr: "10.1.3.0/24".parse().unwrap() };
        assert_eq!(ways.overlay, [far]);
        let (wrong, missing) = plan(ways.direct.clone(), &present);
        assert_eq!(wrong, [present[0].clone()]);
        assert_eq!(missing, [route("10.1.2.0/24", "192.168.0.2", PROTOCOL)]);
        assert_eq!(plan(ways.direct, &missing), (vec![], vec![]));
    }

    #[test]
    fn a_node_that_changed_its_address_is_routed_anew() {
        let addresses = [(2, "192.168.0.1/24".parse().unwrap())];
        let present = [route("10.1.2.0/24", "192.168.0.2", PROTOCOL)];
        let ways = Ways::choose(&[node("192.168.0.7", "10.1.2.0/24")], None, &addresses);
        assert_eq!(plan(ways.direct, &present), (vec![], vec![route("10.1.2.0/24", "192.168.0.7", PROTOCOL)]));
    }
}
