//! Sets that are new, and chains that nothing leads to yet: transactions one after the other. Pure.
//!
//! Chains are made before anything leads to them. Of a packet that is on its way while a
//! transaction takes effect, the kernel looks elements up as they are after it, and runs chains as
//! they were before: a new one would have no rules, and let it through.
//!
//! Until then nobody notices how much of it is there, so it need not come at once: a node's
//! policies may be more than the kernel takes in one message.

use super::{
    super::{
        batch::{Batch, Data, Key},
        table::Set,
    },
    difference::Members,
    names::{self, name},
    rules::Packets,
};
use crate::{
    netlink::Family,
    policy::{Chain, ChainId, Change, Plan},
};

/// Bytes after which a transaction ends. The rules of one chain are never in two: 20,000 are not
/// much more.
pub(super) const MOST_BYTES: usize = 8 << 20;
/// Elements that are added at once: 400 KiB at most.
const KEYS: usize = 4096;

/// One transaction.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) batch: Batch,
    /// What it makes, as a whole or a part of.
    pub(super) chains: Vec<ChainId>,
}

impl Part {
    fn new() -> Self {
        Self {
            batch: Batch::new(),
            chains: Vec::new(),
        }
    }
}

/// What a table has to have first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum First {
    /// It has all of it.
    Nothing,
    /// The chain of the direction that no policy is about.
    Open,
    /// The table itself, and that chain.
    Table,
}

/// What makes the sets and chains of a change.
pub(super) fn parts(family: Family, change: &Change, first: First, most: usize) -> Vec<Part> {
    let mut maker = Maker {
        packets: Packets(family),
        most,
        done: Vec::new(),
        part: Part::new(),
        current: None,
        sets: 0,
    };
    maker.begin(first);
    let packets = maker.packets;
    for group in &change.groups.made {
        maker.set(&packets.group(group));
    }
    for group in &change.port_groups.made {
        maker.set(&packets.port_group(group));
    }
    for (set, keys) in &Members::of_new(family, change).added {
        maker.elements(set, keys);
    }
    for (id, chain) in &change.chains_made {
        maker.chain(id, chain);
    }
    maker.done.push(maker.part);
    maker.done.retain(|part| !part.batch.is_empty());
    maker.done
}

struct Maker {
    packets: Packets,
    most: usize,
    done: Vec<Part>,
    part: Part,
    /// Whose sets and rules are being added.
    current: Option<ChainId>,
    /// Numbers of sets.
    sets: u32,
}

impl Maker {
    fn begin(&mut self, first: First) {
        let table = self.packets.table();
        if first == First::Table {
            self.part.batch.add_table(&table);
        }
        if first != First::Nothing {
            let rule = self.packets.in_the_middle();
            self.part.batch.add_chain(&table, name::OPEN, None);
            self.part.batch.add_rule(&table, name::OPEN, &rule);
        }
    }

    fn set(&mut self, set: &Set) {
        self.sets += 1;
        self.part
            .batch
            .add_set(&self.packets.table(), set, self.sets);
        self.end_if_full();
    }

    fn elements(&mut self, set: &str, keys: &[Key]) {
        let table = self.packets.table();
        for some in keys.chunks(KEYS) {
            let some = some.iter().map(|key| (key, &Data::None));
            self.part.batch.add_elements(&table, set, some);
            self.end_if_full();
        }
    }

    fn chain(&mut self, id: &ChainId, chain: &Chain) {
        self.current = Some(id.clone());
        self.part.chains.push(id.clone());
        for (set, keys) in self.packets.constants(id, chain) {
            self.set(&set);
            self.elements(&set.name, &keys);
        }
        let (table, name) = (self.packets.table(), names::chain_name(id));
        self.part.batch.add_chain(&table, &name, None);
        for rule in self.packets.rules(id, chain) {
            self.part.batch.add_rule(&table, &name, &rule);
        }
        self.current = None;
        self.end_if_full();
    }

    fn end_if_full(&mut self) {
        if self.part.batch.len() < self.most {
            return;
        }
        let next = Part {
            chains: self.current.clone().into_iter().collect(),
            ..Part::new()
        };
        self.done.push(std::mem::replace(&mut self.part, next));
    }
}

/// What a table lacks of a plan's sets and chains, by the names that it has.
pub(super) fn lacking(
    plan: &Plan,
    has_set: impl Fn(&str) -> bool,
    has_chain: impl Fn(&str) -> bool,
) -> Change {
    let mut change = Change::default();
    for (id, members) in &plan.groups {
        if !has_set(&names::group_name(id)) {
            change.groups.made.insert(id.clone());
            change.groups.added.insert(id.clone(), members.clone());
        }
    }
    for (id, members) in &plan.port_groups {
        if !has_set(&names::port_group_name(id)) {
            change.port_groups.made.insert(id.clone());
            change.port_groups.added.insert(id.clone(), members.clone());
        }
    }
    let chains = plan.chains.iter();
    let made = chains.filter(|(id, _)| !has_chain(&names::chain_name(id)));
    change.chains_made = made
        .map(|(id, chain)| (id.clone(), chain.clone()))
        .collect();
    change
}
