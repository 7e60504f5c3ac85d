//! The table of Services: its sets, and rules that are the same for all of them.

use std::collections::BTreeSet;

use ipnet::IpNet;

use super::{
    super::{
        expression::{
            Connection, Expression, Field, Meta, Refuse, Register, STATUS_DNAT, Verdict, octets,
            state,
        },
        table::{Chain, Family, Hook, Kind, Layout, Set, Table, Type, Values},
    },
    pick::Pick,
};
use crate::service::ServiceNetwork;

pub(super) const TABLE: Table = Table {
    family: Family::Ipv4,
    name: "coracle",
};

/// Maps and sets of the table. All that changes with a Service is an element of one of these.
pub(super) mod name {
    /// Address and port, to the chain that chooses an endpoint.
    pub(in crate::nftables) const SERVICES: &str = "services";
    /// Address, port and number, to an endpoint.
    pub(in crate::nftables) const ENDPOINTS: &str = "endpoints";
    /// The same for what comes from outside, where that stays on the node.
    pub(in crate::nftables) const LOCAL_ENDPOINTS: &str = "local-endpoints";
    /// Where external traffic stays on the node: who may go anywhere all the same.
    pub(in crate::nftables) const ANYWHERE: &str = "anywhere";
    /// And the others.
    pub(in crate::nftables) const HERE: &str = "here";
    /// Addresses and ports that not everybody may use: who may, and where they go.
    pub(in crate::nftables) const ALLOWED: &str = "allowed";
    pub(in crate::nftables) const GUARDED: &str = "guarded";
    /// Client, address and port, to the endpoint that it had last.
    pub(in crate::nftables) const STICKY: &str = "sticky";
    /// What becomes of packets that no endpoint takes.
    pub(in crate::nftables) const UNSERVED: &str = "unserved";
    /// Pairs of the same address: pods that may reach themselves.
    pub(in crate::nftables) const HAIRPINS: &str = "hairpins";
    /// Chains.
    pub(in crate::nftables) const EXTERNAL_LOCAL: &str = "external-local";
    pub(in crate::nftables) const GUARD: &str = "guard";
    pub(in crate::nftables) const REFUSE: &str = "refuse";
}

const VIP: &[Type] = &[Type::Ipv4, Type::Protocol, Type::Port];
const NUMBERED_VIP: &[Type] = &[Type::Ipv4, Type::Protocol, Type::Port, Type::Mark];
const ENDPOINT: &[Type] = &[Type::Ipv4, Type::Port];
const CLIENT: &[Type] = &[Type::Ipv4, Type::Ipv4, Type::Protocol, Type::Port];
const ALLOWED: &[Type] = &[Type::Ipv4, Type::Protocol, Type::Port, Type::Ipv4];
const PAIR: &[Type] = &[Type::Ipv4, Type::Ipv4];

/// Clients that are remembered; further ones are given any endpoint each time.
const MOST_CLIENTS: u32 = 262_144;

/// The bit of the packet mark that asks for masquerading: see [`crate::iptables::rules`].
const MARK: u32 = 0x1000;
/// `RTN_LOCAL`.
const LOCAL: u32 = 2;
const TCP: u8 = 6;

/// Where the parts of keys are: the client's address, then those of a VIP, then a number.
pub(super) const SOURCE: Register = Register::FIRST;
pub(super) const DESTINATION: Register = Register::FIRST.after(1);
const PROTOCOL: Register = Register::FIRST.after(2);
const PORT: Register = Register::FIRST.after(3);
pub(super) const NUMBER: Register = Register::FIRST.after(4);
/// Values that are read, and what is worked on.
pub(super) const VALUE: Register = Register::FIRST.after(5);
pub(super) const SCRATCH: Register = Register::FIRST.after(7);

/// Loads address, protocol and port of a packet's destination.
pub(super) fn load_vip() -> Vec<Expression> {
    vec![
        Expression::Payload(Field::Destination4, DESTINATION),
        Expression::Meta(Meta::Transport, PROTOCOL),
        Expression::Payload(Field::DestinationPort, PORT),
    ]
}

