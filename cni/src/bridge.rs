//! The node's bridge: the pods' gateway.
//!
//! Made once, found ever after. Also sets the sysctls that forwarding needs. `route_localnet` is
//! never touched: it stays 0, so that a neighbour cannot reach the node's loopback services
//! (CVE-2020-8558).

use std::{net::Ipv4Addr, path::Path};

use ipnet::Ipv4Net;
use nix::errno::Errno;
use rtnetlink::{
    LinkBridge, LinkMessageBuilder, LinkUnspec,
    packet_route::{RouteNetlinkMessage, address::AddressMessage},
};

use crate::{
    bridged::{self, Bridged},
    conf::{NetConf, StaticMac},
    error::CniError,
    netlink::{Link, Netlink, Request, address_message},
    sysctl,
};

const DEFAULT_MTU: u32 = 1500;

/// The MAC address that goes with an IPv4 address: `0a:58:` and its octets. A reused address keeps
/// its MAC, so no neighbour cache is ever wrong.
#[must_use]
pub fn mac(address: Ipv4Addr) -> [u8; 6] {
    let [a, b, c, d] = address.octets();
    [0x0a, 0x58, a, b, c, d]
}

/// The MAC address of the pod that has `address`: the one that is asked for, or that one.
#[must_use]
pub fn mac_of(conf: &NetConf, address: Ipv4Addr) -> [u8; 6] {
    let asked = conf.runtime_config.mac.map(StaticMac::octets);
    asked.unwrap_or_else(|| mac(address))
}

/// The MTU of `conf`.
#[must_use]
pub fn mtu(conf: &NetConf) -> u32 {
    conf.mtu.unwrap_or(DEFAULT_MTU)
}

/// Whether the bridge of `conf` is there, up, with its address.
///
/// # Errors
/// [`CniError::Netlink`].
pub fn find(netlink: &mut Netlink, conf: &NetConf) -> Result<Option<Link>, CniError> {
    let Some(link) = netlink.link(&conf.bridge)? else {
        return Ok(None);
    };
    let wanted = conf.ipam.gateway_net();
    let present = netlink.addresses()?.contains(&(link.index, wanted));
    Ok((present && link.up).then_some(link))
}

/// Makes the bridge of `conf` with address and sysctls, as far as it is not there.
///
/// # Errors
/// [`CniError::BridgeAddress`] if it has an address of another subnet and pods on it.
/// [`CniError::Netlink`].
pub fn ensure(netlink: &mut Netlink, conf: &NetConf) -> Result<Link, CniError> {
    let wanted = conf.ipam.gateway_net();
    let create = LinkBridge::new(&conf.bridge)
        .mtu(mtu(conf))
        // A fixed address: otherwise it changes with the ports, and pods lose their gateway for a
        // while.
        .address(mac(wanted.addr()).to_vec())
        .up()
        .build();
    if netlink.link(&conf.bridge)?.is_none() && !take_back_name(netlink, conf)? {
        netlink.batch(vec![
            Request::create("make the bridge", RouteNetlinkMessage::NewLink(create))
                .tolerate(&[Errno::EEXIST]),
        ])?;
    }
    let missing = || CniError::CheckFailed {
        what: format!("bridge {} does not exist", conf.bridge),
    };
    let link = netlink.link(&conf.bridge)?.ok_or_else(missing)?;
    let stale = stale_addresses(netlink, &link, wanted)?;
    if let Some(found) = stale.first()
        && netlink
            .links()?
            .iter()
            .any(|port| port.controller == Some(link.index))
    {
        return Err(CniError::BridgeAddress {
            bridge: link.name,
            found: found.addr(),
            wanted: wanted.addr(),
        });
    }
    let mut up = LinkUnspec::new_with_index(link.index).up();
    // What the uplink lets through may have changed since the bridge was made.
    if let Some(mtu) = conf.mtu.filter(|mtu| *mtu != link.mtu) {
        up = up.mtu(mtu);
    }
    let up = up.build();
    let mut requests = vec![
        Request::create(
            "give the bridge its address",
            address_message(link.index, wanted),
        )
        .tolerate(&[Errno::EEXIST]),
        Request::change("set the bridge up", RouteNetlinkMessage::SetLink(up)),
    ];
    for address in stale {
        let RouteNetlinkMessage::NewAddress(message) = address_message(link.index, address) else {
            continue;
        };
        requests.push(delete_address(message));
    }
    netlink.batch(requests)?;
    set_sysctls()?;
    Ok(link)
}

/// Gives the bridge its name again, if it is there under another: its pods are on it, and a second
/// one would have the same address. Nobody else's has both that and the hardware address.
fn take_back_name(netlink: &mut Netlink, conf: &NetConf) -> Result<bool, CniError> {
    let wanted = conf.ipam.gateway_net();
    let addresses = netlink.addresses()?;
    let is_it = |link: &Link| {
        link.is_bridge
            && link.address == mac(wanted.addr())
            && addresses.contains(&(link.index, wanted))
    };
    let Some(link) = netlink.links()?.into_iter().find(is_it) else {
        return Ok(false);
    };
    tracing::warn!(
        name = link.name,
        bridge = conf.bridge,
        "somebody has renamed the bridge of the pods: it gets its name again"
    );
    let set = |what, message: LinkMessageBuilder<LinkUnspec>| {
        Request::change(what, RouteNetlinkMessage::SetLink(message.build()))
    };
    let unspec = || LinkUnspec::new_with_index(link.index);
    // Kernels before 6.2 rename none that is up.
    netlink.batch(vec![
        set("set the renamed bridge down", unspec().down()),
        set("rename the bridge", unspec().name(&conf.bridge)),
    ])?;
    Ok(true)
}

/// Deletes the bridge. Succeeds if there is none.
///
/// # Errors
/// [`CniError::Netlink`].
pub fn remove(netlink: &mut Netlink, name: &str) -> Result<(), CniError> {
    let delete = LinkUnspec::new_with_name(name).build();
    let request = Request::change("delete the bridge", RouteNetlinkMessage::DelLink(delete));
    Ok(netlink.batch(vec![request.tolerate(&[Errno::ENODEV])])?)
}

fn delete_address(message: AddressMessage) -> Request {
    Request::change(
        "remove the bridge's old address",
        RouteNetlinkMessage::DelAddress(message),
    )
    .tolerate(&[Errno::EADDRNOTAVAIL])
}

fn stale_addresses(
    netlink: &mut Netlink,
    link: &Link,
    wanted: Ipv4Net,
) -> Result<Vec<Ipv4Net>, CniError> {
    let all = netlink.addresses()?;
    Ok(all
        .into_iter()
        .filter(|(index, net)| *index == link.index && *net != wanted)
        .map(|(_, net)| net)
        .collect())
}

/// Forwards, and has replies between two pods of one bridge pass the node's address translation.
fn set_sysctls() -> Result<(), CniError> {
    sysctl::set(Path::new("/proc/sys/net/ipv4/ip_forward"), "1")?;
    if let Bridged::Unfiltered { why } = bridged::ensure(true)? {
        tracing::warn!(
            why,
            "br_netfilter is missing: between pods of one node Services fail, and pods that NetworkPolicies select do not start"
        );
    }
    Ok(())
}
