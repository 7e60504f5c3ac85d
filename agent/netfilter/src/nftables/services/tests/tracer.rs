//! Executes the rules and elements of a table as the kernel's virtual machine would.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
};

use ipnet::IpNet;

use super::super::{book::hairpin, elements::*, layout::*, parts::name};
use crate::{
    nftables::{
        batch::{Data, Key},
        expression::{
            Connection, Expression, Field, Meta, ORIGINAL, Refuse, Register, Verdict, octets, state,
        },
        table::{Hook, Kind, Layout},
        vip::parse_value,
    },
    packets::{Outcome, Tracer, key},
    service::{Protocol, ServiceNetwork, ServiceView},
};

pub(crate) struct NftablesTracer {
    layout: Layout,
    elements: BTreeMap<(String, Key), Data>,
    local: Vec<IpAddr>,
}

struct Packet {
    source: IpAddr,
    target: SocketAddr,
    /// Before it was translated.
    original: SocketAddr,
    protocol: Protocol,
    mark: u32,
    translated: bool,
    masqueraded: bool,
    choice: u32,
}

/// What one expression says.
enum Step {
    Next,
    NoMatch,
    End(End),
}

/// What a chain comes to.
enum End {
    Over,
    Accepted,
    Dropped,
    Rejected(&'static str),
}

impl Tracer for NftablesTracer {
    fn engine(&self) -> &'static str {
        "nftables"
    }

    fn trace(
        &mut self,
        source: IpAddr,
        protocol: Protocol,
        target: SocketAddr,
        choice: usize,
    ) -> Outcome {
        let mut packet = Packet {
            source,
            target,
            original: target,
            protocol,
            mark: 0,
            translated: false,
            masqueraded: false,
            choice: u32::try_from(choice).unwrap(),
        };
        let from_here = self.local.contains(&source);
        let first = if from_here {
            Hook::Output
        } else {
            Hook::Prerouting
        };
        self.hook(Kind::Nat, first, &mut packet);
        if !from_here {
            self.hook(Kind::Filter, first, &mut packet);
        }
        let to_here = self.local.contains(&packet.target.ip());
        let hook = match (from_here, to_here) {
            (true, _) => Hook::Output,
            (false, true) => Hook::Input,
            (false, false) => Hook::Forward,
        };
        match self.hook(Kind::Filter, hook, &mut packet) {
            End::Dropped => return Outcome::Dropped,
            End::Rejected(with) => return Outcome::Rejected(with),
            End::Over | End::Accepted => {}
        }
        self.hook(Kind::Nat, Hook::Postrouting, &mut packet);
        Outcome::Delivered {
            to: packet.target,
            masqueraded: packet.masqueraded,
        }
    }
}

impl NftablesTracer {
    pub(crate) fn over(
        network: ServiceNetwork,
        views: &[(&str, ServiceView)],
        local: &[&str],
    ) -> Self {
        let network = network.ipv4();
        let (mut elements, mut branches) = (BTreeMap::new(), BTreeSet::new());
        for (name, view) in views {
            let service = of_service(&network, &key(name), view, &Order::new(), &|_| false);
            for ((set, key), data) in service.elements {
                elements.insert((set.to_owned(), key), data);
            }
            for address in &service.hairpins {
                elements.insert((name::HAIRPINS.to_owned(), hairpin(address)), Data::None);
            }
            branches.extend(service.branches);
        }
        Self {
            layout: layout(&network, &branches),
            elements,
            local: local.iter().map(|ip| ip.parse().unwrap()).collect(),
        }
    }

    fn hook(&mut self, kind: Kind, hook: Hook, packet: &mut Packet) -> End {
        let chains = self.layout.chains.iter();
        let hooked = chains.filter_map(|(name, chain, _)| Some((chain.as_ref()?, name)));
        let hooked = hooked.filter(|(chain, _)| (chain.kind, chain.hook) == (kind, hook));
        let mut hooked: Vec<(i32, String)> = hooked
            .map(|(chain, name)| (chain.priority, name.clone()))
            .collect();
        hooked.sort();
        for (_, name) in hooked {
            match self.chain(&name, packet) {
                End::Over | End::Accepted => {}
                end => return end,
            }
        }
        End::Over
    }

    fn chain(&mut self, name: &str, packet: &mut Packet) -> End {
        let mut chains = self.layout.chains.iter();
        let chain = chains.find(|(chain, ..)| chain == name);
        let rules = chain.unwrap_or_else(|| panic!("no chain {name}")).2.clone();
        for rule in rules {
            let mut registers = [0_u8; 64];
            for expression in &rule {
                match self.step(expression, &mut registers, packet) {
                    Step::Next => {}
                    Step::NoMatch => break,
                    Step::End(end) => return end,
                }
            }
        }
        End::Over
    }

