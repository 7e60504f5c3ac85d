//! UDP flows to endpoints that are no more.
//!
//! A UDP "connection" lives in the kernel's table as long as packets come, with the endpoint chosen
//! at the first one. Flows to endpoints that still answer stay, also if new ones would go elsewhere
//! (they terminate, or the policy changed): sessions drain. TCP needs none of this: its connections
//! end.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    net::IpAddr,
};

use crate::{
    conntrack::{self, Flow},
    service::{Protocol, ServiceView},
};

/// Where UDP flows may go: what they were sent to, and the addresses that still answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Targets {
    /// By address and port of a Service.
    pub services: BTreeMap<(IpAddr, u16), BTreeSet<IpAddr>>,
    /// By node port.
    pub node_ports: BTreeMap<u16, BTreeSet<IpAddr>>,
}

impl Targets {
    /// What a Service allows.
    #[must_use]
    pub fn of(view: &ServiceView) -> Self {
        let mut targets = Self::default();
        let ports = view.ports.iter();
        for ports in ports.filter(|ports| ports.port.protocol == Protocol::Udp) {
            let port = &ports.port;
            let allowed: BTreeSet<IpAddr> = ports.serving.iter().copied().collect();
            let balancers = view.external_ips_of(port).chain(view.balancer_ips_of(port));
            for ip in view.cluster_ips.iter().copied().chain(balancers) {
                targets.services.insert((ip, port.port), allowed.clone());
            }
            if let Some(node_port) = port.node_port {
                targets.node_ports.insert(node_port, allowed);
            }
        }
        targets
    }

    /// Takes what another Service allows in.
    pub fn extend(&mut self, more: &Self) {
        self.services.extend(
            more.services
                .iter()
                .map(|(address, allowed)| (*address, allowed.clone())),
        );
        self.node_ports.extend(
            more.node_ports
                .iter()
                .map(|(port, allowed)| (*port, allowed.clone())),
        );
    }

    /// Whether there is any UDP Service.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.services.is_empty() && self.node_ports.is_empty()
    }

    /// Whether nobody answers this flow any more.
    #[must_use]
    pub fn is_stale(&self, flow: &Flow) -> bool {
        let allowed = match self
            .services
            .get(&(flow.destination, flow.destination_port))
        {
            Some(allowed) => Some(allowed),
            // A node port: only flows that were translated, or a server on the node would lose its
            // own.
            None if flow.answers_from != flow.destination => {
                self.node_ports.get(&flow.destination_port)
            }
            None => None,
        };
        allowed.is_some_and(|allowed| !allowed.contains(&flow.answers_from))
    }

    /// Deletes the flows that nobody answers any more, in the calling thread's namespace. Returns
    /// how many there were.
    ///
    /// # Errors
    /// What the kernel says; `EOPNOTSUPP` or `EINVAL` without `nf_conntrack_netlink`.
    pub fn delete_stale(&self) -> io::Result<usize> {
        let stale = conntrack::udp_flows(|flow| self.is_stale(flow))?;
        if stale.is_empty() {
            Ok(0)
        } else {
            conntrack::delete(&stale)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_flows_that_nobody_answers_are_stale() {
        let ip = |octets: [u8; 4]| IpAddr::from(octets);
        let (node, service) = (ip([192, 0, 2, 1]), ip([10, 96, 0, 10]));
        let (old, serving) = (ip([10, 1, 0, 9]), ip([10, 1, 0, 8]));
        let targets = Targets {
            services: BTreeMap::from([((service, 53), BTreeSet::from([serving]))]),
            node_ports: BTreeMap::from([(30053, BTreeSet::from([serving]))]),
        };
        let cases = [
            (service, 53, old, true),
            (service, 53, serving, false),
            // From before there was a rule.
            (service, 53, service, true),
            (node, 53, node, false),
            // A server on the node, and the old endpoint behind the node port.
            (node, 30053, node, false),
            (node, 30053, old, true),
            (node, 30053, serving, false),
        ];
        for (destination, port, answers_from, stale) in cases {
            let flow = Flow::new((ip([10, 1, 0, 5]), 4000), (destination, port), answers_from);
            assert_eq!(targets.is_stale(&flow), stale, "{flow:?}");
        }
    }
}
