//! What a plan does with a packet, and why.

use std::net::IpAddr;

use super::{ChainId, Direction, Peer, Plan, PolicyKey, Ports, Rule};
use crate::service::Protocol;

/// The first packet of a connection, as the forward hook sees it: after the Service's address was
/// translated, before the source is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet {
    /// Who sends.
    pub source: IpAddr,
    /// Who shall get it.
    pub destination: IpAddr,
    /// The transport; `None` for one that no policy can name.
    pub protocol: Option<Protocol>,
    /// The port at the destination.
    pub destination_port: u16,
}

/// What one chain said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Which way the chain looks.
    pub direction: Direction,
    /// The address that led to the chain.
    pub address: IpAddr,
    /// The chain.
    pub chain: ChainId,
    /// The policies it stands for.
    pub policies: Vec<PolicyKey>,
    /// The place of the rule that let the packet through; `None`: dropped.
    pub rule: Option<usize>,
}

/// What becomes of a packet on this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// The chains it went through, up to the one that dropped it. Empty: no policy selects either.
    pub steps: Vec<Step>,
}

impl Verdict {
    /// Whether it passes.
    #[must_use]
    pub fn is_allowed(&self) -> bool {
        self.steps.iter().all(|step| step.rule.is_some())
    }
}

impl Plan {
    /// What becomes of `packet`. Only for what the kernel forwards: a packet whose source is an
    /// address of the node (`node_addresses`) leaves by the output hook, where no policy is asked.
    /// A pod always reaches itself. What is sent to everybody passes nowhere where there is a
    /// policy, which is not asked about here: it is no connection.
    #[must_use]
    pub fn verdict(&self, packet: &Packet, node_addresses: &[IpAddr]) -> Verdict {
        let mut verdict = Verdict { steps: Vec::new() };
        if packet.source == packet.destination || node_addresses.contains(&packet.source) {
            return verdict;
        }
        let ends = [
            (Direction::Egress, &self.from, packet.source),
            (Direction::Ingress, &self.to, packet.destination),
        ];
        for (direction, elements, address) in ends {
            let Some(id) = elements.get(&address) else {
                continue;
            };
            let Some(chain) = self.chains.get(id) else {
                continue;
            };
            let peer = match direction {
                Direction::Egress => packet.destination,
                Direction::Ingress => packet.source,
            };
            let rule = chain
                .rules
                .iter()
                .position(|rule| self.takes(rule, peer, packet));
            verdict.steps.push(Step {
                direction,
                address,
                chain: id.clone(),
                policies: chain.policies.clone(),
                rule,
            });
            if rule.is_none() {
                break;
            }
        }
        verdict
    }

    fn takes(&self, rule: &Rule, peer: IpAddr, packet: &Packet) -> bool {
        let (protocol, port) = (packet.protocol, packet.destination_port);
        let has_peer = match &rule.peer {
            Peer::Any => true,
            Peer::Group(id) => self
                .groups
                .get(id)
                .is_some_and(|group| group.contains(&peer)),
            Peer::Blocks(ranges) => ranges.iter().any(|range| range.contains(peer)),
        };
        has_peer
            && match &rule.ports {
                Ports::Any => true,
                Ports::Numbers(ranges) => ranges
                    .iter()
                    .any(|&(of, from, to)| Some(of) == protocol && (from..=to).contains(&port)),
                Ports::Named(id) => self.port_groups.get(id).is_some_and(|group| {
                    let of = |protocol| (packet.destination, protocol, port);
                    protocol.is_some_and(|protocol| group.contains(&of(protocol)))
                }),
            }
    }
}
