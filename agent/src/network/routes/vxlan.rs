//! The overlay (VXLAN, Virtual eXtensible LAN) to nodes that no subnet is shared with.
//!
//! One link, `coracle-vxlan`, whose hardware address follows from the node's address; nothing is
//! learned, flooded or announced. A peer is three entries: its pods' CIDR is routed to the CIDR's
//! first address, that address is a neighbour with the peer's hardware address, and packets for
//! that hardware address go to the node's address. All of it follows from the Node objects, so two
//! nodes need no agreement. The link's own address is the first of the own CIDR: what the node
//! itself sends to pods over there comes back the same way.
//!
//! The link's MTU is the uplink's less what the envelope takes; a pod's larger packets are answered
//! by the node with "fragmentation needed", which path MTU discovery heeds. Does not encrypt.

use std::{collections::BTreeSet, net::Ipv4Addr};

use coracle_cni::{
    bridge::mac,
    netlink::{
        AddressFamily, Link, Neighbour, Netlink, NetlinkError, Request, Route, RouteNetlinkMessage,
        address_message,
    },
};
use ipnet::Ipv4Net;
use nix::errno::Errno;
use rtnetlink::{
    LinkUnspec, LinkVxlan,
    packet_route::{
        neighbour::{
            NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState,
        },
        route::{RouteFlags, RouteMessage},
    },
};

use crate::network::OVERLAY_OVERHEAD;

/// The link's name, on every node.
pub(super) const LINK: &str = "coracle-vxlan";

/// Keeps Coracle's packets apart from those of others on the same port.
const VNI: u32 = 67;

/// A node that is reached through the overlay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Peer {
    /// Its InternalIP.
    pub(super) address: Ipv4Addr,
    /// Where its pods are.
    pub(super) pod_cidr: Ipv4Net,
}

/// The link as it should be.
#[derive(Debug)]
pub(super) struct Wanted {
    /// The node's address.
    pub(super) local: Ipv4Addr,
    /// Where its pods are.
    pub(super) own_cidr: Ipv4Net,
    /// Of the link that envelopes leave through.
    pub(super) uplink_mtu: u32,
    /// UDP port, the same on all nodes.
    pub(super) port: u16,
}

impl Wanted {
    fn mtu(&self) -> u32 {
        self.uplink_mtu.saturating_sub(OVERLAY_OVERHEAD)
    }

    fn fits(&self, link: &Link) -> bool {
        link.address == mac(self.local)
            && link.mtu == self.mtu()
            && link.vxlan_port == Some(self.port)
            && link.up
    }
}

/// Makes the link, or makes it anew after the node's address or the port changed. Idempotent.
pub(super) fn ensure_link(netlink: &mut Netlink, wanted: &Wanted) -> Result<Link, NetlinkError> {
    let Wanted {
        local,
        own_cidr,
        port,
        ..
    } = *wanted;
    let mtu = wanted.mtu();
    remove_unfit(netlink, wanted)?;
    if netlink.link(LINK)?.is_none() {
        let link = LinkVxlan::new(LINK, VNI)
            .local(local)
            .port(port)
            .learning(false)
            .address(mac(local).to_vec())
            .mtu(mtu)
            .up()
            .build();
        netlink.batch(vec![Request::create(
            "make the overlay's link",
            RouteNetlinkMessage::NewLink(link),
        )])?;
        tracing::info!(link = LINK, mtu, port, "nodes are reached through VXLAN");
    }
    let link = netlink
        .link(LINK)?
        .ok_or(NetlinkError::Socket(std::io::ErrorKind::NotFound.into()))?;
    let address = address_message(link.index, host_net(own_cidr.network()));
    let request = Request::create("give the overlay's link its address", address);
    netlink.batch(vec![request.tolerate(&[Errno::EEXIST])])?;
    Ok(link)
}

/// Deletes a link that is another than wanted: of another address or port.
pub(super) fn remove_unfit(netlink: &mut Netlink, wanted: &Wanted) -> Result<(), NetlinkError> {
    if netlink.link(LINK)?.is_some_and(|link| !wanted.fits(&link)) {
        remove_link(netlink)?;
    }
    Ok(())
}

