//! Connections that policies do not let through any more.
//!
//! What is established passes without a question, so a stricter policy cuts what it refuses: the
//! connection is forgotten, and its next packet is one in the middle of nothing, which the chains
//! drop. A UDP server that goes on sending begins a flow of its own, which the client's policies
//! and its own decide on.

use std::{io, net::IpAddr};

use crate::{
    conntrack::{self, Flow},
    netlink::Family,
    policy::{Change, Packet, Plan},
    service::Protocol,
};

/// Deletes the connections that the plan refuses, in the calling thread's namespace; what the node
/// itself began (`is_own`) is not asked about. Returns how many there were.
///
/// # Errors
/// What the kernel says; `EOPNOTSUPP` or `EINVAL` without `nf_conntrack_netlink`.
pub fn cut(plan: &Plan, is_own: impl Fn(IpAddr) -> bool) -> io::Result<usize> {
    let mut cut = 0;
    for family in Family::ALL {
        let refused = |flow: &Flow| is_refused(plan, flow) && !is_own(flow.source);
        let flows = conntrack::flows(family, refused)?;
        if !flows.is_empty() {
            cut += conntrack::delete(&flows)?;
        }
    }
    Ok(cut)
}

/// Whether something may be refused after a change that was not before.
#[must_use]
pub fn may_refuse(change: &Change) -> bool {
    let leads = change.to.values().chain(change.from.values());
    leads.flatten().next().is_some()
        || !change.groups.dropped.is_empty()
        || !change.port_groups.dropped.is_empty()
}

fn is_refused(plan: &Plan, flow: &Flow) -> bool {
    let packet = Packet {
        source: flow.source,
        destination: flow.answers_from,
        protocol: Protocol::from_number(flow.protocol),
        destination_port: flow.answering_port,
    };
    !plan.verdict(&packet, &[]).is_allowed()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::policy::{Chain, ChainId, Direction, Peer, Ports, Rule};

    #[test]
    fn a_flow_is_judged_by_where_it_really_goes() {
        let pod: IpAddr = [10, 1, 0, 9].into();
        let chain = Chain {
            direction: Direction::Ingress,
            policies: Vec::new(),
            rules: vec![Rule {
                peer: Peer::Any,
                ports: Ports::Numbers(vec![(Protocol::Udp, 5353, 5353)]),
            }],
        };
        let plan = Plan {
            chains: BTreeMap::from([(ChainId::new("1"), chain)]),
            to: BTreeMap::from([(pod, ChainId::new("1"))]),
            ..Plan::default()
        };
        let client = ([10, 1, 0, 5].into(), 4000);
        let through = |port| Flow::new(client, ([10, 96, 0, 10].into(), port), pod);
        assert!(!is_refused(&plan, &through(5353)));
        assert!(is_refused(&plan, &through(53)));
        let elsewhere = Flow::new(client, (pod, 53), [10, 1, 0, 8].into());
        assert!(!is_refused(&plan, &elsewhere));
    }
}
