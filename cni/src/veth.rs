//! A pod's pair of links: one end on the bridge, the other in the pod's namespace.
//!
//! One message makes both ends where they belong, with names, addresses, MTU and bridge; a second
//! sets the port's flags by name, so both go out together without waiting for an index.

use std::{
    net::Ipv4Addr,
    os::fd::{AsFd, AsRawFd},
};

use coracle_netns::NetNs;
use ipnet::Ipv4Net;
use nix::errno::Errno;
use rtnetlink::{
    LinkMessageBuilder, LinkUnspec, LinkVeth,
    packet_route::{
        RouteNetlinkMessage,
        link::{
            InfoBridgePort, InfoData, InfoPortData, InfoPortKind, InfoVeth, LinkAttribute, LinkInfo,
        },
    },
};
use sha2::{Digest as _, Sha256};

use crate::{
    netlink::{Link, Netlink, NetlinkError, Request, Route, address_message},
    result::mac_text,
};

/// `RTPROT_BOOT`: as `ip route add` does.
const PROTOCOL_BOOT: u8 = 3;
/// What names begin with: that of a node's end, and that of the link which delays what comes from
/// it.
const HOST: &str = "veth";
const IFB: &str = "vifb";
/// Index of the loopback link in every namespace.
const LOOPBACK_INDEX: u32 = 1;

/// What to make.
#[derive(Debug)]
pub struct Pair<'a> {
    /// Name on the node.
    pub host_name: &'a str,
    /// Name in the namespace, such as `eth0`.
    pub pod_name: &'a str,
    /// The MAC address of the pod's end.
    pub mac: [u8; 6],
    /// MTU of both ends.
    pub mtu: u32,
    /// The bridge.
    pub bridge: u32,
    /// Let frames go back out of the port they came from.
    pub hairpin: bool,
}

/// The node's end of a sandbox' pair: `veth` and 11 hex digits.
#[must_use]
pub fn host_name(container_id: &str, ifname: &str) -> String {
    let digest = Sha256::digest(format!("{container_id}\n{ifname}"));
    format!("{HOST}{}", &hex::encode(digest)[..11])
}

/// Whether [`host_name`] makes such names.
pub fn is_host_name(name: &str) -> bool {
    name.strip_prefix(HOST)
        .is_some_and(|rest| rest.len() == 11 && rest.bytes().all(|b| b.is_ascii_hexdigit()))
}

/// `vifb` and the digits of the node's end: see [`bandwidth`].
///
/// [`bandwidth`]: crate::bandwidth
#[must_use]
pub fn ifb_name(host_name: &str) -> String {
    let digits = host_name.strip_prefix(HOST).unwrap_or(host_name);
    format!("{IFB}{digits}")
}

/// The node's end for which a link of this name was made, if it is such a name.
pub(crate) fn limited_by(name: &str) -> Option<String> {
    let host_name = format!("{HOST}{}", name.strip_prefix(IFB)?);
    is_host_name(&host_name).then_some(host_name)
}

/// Deletes the `ifb` link that goes with a node's end. Succeeds if there is none.
pub(crate) fn ifb_removal(host_name: &str) -> Request {
    let message = LinkUnspec::new_with_name(&ifb_name(host_name)).build();
    let request = Request::change(
        "delete the link that delays what the pod sends",
        RouteNetlinkMessage::DelLink(message),
    );
    request.tolerate(&[Errno::ENODEV])
}

/// Makes the pair. In one batch: nothing is left if the first step fails.
///
/// # Errors
/// [`NetlinkError`]; `EEXIST` if either end is there already.
pub fn create(netlink: &mut Netlink, pair: &Pair<'_>, netns: &NetNs) -> Result<(), NetlinkError> {
    let peer = LinkUnspec::new_with_name(pair.pod_name)
        .mtu(pair.mtu)
        .address(pair.mac.to_vec())
        .setns_by_fd(netns.as_fd().as_raw_fd())
        // Not up yet: the kernel opens it before it knows its other end and says ENOTCONN.
        .build();
    let host = LinkMessageBuilder::<LinkVeth>::new(pair.host_name, pair.pod_name)
        .set_info_data(InfoData::Veth(InfoVeth::Peer(peer)))
        .mtu(pair.mtu)
        .controller(pair.bridge)
        .up()
        .build();
    netlink.batch(vec![
        Request::create("make the veth pair", RouteNetlinkMessage::NewLink(host)),
        port_flags(pair.host_name, pair.hairpin),
    ])
}

