//! CHECK: is everything as ADD left it? Changes nothing.

use ipnet::Ipv4Net;

use super::Attachment;
use crate::{
    bandwidth, bridge, conf::NetConf, error::CniError, ipam, netlink::Netlink, result::CniResult,
    veth,
};

/// Compares address, links and route with what ADD made. Blocks.
///
/// # Errors
/// [`CniError::CheckFailed`] says what is missing.
pub fn check(attachment: &Attachment, conf: &NetConf) -> Result<(), CniError> {
    let fail = |what: String| Err(CniError::CheckFailed { what });
    let netns = attachment.open_netns()?;
    let Some(address) = ipam::find(conf, &attachment.owner())? else {
        return fail(format!(
            "no address is reserved for {}",
            attachment.container_id
        ));
    };
    if let Some(asked) = conf
        .runtime_config
        .address()
        .filter(|asked| *asked != address)
    {
        return fail(format!("{address} is reserved, not {asked}"));
    }
    if let Some(previous) = &conf.prev_result {
        let previous: CniResult =
            serde_json::from_value(previous.clone()).map_err(CniError::Decode)?;
        if !previous.addresses().contains(&address.into()) {
            return fail(format!(
                "prevResult does not contain the reserved address {address}"
            ));
        }
    }
    let mut netlink = Netlink::open()?;
    let Some(bridge) = bridge::find(&mut netlink, conf)? else {
        return fail(format!(
            "bridge {} with {} is not there",
            conf.bridge,
            conf.ipam.gateway_net()
        ));
    };
    let host_name = veth::host_name(&attachment.container_id, &attachment.ifname);
    let port = match netlink.link(&host_name)? {
        Some(link) if link.controller == Some(bridge.index) && link.up => link,
        Some(_) => {
            return fail(format!(
                "link {host_name} is down or not on bridge {}",
                conf.bridge
            ));
        }
        None => return fail(format!("link {host_name} does not exist")),
    };
    let limits = &conf.runtime_config.bandwidth;
    if let Some(what) = bandwidth::missing(&mut netlink, &port, limits)? {
        return fail(what);
    }
    let address = Ipv4Net::new(address, conf.ipam.subnet.prefix_len())
        .expect("the prefix length is the subnet's own");
    let ends = (address, bridge::mac_of(conf, address.addr()));
    let missing = netns
        .run(|| veth::missing(&attachment.ifname, ends, conf.ipam.gateway()))
        .map_err(CniError::Namespace)??;
    missing.map_or(Ok(()), fail)
}
