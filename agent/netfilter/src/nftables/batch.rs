//! Transactions: messages that the kernel takes all together or not at all.
//!
//! Each message is one's own to blame: the kernel says of each why it does not take it, so that a
//! batch that is refused tells whose fault it was.

use super::{
    expression::{Expression, Verdict},
    table::{Chain, Set, Table},
};
use crate::netlink::{
    self, ACK, APPEND, CREATE, Family, Head, REQUEST, attribute, message, nested,
};

/// `NFNL_SUBSYS_NFTABLES`.
const SUBSYSTEM: u16 = 10;
const BATCH_BEGIN: u16 = 16;
const BATCH_END: u16 = 17;

/// `NFT_MSG_*` below the subsystem.
pub(super) const fn kind(message: u16) -> u16 {
    (SUBSYSTEM << 8) | message
}

pub(super) mod verb {
    pub(in crate::nftables) const NEW_TABLE: u16 = 0;
    pub(in crate::nftables) const GET_TABLE: u16 = 1;
    pub(in crate::nftables) const DELETE_TABLE: u16 = 2;
    pub(in crate::nftables) const NEW_CHAIN: u16 = 3;
    pub(in crate::nftables) const GET_CHAIN: u16 = 4;
    pub(in crate::nftables) const DELETE_CHAIN: u16 = 5;
    pub(in crate::nftables) const NEW_RULE: u16 = 6;
    pub(in crate::nftables) const GET_RULE: u16 = 7;
    pub(in crate::nftables) const DELETE_RULE: u16 = 8;
    pub(in crate::nftables) const NEW_SET: u16 = 9;
    pub(in crate::nftables) const GET_SET: u16 = 10;
    pub(in crate::nftables) const DELETE_SET: u16 = 11;
    pub(in crate::nftables) const NEW_ELEMENT: u16 = 12;
    pub(in crate::nftables) const GET_ELEMENT: u16 = 13;
    pub(in crate::nftables) const DELETE_ELEMENT: u16 = 14;
}

/// What belongs to a key in a map; nothing in a set.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Data {
    None,
    Value(Vec<u8>),
    Verdict(Verdict),
}

/// The key of an element: one value, or all between two, both included.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Key {
    pub(super) first: Vec<u8>,
    pub(super) last: Option<Vec<u8>>,
}

impl Key {
    pub(super) fn one(value: Vec<u8>) -> Self {
        Self {
            first: value,
            last: None,
        }
    }

    pub(super) fn between(first: Vec<u8>, last: Vec<u8>) -> Self {
        Self {
            first,
            last: Some(last),
        }
    }
}

/// Most bytes of elements in one message: the length of a list has 16 bits.
const MOST_ELEMENT_BYTES: usize = 48 * 1024;

/// Messages on their way to the kernel.
#[derive(Debug)]
pub(super) struct Batch {
    bytes: Vec<u8>,
    /// Number of the next message; the first is that of the beginning.
    next: u32,
    /// Where the last message begins.
    last: usize,
}

impl Batch {
    pub(super) fn new() -> Self {
        let mut batch = Self {
            bytes: Vec::new(),
            next: 0,
            last: 0,
        };
        batch.frame(BATCH_BEGIN);
        batch
    }

    pub(super) fn is_empty(&self) -> bool {
        self.next <= 1
    }

    /// Bytes so far.
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Number of the message that was added last.
    pub(super) fn last_number(&self) -> u32 {
        self.next.saturating_sub(1)
    }

    /// The bytes to send. The kernel is asked to acknowledge the last message.
    pub(super) fn finish(mut self) -> Vec<u8> {
        let flags = self.last + 6..self.last + 8;
        let asked = u16::from_ne_bytes([self.bytes[flags.start], self.bytes[flags.start + 1]]);
        self.bytes[flags].copy_from_slice(&(asked | ACK).to_ne_bytes());
        self.frame(BATCH_END);
        self.bytes
    }

    fn frame(&mut self, kind: u16) {
        let head = Head {
            kind,
            flags: REQUEST,
            sequence: self.next,
            family: netlink::AF_UNSPEC,
            resource: SUBSYSTEM,
        };
        self.next += 1;
        message(&mut self.bytes, head, |_| {});
    }

    fn add(&mut self, verb: u16, flags: u16, family: Family, fill: impl FnOnce(&mut Vec<u8>)) {
        let head = Head {
            kind: kind(verb),
            flags: REQUEST | flags,
            sequence: self.next,
            family: family.number(),
            resource: 0,
        };
        self.next += 1;
        self.last = self.bytes.len();
        message(&mut self.bytes, head, fill);
    }

