//! The rules of policies, which differ with the family only in where addresses are. Pure.

use std::net::IpAddr;

use super::{
    super::{
        batch::Key,
        expression::{
            Connection, Expression, Field, Meta, Register, STATUS_DNAT, Verdict, octets, state,
        },
        rule::{Rule, in_state, of_connection, when},
        table::{Set, Table, Type, Values},
    },
    names::*,
};
use crate::{
    netlink::Family,
    policy::{self, Chain, ChainId, Direction, GroupId, Peer, PortGroupId, Ports},
};

const TCP: u8 = 6;
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;
/// Neighbour and router discovery, without which no address is found on a link.
const DISCOVERY: std::ops::RangeInclusive<u8> = 133..=136;
/// `RTN_BROADCAST` and `RTN_MULTICAST`: destinations that are nobody's own.
const EVERYBODY: [u32; 2] = [3, 5];
/// FIN, SYN, RST and ACK, and what the first packet of a connection has of them.
const FLAGS: u8 = 0x17;
const SYN: u8 = 0x02;
/// `IFNAMSIZ`.
const LINK_NAME_BYTES: usize = 16;

/// A table's packets, as far as they differ with the family.
#[derive(Debug, Clone, Copy)]
pub(super) struct Packets(pub(super) Family);

impl Packets {
    pub(super) fn table(self) -> Table {
        Table {
            family: self.0,
            name: super::TABLE.into(),
        }
    }

