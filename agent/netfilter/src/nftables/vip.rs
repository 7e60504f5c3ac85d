//! Addresses, transports and ports in keys and in rules: what the tables of Services and of the
//! node have in common. IPv4. Pure.

use std::net::{Ipv4Addr, SocketAddr};

use ipnet::IpNet;

use super::{
    expression::{Connection, Expression, Field, Meta, Register, STATUS_DNAT, octets},
    rule::{Rule, bits, of_connection},
    table::Type,
};
use crate::service::Protocol;

pub(super) const VIP: &[Type] = &[Type::Ipv4, Type::Protocol, Type::Port];
pub(super) const ENDPOINT: &[Type] = &[Type::Ipv4, Type::Port];
pub(super) const PAIR: &[Type] = &[Type::Ipv4, Type::Ipv4];

/// `RTN_LOCAL`.
const LOCAL: u32 = 2;

/// Where the parts of keys are: the client's address, then those of a VIP, then a number.
pub(super) const SOURCE: Register = Register::FIRST;
pub(super) const DESTINATION: Register = Register::FIRST.after(1);
pub(super) const PROTOCOL: Register = Register::FIRST.after(2);
pub(super) const PORT: Register = Register::FIRST.after(3);
pub(super) const NUMBER: Register = Register::FIRST.after(4);
/// Values that are read, and what is worked on.
pub(super) const VALUE: Register = Register::FIRST.after(5);
pub(super) const SCRATCH: Register = Register::FIRST.after(7);

/// An address, transport and port that packets are sent to. A port of the node, on whichever of its
/// addresses, is of no address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Vip {
    pub(super) address: Ipv4Addr,
    pub(super) protocol: Protocol,
    pub(super) port: u16,
}

impl Vip {
    pub(super) fn is_of_node(&self) -> bool {
        self.address.is_unspecified()
    }

    /// As the beginning of a key.
    pub(super) fn key(&self) -> Vec<u8> {
        let mut key = Vec::with_capacity(16);
        key.extend_from_slice(&self.address.octets());
        key.extend_from_slice(&[self.protocol.number(), 0, 0, 0]);
        key.extend_from_slice(&self.port.to_be_bytes());
        key.extend_from_slice(&[0; 2]);
        key
    }

    /// Of the beginning of a key.
    pub(super) fn parse(key: &[u8]) -> Option<Self> {
        let address: [u8; 4] = key.get(..4)?.try_into().ok()?;
        Some(Self {
            address: address.into(),
            protocol: Protocol::from_number(*key.get(4)?)?,
            port: u16::from_be_bytes(key.get(8..10)?.try_into().ok()?),
        })
    }
}

/// An endpoint as a map's value.
pub(super) fn endpoint_value(endpoint: &SocketAddr) -> Vec<u8> {
    let mut value = octets(endpoint.ip());
    value.extend_from_slice(&endpoint.port().to_be_bytes());
    value.extend_from_slice(&[0; 2]);
    value
}

/// An endpoint of a map's value.
pub(super) fn parse_value(value: &[u8]) -> Option<SocketAddr> {
    let address: [u8; 4] = value.get(..4)?.try_into().ok()?;
    let port = u16::from_be_bytes(value.get(4..6)?.try_into().ok()?);
    Some((address, port).into())
}

/// Loads address, protocol and port of a packet's destination.
pub(super) fn load_vip() -> Vec<Expression> {
    vec![
        Expression::Payload(Field::Destination4, DESTINATION),
        Expression::Meta(Meta::Transport, PROTOCOL),
        Expression::Payload(Field::DestinationPort, PORT),
    ]
}

/// The same of a port of the node: its address is none.
pub(super) fn load_node_vip() -> Vec<Expression> {
    let mut load = load_vip();
    load.insert(1, bits(DESTINATION, 0, 0));
    load
}

pub(super) fn is_translated() -> Rule {
    of_connection(Connection::Status, STATUS_DNAT, SCRATCH)
}

pub(super) fn from_machine() -> Rule {
    vec![
        Expression::SourceKind(SCRATCH),
        Expression::is(SCRATCH, LOCAL.to_ne_bytes()),
    ]
}

pub(super) fn to_machine() -> Rule {
    vec![
        Expression::DestinationKind(SCRATCH),
        Expression::is(SCRATCH, LOCAL.to_ne_bytes()),
    ]
}

/// The packet is not sent to an address that no other machine can send to.
pub(super) fn not_to_loopback() -> Rule {
    vec![
        Expression::Payload(Field::Destination4, SCRATCH),
        bytes(SCRATCH, vec![255, 0, 0, 0]),
        Expression::Differs(SCRATCH, vec![127, 0, 0, 0]),
    ]
}

pub(super) fn within(field: Field, cidr: &IpNet) -> Rule {
    let mut matches = vec![Expression::Payload(field, SCRATCH)];
    if cidr.prefix_len() < cidr.max_prefix_len() {
        matches.push(bytes(SCRATCH, octets(cidr.netmask())));
    }
    matches.push(Expression::Equal(SCRATCH, octets(cidr.network())));
    matches
}

/// Looks an endpoint up.
pub(super) fn read(map: &str, key: Register) -> Expression {
    Expression::Map {
        map: map.to_owned(),
        key,
        value: VALUE,
    }
}

/// Sends the packet to the endpoint that was looked up.
pub(super) fn translate() -> Expression {
    Expression::Translate4 {
        address: VALUE,
        port: VALUE.after(1),
    }
}

fn bytes(register: Register, mask: Vec<u8>) -> Expression {
    Expression::Bits {
        register,
        flip: vec![0; mask.len()],
        mask,
    }
}
