//! Cluster addresses of one range: which of it can be given out, which of it is drawn.
//!
//! Source: `pkg/registry/core/service/ipallocator/{ipallocator,interfaces}.go` at v1.37.

use std::net::{IpAddr, Ipv4Addr};

use ipnet::Ipv4Net;

use super::range::{self, Range};

const STEP: u32 = 16;
const MOST: u32 = 256;

/// One range.
#[derive(Debug, Clone, Copy)]
pub(super) struct IpAllocator {
    cidr: Ipv4Net,
}

/// Why a Service does not get an address, in upstream's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum IpError {
    #[error("range is full")]
    Full,
    #[error("provided IP is already allocated")]
    Allocated,
    #[error("the provided network does not match the current range")]
    MismatchedNetwork,
    /// What a dry run is told, and only a dry run: with it, clients find out the range.
    #[error("the provided IP ({ip}) is not in the valid range. The range of valid IPs is {cidr}")]
    NotInRange { ip: IpAddr, cidr: Ipv4Net },
}

/// An address that somebody has chosen.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked {
    pub(super) ip: IpAddr,
    /// By the Service by which pods reach the API.
    pub(super) for_kubernetes: bool,
    pub(super) dry_run: bool,
}

impl IpAllocator {
    pub(super) fn new(cidr: Ipv4Net) -> Self {
        Self { cidr: cidr.trunc() }
    }

    /// The `kubernetes` Service's.
    pub(super) fn first(self) -> Ipv4Addr {
        Ipv4Addr::from(self.range().first)
    }

    pub(super) fn cidr(self) -> Ipv4Net {
        self.cidr
    }

    /// Whether it can be given out: the first and the last address of a network cannot.
    pub(super) fn contains(self, ip: Ipv4Addr) -> bool {
        let Range { first, last, .. } = self.range();
        (first..=last).contains(&u32::from(ip))
    }

    /// Any that is free.
    pub(super) fn draw(self, is_free: impl Fn(Ipv4Addr) -> bool) -> Option<Ipv4Addr> {
        let drawn = self.range().draw(|number| is_free(number.into()));
        drawn.map(Ipv4Addr::from)
    }

    /// Without network and broadcast address.
    fn range(self) -> Range {
        let (network, broadcast) = (
            u32::from(self.cidr.network()),
            u32::from(self.cidr.broadcast()),
        );
        let size = (broadcast - network).saturating_add(1);
        Range {
            first: network.saturating_add(1),
            last: broadcast.saturating_sub(1),
            lower: range::lower(size, STEP, MOST),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_addresses_of_a_network_are_those_between_its_ends() {
        let of = |cidr: &str| IpAllocator::new(cidr.parse().unwrap());
        let range = of("10.96.0.7/16").range();
        assert_eq!(Ipv4Addr::from(range.first), Ipv4Addr::new(10, 96, 0, 1));
        assert_eq!(
            Ipv4Addr::from(range.first + range.lower),
            Ipv4Addr::new(10, 96, 1, 1)
        );
        assert_eq!(Ipv4Addr::from(range.last), Ipv4Addr::new(10, 96, 255, 254));
        for (ip, expected) in [
            ("10.96.0.0", false),
            ("10.96.0.1", true),
            ("10.96.0.14", true),
            ("10.96.0.15", false),
            ("10.96.0.16", false),
        ] {
            let contained = of("10.96.0.0/28").contains(ip.parse().unwrap());
            assert_eq!(contained, expected, "{ip}");
        }
        for cidr in [
            "10.96.0.0/31",
            "10.96.0.0/32",
            "255.255.255.255/32",
            "0.0.0.0/32",
        ] {
            assert!(!of(cidr).contains(of(cidr).cidr.addr()), "{cidr}");
        }
    }
}
