//! Who has had how much remembered, and what of it came first. When there is too much, whoever has
//! most loses his oldest: a pod that asks for a million names pushes out its own.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::IpAddr,
    sync::Arc,
};

use crate::forward::question::Query;

#[derive(Debug, Default)]
pub(super) struct Shares {
    by_asker: HashMap<IpAddr, Share>,
    /// The same by size, so that the largest is found at once.
    by_size: BTreeSet<(usize, IpAddr)>,
    bytes: usize,
    len: usize,
}

#[derive(Debug, Default)]
struct Share {
    bytes: usize,
    /// By when they came in.
    by_age: BTreeMap<u64, Arc<Query>>,
}

impl Shares {
    pub(super) fn add(&mut self, asker: IpAddr, number: u64, query: Arc<Query>, bytes: usize) {
        let share = self.by_asker.entry(asker).or_default();
        self.by_size.remove(&(share.bytes, asker));
        share.bytes += bytes;
        share.by_age.insert(number, query);
        self.by_size.insert((share.bytes, asker));
        self.bytes += bytes;
        self.len += 1;
    }

    /// As it was added.
    pub(super) fn remove(&mut self, asker: IpAddr, number: u64, bytes: usize) {
        let Some(share) = self.by_asker.get_mut(&asker) else {
            return;
        };
        if share.by_age.remove(&number).is_none() {
            return;
        }
        self.by_size.remove(&(share.bytes, asker));
        share.bytes -= bytes;
        if share.by_age.is_empty() {
            self.by_asker.remove(&asker);
        } else {
            self.by_size.insert((share.bytes, asker));
        }
        self.bytes -= bytes;
        self.len -= 1;
    }

    /// What goes first.
    pub(super) fn next_to_go(&self) -> Option<Arc<Query>> {
        let (_, largest) = self.by_size.last()?;
        let (_, oldest) = self.by_asker.get(largest)?.by_age.first_key_value()?;
        Some(Arc::clone(oldest))
    }

    /// Of all.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.len
    }
}
