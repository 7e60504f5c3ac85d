//! What of the kernel makes a difference to where packets go.

use std::{
    collections::BTreeSet,
    fs,
    net::{IpAddr, Ipv4Addr},
};

use coracle_cni::netlink::{Netlink, NetlinkError};
use ipnet::Ipv4Net;

use crate::node::address::own_addresses;

/// A route of the main table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hop {
    /// Where to.
    pub destination: Ipv4Net,
    /// Through whom; `None`: they are on the link.
    pub gateway: Option<Ipv4Addr>,
    /// Out of which link.
    pub link: String,
}

/// The facts of the node's kernel.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Kernel {
    /// The node's addresses.
    pub own: BTreeSet<IpAddr>,
    /// Whether frames between two pods of the bridge come by the rules: without it they do not.
    pub bridge_netfilter: bool,
    /// Whether it forwards packets at all.
    pub forwards: bool,
    /// Of IPv4.
    pub hops: Vec<Hop>,
}

impl Kernel {
    /// In the calling thread's network namespace. Blocks for about a millisecond.
    ///
    /// # Errors
    /// The kernel does not say which links and routes there are.
    pub fn read() -> Result<Self, NetlinkError> {
        let mut netlink = Netlink::open()?;
        let links = netlink.links()?;
        let name = |index: u32| {
            let link = links.iter().find(|link| link.index == index);
            link.map(|link| link.name.clone()).unwrap_or_default()
        };
        let routes = netlink.routes()?.into_iter();
        let is_on = |path: &str| fs::read_to_string(path).is_ok_and(|text| text.trim() == "1");
        Ok(Self {
            own: own_addresses().into_iter().flatten().collect(),
            bridge_netfilter: is_on("/proc/sys/net/bridge/bridge-nf-call-iptables"),
            forwards: is_on("/proc/sys/net/ipv4/ip_forward"),
            hops: routes
                .map(|route| Hop {
                    destination: route.destination,
                    gateway: route.gateway,
                    link: route.interface.map(name).unwrap_or_default(),
                })
                .collect(),
        })
    }

    /// The route that packets to `address` take.
    #[must_use]
    pub fn hop(&self, address: Ipv4Addr) -> Option<&Hop> {
        let hops = self.hops.iter();
        hops.filter(|hop| hop.destination.contains(&address))
            .max_by_key(|hop| hop.destination.prefix_len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_narrowest_route_is_taken() {
        let hop = |destination: &str, link: &str| Hop {
            destination: destination.parse().unwrap(),
            gateway: None,
            link: link.to_owned(),
        };
        let kernel = Kernel {
            hops: vec![
                hop("0.0.0.0/0", "eth0"),
                hop("10.244.0.0/16", "vpn0"),
                hop("10.244.1.0/24", "coracle0"),
            ],
            ..Kernel::default()
        };
        for (address, link) in [
            ([10, 244, 1, 5], "coracle0"),
            ([10, 244, 2, 5], "vpn0"),
            ([192, 0, 2, 1], "eth0"),
        ] {
            assert_eq!(kernel.hop(address.into()).unwrap().link, link);
        }
        assert_eq!(Kernel::default().hop([192, 0, 2, 1].into()), None);
    }
}
