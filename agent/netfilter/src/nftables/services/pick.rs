//! Chains that are shared by all ports that need one like them: those that choose one of so many
//! endpoints, and those that remember the choice.
//!
//! A choice is remembered when the packet is on its way, from what it was sent to and where it
//! goes: the program `nft` 1.0.6 aborts where the value that a map has given goes into another.

use super::{
    super::{
        expression::{Connection, Expression, Field, Meta},
        rule::bits,
        vip::{
            DESTINATION, NUMBER, PORT, PROTOCOL, SOURCE, VALUE, load_node_vip, load_vip, read,
            translate,
        },
    },
    parts::{MASQUERADE, OF_NODE, REMEMBER, mark_with, name},
};

/// A chain that elements lead to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Branch {
    Pick(Pick),
    Memory(Memory),
}

impl Branch {
    /// Its chain's name.
    pub(super) fn chain(self) -> String {
        match self {
            Self::Pick(pick) => pick.chain(),
            Self::Memory(memory) => memory.chain(),
        }
    }

    /// Its chain's rules.
    pub(super) fn rules(self) -> Vec<Vec<Expression>> {
        match self {
            Self::Pick(pick) => pick.rules(),
            Self::Memory(memory) => memory.rules(),
        }
    }
}

/// A way to choose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Pick {
    /// How many there are.
    pub(super) count: u32,
    /// Among those for traffic that stays on the node.
    pub(super) local: bool,
    /// The answer must come back through here.
    pub(super) masquerade: bool,
    /// The VIP is a port of the node, whichever of its addresses a packet is sent to.
    pub(super) of_node: bool,
    /// A client stays for so many seconds where it was.
    pub(super) sticky_secs: Option<u32>,
}

impl Pick {
    pub(super) fn chain(self) -> String {
        let node = if self.of_node { "node-" } else { "" };
        let marked = if self.masquerade { "mark-" } else { "" };
        let local = if self.local { "local-" } else { "" };
        let sticky = self.sticky_secs.map(|secs| format!("-for-{secs}"));
        let sticky = sticky.unwrap_or_default();
        format!("{node}{marked}{local}pick-{}{sticky}", self.count)
    }

    /// What remembers its choice, if anything does.
    pub(super) fn memory(self) -> Option<Memory> {
        self.sticky_secs.map(|secs| Memory {
            of_node: self.of_node,
            secs,
        })
    }

    fn rules(self) -> Vec<Vec<Expression>> {
        let mut rules = Vec::new();
        if self.masquerade {
            rules.push(mark_with(MASQUERADE));
        }
        if self.sticky_secs.is_some() {
            rules.push(mark_with(if self.of_node { OF_NODE } else { REMEMBER }));
            let known = read(name::STICKY, SOURCE);
            rules.push([self.client(), vec![known, translate()]].concat());
        }
        rules.push([self.load(), self.draw(), vec![translate()]].concat());
        rules
    }

    fn load(self) -> Vec<Expression> {
        if self.of_node {
            load_node_vip()
        } else {
            load_vip()
        }
    }

    fn client(self) -> Vec<Expression> {
        let source = Expression::Payload(Field::Source4, SOURCE);
        [vec![source], self.load()].concat()
    }

    /// One of the endpoints of the VIP that is loaded.
    fn draw(self) -> Vec<Expression> {
        let endpoints = if self.local {
            name::LOCAL_ENDPOINTS
        } else {
            name::ENDPOINTS
        };
        vec![
            Expression::Random(self.count, NUMBER),
            read(endpoints, DESTINATION),
        ]
    }
}

/// Remembers where a client was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Memory {
    of_node: bool,
    secs: u32,
}

impl Memory {
    pub(super) fn chain(self) -> String {
        let node = if self.of_node { "node-" } else { "" };
        format!("{node}remember-for-{}", self.secs)
    }

    /// Whoever comes again is remembered for longer. Where no more clients can be remembered, the
    /// connection is none the worse for it.
    fn rules(self) -> Vec<Vec<Expression>> {
        let mut rule = vec![Expression::Payload(Field::Source4, SOURCE)];
        rule.extend(load_original_vip(self.of_node));
        rule.extend([
            Expression::Payload(Field::Destination4, VALUE),
            Expression::Payload(Field::DestinationPort, VALUE.after(1)),
            Expression::Remember {
                map: name::STICKY.to_owned(),
                key: SOURCE,
                value: VALUE,
                milliseconds: u64::from(self.secs) * 1000,
            },
        ]);
        vec![rule]
    }
}

/// Loads the VIP that a translated packet was sent to.
pub(super) fn load_original_vip(of_node: bool) -> Vec<Expression> {
    let mut load = vec![Expression::Connection(
        Connection::Destination4,
        DESTINATION,
    )];
    if of_node {
        load.push(bits(DESTINATION, 0, 0));
    }
    load.extend([
        Expression::Meta(Meta::Transport, PROTOCOL),
        Expression::Connection(Connection::DestinationPort, PORT),
    ]);
    load
}
