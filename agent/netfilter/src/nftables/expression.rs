//! What a rule is made of: expressions over registers, as the kernel's virtual machine has them.
//!
//! A rule loads parts of the packet into registers, compares or looks them up, and ends in a
//! verdict; an expression that does not match ends the rule. Registers are numbered by four bytes,
//! so that keys of several parts lie side by side, as in the elements of a set.
//!
//! Only what the tables here need. Source: `include/uapi/linux/netfilter/nf_tables.h`.

use std::net::IpAddr;

use crate::netlink::{attribute, nested, number, text};

/// Bytes of one register.
pub(super) const REGISTER_BYTES: usize = 4;

/// `NFT_REG32_00 + index`: where a value begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Register(u32);

impl Register {
    pub(super) const FIRST: Self = Self(8);

    /// So many registers on.
    pub(super) const fn after(self, count: u32) -> Self {
        Self(self.0 + count)
    }

    /// Where it begins among all, in bytes.
    #[cfg(test)]
    pub(super) fn offset(self) -> usize {
        usize::try_from(self.0 - Self::FIRST.0).unwrap() * REGISTER_BYTES
    }
}

/// `NFT_REG_VERDICT`.
const VERDICT_REGISTER: u32 = 0;

/// What becomes of a packet.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Verdict {
    Drop,
    Accept,
    Return,
    Jump(String),
    Goto(String),
}

impl Verdict {
    /// Appends it as the content of a data attribute.
    pub(super) fn write(&self, bytes: &mut Vec<u8>) {
        let (code, chain): (i32, _) = match self {
            Self::Drop => (0, None),
            Self::Accept => (1, None),
            Self::Jump(chain) => (-3, Some(chain)),
            Self::Goto(chain) => (-4, Some(chain)),
            Self::Return => (-5, None),
        };
        // NFTA_DATA_VERDICT, NFTA_VERDICT_CODE, NFTA_VERDICT_CHAIN.
        nested(bytes, 2, |verdict| {
            number(verdict, 1, code.cast_unsigned());
            if let Some(chain) = chain {
                text(verdict, 2, chain);
            }
        });
    }
}

/// Parts of a packet that are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Field {
    /// Of the IPv4 header.
    Source4,
    Destination4,
    /// Of the IPv6 header.
    Source6,
    Destination6,
    /// Of TCP, UDP and SCTP alike.
    SourcePort,
    DestinationPort,
    TcpFlags,
    /// Of ICMPv6, too.
    IcmpType,
}

/// What else is known of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meta {
    Mark,
    /// Name of the link that it comes from: of the bridge, for what a bridge passes on.
    InputName,
    /// The same of the link that it leaves by.
    OutputName,
    Transport,
}

impl Meta {
    /// `NFT_META_*`.
    fn key(self) -> u32 {
        match self {
            Self::Mark => 3,
            Self::InputName => 6,
            Self::OutputName => 7,
            Self::Transport => 16,
        }
    }
}

/// What is known of its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Connection {
    State,
    Status,
    /// Whether the packet goes where the first one went.
    Direction,
    /// Where its first packet was sent to, before it was translated.
    Destination4,
    DestinationPort,
}

impl Connection {
    /// `NFT_CT_*`.
    fn key(self) -> u32 {
        match self {
            Self::State => 0,
            Self::Direction => 1,
            Self::Status => 2,
            Self::DestinationPort => 12,
            Self::Destination4 => 20,
        }
    }

    /// It is of one direction: of that of the first packet.
    fn is_directed(self) -> bool {
        match self {
            Self::State | Self::Status | Self::Direction => false,
            Self::Destination4 | Self::DestinationPort => true,
        }
    }
}

/// Bits of [`Connection::State`], as `ct state` names them.
pub(super) mod state {
    pub(in crate::nftables) const INVALID: u32 = 1;
    pub(in crate::nftables) const ESTABLISHED: u32 = 2;
    pub(in crate::nftables) const RELATED: u32 = 4;
    pub(in crate::nftables) const NEW: u32 = 8;
}

/// `IP_CT_DIR_ORIGINAL` of [`Connection::Direction`].
pub(super) const ORIGINAL: u8 = 0;

