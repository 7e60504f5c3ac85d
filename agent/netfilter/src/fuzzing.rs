//! For the fuzz targets (feature `fuzzing`): what comes in at a netlink socket.

use crate::{conntrack, generation, netlink::Messages, nftables};

/// Reads a datagram as all who list do: every message lies within it, and what is read of it is the
/// same when it is written again.
///
/// # Panics
/// If not.
pub fn netlink(datagram: &[u8]) {
    let mut bytes = 0;
    for listed in Messages(datagram) {
        bytes += listed.body.len();
        let _ = listed.outcome();
        conntrack::check(&listed);
        nftables::check(&listed);
    }
    assert!(bytes <= datagram.len(), "{bytes} of {}", datagram.len());
    let _ = generation::parse(datagram);
}
