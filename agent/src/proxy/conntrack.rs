//! Forgets UDP flows to endpoints that are no more.
//!
//! A UDP "connection" lives in the kernel's table as long as packets come, with the endpoint chosen at the first one.
//! Flows to endpoints that still answer stay, also if new ones would go elsewhere (they terminate, or the policy
//! changed): sessions drain. TCP needs none of this: its connections end.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    net::Ipv4Addr,
    sync::Once,
};

use coracle_cni::conntrack::{self, Flow};
use coracle_telemetry::Chain;
use tokio::sync::watch;

use super::rules::Fragment;

/// Where UDP flows may go.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Targets {
    services: BTreeMap<(Ipv4Addr, u16), BTreeSet<Ipv4Addr>>,
    node_ports: BTreeMap<u16, BTreeSet<Ipv4Addr>>,
}

impl Targets {
    /// Collects what all Services allow.
    pub fn collect<'a>(fragments: impl Iterator<Item = &'a Fragment>) -> Self {
        let mut targets = Self::default();
        for fragment in fragments {
            targets.services.extend(fragment.udp.iter().map(|(address, allowed)| (*address, allowed.clone())));
            targets.node_ports.extend(fragment.udp_node_ports.iter().map(|(port, allowed)| (*port, allowed.clone())));
        }
        targets
    }

    /// Whether there is any UDP Service.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.services.is_empty() && self.node_ports.is_empty()
    }

    /// Whether nobody answers this flow any more.
    #[must_use]
    pub fn is_stale(&self, flow: &Flow) -> bool {
        let allowed = match self.services.get(&(flow.destination, flow.destination_port)) {
            Some(allowed) => Some(allowed),
            // A node port: only flows that were translated, or a server on the node would lose its own.
            None if flow.answers_from != flow.destination => self.node_ports.get(&flow.destination_port),
            None => None,
        };
        allowed.is_some_and(|allowed| !allowed.contains(&flow.answers_from))
    }
}

/// Cleans whenever it is told new targets, one cleaning at a time. Of what is told meanwhile only the last counts.
/// Ends with the sender.
pub(super) async fn clean(mut told: watch::Receiver<Targets>) {
    while told.changed().await.is_ok() {
        let targets = told.borrow_and_update().clone();
        if targets.is_empty() {
            continue;
        }
        match tokio::task::spawn_blocking(move || delete_stale(&targets)).await {
            Ok(Ok(0)) | Err(_) => {}
            Ok(Ok(count)) => tracing::debug!(count, "deleted flows to removed endpoints"),
            Ok(Err(error)) => {
                // Once: every change of a UDP Service comes here, and nothing changes until somebody loads it.
                static ONCE: Once = Once::new();
                ONCE.call_once(|| {
                    tracing::warn!(error = %Chain(&error), "cannot clean UDP flows of removed endpoints: is nf_conntrack_netlink there?");
                });
            }
        }
    }
}

/// In the calling thread's namespace.
fn delete_stale(targets: &Targets) -> io::Result<usize> {
    let stale = conntrack::udp_flows(|flow| targets.is_stale(flow))?;
    if stale.is_empty() { Ok(0) } else { conntrack::delete(&stale) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_flows_that_nobody_answers_are_stale() {
        let (node, service) = (Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(10, 96, 0, 10));
        let (old, serving) = (Ipv4Addr::new(10, 1, 0, 9), Ipv4Addr::new(10, 1, 0, 8));
        let fragment = Fragment {
            udp: BTreeMap::from([((service, 53), BTreeSet::from([serving]))]),
            udp_node_ports: BTreeMap::from([(30053, BTreeSet::from([serving]))]),
            ..Fragment::default()
        };
        let targets = Targets::collect([fragment].iter());
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
            let flow = Flow::new((Ipv4Addr::new(10, 1, 0, 5), 4000), (destination, port), answers_from);
            assert_eq!(targets.is_stale(&flow), stale, "{flow:?}");
        }
    }
}
