//! The node's tables: their sets, and rules that are the same on all nodes. Pure.

use std::borrow::Cow;

use super::super::{
    expression::{Connection, Expression, Field, Meta, ORIGINAL, Verdict},
    rule::{Rule, when},
    table::{Chain, Hook, Kind, Layout, Set, Table, Type, Values},
    vip::{
        DESTINATION, ENDPOINT, PAIR, SCRATCH, SOURCE, VIP, is_translated, load_node_vip, load_vip,
        not_to_loopback, read, to_machine, translate,
    },
};
use crate::netlink::Family;

pub(super) const TABLE: Table = Table {
    family: Family::Ipv4,
    name: Cow::Borrowed("coracle-node"),
};
pub(super) const GUARD: Table = Table {
    family: Family::Ipv4,
    name: Cow::Borrowed("coracle-overlay"),
};

/// Maps and sets. All that changes is an element of one of these.
pub(super) mod name {
    /// Address, transport and port, to a pod's address and port.
    pub(in crate::nftables) const HOST_PORTS: &str = "host-ports";
    /// Pairs of the same address: pods that reach themselves by a port of the node.
    pub(in crate::nftables) const HAIRPINS: &str = "hairpins";
    /// Source and destination: pods are seen there under their own address.
    pub(in crate::nftables) const ITSELF: &str = "itself";
    /// Source and any destination: pods that are seen under the node's elsewhere.
    pub(in crate::nftables) const OUTGOING: &str = "outgoing";
    /// Pods and the overlay's port.
    pub(in crate::nftables) const ENVELOPES: &str = "envelopes";
    /// Anybody and the overlay's port.
    pub(in crate::nftables) const ANYBODYS: &str = "anybodys";
    /// The other nodes and the overlay's port.
    pub(in crate::nftables) const NODES: &str = "nodes";
    /// Anybody and pods.
    pub(in crate::nftables) const TO_PODS: &str = "to-pods";
}

/// After whoever else has an opinion on what leaves, as a rule at the end of a chain of iptables
/// would.
pub(super) const AFTER_ALL: i32 = 105;

const UDP: u8 = 17;
const SENDER_AND_PORT: &[Type] = &[Type::Ipv4, Type::Port];

/// After Services, before iptables.
pub(super) fn rules() -> Layout {
    let nat = |hook, priority| Chain {
        kind: Kind::Nat,
        hook,
        priority,
    };
    let chain = |name: &str, hook, rules| (name.to_owned(), Some(hook), rules);
    let mut sets = vec![
        Set::exact(name::HOST_PORTS, VIP, Values::Of(ENDPOINT)),
        Set::exact(name::HAIRPINS, PAIR, Values::None),
    ];
    sets.extend(destinations());
    Layout {
        table: TABLE,
        sets,
        chains: vec![
            chain("prerouting", nat(Hook::Prerouting, -103), to_pods()),
            chain("output", nat(Hook::Output, -103), to_pods()),
            chain("postrouting", nat(Hook::Postrouting, AFTER_ALL), outgoing()),
        ],
    }
}

/// Before and after a packet may be translated to there, by a Service.
pub(super) fn guard() -> Layout {
    let chain = |name: &str, hook, priority, rules| {
        let hook = Chain {
            kind: Kind::Filter,
            hook,
            priority,
        };
        (name.to_owned(), Some(hook), rules)
    };
    Layout {
        table: GUARD,
        sets: vec![
            ranges(name::ENVELOPES, SENDER_AND_PORT),
            ranges(name::ANYBODYS, SENDER_AND_PORT),
            ranges(name::NODES, SENDER_AND_PORT),
            ranges(name::TO_PODS, PAIR),
        ],
        chains: vec![
            chain("prerouting", Hook::Prerouting, -300, before()),
            chain("input", Hook::Input, -150, delivered()),
            chain("forward", Hook::Forward, -150, drop_all(&to_no_pod())),
        ],
    }
}

fn ranges(name: &str, key: &'static [Type]) -> Set {
    Set {
        ranges: true,
        ..Set::exact(name, key, Values::None)
    }
}

/// Whose addresses are seen where.
pub(super) fn destinations() -> Vec<Set> {
    vec![ranges(name::ITSELF, PAIR), ranges(name::OUTGOING, PAIR)]
}

fn to_pods() -> Vec<Rule> {
    let lead = || vec![read(name::HOST_PORTS, DESTINATION), translate()];
    vec![
        [to_machine(), load_vip(), lead()].concat(),
        [not_to_loopback(), to_machine(), load_node_vip(), lead()].concat(),
    ]
}

fn outgoing() -> Vec<Rule> {
    let hairpin = [is_translated(), within(name::HAIRPINS)].concat();
    let mut rules = vec![[hairpin, vec![Expression::Masquerade]].concat()];
    rules.extend(masquerade());
    rules
}

/// What goes elsewhere than [`destinations`] say is sent under the node's address.
pub(super) fn masquerade() -> Vec<Rule> {
    vec![
        when(within(name::ITSELF), Verdict::Return),
        [within(name::OUTGOING), vec![Expression::Masquerade]].concat(),
    ]
}

/// A packet is an envelope, from whom the set says.
fn envelope(senders: &str) -> Rule {
    vec![
        Expression::Meta(Meta::Transport, SCRATCH),
        Expression::is(SCRATCH, [UDP]),
        Expression::Payload(Field::Source4, SOURCE),
        Expression::Payload(Field::DestinationPort, DESTINATION),
        contains(senders, false),
    ]
}

/// Of one that is an envelope.
fn to_no_pod() -> Rule {
    vec![
        Expression::Payload(Field::Destination4, DESTINATION),
        contains(name::TO_PODS, true),
    ]
}

/// A Service at this port may lead to a pod: what is for others is dropped only after that.
fn before() -> Vec<Rule> {
    let to_here = [envelope(name::ENVELOPES), to_machine()].concat();
    vec![when(to_here, Verdict::Drop)]
}

/// Whoever sends to all addresses of the machine, or under one of its own, is no other node.
fn delivered() -> Vec<Rule> {
    let mut rules = drop_all(&Vec::new());
    let mut strangers = envelope(name::ANYBODYS);
    strangers.push(contains(name::NODES, true));
    rules.push(when(strangers, Verdict::Drop));
    rules
}

/// What was translated may be a pod's that has another's source by now, as another node's.
fn drop_all(to: &Rule) -> Vec<Rule> {
    let translated = [
        envelope(name::ANYBODYS),
        is_translated(),
        vec![
            Expression::Connection(Connection::Direction, SCRATCH),
            Expression::is(SCRATCH, [ORIGINAL]),
        ],
    ];
    [envelope(name::ENVELOPES), translated.concat()]
        .map(|envelope| when([envelope, to.clone()].concat(), Verdict::Drop))
        .to_vec()
}

/// Source and destination are in a set.
fn within(set: &str) -> Rule {
    vec![
        Expression::Payload(Field::Source4, SOURCE),
        Expression::Payload(Field::Destination4, DESTINATION),
        contains(set, false),
    ]
}

fn contains(set: &str, inverted: bool) -> Expression {
    Expression::Contains {
        set: set.to_owned(),
        key: SOURCE,
        inverted,
    }
}