    pub(super) fn address(self) -> &'static [Type] {
        match self.0 {
            Family::Ipv4 => &[Type::Ipv4],
            Family::Ipv6 => &[Type::Ipv6],
        }
    }

    pub(super) fn pair(self) -> &'static [Type] {
        match self.0 {
            Family::Ipv4 => &[Type::Ipv4, Type::Ipv4],
            Family::Ipv6 => &[Type::Ipv6, Type::Ipv6],
        }
    }

    /// A key that ends in a protocol, since ranges need two parts.
    fn block(self) -> &'static [Type] {
        match self.0 {
            Family::Ipv4 => &[Type::Ipv4, Type::Protocol],
            Family::Ipv6 => &[Type::Ipv6, Type::Protocol],
        }
    }

    fn port(self) -> &'static [Type] {
        match self.0 {
            Family::Ipv4 => &[Type::Ipv4, Type::Protocol, Type::Port],
            Family::Ipv6 => &[Type::Ipv6, Type::Protocol, Type::Port],
        }
    }

    /// Registers of an address.
    fn words(self) -> u32 {
        match self.0 {
            Family::Ipv4 => 1,
            Family::Ipv6 => 4,
        }
    }

    // Where parts of keys are: source and destination, or destination, protocol and port.
    fn source(self) -> Register {
        Register::FIRST
    }

    fn destination(self) -> Register {
        Register::FIRST.after(self.words())
    }

    fn protocol(self) -> Register {
        Register::FIRST.after(2 * self.words())
    }

    fn number(self) -> Register {
        Register::FIRST.after(2 * self.words() + 1)
    }

    fn scratch(self) -> Register {
        Register::FIRST.after(2 * self.words() + 2)
    }

    fn source_field(self) -> Field {
        match self.0 {
            Family::Ipv4 => Field::Source4,
            Family::Ipv6 => Field::Source6,
        }
    }

    fn destination_field(self) -> Field {
        match self.0 {
            Family::Ipv4 => Field::Destination4,
            Family::Ipv6 => Field::Destination6,
        }
    }

    fn load_source(self) -> Expression {
        Expression::Payload(self.source_field(), self.source())
    }

    fn load_destination(self) -> Expression {
        Expression::Payload(self.destination_field(), self.destination())
    }

    pub(super) fn group(self, id: &GroupId) -> Set {
        Set::exact(group_name(id), self.address(), Values::None)
    }

    pub(super) fn port_group(self, id: &PortGroupId) -> Set {
        Set::exact(port_group_name(id), self.port(), Values::None)
    }

    /// What a chain's rules compare with that never changes: sets of ranges.
    pub(super) fn constants(self, id: &ChainId, chain: &Chain) -> Vec<(Set, Vec<Key>)> {
        let ranges = |name, key| Set {
            ranges: true,
            ..Set::exact(name, key, Values::None)
        };
        let mut sets = Vec::new();
        for (at, rule) in chain.rules.iter().enumerate() {
            if let Peer::Blocks(blocks) = &rule.peer {
                let ours = blocks
                    .iter()
                    .filter(|range| Family::of(range.first) == self.0);
                let end = |address, protocol| [octets(address), protocol_part(protocol)].concat();
                let keys =
                    ours.map(|range| Key::between(end(range.first, 0), end(range.last, u8::MAX)));
                sets.push((ranges(blocks_name(id, at), self.block()), keys.collect()));
            }
            if let Ports::Numbers(numbers) = &rule.ports {
                let end = |protocol, port| [protocol_part(protocol), port_part(port)].concat();
                let keys = numbers.iter().map(|(protocol, first, last)| {
                    let protocol = protocol.number();
                    Key::between(end(protocol, *first), end(protocol, *last))
                });
                const NUMBERS: &[Type] = &[Type::Protocol, Type::Port];
                sets.push((ranges(numbers_name(id, at), NUMBERS), keys.collect()));
            }
        }
        sets
    }

    /// Lets through what one of the rules names, and drops the rest.
    pub(super) fn rules(self, id: &ChainId, chain: &Chain) -> Vec<Rule> {
        let mut rules = vec![self.in_the_middle()];
        let named = chain.rules.iter().enumerate().map(|(at, rule)| {
            let mut matches = self.is_peer(id, at, chain.direction, rule);
            matches.extend(self.is_port(id, at, rule));
            when(matches, Verdict::Return)
        });
        rules.extend(named);
        rules.push(when(Vec::new(), Verdict::Drop));
        rules
    }

    /// What begins in the middle of a connection is not known to have been let through, also if it
    /// comes from the other end of one that was cut. Of what the kernel is told not to follow, such
    /// as questions for names, nothing is: each packet is decided on.
    pub(super) fn in_the_middle(self) -> Rule {
        let mut rule = in_state(state::NEW | state::INVALID, self.scratch());
        rule.extend([
            Expression::Meta(Meta::Transport, self.scratch()),
            Expression::is(self.scratch(), [TCP]),
            Expression::Payload(Field::TcpFlags, self.scratch()),
            Expression::Bits {
                register: self.scratch(),
                mask: vec![FLAGS],
                flip: vec![0],
            },
            Expression::Differs(self.scratch(), vec![SYN]),
        ]);
        when(rule, Verdict::Drop)
    }

    fn is_peer(self, id: &ChainId, at: usize, of: Direction, rule: &policy::Rule) -> Rule {
        let peer = match of {
            Direction::Ingress => self.source_field(),
            Direction::Egress => self.destination_field(),
        };
        let key = self.destination();
        let contains = |set| Expression::Contains {
            set,
            key,
            inverted: false,
        };
        match &rule.peer {
            Peer::Any => Vec::new(),
            Peer::Group(group) => vec![Expression::Payload(peer, key), contains(group_name(group))],
            Peer::Blocks(_) => vec![
                Expression::Payload(peer, key),
                Expression::Meta(Meta::Transport, self.protocol()),
                contains(blocks_name(id, at)),
            ],
        }
    }

    fn is_port(self, id: &ChainId, at: usize, rule: &policy::Rule) -> Rule {
        let contains = |set, key| Expression::Contains {
            set,
            key,
            inverted: false,
        };
        let load = [
            Expression::Meta(Meta::Transport, self.protocol()),
            Expression::Payload(Field::DestinationPort, self.number()),
        ];
        match &rule.ports {
            Ports::Any => Vec::new(),
            Ports::Numbers(_) => {
                let set = numbers_name(id, at);
                load.into_iter()
                    .chain([contains(set, self.protocol())])
                    .collect()
            }
            Ports::Named(group) => [self.load_destination()]
                .into_iter()
                .chain(load)
                .chain([contains(port_group_name(group), self.destination())])
                .collect(),
        }
    }

    pub(super) fn forward(self, bridge: Option<&str>) -> Vec<Rule> {
        let mut rules = vec![
            when(
                in_state(state::ESTABLISHED, self.scratch()),
                Verdict::Accept,
            ),
            self.is_error(),
        ];
        if self.0 == Family::Ipv6 {
            rules.extend(DISCOVERY.map(|kind| self.is_discovery(kind)));
        }
        rules.extend(self.to_everybody(bridge));
        let itself = Expression::Contains {
            set: name::ITSELF.to_owned(),
            key: self.source(),
            inverted: false,
        };
        // Through a Service: what a pod sends to its own address does not come by here, but a
        // stranger's packet that bears it as its source does.
        let mut is_itself = of_connection(Connection::Status, STATUS_DNAT, self.scratch());
        is_itself.extend([self.load_source(), self.load_destination(), itself]);
        rules.push(when(is_itself, Verdict::Accept));
        rules.push(self.by_source());
        rules.push(vec![
            self.load_destination(),
            Expression::VerdictMap {
                map: name::TO.to_owned(),
                key: self.destination(),
            },
        ]);
        rules
    }

    /// The node itself is reached whatever policies say, but for what it serves at an address of a
    /// Service.
    pub(super) fn input(self, own: IpAddr) -> Rule {
        let mut rule = vec![
            self.load_destination(),
            Expression::Equal(self.destination(), octets(own)),
        ];
        rule.extend(self.by_source());
        rule
    }

    fn by_source(self) -> Rule {
        vec![
            self.load_source(),
            Expression::VerdictMap {
                map: name::FROM.to_owned(),
                key: self.source(),
            },
        ]
    }

    /// What is said of a connection. What a connection opens beside itself, such as FTP's for data,
    /// is one of its own.
    fn is_error(self) -> Rule {
        let mut matches = in_state(state::RELATED, self.scratch());
        let icmp = match self.0 {
            Family::Ipv4 => ICMP,
            Family::Ipv6 => ICMPV6,
        };
        matches.extend([
            Expression::Meta(Meta::Transport, self.scratch()),
            Expression::is(self.scratch(), [icmp]),
        ]);
        when(matches, Verdict::Accept)
    }

    /// Who gets what a bridge carries to everybody cannot be told by its destination, so that
    /// nobody does: of the bridge that has all pods, or, if that is not known, of any.
    fn to_everybody(self, bridge: Option<&str>) -> Vec<Rule> {
        let places = match bridge {
            Some(name) => [Meta::InputName, Meta::OutputName]
                .map(|link| self.is_link(link, name))
                .to_vec(),
            None => vec![Vec::new()],
        };
        let kinds = self.kinds_of_everybody();
        let of_place = |place: &Rule| -> Vec<Rule> {
            let all = kinds.iter().map(|kind| [&place[..], kind].concat());
            all.map(|matches| when(matches, Verdict::Drop)).collect()
        };
        places.iter().flat_map(of_place).collect()
    }

    fn is_link(self, link: Meta, name: &str) -> Rule {
        let mut padded = name.as_bytes().to_vec();
        padded.resize(LINK_NAME_BYTES, 0);
        let at = self.source();
        vec![Expression::Meta(link, at), Expression::Equal(at, padded)]
    }

    fn kinds_of_everybody(self) -> Vec<Rule> {
        let at = self.destination();
        let of_kind = |kind: u32| {
            let kind = Expression::is(at, kind.to_ne_bytes());
            vec![Expression::DestinationKind(at), kind]
        };
        let multicast = || {
            // ff00::/8, which the kernel's routes do not tell from others.
            let mut first = vec![0; 16];
            first[0] = u8::MAX;
            let bits = Expression::Bits {
                register: at,
                mask: first.clone(),
                flip: vec![0; 16],
            };
            vec![self.load_destination(), bits, Expression::Equal(at, first)]
        };
        match self.0 {
            Family::Ipv4 => EVERYBODY.map(of_kind).to_vec(),
            Family::Ipv6 => vec![multicast()],
        }
    }

    fn is_discovery(self, kind: u8) -> Rule {
        let matches = vec![
            Expression::Meta(Meta::Transport, self.scratch()),
            Expression::is(self.scratch(), [ICMPV6]),
            Expression::Payload(Field::IcmpType, self.scratch()),
            Expression::is(self.scratch(), [kind]),
        ];
        when(matches, Verdict::Accept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_translated_passes_as_a_pods_own() {
        for family in Family::ALL {
            let packets = Packets(family);
            let is_own = |rule: &&Rule| {
                let mut parts = rule.iter();
                parts.any(
                    |part| matches!(part, Expression::Contains { set, .. } if set == name::ITSELF),
                )
            };
            let rules = packets.forward(None);
            let own: Vec<&Rule> = rules.iter().filter(is_own).collect();
            let translated = of_connection(Connection::Status, STATUS_DNAT, packets.scratch());
            assert_eq!(own.len(), 1, "{family:?}");
            assert!(own[0].starts_with(&translated), "{family:?}: {own:?}");
        }
    }
}
