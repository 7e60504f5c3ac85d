//! What one direction of a policy, and all policies of a pod together, may come to. Pure.

use coracle_netfilter::policy::{Peer, Ports, Rule};

/// The most of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Most {
    /// A packet is compared with one rule after the other.
    pub(crate) rules: usize,
    /// Ranges of addresses and of ports, of all rules together: each is an element in the kernel.
    pub(crate) parts: usize,
}

/// Of one policy.
pub(crate) const OF_POLICY: Most = Most {
    rules: 5_000,
    parts: 200_000,
};
/// Of all that select a pod: they are one chain, which is written in one message.
pub(crate) const OF_CHAIN: Most = Most {
    rules: 20_000,
    parts: 400_000,
};

/// How large it is so far.
#[derive(Debug)]
pub(crate) struct Size {
    most: Most,
    rules: usize,
    parts: usize,
}

impl Size {
    pub(crate) fn new(most: Most) -> Self {
        Self {
            most,
            rules: 0,
            parts: 0,
        }
    }

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
        self.rules <= self.most.rules && self.parts <= self.most.parts
    }
}
