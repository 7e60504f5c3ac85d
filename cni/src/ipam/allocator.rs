//! Which address comes next: round robin, so that a released address rests as long as possible.
//! Pure.

use std::net::Ipv4Addr;

/// What may be given out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// First, inclusive.
    pub first: Ipv4Addr,
    /// Last, inclusive.
    pub last: Ipv4Addr,
    /// Never given out.
    pub gateway: Ipv4Addr,
}

impl Range {
    /// All addresses once, beginning after `previous` and wrapping round.
    pub fn candidates(self, previous: Option<Ipv4Addr>) -> impl Iterator<Item = Ipv4Addr> {
        let (first, last) = (u32::from(self.first), u32::from(self.last));
        let start = match previous.map(u32::from) {
            Some(previous) if (first..last).contains(&previous) => previous + 1,
            _ => first,
        };
        (start..=last)
            .chain(first..start)
            .map(Ipv4Addr::from)
            .filter(move |ip| *ip != self.gateway)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_address_comes_once_after_the_previous_one() {
        let range = Range {
            first: [10, 0, 0, 1].into(),
            last: [10, 0, 0, 4].into(),
            gateway: [10, 0, 0, 1].into(),
        };
        let cases: [(Option<[u8; 4]>, [u8; 3]); 5] = [
            (None, [2, 3, 4]),
            (Some([10, 0, 0, 2]), [3, 4, 2]),
            (Some([10, 0, 0, 3]), [4, 2, 3]),
            (Some([10, 0, 0, 4]), [2, 3, 4]),
            (Some([10, 9, 9, 9]), [2, 3, 4]),
        ];
        for (previous, expected) in cases {
            let got: Vec<u8> = range
                .candidates(previous.map(Into::into))
                .map(|ip| ip.octets()[3])
                .collect();
            assert_eq!(got, expected, "after {previous:?}");
        }
    }
}
