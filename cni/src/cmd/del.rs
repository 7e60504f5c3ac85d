//! DEL: detaches a sandbox. Succeeds when there is nothing left to do, also when the namespace is
//! gone.

use super::Attachment;
use crate::{conf::NetConf, error::CniError, ipam, netlink::Netlink, veth};

/// Deletes the sandbox' links and gives its address back. Blocks.
///
/// The link goes first: its address must not be given to another pod while it still answers.
///
/// # Errors
/// See [`CniError`]; calling again is the way on. Both steps are tried in any case.
pub fn del(attachment: &Attachment, conf: &NetConf) -> Result<(), CniError> {
    let host_name = veth::host_name(&attachment.container_id, &attachment.ifname);
    let link = Netlink::open().and_then(|mut netlink| veth::delete(&mut netlink, &host_name));
    let address = ipam::release(conf, &attachment.owner());
    link.map_err(CniError::from).and(address)
}

/// The part of DEL that is not undone by deleting the namespace: the reservation. Blocks, for less
/// than a millisecond.
///
/// For a caller that deletes the namespace next, which takes the links with it at a tenth of the
/// price (deleting a link waits for every CPU, 15 ms and more each). It has to look after links
/// that stay nevertheless: see [`gc()`].
///
/// [`gc()`]: crate::gc
///
/// # Errors
/// [`CniError::Io`].
pub fn release(attachment: &Attachment, conf: &NetConf) -> Result<(), CniError> {
    ipam::release(conf, &attachment.owner())
}
