//! From what a table is to what it shall be, in one transaction. Pure.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    batch::{Batch, Data, Key},
    kernel::{Hooked, Shape},
    table::{Chain, Layout, Set},
};

/// Elements by set and key.
pub(super) type Elements = BTreeMap<String, BTreeMap<Key, Data>>;

/// What a table is.
#[derive(Debug, Default)]
pub(super) struct Held {
    /// Its chains are not called, whatever they are.
    pub(super) is_dormant: bool,
    pub(super) sets: BTreeMap<String, Shape>,
    /// Whether its rules are known to be right, by chain.
    pub(super) chains: BTreeMap<String, bool>,
    /// Of chains that the kernel calls.
    pub(super) hooks: BTreeMap<String, Hooked>,
    pub(super) elements: Elements,
}

/// Elements that shall be, each with who wants it.
pub(super) type Wanted<'a, O> = BTreeMap<&'a str, BTreeMap<&'a Key, (&'a Data, Option<O>)>>;

/// A transaction, and who is to blame for which message of it.
#[derive(Debug)]
pub(super) struct Blamable<O> {
    pub(super) batch: Batch,
    /// The last message of each.
    blame: Vec<(u32, Option<O>)>,
}

impl<O: Clone + PartialEq> Blamable<O> {
    pub(super) fn new() -> Self {
        Self {
            batch: Batch::new(),
            blame: Vec::new(),
        }
    }

    /// What has been added since is `owner`'s.
    pub(super) fn sign(&mut self, owner: Option<O>) {
        let last = self.batch.last_number();
        self.blame.push((last, owner));
    }

    pub(super) fn into_parts(self) -> (Batch, Vec<(u32, Option<O>)>) {
        (self.batch, self.blame)
    }
}

pub(super) fn shape(set: &Set) -> Shape {
    [
        set.flags(),
        set.key_number(),
        set.key_length(),
        set.value_number(),
    ]
}

/// How the kernel tells of a chain that it calls.
fn hooked(chain: &Chain) -> Hooked {
    // NF_ACCEPT: what no rule here decides goes on.
    let policy = 1;
    let priority = chain.priority.cast_unsigned();
    (
        chain.hook.number(),
        priority,
        policy,
        chain.kind.name().to_owned(),
    )
}

/// Whether something of the table is of the right name and the wrong kind: another release's, or
/// somebody has changed it, or has it sleep.
pub(super) fn differs(layout: &Layout, held: &Held) -> bool {
    let mut sets = layout.sets.iter();
    let mut chains = layout.chains.iter();
    held.is_dormant
        || sets.any(|set| held.sets.get(&set.name).is_some_and(|is| *is != shape(set)))
        || chains.any(|(name, hook, _)| {
            held.chains.contains_key(name)
                && held.hooks.get(name) != hook.as_ref().map(hooked).as_ref()
        })
}

/// What makes the table so. `None`: it is not there. Sets that rules fill keep what they have.
pub(super) fn transition<O: Clone + PartialEq>(
    layout: &Layout,
    held: Option<&Held>,
    wanted: &Wanted<'_, O>,
) -> Blamable<O> {
    let mut to = Blamable::new();
    let nothing = Held::default();
    let held = match held {
        None => {
            to.batch.add_table(&layout.table);
            &nothing
        }
        // All at once, so that nobody notices.
        Some(held) if differs(layout, held) => {
            to.batch.delete_table(&layout.table);
            to.batch.add_table(&layout.table);
            &nothing
        }
        Some(held) => held,
    };
    let names: BTreeSet<&str> = layout.chains.iter().map(|(name, ..)| &**name).collect();
    let gone: Vec<&str> = held.chains.keys().map(|name| &**name).collect();
    let gone: Vec<&str> = gone
        .into_iter()
        .filter(|name| !names.contains(name))
        .collect();
    frame(layout, held, &gone, &mut to.batch);
    to.sign(None);
    fill(layout, held, wanted, &mut to);
    for chain in &gone {
        to.batch.delete_chain(&layout.table, chain);
    }
    let names: BTreeSet<&str> = layout.sets.iter().map(|set| &*set.name).collect();
    for set in held.sets.keys().filter(|name| !names.contains(&***name)) {
        to.batch.delete_set(&layout.table, set);
    }
    to.sign(None);
    to
}

/// The same for elements that nobody is to blame for.
pub(super) fn batch_to(layout: &Layout, held: Option<&Held>, elements: &Elements) -> Batch {
    let wanted: Wanted<'_, ()> = elements
        .iter()
        .map(|(set, elements)| {
            let elements = elements.iter().map(|(key, data)| (key, (data, None)));
            (&**set, elements.collect())
        })
        .collect();
    transition(layout, held, &wanted).into_parts().0
}

/// Sets, chains and rules; chains that are gone are emptied, so that nothing leads out of them.
fn frame(layout: &Layout, held: &Held, gone: &[&str], batch: &mut Batch) {
    let table = &layout.table;
    for (id, set) in (1..).zip(&layout.sets) {
        if !held.sets.contains_key(&set.name) {
            batch.add_set(table, set, id);
        }
    }
    for (name, hook, _) in &layout.chains {
        if !held.chains.contains_key(name) {
            batch.add_chain(table, name, hook.as_ref());
        }
    }
    for name in gone {
        batch.flush_chain(table, name);
    }
    for (name, _, rules) in &layout.chains {
        match held.chains.get(name) {
            Some(true) => continue,
            Some(false) => batch.flush_chain(table, name),
            None => {}
        }
        for rule in rules {
            batch.add_rule(table, name, rule);
        }
    }
}

/// Elements: first those that go, as another's may come in their place.
fn fill<O: Clone + PartialEq>(
    layout: &Layout,
    held: &Held,
    wanted: &Wanted<'_, O>,
    to: &mut Blamable<O>,
) {
    let table = &layout.table;
    let sets = || layout.sets.iter().filter(|set| set.remembered.is_none());
    let none = BTreeMap::new();
    let wanted_of = |set: &Set| wanted.get(&*set.name);
    let held_of = |set: &Set| held.elements.get(&set.name).unwrap_or(&none);
    for set in sets() {
        let gone = held_of(set).iter().filter(|(key, data)| {
            let wanted = wanted_of(set).and_then(|wanted| wanted.get(key));
            wanted.is_none_or(|(wanted, _)| wanted != data)
        });
        to.batch
            .delete_elements(table, &set.name, gone.map(|(key, _)| key));
    }
    to.sign(None);
    for set in sets() {
        let new = wanted_of(set).into_iter().flatten();
        let new = new.filter(|(key, (data, _))| held_of(set).get(*key) != Some(data));
        let new: Vec<(&Key, &Data, &Option<O>)> = new
            .map(|(key, (data, owner))| (*key, *data, owner))
            .collect();
        for of_one in new.chunk_by(|(_, _, one), (_, _, next)| one == next) {
            let elements = of_one.iter().map(|(key, data, _)| (*key, *data));
            to.batch.add_elements(table, &set.name, elements);
            to.sign(of_one[0].2.clone());
        }
    }
}
