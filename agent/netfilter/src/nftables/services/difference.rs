//! What turns one state of some Services into another. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
};

use super::{
    super::{
        batch::{Batch, Data, Key},
        vip::Vip,
    },
    elements::ServiceElements,
    parts::TABLE,
    pick::Branch,
};

/// An element before and after.
type Change = (Option<Data>, Option<Data>);

/// Elements that come, go or change, and the chains that they need.
#[derive(Debug, Default)]
pub(super) struct Difference {
    elements: BTreeMap<&'static str, BTreeMap<Key, Change>>,
    pub(super) new_branches: Vec<Branch>,
    pub(super) gone_branches: Vec<Branch>,
    pub(super) udp_changed: bool,
    /// Where clients may be remembered with an endpoint that is no more.
    pub(super) moved: BTreeMap<Vip, BTreeSet<SocketAddr>>,
}

impl Difference {
    /// Adds what one Service was and is.
    pub(super) fn add(&mut self, before: &ServiceElements, after: &ServiceElements) {
        self.udp_changed |= before.udp != after.udp;
        if before.elements == after.elements {
            return;
        }
        for (at @ (set, key), data) in &before.elements {
            let now = after.elements.get(at);
            if now != Some(data) {
                self.set(set, key, Some(data.clone()), now.cloned());
            }
        }
        for (at @ (set, key), data) in &after.elements {
            if !before.elements.contains_key(at) {
                self.set(set, key, None, Some(data.clone()));
            }
        }
        self.moved.extend(after.sticky());
    }

    /// An element becomes another's in two steps: it is what it was before the first, and what it
    /// is after the last.
    pub(super) fn set(
        &mut self,
        set: &'static str,
        key: &Key,
        before: Option<Data>,
        after: Option<Data>,
    ) {
        let of_set = self.elements.entry(set).or_default();
        match of_set.get_mut(key) {
            Some(known) => known.1 = after,
            None => {
                of_set.insert(key.clone(), (before, after));
            }
        }
    }

    /// How many elements are not what they were.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        let changes = self.elements.values().flat_map(BTreeMap::values);
        changes.filter(|(before, after)| before != after).count()
    }

    /// As a transaction, for a table that is as it was before. What goes makes room first.
    pub(super) fn batch(&self) -> Batch {
        let mut batch = Batch::new();
        for branch in &self.new_branches {
            batch.add_chain(&TABLE, &branch.chain(), None);
            for rule in branch.rules() {
                batch.add_rule(&TABLE, &branch.chain(), &rule);
            }
        }
        for (set, changes) in &self.elements {
            let gone = changes
                .iter()
                .filter(|(_, (before, after))| before != after);
            let gone = gone.filter(|(_, (before, _))| before.is_some());
            batch.delete_elements(&TABLE, set, gone.map(|(key, _)| key));
        }
        for (set, changes) in &self.elements {
            let new = changes
                .iter()
                .filter(|(_, (before, after))| before != after);
            let new = new.filter_map(|(key, (_, after))| Some((key, after.as_ref()?)));
            batch.add_elements(&TABLE, set, new);
        }
        for branch in &self.gone_branches {
            batch.flush_chain(&TABLE, &branch.chain());
            batch.delete_chain(&TABLE, &branch.chain());
        }
        batch
    }
}
