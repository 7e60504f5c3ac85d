//! Where names of Services are answered: the address that every node knows, and the Service that
//! tells people and charts of it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Where the Service is.
pub const NAMESPACE: &str = "kube-system";
/// What everybody calls it.
pub const SERVICE: &str = "kube-dns";
/// Its port, and its servers'.
pub const PORT: u16 = 53;
/// Which address of a range it is.
///
/// Source: `GetDNSIP` in `cmd/kubeadm/app/constants/constants.go` at v1.37.
const ORDINAL: u8 = 10;

/// The tenth address of the Services' range, which begins at `first`; `None` if there are not so
/// many.
#[must_use]
pub fn address(first: IpAddr, prefix_len: u8) -> Option<IpAddr> {
    let (bits, tenth) = match first {
        IpAddr::V4(first) => {
            let tenth = u32::from(first).checked_add(ORDINAL.into())?;
            (32, IpAddr::from(Ipv4Addr::from(tenth)))
        }
        IpAddr::V6(first) => {
            let tenth = u128::from(first).checked_add(ORDINAL.into())?;
            (128, IpAddr::from(Ipv6Addr::from(tenth)))
        }
    };
    let host_bits = u32::from(bits - prefix_len.min(bits));
    let is_within = host_bits >= 8 || 1_u32 << host_bits > u32::from(ORDINAL);
    is_within.then_some(tenth)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_tenth() {
        let of = |first: &str, prefix_len| {
            let address = address(first.parse().unwrap(), prefix_len);
            address.map(|address| address.to_string())
        };
        assert_eq!(of("10.96.0.0", 16).as_deref(), Some("10.96.0.10"));
        assert_eq!(of("10.96.0.16", 28).as_deref(), Some("10.96.0.26"));
        assert_eq!(of("10.96.0.0", 29), None);
        assert_eq!(of("10.96.0.0", 32), None);
        assert_eq!(of("fd00::", 108).as_deref(), Some("fd00::a"));
    }
}
