//! What a table of nftables is made of, as plain data.

use std::borrow::Cow;

use super::expression::{Expression, REGISTER_BYTES};
use crate::netlink::{Family, attribute, nested, number, text};

/// A table's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Table {
    /// Which packets it sees.
    pub(super) family: Family,
    pub(super) name: Cow<'static, str>,
}

/// Where the kernel calls a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hook {
    Prerouting,
    Input,
    Forward,
    Output,
    Postrouting,
}

impl Hook {
    /// `NF_INET_*`.
    pub(super) fn number(self) -> u32 {
        match self {
            Self::Prerouting => 0,
            Self::Input => 1,
            Self::Forward => 2,
            Self::Output => 3,
            Self::Postrouting => 4,
        }
    }
}

/// What a chain that the kernel calls may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Filter,
    Nat,
}

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Filter => "filter",
            Self::Nat => "nat",
        }
    }
}

/// When the kernel calls a chain. It goes on after it: nothing here drops by policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Chain {
    pub(super) kind: Kind,
    pub(super) hook: Hook,
    pub(super) priority: i32,
}

/// One part of a key or of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Type {
    Ipv4,
    Ipv6,
    Protocol,
    Port,
    /// Any number in the machine's byte order, such as one drawn at random.
    Mark,
}

impl Type {
    /// The number that the program `nft` knows it by, so that it can print elements.
    fn number(self) -> u32 {
        match self {
            Self::Ipv4 => 7,
            Self::Ipv6 => 8,
            Self::Protocol => 12,
            Self::Port => 13,
            Self::Mark => 19,
        }
    }

    fn bytes(self) -> usize {
        match self {
            Self::Ipv4 | Self::Mark => 4,
            Self::Ipv6 => 16,
            Self::Protocol => 1,
            Self::Port => 2,
        }
    }

    fn padded(self) -> usize {
        self.bytes().next_multiple_of(REGISTER_BYTES)
    }
}

/// How many bits `nft` gives each part in the number of a whole.
const TYPE_BITS: u32 = 6;

fn numbered(types: &[Type]) -> u32 {
    types
        .iter()
        .fold(0, |all, one| (all << TYPE_BITS) | one.number())
}

/// Bytes of all parts side by side; alone, a part is as long as it is.
fn length(types: &[Type]) -> u32 {
    let bytes = match types {
        [one] => one.bytes(),
        several => several.iter().map(|one| one.padded()).sum(),
    };
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// What a map has for its keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Values {
    /// It is a set.
    None,
    Of(&'static [Type]),
    Verdicts,
}

/// `NFT_SET_*`.
mod flag {
    pub(super) const INTERVAL: u32 = 4;
    pub(super) const MAP: u32 = 8;
    pub(super) const TIMEOUT: u32 = 0x10;
    pub(super) const EVAL: u32 = 0x20;
    pub(super) const CONCATENATED: u32 = 0x80;
}

/// `NFT_DATA_VERDICT`.
const VERDICTS: u32 = 0xffff_ff00;

/// A set, or a map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Set {
    pub(super) name: String,
    pub(super) key: &'static [Type],
    /// Keys may be ranges; they have two parts or more then.
    pub(super) ranges: bool,
    pub(super) values: Values,
    /// Filled by rules with what they remember for a while, up to so many.
    pub(super) remembered: Option<u32>,
}

impl Set {
    /// Filled by elements that are exact, and stay.
    pub(super) fn exact(name: impl Into<String>, key: &'static [Type], values: Values) -> Self {
        Self {
            name: name.into(),
            key,
            ranges: false,
            values,
            remembered: None,
        }
    }

    pub(super) fn flags(&self) -> u32 {
        let mut flags = 0;
        if self.ranges {
            flags |= flag::INTERVAL;
        }
        if self.ranges && self.key.len() > 1 {
            flags |= flag::CONCATENATED;
        }
        if self.values != Values::None {
            flags |= flag::MAP;
        }
        if self.remembered.is_some() {
            flags |= flag::TIMEOUT | flag::EVAL;
        }
        flags
    }

    pub(super) fn key_number(&self) -> u32 {
        numbered(self.key)
    }

    pub(super) fn key_length(&self) -> u32 {
        length(self.key)
    }

    pub(super) fn value_number(&self) -> u32 {
        match self.values {
            Values::None => 0,
            Values::Of(types) => numbered(types),
            Values::Verdicts => VERDICTS,
        }
    }

    /// Appends it as the content of a message.
    pub(super) fn write(&self, body: &mut Vec<u8>, table: &str, id: u32) {
        text(body, 1, table);
        text(body, 2, &self.name);
        number(body, 3, self.flags());
        number(body, 4, self.key_number());
        number(body, 5, self.key_length());
        match self.values {
            Values::None => {}
            Values::Of(types) => {
                number(body, 6, numbered(types));
                number(body, 7, length(types));
            }
            Values::Verdicts => {
                number(body, 6, VERDICTS);
                number(body, 7, 0);
            }
        }
        if self.ranges || self.remembered.is_some() {
            nested(body, 9, |description| {
                if let Some(size) = self.remembered {
                    number(description, 1, size);
                }
                if self.ranges {
                    nested(description, 2, |fields| {
                        for part in self.key {
                            let bytes = u32::try_from(part.bytes()).unwrap_or(u32::MAX);
                            nested(fields, 1, |field| number(field, 1, bytes));
                        }
                    });
                }
            });
        }
        number(body, 10, id);
        // NFTNL_UDATA_SET_KEYBYTEORDER and _DATABYTEORDER: 1 is the machine's, 2 the network's.
        let order = |types: &[Type]| match types {
            [Type::Mark] => 1,
            _ => 2_u32,
        };
        let mut user = vec![0, 4];
        user.extend_from_slice(&order(self.key).to_ne_bytes());
        if let Values::Of(types) = self.values {
            user.extend_from_slice(&[1, 4]);
            user.extend_from_slice(&order(types).to_ne_bytes());
        }
        attribute(body, 13, &user);
    }
}

/// What a table has that does not change with what it is for, but for the elements of its sets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) table: Table,
    pub(super) sets: Vec<Set>,
    /// In an order in which each is made before others lead to it.
    pub(super) chains: Vec<(String, Option<Chain>, Vec<Vec<Expression>>)>,
}
