//! Cluster addresses: of which range, which of it a Service gets.
//!
//! Source: `pkg/registry/core/service/ipallocator/{ipallocator,cidrallocator,interfaces}.go` at
//! v1.37.

use std::net::{IpAddr, Ipv4Addr};

use ipnet::Ipv4Net;

use super::{
    allocation::Allocation,
    claims::Claims,
    range::{self, Range},
};

const STEP: u32 = 16;
const MOST: u32 = 256;

/// The range of a cluster.
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

    /// Whether it can be given out: the first and the last address of a network cannot.
    pub(super) fn contains(self, ip: Ipv4Addr) -> bool {
        let Range { first, last, .. } = self.range();
        (first..=last).contains(&u32::from(ip))
    }

    /// Gives the address that was chosen.
    ///
    /// # Errors
    /// All but [`IpError::Full`].
    pub(super) fn allocate(
        self,
        asked: Asked,
        claims: &mut Claims<'_>,
    ) -> Result<Ipv4Addr, IpError> {
        let refused = if asked.dry_run {
            let (ip, cidr) = (asked.ip, self.cidr);
            IpError::NotInRange { ip, cidr }
        } else {
            IpError::MismatchedNetwork
        };
        let IpAddr::V4(ip) = asked.ip else {
            return Err(refused);
        };
        let allocation = Allocation::Address(ip);
        // Also one that is out of the range by now, or kept for another.
        if claims.is_own(allocation) {
            return Ok(ip);
        }
        if !self.contains(ip) {
            return Err(refused);
        }
        // Also while there is no such Service: without its address pods do not reach the API.
        let is_kept = ip == self.first() && !asked.for_kubernetes;
        if is_kept || !claims.is_free(allocation) {
            return Err(IpError::Allocated);
        }
        claims.take(allocation);
        Ok(ip)
    }

    /// Gives any address.
    ///
    /// # Errors
    /// [`IpError::Full`].
    pub(super) fn allocate_next(self, claims: &mut Claims<'_>) -> Result<Ipv4Addr, IpError> {
        let range = self.range();
        let is_free = |number: u32| {
            number != range.first && claims.is_free(Allocation::Address(Ipv4Addr::from(number)))
        };
        let drawn = range.draw(is_free).map(Ipv4Addr::from);
        let drawn = drawn.ok_or(IpError::Full)?;
        claims.take(Allocation::Address(drawn));
        Ok(drawn)
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
