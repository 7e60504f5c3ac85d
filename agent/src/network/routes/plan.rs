//! Which nodes are reached how, and what that changes in the kernel. Pure.

use std::net::{IpAddr, Ipv4Addr};

use coracle_api::pod_network::Mode;
use coracle_cni::netlink::Route;
use ipnet::Ipv4Net;

use super::{PROTOCOL, vxlan};
use crate::informers::NodeNetwork;

/// How each of the other nodes is reached.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Ways {
    /// Addresses of the nodes that know the pods of this one by their own addresses.
    pub(super) near: Vec<Ipv4Addr>,
    /// Routes to their pods.
    pub(super) direct: Vec<Route>,
    /// Pods that are reached through the overlay.
    pub(super) overlay: Vec<vxlan::Peer>,
}

impl Ways {
    pub(super) fn choose(
        mode: Mode,
        others: &[NodeNetwork],
        node_ip: Option<IpAddr>,
        addresses: &[(u32, Ipv4Net)],
    ) -> Self {
        let mut ways = Self::default();
        for node in others {
            let Some(gateway) = node.address else {
                continue;
            };
            let reaches =
                |(_, net): &&(u32, Ipv4Net)| net.contains(&gateway) && net.addr() != gateway;
            let own =
                |(_, net): &&(u32, Ipv4Net)| node_ip.is_none_or(|ip| ip == IpAddr::V4(net.addr()));
            let neighbour = addresses.iter().filter(reaches).find(own);
            match (mode, neighbour) {
                (Mode::Auto | Mode::Direct, Some((interface, _))) => {
                    ways.near.push(gateway);
                    ways.direct.extend(node.pod_cidrs.iter().map(|cidr| Route {
                        destination: cidr.trunc(),
                        gateway: Some(gateway),
                        interface: Some(*interface),
                        source: None,
                        protocol: PROTOCOL,
                    }));
                }
                (Mode::Auto, None) | (Mode::Overlay, _) => {
                    let peers = node.pod_cidrs.iter().map(|cidr| vxlan::Peer {
                        address: gateway,
                        pod_cidr: *cidr,
                    });
                    ways.overlay.extend(peers);
                }
                // The network's own routers know the way.
                (Mode::Direct, None) => {}
            }
        }
        ways
    }
}

/// What changes.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    /// To pods of nodes that are gone.
    pub(super) wrong: Vec<Route>,
    /// Where there is none.
    pub(super) missing: Vec<Route>,
    /// Where ours leads elsewhere.
    pub(super) changed: Vec<Route>,
    /// Destinations that somebody else routes: his are not touched.
    pub(super) taken: Vec<Ipv4Net>,
}

impl Plan {
    pub(super) fn new(wanted: Vec<Route>, present: &[Route]) -> Self {
        let mut plan = Self::default();
        // Routes without a gateway are the proxy's.
        let ours: Vec<&Route> = present
            .iter()
            .filter(|r| r.protocol == PROTOCOL && r.gateway.is_some())
            .collect();
        let is_wanted = |route: &Route| wanted.iter().any(|w| w.destination == route.destination);
        plan.wrong = ours
            .iter()
            .filter(|route| !is_wanted(route))
            .map(|route| (*route).clone())
            .collect();
        for route in wanted {
            let same = |other: &Route| other.destination == route.destination;
            match ours.iter().find(|own| same(own)) {
                Some(own) if **own == route => {}
                Some(_) => plan.changed.push(route),
                None if present.iter().any(same) => plan.taken.push(route.destination),
                None => plan.missing.push(route),
            }
        }
        plan
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(address: &str, cidr: &str) -> NodeNetwork {
        NodeNetwork {
            address: address.parse().ok(),
            pod_cidrs: vec![cidr.parse().unwrap()],
            told: None,
        }
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

    fn choose(mode: Mode) -> Ways {
        let addresses = [
            (1, "127.0.0.1/8".parse().unwrap()),
            (2, "192.168.0.1/24".parse().unwrap()),
        ];
        let others = [
            node("192.168.0.2", "10.1.2.0/24"),
            node("172.16.0.3", "10.1.3.0/24"),
        ];
        Ways::choose(mode, &others, "192.168.0.1".parse().ok(), &addresses)
    }

    fn peer(address: &str, pod_cidr: &str) -> vxlan::Peer {
        vxlan::Peer {
            address: address.parse().unwrap(),
            pod_cidr: pod_cidr.parse().unwrap(),
        }
    }

    #[test]
    fn neighbours_are_routed_others_tunnelled_and_only_own_routes_removed() {
        let present = [
            route("10.1.9.0/24", "192.168.0.9", PROTOCOL),
            route("10.1.8.0/24", "192.168.0.8", 3),
            route("10.96.0.0/16", "", PROTOCOL),
        ];
        let ways = choose(Mode::Auto);
        assert_eq!(ways.near, ["192.168.0.2".parse::<Ipv4Addr>().unwrap()]);
        assert_eq!(ways.overlay, [peer("172.16.0.3", "10.1.3.0/24")]);
        let plan = Plan::new(ways.direct.clone(), &present);
        assert_eq!(plan.wrong, [present[0].clone()]);
        assert_eq!(
            plan.missing,
            [route("10.1.2.0/24", "192.168.0.2", PROTOCOL)]
        );
        assert_eq!(Plan::new(ways.direct, &plan.missing), Plan::default());
    }

    #[test]
    fn the_way_between_nodes_can_be_chosen() {
        let ways = choose(Mode::Overlay);
        // The network between the nodes may know no pod's address: not even on the way to a
        // neighbour itself.
        assert!(ways.near.is_empty() && ways.direct.is_empty());
        assert_eq!(
            ways.overlay,
            [
                peer("192.168.0.2", "10.1.2.0/24"),
                peer("172.16.0.3", "10.1.3.0/24")
            ]
        );
        let ways = choose(Mode::Direct);
        assert_eq!(
            (ways.near.len(), ways.direct.len(), ways.overlay.len()),
            (1, 1, 0)
        );
    }

    #[test]
    fn a_node_that_changed_its_address_is_routed_anew() {
        let addresses = [(2, "192.168.0.1/24".parse().unwrap())];
        let present = [route("10.1.2.0/24", "192.168.0.2", PROTOCOL)];
        let ways = Ways::choose(
            Mode::Auto,
            &[node("192.168.0.7", "10.1.2.0/24")],
            None,
            &addresses,
        );
        let plan = Plan::new(ways.direct, &present);
        assert_eq!(
            plan,
            Plan {
                changed: vec![route("10.1.2.0/24", "192.168.0.7", PROTOCOL)],
                ..Plan::default()
            }
        );
    }

    #[test]
    fn a_route_of_somebody_else_is_neither_replaced_nor_removed() {
        let theirs = route("10.1.2.0/24", "192.168.0.9", 4);
        let plan = Plan::new(choose(Mode::Auto).direct, std::slice::from_ref(&theirs));
        assert_eq!(
            plan,
            Plan {
                taken: vec![theirs.destination],
                ..Plan::default()
            }
        );
        assert_eq!(Plan::new(vec![], &[theirs]), Plan::default());
    }
}
