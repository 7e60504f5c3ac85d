//! On which of the node's addresses node ports are, and whose. Pure.
//!
//! Nobody listens at them, so that no table of sockets shows them.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use coracle_netfilter::service::{Protocol, ServiceKey, ServiceView};
use ipnet::IpNet;

type NodePort = (Protocol, u16);

/// The addresses that node ports are on, by range; those of a family without any are all.
#[derive(Debug, Clone, Default)]
pub(super) struct NodePortRanges(Vec<IpNet>);

impl NodePortRanges {
    pub(super) fn new(ranges: &[IpNet]) -> Self {
        Self(ranges.to_vec())
    }

    /// Whether node ports are on `address`, if that is the node's. They are not on loopback.
    pub(super) fn include(&self, address: IpAddr) -> bool {
        self.choose(address) && !address.is_loopback()
    }

    /// Whether `address` is one of those: what is answered there itself may be on loopback.
    pub(super) fn choose(&self, address: IpAddr) -> bool {
        let mut ranges = self.0.iter();
        ranges.clone().any(|range| range.contains(&address))
            || !ranges.any(|range| range.addr().is_ipv4() == address.is_ipv4())
    }
}

/// Those of all Services.
#[derive(Debug, Default)]
pub(super) struct NodePorts {
    of_service: BTreeMap<ServiceKey, BTreeSet<NodePort>>,
    /// More than one may have one: transport and owner of a port change one after the other.
    owners: BTreeMap<NodePort, BTreeSet<ServiceKey>>,
}

impl NodePorts {
    /// Takes in what a Service is now. Returns whether that changes anything.
    pub(super) fn set(&mut self, key: &ServiceKey, view: Option<&ServiceView>) -> bool {
        let ports = view.into_iter().flat_map(|view| &view.ports);
        let ports = ports.filter_map(|one| Some((one.port.protocol, one.port.node_port?)));
        let ports: BTreeSet<NodePort> = ports.collect();
        let before = self.of_service.remove(key).unwrap_or_default();
        let is_changed = before != ports;
        for port in before.difference(&ports) {
            let Some(owners) = self.owners.get_mut(port) else {
                continue;
            };
            owners.remove(key);
            if owners.is_empty() {
                self.owners.remove(port);
            }
        }
        for port in &ports {
            self.owners.entry(*port).or_default().insert(key.clone());
        }
        if !ports.is_empty() {
            self.of_service.insert(key.clone(), ports);
        }
        is_changed
    }

    /// Whether `port` is that of another than `key`.
    pub(super) fn is_of_another(&self, key: &ServiceKey, port: NodePort) -> bool {
        let owners = self.owners.get(&port).into_iter().flatten();
        owners.into_iter().any(|owner| owner != key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_choose_addresses_of_their_family() {
        let check = |ranges: &[&str], address: &str, expect: bool| {
            let ranges: Vec<IpNet> = ranges.iter().map(|one| one.parse().unwrap()).collect();
            let includes = NodePortRanges::new(&ranges).include(address.parse().unwrap());
            assert_eq!(includes, expect, "{ranges:?} {address}");
        };
        check(&[], "192.0.2.1", true);
        check(&["192.0.2.0/24"], "192.0.2.1", true);
        check(&["192.0.2.0/24"], "198.51.100.1", false);
        check(&["2001:db8::/32"], "198.51.100.1", true);
        check(&["192.0.2.0/24"], "2001:db8::1", true);
        for (ranges, chosen) in [
            (&[][..], true),
            (&["0.0.0.0/1"], true),
            (&["10.0.0.0/8"], false),
        ] {
            check(ranges, "127.0.0.1", false);
            let ranges: Vec<IpNet> = ranges.iter().map(|one| one.parse().unwrap()).collect();
            let chooses = NodePortRanges::new(&ranges).choose([127, 0, 0, 1].into());
            assert_eq!(chooses, chosen, "{ranges:?}");
        }
    }
}
