//! The overlay (VXLAN, Virtual eXtensible LAN) to nodes that no subnet is shared with.
//!
//! One link, `coracle-vxlan`, whose hardware address follows from the node's address; nothing is learned, flooded or
//! announced. A peer is three entries: its pods' CIDR is routed to the CIDR's first address, that address is a
//! neighbour with the peer's hardware address, and packets for that hardware address go to the node's address. All of it
//! follows from the Node objects, so two nodes need no agreement. The link's own address is the first of the own CIDR:
//! what the node itself sends to pods over there comes back the same way.
//!
//! The link's MTU is the uplink's less what the envelope takes; a pod's larger packets are answered by the node with
//! "fragmentation needed", which path MTU discovery heeds. Does not encrypt.

use std::net::Ipv4Addr;

use coracle_cni::{
    bridge::mac,
    netlink::{Link, Netlink, NetlinkError, Request, Route, RouteNetlinkMessage, address_message},
};
use ipnet::Ipv4Net;
use nix::errno::Errno;
use rtnetlink::{
    LinkUnspec, LinkVxlan,
    packet_route::{
        AddressFamily,
        neighbour::{NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState},
        route::{RouteFlags, RouteMessage},
    },
};

/// The link's name, on every node.
pub(super) const LINK: &str = "coracle-vxlan";

/// Keeps Coracle's packets apart from those of others on the same port.
const VNI: u32 = 67;
/// IANA's port of VXLAN.
const PORT: u16 = 4789;
/// Outer IPv4 (20) and UDP (8), VXLAN (8), inner Ethernet (14).
const ENVELOPE_BYTES: u32 = 50;

/// A node that is reached through the overlay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Peer {
    /// Its InternalIP.
    pub(super) address: Ipv4Addr,
    /// Where its pods are.
    pub(super) pod_cidr: Ipv4Net,
}

/// Makes the link, or makes it anew after the node's address changed. Idempotent.
pub(super) fn ensure_link(
    netlink: &mut Netlink,
    local: Ipv4Addr,
    own_cidr: Ipv4Net,
    uplink_mtu: u32,
) -> Result<Link, NetlinkError> {
    let mtu = uplink_mtu.saturating_sub(ENVELOPE_BYTES);
    let fits = |link: &Link| link.address == mac(local) && link.mtu == mtu && link.up;
    if netlink.link(LINK)?.is_some_and(|link| !fits(&link)) {
        remove_link(netlink)?;
    }
    if netlink.link(LINK)?.is_none() {
        let link = LinkVxlan::new(LINK, VNI)
            .local(local)
            .port(PORT)
            .learning(false)
            .address(mac(local).to_vec())
            .mtu(mtu)
            .up()
            .build();
        netlink.batch(vec![Request::create("make the overlay's link", RouteNetlinkMessage::NewLink(link))])?;
        tracing::info!(link = LINK, mtu, "nodes of other subnets are reached through VXLAN");
    }
    let link = netlink.link(LINK)?.ok_or(NetlinkError::Socket(std::io::ErrorKind::NotFound.into()))?;
    let address = address_message(link.index, host_net(own_cidr.network()));
    let request = Request::create("give the overlay's link its address", address);
    netlink.batch(vec![request.tolerate(&[Errno::EEXIST])])?;
    Ok(link)
}

/// Deletes the link and with it every entry. Succeeds if there is none.
pub(crate) fn remove_link(netlink: &mut Netlink) -> Result<(), NetlinkError> {
    let delete = LinkUnspec::new_with_name(LINK).build();
    let request = Request::change("delete the overlay's link", RouteNetlinkMessage::DelLink(delete));
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

/// What makes the peer known to the link. Replaces what was there.
pub(super) fn entries(peer: &Peer, link: u32) -> Vec<Request> {
    let gateway = neighbour(link, AddressFamily::Inet, peer.pod_cidr.network(), peer.address);
    let mut envelope = neighbour(link, AddressFamily::Bridge, peer.address, peer.address);
    envelope.header.flags = NeighbourFlags::Own;
    vec![
        Request::replace("make a node's gateway a neighbour", RouteNetlinkMessage::NewNeighbour(gateway)),
        Request::replace("say where a node's packets go", RouteNetlinkMessage::NewNeighbour(envelope)),
    ]
}

fn neighbour(link: u32, family: AddressFamily, destination: Ipv4Addr, node: Ipv4Addr) -> NeighbourMessage {
    let mut message = NeighbourMessage::default();
    message.header.family = family;
    message.header.ifindex = link;
    message.header.state = NeighbourState::Permanent;
    message.attributes = vec![
        NeighbourAttribute::Destination(NeighbourAddress::Inet(destination)),
        NeighbourAttribute::LinkLayerAddress(mac(node).to_vec()),
    ];
    message
}

fn host_net(address: Ipv4Addr) -> Ipv4Net {
    Ipv4Net::from(address)
}