    /// Makes the table if it is not there.
    pub(super) fn add_table(&mut self, table: &Table) {
        self.add(verb::NEW_TABLE, CREATE, table.family, |body| {
            netlink::text(body, 1, &table.name);
            netlink::number(body, 2, 0);
        });
    }

    /// Removes the table, which has to be there, with all that is in it.
    pub(super) fn delete_table(&mut self, table: &Table) {
        self.add(verb::DELETE_TABLE, 0, table.family, |body| {
            netlink::text(body, 1, &table.name);
        });
    }

    pub(super) fn add_set(&mut self, table: &Table, set: &Set, id: u32) {
        self.add(verb::NEW_SET, CREATE, table.family, |body| {
            set.write(body, &table.name, id);
        });
    }

    pub(super) fn delete_set(&mut self, table: &Table, name: &str) {
        self.add(verb::DELETE_SET, 0, table.family, |body| {
            netlink::text(body, 1, &table.name);
            netlink::text(body, 2, name);
        });
    }

    /// Makes the chain if it is not there.
    pub(super) fn add_chain(&mut self, table: &Table, name: &str, hook: Option<&Chain>) {
        self.add(verb::NEW_CHAIN, CREATE, table.family, |body| {
            netlink::text(body, 1, &table.name);
            netlink::text(body, 3, name);
            if let Some(Chain {
                kind,
                hook,
                priority,
                ..
            }) = hook
            {
                nested(body, 4, |inner| {
                    netlink::number(inner, 1, hook.number());
                    netlink::number(inner, 2, priority.cast_unsigned());
                });
                netlink::text(body, 7, kind.name());
            }
        });
    }

    pub(super) fn delete_chain(&mut self, table: &Table, name: &str) {
        self.add(verb::DELETE_CHAIN, 0, table.family, |body| {
            netlink::text(body, 1, &table.name);
            netlink::text(body, 3, name);
        });
    }

    /// Removes all rules of a chain, which has to be there.
    pub(super) fn flush_chain(&mut self, table: &Table, chain: &str) {
        self.add(verb::DELETE_RULE, 0, table.family, |body| {
            netlink::text(body, 1, &table.name);
            netlink::text(body, 2, chain);
        });
    }

    /// Adds a rule at the end of a chain.
    pub(super) fn add_rule(&mut self, table: &Table, chain: &str, rule: &[Expression]) {
        self.add(verb::NEW_RULE, CREATE | APPEND, table.family, |body| {
            netlink::text(body, 1, &table.name);
            netlink::text(body, 2, chain);
            nested(body, 4, |list| {
                rule.iter().for_each(|expression| expression.write(list));
            });
        });
    }

    pub(super) fn add_elements<'a>(
        &mut self,
        table: &Table,
        set: &str,
        elements: impl IntoIterator<Item = (&'a Key, &'a Data)>,
    ) {
        self.elements(verb::NEW_ELEMENT, CREATE, (table, set), elements);
    }

    /// Removes elements, which have to be there.
    pub(super) fn delete_elements<'a>(
        &mut self,
        table: &Table,
        set: &str,
        keys: impl IntoIterator<Item = &'a Key>,
    ) {
        let elements = keys.into_iter().map(|key| (key, &Data::None));
        self.elements(verb::DELETE_ELEMENT, 0, (table, set), elements);
    }

    fn elements<'a>(
        &mut self,
        verb: u16,
        flags: u16,
        (table, set): (&Table, &str),
        elements: impl IntoIterator<Item = (&'a Key, &'a Data)>,
    ) {
        let mut elements = elements.into_iter().peekable();
        while elements.peek().is_some() {
            self.add(verb, flags, table.family, |body| {
                netlink::text(body, 1, &table.name);
                netlink::text(body, 2, set);
                let most = body.len() + MOST_ELEMENT_BYTES;
                nested(body, 3, |list| {
                    while list.len() < most
                        && let Some((key, data)) = elements.next()
                    {
                        nested(list, 1, |element| write_element(element, key, data));
                    }
                });
            });
        }
    }
}

pub(super) fn write_element(bytes: &mut Vec<u8>, key: &Key, data: &Data) {
    nested(bytes, 1, |value| attribute(value, 1, &key.first));
    match data {
        Data::None => {}
        Data::Value(value) => nested(bytes, 2, |inner| attribute(inner, 1, value)),
        Data::Verdict(verdict) => nested(bytes, 2, |inner| verdict.write(inner)),
    }
    if let Some(last) = &key.last {
        nested(bytes, 10, |value| attribute(value, 1, last));
    }
}