/// The whole table, with the chains of these choices.
pub(super) fn layout(network: &ServiceNetwork, picks: &BTreeSet<Pick>) -> Layout {
    let rules = Rules(network);
    let inner = |name: &str, rules| (name.to_owned(), None, rules);
    let mut chains = vec![
        inner("mark", vec![set_mark()]),
        inner("source", rules.source()),
        inner(name::REFUSE, refuse()),
    ];
    chains.extend(picks.iter().map(|pick| (pick.chain(), None, pick.rules())));
    chains.extend([
        inner(name::EXTERNAL_LOCAL, rules.external_local()),
        inner(name::GUARD, guard()),
        inner("unserved-new", rules.unserved()),
    ]);
    let hooked = |name: &str, kind, hook, priority, rules| {
        let chain = Chain {
            kind,
            hook,
            priority,
        };
        (name.to_owned(), Some(chain), rules)
    };
    // Before those of iptables' tables, whose priorities are -100, 0 and 100.
    chains.extend([
        hooked(
            "nat-prerouting",
            Kind::Nat,
            Hook::Prerouting,
            -105,
            rules.translate(),
        ),
        hooked(
            "nat-output",
            Kind::Nat,
            Hook::Output,
            -105,
            rules.translate(),
        ),
        hooked(
            "nat-postrouting",
            Kind::Nat,
            Hook::Postrouting,
            95,
            masquerade(),
        ),
        hooked(
            "filter-input",
            Kind::Filter,
            Hook::Input,
            -5,
            vec![only_new()],
        ),
        hooked(
            "filter-output",
            Kind::Filter,
            Hook::Output,
            -5,
            vec![only_new()],
        ),
        hooked(
            "filter-forward",
            Kind::Filter,
            Hook::Forward,
            -5,
            rules.forward(),
        ),
    ]);
    Layout {
        table: TABLE,
        sets: sets(),
        chains,
    }
}

fn sets() -> Vec<Set> {
    let verdicts = |name| Set::exact(name, VIP, Values::Verdicts);
    let endpoints = |name| Set::exact(name, NUMBERED_VIP, Values::Of(ENDPOINT));
    vec![
        verdicts(name::SERVICES),
        verdicts(name::ANYWHERE),
        verdicts(name::HERE),
        verdicts(name::GUARDED),
        verdicts(name::UNSERVED),
        endpoints(name::ENDPOINTS),
        endpoints(name::LOCAL_ENDPOINTS),
        Set {
            ranges: true,
            ..Set::exact(name::ALLOWED, ALLOWED, Values::None)
        },
        Set {
            remembered: Some(MOST_CLIENTS),
            ..Set::exact(name::STICKY, CLIENT, Values::Of(ENDPOINT))
        },
        Set::exact(name::HAIRPINS, PAIR, Values::None),
    ]
}

type Rule = Vec<Expression>;

struct Rules<'a>(&'a ServiceNetwork);

impl Rules<'_> {
    /// What comes from outside of the cluster's pods is masqueraded.
    fn source(&self) -> Vec<Rule> {
        let cidrs = &self.0.cluster_cidrs;
        if cidrs.is_empty() {
            return Vec::new();
        }
        let inside = cidrs
            .iter()
            .map(|cidr| when(within(Field::Source4, cidr), Verdict::Return));
        inside.chain([set_mark()]).collect()
    }

    fn translate(&self) -> Vec<Rule> {
        let mut rules: Vec<Rule> = self
            .0
            .service_cidrs
            .iter()
            .map(|cidr| when(within(Field::Destination4, cidr), jump("source")))
            .collect();
        rules.push(by_vip(name::SERVICES));
        rules
    }

    /// `externalTrafficPolicy: Local`: pods of this node and the node itself go anywhere, as if a
    /// balancer had brought them back in.
    fn external_local(&self) -> Vec<Rule> {
        let own_pods: Vec<Rule> = match &self.0.pod_interface {
            Some(link) => vec![from_link(link)],
            None => self
                .0
                .cluster_cidrs
                .iter()
                .map(|cidr| within(Field::Source4, cidr))
                .collect(),
        };
        let mut rules: Vec<Rule> = own_pods
            .into_iter()
            .map(|from| [from, by_vip(name::ANYWHERE)].concat())
            .collect();
        // The node's own packets may have the external address as their source.
        rules.push(when(from_machine(), jump("mark")));
        rules.push([from_machine(), by_vip(name::ANYWHERE)].concat());
        rules.push(by_vip(name::HERE));
        rules
    }

    fn unserved(&self) -> Vec<Rule> {
        let mut rules = vec![by_vip(name::UNSERVED)];
        if let Some(own) = self.0.own_service_ip {
            let own = within(Field::Destination4, &IpNet::from(own));
            rules.push(when(own, Verdict::Return));
        }
        let refuse = || Verdict::Goto(name::REFUSE.to_owned());
        let cidrs = self.0.service_cidrs.iter();
        rules.extend(cidrs.map(|cidr| when(within(Field::Destination4, cidr), refuse())));
        rules
    }

    /// Late packets of translated connections would leave untranslated (kubernetes issue 74839).
    /// Only what concerns the cluster: a machine that also routes for others may see one direction
    /// of their connections only.
    fn forward(&self) -> Vec<Rule> {
        let from = self.0.cluster_cidrs.iter();
        let from = from.map(|cidr| within(Field::Source4, cidr));
        let to = self.0.cluster_cidrs.iter().chain(&self.0.service_cidrs);
        let to = to.map(|cidr| within(Field::Destination4, cidr));
        let invalid = |match_| when([match_, in_state(state::INVALID)].concat(), Verdict::Drop);
        from.chain(to).map(invalid).chain([only_new()]).collect()
    }
}

