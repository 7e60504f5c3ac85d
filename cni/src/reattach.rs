//! Pods whose links hang on no bridge: somebody has deleted it, and the one that was made in its
//! place knows nothing of them.

use std::collections::HashSet;

use crate::{
    bridge,
    conf::NetConf,
    error::CniError,
    ipam,
    netlink::{Netlink, Request},
    veth,
};

/// Puts the links of all who have an address of this network back on its bridge. Returns how many.
/// What guards and limits a link stays on it all the while.
///
/// # Errors
/// See [`CniError`]; calling again is the way on.
pub fn reattach(netlink: &mut Netlink, conf: &NetConf) -> Result<usize, CniError> {
    let links = netlink.links()?.into_iter();
    let mut loose: Vec<String> = links
        .filter(|link| link.controller.is_none() && veth::is_host_name(&link.name))
        .map(|link| link.name)
        .collect();
    if loose.is_empty() {
        return Ok(0);
    }
    // Others' links may have such names.
    let owners = ipam::owners(conf)?.into_iter();
    let ours: HashSet<String> = owners
        .map(|owner| veth::host_name(&owner.container_id, &owner.ifname))
        .collect();
    loose.retain(|name| ours.contains(name));
    let Some(bridge) = bridge::find(netlink, conf)? else {
        return Err(CniError::CheckFailed {
            what: format!("bridge {} is not there or has no address", conf.bridge),
        });
    };
    let requests = loose
        .iter()
        .flat_map(|name| veth::attachment(name, bridge.index, conf.hairpin_mode));
    let requests: Vec<Request> = requests.collect();
    netlink.batch(requests)?;
    Ok(loose.len())
}
