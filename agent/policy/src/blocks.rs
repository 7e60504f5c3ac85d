//! `ipBlock` as ranges of addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use coracle_netfilter::policy::IpRange;
use ipnet::IpNet;

/// The addresses of `block` that are in none of `excepts`: disjoint, sorted.
#[must_use]
pub fn without(block: IpNet, excepts: &[IpNet]) -> Vec<IpRange> {
    let v4 = block.addr().is_ipv4();
    let mut left = vec![bounds(block)];
    for hole in excepts.iter().filter(|e| e.addr().is_ipv4() == v4) {
        let (from, to) = bounds(*hole);
        let mut next = Vec::with_capacity(left.len() + 1);
        for (first, last) in left {
            if to < first || last < from {
                next.push((first, last));
                continue;
            }
            if first < from {
                next.push((first, from - 1));
            }
            if to < last {
                next.push((to + 1, last));
            }
        }
        left = next;
    }
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
