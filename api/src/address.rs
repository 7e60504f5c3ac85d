//! Which addresses the API server connects to for somebody else, and where a node may say that it
//! is. Pure.
//!
//! Whoever may name an address (in Endpoints, in a Node's status) must not reach by it what only
//! this machine reaches: its loopback, and the metadata services that clouds have at link-local
//! addresses.
//!
//! Source: `k8s.io/kubernetes/pkg/proxy/util/utils.go`, `isProxyableIP` (Go's `IsGlobalUnicast`),
//! at v1.37.

use std::net::{IpAddr, Ipv4Addr};

/// Whether a connection to this address may be made for others. An IPv4 address that is written as
/// one of IPv6 is what the kernel makes of it.
#[must_use]
pub fn may_be_dialled(address: IpAddr) -> bool {
    let address = address.to_canonical();
    let is_link_local = match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    !(address.is_unspecified()
        || address.is_loopback()
        || address.is_multicast()
        || is_link_local
        || address == IpAddr::V4(Ipv4Addr::BROADCAST))
}

/// Whether a node may say that this is an address of its own. One on loopback only to a server at
/// `advertise` that nobody but its own machine reaches.
#[must_use]
pub fn may_be_nodes(address: IpAddr, advertise: IpAddr) -> bool {
    let address = address.to_canonical();
    may_be_dialled(address) || (address.is_loopback() && advertise.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_only_this_machine_reaches_is_not_dialled_for_others() {
        for (address, expect) in [
            ("192.0.2.1", true),
            ("10.0.0.1", true),
            ("2001:db8::1", true),
            ("fd00::1", true),
            ("::ffff:192.0.2.1", true),
            ("127.0.0.1", false),
            ("127.9.9.9", false),
            ("::1", false),
            ("::ffff:127.0.0.1", false),
            ("169.254.169.254", false),
            ("::ffff:169.254.169.254", false),
            ("fe80::1", false),
            ("0.0.0.0", false),
            ("::", false),
            ("::ffff:0.0.0.0", false),
            ("224.0.0.1", false),
            ("ff02::1", false),
            ("255.255.255.255", false),
        ] {
            assert_eq!(
                may_be_dialled(address.parse().unwrap()),
                expect,
                "{address}"
            );
        }
    }
}
