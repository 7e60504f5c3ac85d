//! How large the packets of pods may be.

use std::net::{IpAddr, Ipv4Addr};

use coracle_cni::netlink::Netlink;

use crate::network::OVERLAY_OVERHEAD;

/// The MTU of the link that has the node's address, else of the one that leads to the default
/// route.
pub(super) fn of_uplink(node_ip: Option<IpAddr>) -> Option<u32> {
    let mut netlink = Netlink::open().ok()?;
    let own = netlink
        .addresses()
        .ok()?
        .into_iter()
        .find(|(_, net)| node_ip == Some(IpAddr::V4(net.addr())));
    let uplink = match own {
        Some((index, _)) => index,
        None => {
            let routes = netlink.routes().ok()?;
            routes
                .iter()
                .find(|route| route.destination.addr() == Ipv4Addr::UNSPECIFIED)?
                .interface?
        }
    };
    let links = netlink.links().ok()?;
    links
        .iter()
        .find(|link| link.index == uplink)
        .map(|link| link.mtu)
}

/// What the way to other nodes takes is unknown until it is told: what was `remembered` says
/// whether it took something before.
pub(super) fn choose(uplink: u32, overhead: Option<u32>, remembered: Option<u32>) -> u32 {
    let overhead = overhead.unwrap_or_else(|| {
        if remembered == Some(uplink.saturating_sub(OVERLAY_OVERHEAD)) {
            OVERLAY_OVERHEAD
        } else {
            0
        }
    });
    uplink.saturating_sub(overhead)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mtu_follows_the_uplink_and_the_way_to_other_nodes() {
        let cases = [
            ((1500, None, None), 1500),
            ((1500, Some(0), None), 1500),
            ((1500, Some(50), Some(1500)), 1450),
            // Remembered from another network.
            ((1450, None, Some(9000)), 1450),
            // Remembered from the overlay, which is not known yet.
            ((1500, None, Some(1450)), 1450),
            ((1500, Some(0), Some(1450)), 1500),
        ];
        for ((uplink, overhead, remembered), expected) in cases {
            assert_eq!(
                choose(uplink, overhead, remembered),
                expected,
                "{uplink} {overhead:?} {remembered:?}"
            );
        }
    }
}