fn guard() -> Vec<Rule> {
    let mut rule = load_vip();
    rule.extend([
        Expression::Payload(Field::Source4, NUMBER),
        Expression::Contains {
            set: name::ALLOWED.to_owned(),
            key: DESTINATION,
            inverted: false,
        },
    ]);
    vec![[rule, by_vip(name::GUARDED)].concat()]
}

/// TCP is refused by a reset: the kernel sends few ICMP errors a second, and a client without one
/// waits for its retransmission.
fn refuse() -> Vec<Rule> {
    vec![
        vec![
            Expression::Meta(Meta::Transport, SCRATCH),
            Expression::is(SCRATCH, [TCP]),
            Expression::Refuse(Refuse::TcpReset),
        ],
        vec![Expression::Refuse(Refuse::PortUnreachable)],
    ]
}

fn masquerade() -> Vec<Rule> {
    let hairpin = vec![
        Expression::Connection(Connection::Status, SCRATCH),
        bits(SCRATCH, STATUS_DNAT, 0),
        Expression::Differs(SCRATCH, vec![0; 4]),
        Expression::Payload(Field::Source4, SOURCE),
        Expression::Payload(Field::Destination4, DESTINATION),
        Expression::Contains {
            set: name::HAIRPINS.to_owned(),
            key: SOURCE,
            inverted: false,
        },
        Expression::Masquerade,
    ];
    // The mark goes first: a packet that comes by again, as out of a tunnel, is not masqueraded
    // twice.
    let marked = vec![
        Expression::Meta(Meta::Mark, SCRATCH),
        bits(SCRATCH, MARK, 0),
        Expression::Differs(SCRATCH, vec![0; 4]),
        Expression::Meta(Meta::Mark, SCRATCH),
        bits(SCRATCH, !MARK, 0),
        Expression::SetMark(SCRATCH),
        Expression::Masquerade,
    ];
    vec![hairpin, marked]
}

pub(super) fn set_mark() -> Rule {
    vec![
        Expression::Meta(Meta::Mark, SCRATCH),
        bits(SCRATCH, !MARK, MARK),
        Expression::SetMark(SCRATCH),
    ]
}

fn only_new() -> Rule {
    when(in_state(state::NEW), jump("unserved-new"))
}

fn by_vip(map: &str) -> Rule {
    let lookup = Expression::VerdictMap {
        map: map.to_owned(),
        key: DESTINATION,
    };
    [load_vip(), vec![lookup]].concat()
}

fn when(mut matches: Rule, verdict: Verdict) -> Rule {
    matches.push(Expression::Verdict(verdict));
    matches
}

fn jump(chain: &str) -> Verdict {
    Verdict::Jump(chain.to_owned())
}

fn in_state(states: u32) -> Rule {
    vec![
        Expression::Connection(Connection::State, SCRATCH),
        bits(SCRATCH, states, 0),
        Expression::Differs(SCRATCH, vec![0; 4]),
    ]
}

fn from_machine() -> Rule {
    vec![
        Expression::SourceKind(SCRATCH),
        Expression::is(SCRATCH, LOCAL.to_ne_bytes()),
    ]
}

/// Names of links are compared with all of their 16 bytes.
fn from_link(name: &str) -> Rule {
    let mut padded = name.as_bytes().to_vec();
    padded.resize(16, 0);
    vec![
        Expression::Meta(Meta::InputName, Register::FIRST),
        Expression::Equal(Register::FIRST, padded),
    ]
}

fn within(field: Field, cidr: &IpNet) -> Rule {
    let mut matches = vec![Expression::Payload(field, SCRATCH)];
    if cidr.prefix_len() < cidr.max_prefix_len() {
        let mask = octets(cidr.netmask());
        matches.push(Expression::Bits {
            register: SCRATCH,
            flip: vec![0; mask.len()],
            mask,
        });
    }
    matches.push(Expression::Equal(SCRATCH, octets(cidr.network())));
    matches
}

fn bits(register: Register, mask: u32, flip: u32) -> Expression {
    Expression::Bits {
        register,
        mask: mask.to_ne_bytes().to_vec(),
        flip: flip.to_ne_bytes().to_vec(),
    }
}