/// The bit of [`Connection::Status`] that says that the destination was translated.
pub(super) const STATUS_DNAT: u32 = 1 << 5;

/// How a packet is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refuse {
    TcpReset,
    /// ICMP "port unreachable"; in tables of IPv4.
    PortUnreachable,
}

/// One step of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Expression {
    Payload(Field, Register),
    Meta(Meta, Register),
    SetMark(Register),
    Connection(Connection, Register),
    /// Whether the source is an address of this machine: `RTN_LOCAL` or another kind.
    SourceKind(Register),
    /// The same of the destination.
    DestinationKind(Register),
    /// `register = register & mask ^ flip`.
    Bits {
        register: Register,
        mask: Vec<u8>,
        flip: Vec<u8>,
    },
    Equal(Register, Vec<u8>),
    Differs(Register, Vec<u8>),
    /// The packet goes on if the key is in the set, or if it is not.
    Contains {
        set: String,
        key: Register,
        inverted: bool,
    },
    /// The value of the key, into other registers.
    Map {
        map: String,
        key: Register,
        value: Register,
    },
    /// The verdict of the key.
    VerdictMap {
        map: String,
        key: Register,
    },
    /// A random number below the bound.
    Random(u32, Register),
    /// Remembers the value for the key, for so many milliseconds from now.
    Remember {
        map: String,
        key: Register,
        value: Register,
        milliseconds: u64,
    },
    /// Sends the packet to an IPv4 address and port.
    Translate4 {
        address: Register,
        port: Register,
    },
    Masquerade,
    /// The packet is of no connection.
    Untrack,
    Refuse(Refuse),
    Verdict(Verdict),
}

impl Expression {
    /// The packet's value is exactly this.
    pub(super) fn is(register: Register, value: impl Into<Vec<u8>>) -> Self {
        Self::Equal(register, value.into())
    }

    /// Appends it as an element of a rule's list.
    pub(super) fn write(&self, bytes: &mut Vec<u8>) {
        // NFTA_LIST_ELEM, NFTA_EXPR_NAME, NFTA_EXPR_DATA.
        nested(bytes, 1, |expression| {
            text(expression, 1, self.name());
            nested(expression, 2, |data| self.write_data(data));
        });
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Payload(..) => "payload",
            Self::Meta(..) | Self::SetMark(_) => "meta",
            Self::Connection(..) => "ct",
            Self::SourceKind(_) | Self::DestinationKind(_) => "fib",
            Self::Bits { .. } => "bitwise",
            Self::Equal(..) | Self::Differs(..) => "cmp",
            Self::Contains { .. } | Self::Map { .. } | Self::VerdictMap { .. } => "lookup",
            Self::Random(..) => "numgen",
            Self::Remember { .. } => "dynset",
            Self::Translate4 { .. } => "nat",
            Self::Masquerade => "masq",
            Self::Untrack => "notrack",
            Self::Refuse(_) => "reject",
            Self::Verdict(_) => "immediate",
        }
    }

    fn write_data(&self, data: &mut Vec<u8>) {
        match self {
            Self::Payload(field, register) => payload(data, *field, *register),
            Self::Meta(meta, register) => load(data, meta.key(), *register),
            Self::SetMark(register) => {
                number(data, 2, Meta::Mark.key());
                number(data, 3, register.0);
            }
            Self::Connection(what, register) => {
                load(data, what.key(), *register);
                if what.is_directed() {
                    attribute(data, 3, &[ORIGINAL]);
                }
            }
            // NFTA_FIB_F_SADDR, NFTA_FIB_F_DADDR.
            Self::SourceKind(register) => look_up_kind(data, 1, *register),
            Self::DestinationKind(register) => look_up_kind(data, 2, *register),
            Self::Bits {
                register,
                mask,
                flip,
            } => change_bits(data, *register, mask, flip),
            Self::Equal(register, value) => compare(data, *register, 0, value),
            Self::Differs(register, value) => compare(data, *register, 1, value),
            Self::Contains { set, key, inverted } => {
                text(data, 1, set);
                number(data, 2, key.0);
                if *inverted {
                    number(data, 5, 1);
                }
            }
            Self::Map { map, key, value } => lookup(data, map, *key, value.0),
            Self::VerdictMap { map, key } => lookup(data, map, *key, VERDICT_REGISTER),
            Self::Random(below, register) => draw(data, *below, *register),
            Self::Remember {
                map,
                key,
                value,
                milliseconds,
            } => remember(data, map, (*key, *value), *milliseconds),
            Self::Translate4 { address, port } => translate(data, *address, *port),
            // NF_NAT_RANGE_PROTO_RANDOM_FULLY.
            Self::Masquerade => number(data, 1, 1 << 4),
            Self::Untrack => {}
            Self::Refuse(how) => refuse(data, *how),
            Self::Verdict(verdict) => {
                number(data, 1, VERDICT_REGISTER);
                nested(data, 2, |value| verdict.write(value));
            }
        }
    }
}