fn port_flags(host_name: &str, hairpin: bool) -> Request {
    let mut port = LinkUnspec::new_with_name(host_name).build();
    port.attributes.push(LinkAttribute::LinkInfo(vec![
        LinkInfo::PortKind(InfoPortKind::Bridge),
        LinkInfo::PortData(InfoPortData::BridgePort(vec![InfoBridgePort::HairpinMode(
            hairpin,
        )])),
    ]));
    Request::change(
        "set the bridge port's flags",
        RouteNetlinkMessage::NewLink(port),
    )
}

/// What puts a node's end that is there on a bridge. Succeeds if its pod has gone meanwhile.
pub(crate) fn attachment(host_name: &str, bridge: u32, hairpin: bool) -> [Request; 2] {
    let link = LinkUnspec::new_with_name(host_name).controller(bridge);
    let attach = Request::change(
        "put a pod's link back on the bridge",
        RouteNetlinkMessage::SetLink(link.build()),
    );
    [attach, port_flags(host_name, hairpin)].map(|request| request.tolerate(&[Errno::ENODEV]))
}

/// Deletes the pair by the node's end, and what limits it. Succeeds if there is none.
///
/// # Errors
/// [`NetlinkError`].
pub fn delete(netlink: &mut Netlink, host_name: &str) -> Result<(), NetlinkError> {
    let message = LinkUnspec::new_with_name(host_name).build();
    let request = Request::change(
        "delete the veth pair",
        RouteNetlinkMessage::DelLink(message),
    );
    netlink.batch(vec![
        request.tolerate(&[Errno::ENODEV]),
        ifb_removal(host_name),
    ])
}

/// The pod's end: address, default route, loopback. Call inside the namespace. Returns the link.
///
/// # Errors
/// [`NetlinkError`]; `ENODEV` if the link is not there.
pub fn configure(
    pod_name: &str,
    address: Ipv4Net,
    gateway: Ipv4Addr,
) -> Result<Link, NetlinkError> {
    let mut netlink = Netlink::open()?;
    let link = netlink.link(pod_name)?.ok_or(NetlinkError::Refused {
        what: "find the pod's link",
        source: Errno::ENODEV.into(),
    })?;
    let loopback = LinkUnspec::new_with_index(LOOPBACK_INDEX).up().build();
    let up = LinkUnspec::new_with_index(link.index).up().build();
    let default = default_route(link.index, gateway);
    netlink.batch(vec![
        Request::change(
            "set the loopback link up",
            RouteNetlinkMessage::SetLink(loopback),
        ),
        Request::change("set the pod's link up", RouteNetlinkMessage::SetLink(up)),
        Request::create(
            "assign the pod's address",
            address_message(link.index, address),
        )
        .tolerate(&[Errno::EEXIST]),
        Request::replace(
            "set the pod's default route",
            RouteNetlinkMessage::NewRoute(default.message()),
        ),
    ])?;
    Ok(link)
}

/// What [`configure`] set, as far as it is not there. Call inside the namespace.
///
/// # Errors
/// [`NetlinkError`].
pub fn missing(
    pod_name: &str,
    (address, mac): (Ipv4Net, [u8; 6]),
    gateway: Ipv4Addr,
) -> Result<Option<String>, NetlinkError> {
    let mut netlink = Netlink::open()?;
    let Some(link) = netlink.link(pod_name)? else {
        return Ok(Some(format!("link {pod_name} does not exist")));
    };
    if !link.up {
        return Ok(Some(format!("link {pod_name} is down")));
    }
    if link.address != mac {
        let text = mac_text(&mac);
        return Ok(Some(format!(
            "link {pod_name} has not the MAC address {text}"
        )));
    }
    if !netlink.addresses()?.contains(&(link.index, address)) {
        return Ok(Some(format!("link {pod_name} has no address {address}")));
    }
    let routed = netlink.routes()?.iter().any(|r| {
        r.destination.prefix_len() == 0
            && r.gateway == Some(gateway)
            && r.interface == Some(link.index)
    });
    Ok((!routed).then(|| format!("no default route through {gateway}")))
}

fn default_route(interface: u32, gateway: Ipv4Addr) -> Route {
    Route {
        destination: Ipv4Net::default(),
        gateway: Some(gateway),
        interface: Some(interface),
        source: None,
        protocol: PROTOCOL_BOOT,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_link_of_a_limit_has_the_digits_of_the_pods_link() {
        let host = host_name("a", "eth0");
        let ifb = ifb_name(&host);
        assert!(ifb.len() <= crate::conf::MAX_LINK_NAME && ifb != host);
        assert_eq!(limited_by(&ifb), Some(host.clone()));
        for other in [host.as_str(), "ifb0", "vifb", "vifbzzzzzzzzzzz"] {
            assert_eq!(limited_by(other), None, "{other}");
        }
    }
}
