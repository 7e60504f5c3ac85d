//! ADD: attaches a sandbox. On failure everything that it made is gone again.

use std::{
    net::{IpAddr, Ipv4Addr},
    sync::Once,
};

use coracle_netns::NetNs;
use coracle_telemetry::ErrorChain;
use ipnet::{IpNet, Ipv4Net};
use nix::errno::Errno;

use super::Attachment;
use crate::{
    anti_spoof, bandwidth, bridge,
    conf::{Bandwidth, NetConf},
    error::CniError,
    ipam, masquerade,
    netlink::{Link, Netlink},
    result::{CniResult, Interface, Ip, ResultRoute, mac_text},
    veth,
};

/// Gives the sandbox a link with an address of the node's subnet. Idempotent for one sandbox.
/// Blocks.
///
/// # Errors
/// See [`CniError`].
pub fn add(attachment: &Attachment, conf: &NetConf) -> Result<CniResult, CniError> {
    add_to(attachment, conf, prepare)
}

/// The same where somebody else keeps what all pods of the node share: makes it, if the bridge is
/// not there.
///
/// # Errors
/// See [`CniError`].
pub fn add_to(
    attachment: &Attachment,
    conf: &NetConf,
    prepare: impl FnOnce(&mut Netlink, &NetConf) -> Result<Link, CniError>,
) -> Result<CniResult, CniError> {
    let netns = attachment.open_netns()?;
    let mut netlink = Netlink::open()?;
    let bridge = match bridge::find(&mut netlink, conf)? {
        Some(link) => link,
        None => prepare(&mut netlink, conf)?,
    };
    let address = ipam::reserve(conf, &attachment.owner())?;
    let address = Ipv4Net::new(address, conf.ipam.subnet.prefix_len())
        .expect("the prefix length is the subnet's own");
    let mac = bridge::mac_of(conf, address.addr());
    let host_name = veth::host_name(&attachment.container_id, &attachment.ifname);
    let attached = attach(
        &mut netlink,
        attachment,
        conf,
        &netns,
        &bridge,
        (address, mac),
        &host_name,
    )
    .and_then(|link| {
        let ends = (address.addr(), mac);
        Ok((link, restrict(&mut netlink, conf, &host_name, ends)?))
    });
    match attached {
        Ok((link, ifb)) => {
            let mut result = result(attachment, conf, &bridge, address, &host_name, &link);
            result.interfaces.extend(ifb.as_ref().map(of_node));
            Ok(result)
        }
        Err(error) => {
            // The first error is what matters; what cannot be undone is found by GC.
            if let Err(undo) = veth::delete(&mut netlink, &host_name) {
                tracing::warn!(link = host_name, error = %ErrorChain(&undo), "a failed ADD left its link");
            }
            if let Err(undo) = ipam::release(conf, &attachment.owner()) {
                tracing::warn!(address = %address.addr(), error = %ErrorChain(&undo), "a failed ADD left its address");
            }
            Err(error)
        }
    }
}

/// Makes what all pods of the node share: bridge, sysctls, rules. Idempotent. Blocks.
///
/// # Errors
/// See [`CniError`].
pub fn prepare(netlink: &mut Netlink, conf: &NetConf) -> Result<Link, CniError> {
    let link = bridge::ensure(netlink, conf)?;
    masquerade::keep(conf)?;
    Ok(link)
}

fn attach(
    netlink: &mut Netlink,
    attachment: &Attachment,
    conf: &NetConf,
    netns: &NetNs,
    bridge: &Link,
    (address, mac): (Ipv4Net, [u8; 6]),
    host_name: &str,
) -> Result<Link, CniError> {
    let pair = veth::Pair {
        host_name,
        pod_name: &attachment.ifname,
        mac,
        mtu: bridge::mtu(conf),
        bridge: bridge.index,
        hairpin: conf.hairpin_mode,
    };
    let inside = || {
        netns
            .run(|| veth::configure(&attachment.ifname, address, conf.ipam.gateway()))
            .map_err(CniError::Namespace)?
            .map_err(CniError::Netlink)
    };
    match veth::create(netlink, &pair, netns) {
        Ok(()) => inside(),
        Err(error)
            if error.errno() == Some(Errno::EEXIST) && netlink.link(host_name)?.is_some() =>
        {
            // Our own from an earlier call that was killed, perhaps half way, or into a namespace
            // that is no more.
            if let Ok(link) = inside() {
                return Ok(link);
            }
            veth::delete(netlink, host_name)?;
            veth::create(netlink, &pair, netns)?;
            inside()
        }
        Err(error) => Err(error.into()),
    }
}

/// What a pod may send, and how fast. Returns the link that takes, if one.
fn restrict(
    netlink: &mut Netlink,
    conf: &NetConf,
    host_name: &str,
    (address, mac): (Ipv4Addr, [u8; 6]),
) -> Result<Option<Link>, CniError> {
    let limits = &conf.runtime_config.bandwidth;
    if !conf.anti_spoof && *limits == Bandwidth::default() {
        return Ok(None);
    }
    let missing = || CniError::CheckFailed {
        what: format!("link {host_name} vanished"),
    };
    let port = netlink.link(host_name)?.ok_or_else(missing)?;
    if conf.anti_spoof
        && let Err(error) = anti_spoof::guard(netlink, port.index, address, mac)
    {
        // A node without the classifier still runs pods.
        static ONCE: Once = Once::new();
        ONCE.call_once(|| tracing::warn!(error = %ErrorChain(&error), "pods can send under each other's addresses"));
    }
    bandwidth::limit(netlink, &port, limits)
}

fn of_node(link: &Link) -> Interface {
    Interface {
        name: link.name.clone(),
        mac: mac_text(&link.address),
        sandbox: String::new(),
    }
}

fn result(
    attachment: &Attachment,
    conf: &NetConf,
    bridge: &Link,
    address: Ipv4Net,
    host_name: &str,
    link: &Link,
) -> CniResult {
    let gateway = IpAddr::V4(conf.ipam.gateway());
    let sandbox = attachment
        .netns
        .as_ref()
        .map(|path| path.display().to_string())
        .unwrap_or_default();
    CniResult {
        interfaces: vec![
            of_node(bridge),
            Interface {
                name: host_name.to_owned(),
                mac: String::new(),
                sandbox: String::new(),
            },
            Interface {
                name: attachment.ifname.clone(),
                mac: mac_text(&link.address),
                sandbox,
            },
        ],
        ips: vec![Ip {
            version: None,
            address: IpNet::V4(address),
            gateway: Some(gateway),
            interface: Some(2),
        }],
        routes: vec![ResultRoute {
            dst: IpNet::V4(Ipv4Net::default()),
            gw: Some(gateway),
        }],
        ..CniResult::default()
    }
    .into_version(&conf.cni_version)
}
