//! The table of Services: its sets, and rules that are the same for all of them.

use std::collections::BTreeSet;

use ipnet::IpNet;

use super::{
    super::{
        expression::{Expression, Field, Meta, Refuse, Register, Verdict, state},
        rule::{Rule, in_state, when},
        table::{Chain, Hook, Kind, Layout, Set, Type, Values},
        vip::{
            DESTINATION, ENDPOINT, NUMBER, PAIR, SCRATCH, SOURCE, VIP, from_machine, is_translated,
            load_node_vip, load_vip, not_to_loopback, to_machine, within,
        },
    },
    parts::{MASQUERADE, OF_NODE, REMEMBER, TABLE, is_marked, mark_with, name, unmark},
    pick::{Branch, load_original_vip},
};
use crate::service::ServiceNetwork;

const NUMBERED_VIP: &[Type] = &[Type::Ipv4, Type::Protocol, Type::Port, Type::Mark];
const CLIENT: &[Type] = &[Type::Ipv4, Type::Ipv4, Type::Protocol, Type::Port];
const ALLOWED: &[Type] = &[Type::Ipv4, Type::Protocol, Type::Port, Type::Ipv4];
/// Clients that are remembered; further ones are given any endpoint each time.
const MOST_CLIENTS: u32 = 262_144;

const TCP: u8 = 6;

/// The whole table, with these chains that elements lead to.
pub(super) fn layout(network: &ServiceNetwork, branches: &BTreeSet<Branch>) -> Layout {
    let rules = Rules(network);
    let inner = |name: &str, rules| (name.to_owned(), None, rules);
    let mut chains = vec![
        inner("mark", vec![mark_with(MASQUERADE)]),
        inner("source", rules.source()),
        inner(name::REFUSE, refuse()),
    ];
    let branches = branches.iter();
    chains.extend(branches.map(|branch| (branch.chain(), None, branch.rules())));
    chains.extend([
        inner(name::EXTERNAL_LOCAL, rules.external_local(by_vip)),
        inner(name::NODE_EXTERNAL_LOCAL, rules.external_local(by_node_vip)),
        inner(name::GUARD, guard()),
        inner(name::REMEMBER_NODE, vec![remember(true)]),
        inner(name::REMEMBER, remember_rules()),
        inner(name::UNSERVED_NEW, rules.unserved()),
        inner(name::UNSERVED_HERE, rules.unserved_here()),
    ]);
    chains.extend(hooked(&rules));
    Layout {
        table: TABLE,
        sets: sets(),
        chains,
    }
}