/// Deletes the link and with it every entry. Succeeds if there is none.
pub(crate) fn remove_link(netlink: &mut Netlink) -> Result<(), NetlinkError> {
    let delete = LinkUnspec::new_with_name(LINK).build();
    let request = Request::change(
        "delete the overlay's link",
        RouteNetlinkMessage::DelLink(delete),
    );
    netlink.batch(vec![request.tolerate(&[Errno::ENODEV])])
}

/// The route to a peer's pods.
pub(super) fn route(peer: &Peer, link: u32) -> Route {
    Route {
        destination: peer.pod_cidr.trunc(),
        gateway: Some(peer.pod_cidr.network()),
        interface: Some(link),
        source: None,
        protocol: super::PROTOCOL,
    }
}

/// The gateway is on no subnet of the link: the kernel must not look for one.
pub(super) fn route_message(route: &Route) -> RouteMessage {
    let mut message = route.message();
    message.header.flags |= RouteFlags::Onlink;
    message
}

/// What makes the peers, and nobody else, known to the link: of one family, the neighbours (a
/// peer's gateway has its hardware address) or the bridge's entries (packets for that address go to
/// the peer).
pub(super) fn difference(
    peers: &[Peer],
    present: &[Neighbour],
    link: u32,
    family: AddressFamily,
) -> Vec<Request> {
    let destination = |peer: &Peer| match family {
        AddressFamily::Bridge => peer.address,
        _ => peer.pod_cidr.network(),
    };
    let entry = |peer: &Peer| Neighbour {
        destination: destination(peer),
        address: mac(peer.address).to_vec(),
    };
    let wanted: BTreeSet<Neighbour> = peers.iter().map(entry).collect();
    let message = |entry: &Neighbour| neighbour(link, family, entry);
    let missing = wanted.iter().filter(|entry| !present.contains(entry));
    let add = missing.map(|entry| {
        Request::replace(
            "make a node known to the overlay",
            RouteNetlinkMessage::NewNeighbour(message(entry)),
        )
    });
    // A gateway that moved to another node is replaced, not removed.
    let kept = |gone: &Neighbour| match family {
        AddressFamily::Bridge => wanted.contains(gone),
        _ => wanted
            .iter()
            .any(|entry| entry.destination == gone.destination),
    };
    let gone = present.iter().filter(|entry| !kept(entry)).map(|entry| {
        let request = RouteNetlinkMessage::DelNeighbour(message(entry));
        Request::change("make the overlay forget a node", request).tolerate(&[Errno::ENOENT])
    });
    add.chain(gone).collect()
}

fn neighbour(link: u32, family: AddressFamily, entry: &Neighbour) -> NeighbourMessage {
    let mut message = NeighbourMessage::default();
    message.header.family = family;
    message.header.ifindex = link;
    message.header.state = NeighbourState::Permanent;
    if family == AddressFamily::Bridge {
        message.header.flags = NeighbourFlags::Own;
    }
    message.attributes = vec![
        NeighbourAttribute::Destination(NeighbourAddress::Inet(entry.destination)),
        NeighbourAttribute::LinkLayerAddress(entry.address.clone()),
    ];
    message
}

fn host_net(address: Ipv4Addr) -> Ipv4Net {
    Ipv4Net::from(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_that_are_known_cost_nothing_and_those_that_left_are_forgotten() {
        let peer = |n: u8| Peer {
            address: [172, 16, 0, n].into(),
            pod_cidr: Ipv4Net::new_assert([10, 1, n, 0].into(), 24),
        };
        for family in [AddressFamily::Inet, AddressFamily::Bridge] {
            let known = |n: u8| Neighbour {
                destination: if family == AddressFamily::Bridge {
                    peer(n).address
                } else {
                    peer(n).pod_cidr.network()
                },
                address: mac(peer(n).address).to_vec(),
            };
            let count =
                |peers: &[Peer], present: &[Neighbour]| difference(peers, present, 7, family).len();
            assert_eq!(count(&[peer(1), peer(2)], &[known(1), known(2)]), 0);
            assert_eq!(count(&[peer(1)], &[known(1), known(2)]), 1);
            assert_eq!(count(&[peer(1), peer(3)], &[known(1), known(2)]), 2);
        }
    }
}
