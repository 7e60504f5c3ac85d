//! The own node behind a router that translates addresses one to one, as clouds have it: what is
//! sent to its ExternalIP comes to its InternalIP. Pure.
//!
//! A balancer shows the ExternalIP, and rules match where packets come to.

use std::{collections::BTreeSet, net::IpAddr};

use coracle_netfilter::service::ServiceView;
use k8s_openapi::api::core::v1::Node;

/// What comes where.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Translated {
    outside: BTreeSet<IpAddr>,
    inside: IpAddr,
}

impl Translated {
    /// `None` of a node without an ExternalIP. IPv4 alone, as rules are.
    pub(super) fn of(node: &Node) -> Option<Self> {
        let all = node.status.as_ref()?.addresses.as_ref()?;
        let of = |kind: &'static str| {
            let addresses = all.iter().filter(move |address| address.type_ == kind);
            let addresses = addresses.filter_map(|address| address.address.parse().ok());
            addresses.filter(IpAddr::is_ipv4)
        };
        let outside: BTreeSet<IpAddr> = of("ExternalIP").collect();
        let inside = of("InternalIP").next()?;
        (!outside.is_empty()).then_some(Self { outside, inside })
    }

    /// Has a balancer's traffic taken where it comes to.
    pub(super) fn complete(&self, view: &mut ServiceView) {
        let ips = &mut view.balancer_ips;
        let shown = ips.iter().find(|ip| self.outside.contains(*ip)).copied();
        let is_known = ips.contains(&self.inside) || view.external_ips.contains(&self.inside);
        let Some(shown) = shown.filter(|_| !is_known) else {
            return;
        };
        ips.push(self.inside);
        ips.sort_unstable();
        let withheld = view.withheld.iter().filter(|(ip, ..)| *ip == shown);
        let here = withheld.map(|(_, protocol, port)| (self.inside, *protocol, *port));
        let here: Vec<_> = here.collect();
        view.withheld.extend(here);
    }
}

#[cfg(test)]
mod tests {
    use coracle_netfilter::service::Protocol;
    use serde_json::{Value, json};

    use super::*;

    fn translated(addresses: &[(&str, &str)]) -> Option<Translated> {
        let address = |(kind, address): &(&str, &str)| json!({"type": kind, "address": address});
        let addresses: Vec<Value> = addresses.iter().map(address).collect();
        let node = json!({"status": {"addresses": addresses}});
        Translated::of(&serde_json::from_value(node).unwrap())
    }

    #[test]
    fn what_is_sent_to_the_external_address_is_taken_at_the_internal_one() {
        let inside = ("InternalIP", "192.0.2.1");
        assert_eq!(translated(&[inside]), None);
        let node = translated(&[inside, ("ExternalIP", "198.51.100.1")]).unwrap();
        let check = |balancer: &[&str], external: &[&str], expect: &[&str]| {
            let parse = |ips: &[&str]| ips.iter().map(|ip| ip.parse().unwrap()).collect();
            let shown: Option<&&str> = balancer.first();
            let mut view = ServiceView {
                balancer_ips: parse(balancer),
                external_ips: parse(external),
                withheld: shown
                    .map(|ip| (ip.parse().unwrap(), Protocol::Tcp, 80))
                    .into_iter()
                    .collect(),
                ..ServiceView::default()
            };
            node.complete(&mut view);
            let ips: Vec<String> = view.balancer_ips.iter().map(ToString::to_string).collect();
            assert_eq!(ips, expect);
            view.withheld.len()
        };
        let withheld = check(&["198.51.100.1"], &[], &["192.0.2.1", "198.51.100.1"]);
        assert_eq!(withheld, 2, "what is not given outside is not given inside");
        check(&["198.51.100.2"], &[], &["198.51.100.2"]);
        check(&["198.51.100.1"], &["192.0.2.1"], &["198.51.100.1"]);
        check(
            &["192.0.2.1", "198.51.100.1"],
            &[],
            &["192.0.2.1", "198.51.100.1"],
        );
        check(&[], &[], &[]);
    }
}
