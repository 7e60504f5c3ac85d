//! What one direction of a policy may come to. Pure.

use coracle_netfilter::policy::{Peer, Ports, Rule};

/// A packet is compared with one rule after the other.
pub(crate) const MOST_RULES: usize = 5_000;
/// Ranges of addresses and of ports, of all rules together: each is an element in the kernel.
pub(crate) const MOST_PARTS: usize = 200_000;

/// How large it is so far.
#[derive(Debug, Default)]
pub(crate) struct Size {
    rules: usize,
    parts: usize,
}

impl Size {
    /// Counts one more rule. Says whether there is room for it.
    pub(crate) fn takes(&mut self, rule: &Rule) -> bool {
        let blocks = match &rule.peer {
            Peer::Blocks(ranges) => ranges.len(),
            Peer::Any | Peer::Group(_) => 0,
        };
        let ports = match &rule.ports {
            Ports::Numbers(numbers) => numbers.len(),
            Ports::Any | Ports::Named(_) => 0,
        };
        self.rules += 1;
        self.parts += blocks + ports;
        self.rules <= MOST_RULES && self.parts <= MOST_PARTS
    }
}
