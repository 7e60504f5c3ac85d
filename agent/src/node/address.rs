//! Whether the node's address is still this machine's: DHCP may have given it to somebody else.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket},
};

/// The node's address is on no interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Loss {
    /// The address that the machine's default route has now.
    pub(crate) instead: Option<IpAddr>,
}

/// Looks whether `address` is gone. What cannot be asked is not gone.
pub(crate) fn look(address: IpAddr) -> Option<Loss> {
    let mut own = own_addresses().ok()?;
    if address.is_loopback() || own.any(|own| own == address) {
        return None;
    }
    Some(Loss {
        instead: default_route_address(),
    })
}

/// Those of all links, in the calling thread's namespace.
///
/// # Errors
/// What the kernel says.
pub fn own_addresses() -> io::Result<impl Iterator<Item = IpAddr>> {
    Ok(nix::ifaddrs::getifaddrs()?.filter_map(|link| {
        let address = link.address?;
        let v4 = address.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
        v4.or_else(|| address.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip())))
    }))
}

/// The source address of this machine's default route, if it has one.
#[must_use]
pub fn default_route_address() -> Option<IpAddr> {
    // Connecting a UDP socket sends nothing: the kernel only chooses a route and a source address.
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    socket
        .connect(SocketAddr::from((Ipv4Addr::new(192, 0, 2, 1), 9)))
        .ok()?;
    socket
        .local_addr()
        .ok()
        .map(|address| address.ip())
        .filter(|ip| !ip.is_loopback() && !ip.is_unspecified())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_of_others_are_gone() {
        assert_eq!(look(IpAddr::V4(Ipv4Addr::LOCALHOST)), None);
        assert!(look(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 77))).is_some());
    }
}