/// Where the kernel comes in: before iptables' tables, whose priorities are -100, 0 and 100; and
/// once more between translation and routing.
fn hooked(rules: &Rules<'_>) -> [(String, Option<Chain>, Vec<Rule>); 8] {
    let at = |kind, hook, priority, name: &str, rules| {
        let chain = Chain {
            kind,
            hook,
            priority,
        };
        (name.to_owned(), Some(chain), rules)
    };
    let (nat, filter) = (Kind::Nat, Kind::Filter);
    let here = || vec![if_new(name::UNSERVED_HERE)];
    let choice = || {
        // Others use these bits, too, on other packets.
        let marked = is_marked(REMEMBER | OF_NODE);
        let chosen = [marked, in_state(state::NEW, SCRATCH), is_translated()].concat();
        vec![when(chosen, jump(name::REMEMBER))]
    };
    [
        at(
            nat,
            Hook::Prerouting,
            -105,
            "nat-prerouting",
            rules.translate(),
        ),
        at(nat, Hook::Output, -105, "nat-output", rules.translate()),
        at(nat, Hook::Postrouting, 95, "nat-postrouting", masquerade()),
        at(
            filter,
            Hook::Prerouting,
            -95,
            "remember-prerouting",
            choice(),
        ),
        at(filter, Hook::Output, -95, "remember-output", choice()),
        at(filter, Hook::Input, -5, "filter-input", here()),
        at(filter, Hook::Output, -5, "filter-output", here()),
        at(filter, Hook::Forward, -5, "filter-forward", rules.forward()),
    ]
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
        verdicts(name::AFFINITY),
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
        inside.chain([mark_with(MASQUERADE)]).collect()
    }

    fn translate(&self) -> Vec<Rule> {
        let mut rules: Vec<Rule> = self
            .0
            .service_cidrs
            .iter()
            .map(|cidr| when(within(Field::Destination4, cidr), jump("source")))
            .collect();
        rules.push(by_vip(name::SERVICES));
        rules.extend(self.by_node_vip(name::SERVICES));
        rules
    }

    /// What is sent to an address of the node that has node ports.
    ///
    /// Not loopback's: translating what comes from there takes `route_localnet`, which lets
    /// neighbours in (CVE-2020-8558).
    fn by_node_vip(&self, map: &str) -> Vec<Rule> {
        let cidrs = &self.0.node_port_cidrs;
        let chosen = cidrs.iter().map(|cidr| within(Field::Destination4, cidr));
        let mut chosen: Vec<Rule> = chosen.collect();
        if chosen.is_empty() {
            chosen.push(not_to_loopback());
        }
        let rules = chosen.into_iter();
        rules
            .map(|chosen| [chosen, to_machine(), by_node_vip(map)].concat())
            .collect()
    }

    /// `externalTrafficPolicy: Local`: pods of this node and the node itself go anywhere, as if a
    /// balancer had brought them back in.
    fn external_local(&self, by_vip: impl Fn(&str) -> Rule) -> Vec<Rule> {
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

    fn unserved_here(&self) -> Vec<Rule> {
        let mut rules = self.by_node_vip(name::UNSERVED);
        let rest = Verdict::Goto(name::UNSERVED_NEW.to_owned());
        rules.push(vec![Expression::Verdict(rest)]);
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
        let invalid = |match_| {
            when(
                [match_, in_state(state::INVALID, SCRATCH)].concat(),
                Verdict::Drop,
            )
        };
        let new = if_new(name::UNSERVED_NEW);
        from.chain(to).map(invalid).chain([new]).collect()
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
    let mut hairpin = is_translated();
    hairpin.extend([
        Expression::Payload(Field::Source4, SOURCE),
        Expression::Payload(Field::Destination4, DESTINATION),
        Expression::Contains {
            set: name::HAIRPINS.to_owned(),
            key: SOURCE,
            inverted: false,
        },
        Expression::Masquerade,
    ]);
    // The mark goes first: a packet that comes by again, as out of a tunnel, is not masqueraded
    // twice.
    let marked = [is_marked(MASQUERADE), unmark(MASQUERADE)].concat();
    let marked = [marked, vec![Expression::Masquerade]].concat();
    vec![hairpin, marked]
}

/// The bits have said what they had to, whatever comes of it.
fn remember_rules() -> Vec<Rule> {
    let clear = || unmark(REMEMBER | OF_NODE);
    let node = Verdict::Goto(name::REMEMBER_NODE.to_owned());
    vec![
        when([is_marked(OF_NODE), clear()].concat(), node),
        clear(),
        remember(false),
    ]
}

fn remember(of_node: bool) -> Rule {
    [load_original_vip(of_node), vec![verdict_of(name::AFFINITY)]].concat()
}

fn if_new(chain: &str) -> Rule {
    when(in_state(state::NEW, SCRATCH), jump(chain))
}

fn by_vip(map: &str) -> Rule {
    [load_vip(), vec![verdict_of(map)]].concat()
}

fn by_node_vip(map: &str) -> Rule {
    [load_node_vip(), vec![verdict_of(map)]].concat()
}

fn verdict_of(map: &str) -> Expression {
    Expression::VerdictMap {
        map: map.to_owned(),
        key: DESTINATION,
    }
}

fn jump(chain: &str) -> Verdict {
    Verdict::Jump(chain.to_owned())
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
