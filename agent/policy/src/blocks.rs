//! `ipBlock` as ranges of addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use coracle_netfilter::policy::IpRange;
use ipnet::IpNet;

/// The addresses of `block` that are in none of `excepts`: disjoint, sorted.
#[must_use]
pub fn without(block: IpNet, excepts: &[IpNet]) -> Vec<IpRange> {
    let v4 = block.addr().is_ipv4();
    let holes = excepts.iter().filter(|hole| hole.addr().is_ipv4() == v4);
    let mut holes: Vec<(u128, u128)> = holes.map(|hole| bounds(*hole)).collect();
    holes.sort_unstable();
    let (first, last) = bounds(block);
    let (mut left, mut next) = (Vec::new(), Some(first));
    for (from, to) in holes {
        let Some(start) = next.filter(|start| *start <= last) else {
            break;
        };
        if start < from {
            left.push((start, last.min(from - 1)));
        }
        if start <= to {
            next = to.checked_add(1);
        }
    }
    left.extend(
        next.filter(|start| *start <= last)
            .map(|start| (start, last)),
    );
    let range = |(first, last)| IpRange {
        first: address(v4, first),
        last: address(v4, last),
    };
    left.into_iter().map(range).collect()
}

/// The union of `ranges`: disjoint, sorted, neighbours joined.
#[must_use]
pub fn union(mut ranges: Vec<IpRange>) -> Vec<IpRange> {
    ranges.sort_unstable();
    let mut joined: Vec<IpRange> = Vec::with_capacity(ranges.len());
    for range in ranges {
        if let Some(before) = joined.last_mut()
            && before.first.is_ipv4() == range.first.is_ipv4()
            && number(range.first) <= number(before.last).saturating_add(1)
        {
            before.last = before.last.max(range.last);
        } else {
            joined.push(range);
        }
    }
    joined
}

fn bounds(net: IpNet) -> (u128, u128) {
    (number(net.network()), number(net.broadcast()))
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => u32::from(v4).into(),
        IpAddr::V6(v6) => v6.into(),
    }
}

fn address(v4: bool, number: u128) -> IpAddr {
    if v4 {
        Ipv4Addr::from(u32::try_from(number).unwrap_or(u32::MAX)).into()
    } else {
        Ipv6Addr::from(number).into()
    }
}