fn payload(data: &mut Vec<u8>, field: Field, register: Register) {
    // NFT_PAYLOAD_NETWORK_HEADER or _TRANSPORT_HEADER, offset, length.
    let (base, offset, length) = match field {
        Field::Source4 => (1, 12, 4),
        Field::Destination4 => (1, 16, 4),
        Field::Source6 => (1, 8, 16),
        Field::Destination6 => (1, 24, 16),
        Field::SourcePort => (2, 0, 2),
        Field::DestinationPort => (2, 2, 2),
        Field::TcpFlags => (2, 13, 1),
        Field::IcmpType => (2, 0, 1),
    };
    for (kind, value) in [(1, register.0), (2, base), (3, offset), (4, length)] {
        number(data, kind, value);
    }
}

/// Of expressions that only say what to read, and where to.
fn load(data: &mut Vec<u8>, key: u32, register: Register) {
    number(data, 1, register.0);
    number(data, 2, key);
}

fn look_up_kind(data: &mut Vec<u8>, of: u32, register: Register) {
    number(data, 1, register.0);
    // NFT_FIB_RESULT_ADDRTYPE.
    number(data, 2, 3);
    number(data, 3, of);
}

fn change_bits(data: &mut Vec<u8>, register: Register, mask: &[u8], flip: &[u8]) {
    number(data, 1, register.0);
    number(data, 2, register.0);
    number(data, 3, u32::try_from(mask.len()).unwrap_or(u32::MAX));
    nested(data, 4, |value| attribute(value, 1, mask));
    nested(data, 5, |value| attribute(value, 1, flip));
}

fn compare(data: &mut Vec<u8>, register: Register, operation: u32, value: &[u8]) {
    number(data, 1, register.0);
    number(data, 2, operation);
    nested(data, 3, |inner| attribute(inner, 1, value));
}

fn lookup(data: &mut Vec<u8>, map: &str, key: Register, value: u32) {
    text(data, 1, map);
    number(data, 2, key.0);
    number(data, 3, value);
}

fn draw(data: &mut Vec<u8>, below: u32, register: Register) {
    number(data, 1, register.0);
    number(data, 2, below);
    // NFT_NG_RANDOM; no offset.
    number(data, 3, 1);
    number(data, 4, 0);
}

fn remember(data: &mut Vec<u8>, map: &str, (key, value): (Register, Register), milliseconds: u64) {
    text(data, 1, map);
    // NFT_DYNSET_OP_UPDATE.
    number(data, 3, 1);
    number(data, 4, key.0);
    number(data, 5, value.0);
    attribute(data, 6, &milliseconds.to_be_bytes());
}

fn translate(data: &mut Vec<u8>, address: Register, port: Register) {
    // NFT_NAT_DNAT of IPv4.
    number(data, 1, 1);
    number(data, 2, 2);
    number(data, 3, address.0);
    number(data, 5, port.0);
}

fn refuse(data: &mut Vec<u8>, how: Refuse) {
    // NFT_REJECT_TCP_RST; NFT_REJECT_ICMP_UNREACH and ICMP_PORT_UNREACH.
    let (kind, code) = match how {
        Refuse::TcpReset => (1, 0),
        Refuse::PortUnreachable => (0, 3),
    };
    number(data, 1, kind);
    attribute(data, 2, &[code]);
}

/// An address as registers and elements have it.
pub(super) fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}