    fn step(&mut self, expression: &Expression, all: &mut [u8; 64], packet: &mut Packet) -> Step {
        let matches = |yes: bool| if yes { Step::Next } else { Step::NoMatch };
        match expression {
            Expression::Payload(field, to) => {
                let value = match field {
                    Field::Source4 => octets(packet.source),
                    Field::Destination4 => octets(packet.target.ip()),
                    Field::DestinationPort => packet.target.port().to_be_bytes().to_vec(),
                    other => unreachable!("no rule of Services reads {other:?}"),
                };
                load(all, *to, &value);
                Step::Next
            }
            Expression::Meta(meta, to) => {
                let value = match meta {
                    Meta::Mark => packet.mark.to_ne_bytes().to_vec(),
                    Meta::Transport => vec![packet.protocol.number(), 0, 0, 0],
                    // Pods of the node are in one subnet behind one link.
                    Meta::InputName => {
                        let subnet: IpNet = "10.244.1.0/24".parse().unwrap();
                        let inside = subnet.contains(&packet.source);
                        let mut name = if inside { b"coracle0".to_vec() } else { vec![] };
                        name.resize(16, 0);
                        name
                    }
                    Meta::OutputName => unreachable!("no rule of Services reads {meta:?}"),
                };
                load(all, *to, &value);
                Step::Next
            }
            Expression::SetMark(from) => {
                packet.mark = u32::from_ne_bytes(read(all, *from, 4).try_into().unwrap());
                Step::Next
            }
            Expression::Connection(what, to) => {
                let value = match what {
                    Connection::State => state::NEW.to_ne_bytes().to_vec(),
                    Connection::Direction => vec![ORIGINAL],
                    Connection::Status => {
                        let status = u32::from(packet.translated) << 5;
                        status.to_ne_bytes().to_vec()
                    }
                    Connection::Destination4 => octets(packet.original.ip()),
                    Connection::DestinationPort => packet.original.port().to_be_bytes().to_vec(),
                };
                load(all, *to, &value);
                Step::Next
            }
            Expression::SourceKind(to) | Expression::DestinationKind(to) => {
                let asked = match expression {
                    Expression::SourceKind(_) => packet.source,
                    _ => packet.target.ip(),
                };
                let is_local = self.local.contains(&asked);
                let kind = if is_local { 2_u32 } else { 1 };
                load(all, *to, &kind.to_ne_bytes());
                Step::Next
            }
            Expression::Bits {
                register,
                mask,
                flip,
            } => {
                let old = read(all, *register, mask.len());
                let new: Vec<u8> = (0..mask.len())
                    .map(|at| old[at] & mask[at] ^ flip[at])
                    .collect();
                load(all, *register, &new);
                Step::Next
            }
            Expression::Equal(register, value) => {
                matches(read(all, *register, value.len()) == *value)
            }
            Expression::Differs(register, value) => {
                matches(read(all, *register, value.len()) != *value)
            }
            Expression::Contains { set, key, inverted } => {
                matches(self.find(set, *key, all).is_some() != *inverted)
            }
            Expression::Map { map, key, value } => match self.find(map, *key, all) {
                Some(Data::Value(found)) => {
                    load(all, *value, &found);
                    Step::Next
                }
                _ => Step::NoMatch,
            },
            Expression::VerdictMap { map, key } => match self.find(map, *key, all) {
                Some(Data::Verdict(verdict)) => self.verdict(&verdict, packet),
                _ => Step::NoMatch,
            },
            Expression::Random(below, to) => {
                load(all, *to, &packet.choice.min(below - 1).to_ne_bytes());
                Step::Next
            }
            Expression::Remember {
                map, key, value, ..
            } => {
                let key = Key::one(read(all, *key, 16));
                let value = Data::Value(read(all, *value, 8));
                self.elements.insert((map.clone(), key), value);
                Step::Next
            }
            Expression::Translate4 { address, port } => {
                let value = [read(all, *address, 4), read(all, *port, 4)].concat();
                packet.target = parse_value(&value).unwrap();
                packet.translated = true;
                Step::End(End::Accepted)
            }
            Expression::Masquerade => {
                packet.masqueraded = true;
                Step::End(End::Accepted)
            }
            Expression::Untrack => unreachable!("Services are connections"),
            Expression::Refuse(Refuse::TcpReset) => {
                assert_eq!(packet.protocol, Protocol::Tcp);
                Step::End(End::Rejected("tcp-reset"))
            }
            Expression::Refuse(Refuse::PortUnreachable) => {
                Step::End(End::Rejected("icmp-port-unreachable"))
            }
            Expression::Verdict(verdict) => self.verdict(verdict, packet),
        }
    }

    fn verdict(&mut self, verdict: &Verdict, packet: &mut Packet) -> Step {
        match verdict {
            Verdict::Drop => Step::End(End::Dropped),
            Verdict::Accept => Step::End(End::Accepted),
            Verdict::Return => Step::End(End::Over),
            Verdict::Goto(chain) => Step::End(self.chain(chain, packet)),
            Verdict::Jump(chain) => match self.chain(chain, packet) {
                End::Over => Step::Next,
                end => Step::End(end),
            },
        }
    }

    fn find(&self, set: &str, at: Register, all: &[u8; 64]) -> Option<Data> {
        let mut of_set = self.elements.iter().filter(|((name, _), _)| name == set);
        let found = of_set.find(|((_, key), _)| {
            let value = read(all, at, key.first.len());
            match &key.last {
                None => value == key.first,
                // Part by part.
                Some(last) => value
                    .chunks(4)
                    .zip(key.first.chunks(4).zip(last.chunks(4)))
                    .all(|(value, (first, last))| (first..=last).contains(&value)),
            }
        });
        found.map(|(_, data)| data.clone())
    }
}

fn load(all: &mut [u8; 64], to: Register, value: &[u8]) {
    let at = to.offset();
    let padded = value.len().next_multiple_of(4);
    all[at..at + padded].fill(0);
    all[at..at + value.len()].copy_from_slice(value);
}

fn read(all: &[u8; 64], from: Register, length: usize) -> Vec<u8> {
    all[from.offset()..from.offset() + length].to_vec()
}
