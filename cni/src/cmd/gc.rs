//! GC: gives back what belongs to attachments that are no more.

use std::collections::HashSet;

use crate::{bandwidth, conf::NetConf, error::CniError, ipam, netlink::Netlink, veth};

/// Deletes links on the bridge and reservations of every attachment that is not in
/// `conf.valid_attachments`. Blocks.
///
/// # Errors
/// See [`CniError`]; calling again is the way on.
pub fn gc(conf: &NetConf) -> Result<(), CniError> {
    let mut valid = HashSet::new();
    let mut names = HashSet::new();
    for attachment in &conf.valid_attachments {
        names.insert(veth::host_name(
            &attachment.container_id,
            &attachment.ifname,
        ));
        valid.insert(ipam::store::Owner {
            container_id: attachment.container_id.clone(),
            ifname: attachment.ifname.clone(),
        });
    }
    let mut netlink = Netlink::open()?;
    if let Some(bridge) = netlink.link(&conf.bridge)? {
        for port in netlink.links()? {
            let ours = port.controller == Some(bridge.index) && veth::is_host_name(&port.name);
            if ours && !names.contains(&port.name) {
                tracing::info!(link = port.name, "delete the link of a vanished sandbox");
                veth::delete(&mut netlink, &port.name)?;
            }
        }
    }
    bandwidth::collect(&mut netlink, |_| true)?;
    for address in ipam::gc(conf, &valid)? {
        tracing::info!(%address, "release the address of a vanished sandbox");
    }
    Ok(())
}
