//! Which elements all Services have together. Pure.
//!
//! Knows who has which address and port, what the kernel has refused, and which chains and hairpins
//! are still used by any. What the kernel holds is not looked at: a change comes with the
//! difference to what was wanted before it.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::Ipv4Addr,
};

use super::{
    super::{
        batch::{Data, Key},
        table::Layout,
        transition::Wanted,
        vip::Vip,
    },
    difference::Difference,
    elements::{Order, ServiceElements, of_service},
    layout::layout,
    parts::name,
    pick::Branch,
};
use crate::{
    engine::Refusal,
    flows::Targets,
    service::{ServiceKey, ServiceNetwork, ServiceView},
};

/// Chains that nothing leads to any more are kept for the next who needs one like them, up to so
/// many: making and removing one has the kernel look through the whole table.
const MOST_IDLE_BRANCHES: usize = 64;

/// What all Services want.
#[derive(Debug)]
pub(super) struct Book {
    network: ServiceNetwork,
    written: HashMap<ServiceKey, ServiceElements>,
    uids: HashMap<ServiceKey, String>,
    /// Who has what packets are sent to.
    owners: HashMap<Vip, ServiceKey>,
    /// Services some of whose VIPs are another's.
    waiting: BTreeMap<ServiceKey, ServiceView>,
    /// Without elements, because the kernel refuses them. What they have is still their own.
    refused: BTreeMap<ServiceKey, ServiceElements>,
    /// Addresses of endpoints of this node, and how many Services have them.
    hairpins: BTreeMap<Ipv4Addr, usize>,
    /// Chains that are there, and how many Services lead to them.
    branches: BTreeMap<Branch, usize>,
    /// In which order a predecessor has numbered endpoints.
    inherited: Order,
}

impl Book {
    pub(super) fn new(network: ServiceNetwork) -> Self {
        Self {
            network: network.ipv4(),
            written: HashMap::new(),
            uids: HashMap::new(),
            owners: HashMap::new(),
            waiting: BTreeMap::new(),
            refused: BTreeMap::new(),
            hairpins: BTreeMap::new(),
            branches: BTreeMap::new(),
            inherited: Order::new(),
        }
    }

    /// Endpoints keep the numbers that a predecessor gave them.
    pub(super) fn inherit(&mut self, order: Order) {
        self.inherited = order;
    }

    /// All that is inherited is in the book.
    pub(super) fn forget_predecessor(&mut self) {
        self.inherited.clear();
    }

    /// Takes Services in (`None`: gone).
    pub(super) fn change(&mut self, changes: Vec<(ServiceKey, Option<ServiceView>)>) -> Difference {
        let before: BTreeSet<Ipv4Addr> = self.hairpins.keys().copied().collect();
        let known: BTreeSet<Branch> = self.branches.keys().copied().collect();
        let mut difference = Difference::default();
        let mut freed = false;
        for (key, view) in changes {
            freed |= self.change_one(key, view, &mut difference);
        }
        if freed {
            // Somebody may wait for what one has left.
            for (key, view) in std::mem::take(&mut self.waiting) {
                self.change_one(key, Some(view), &mut difference);
            }
        }
        let now: BTreeSet<Ipv4Addr> = self.hairpins.keys().copied().collect();
        for address in before.symmetric_difference(&now) {
            let there = |all: &BTreeSet<_>| all.contains(address).then_some(Data::None);
            difference.set(
                name::HAIRPINS,
                &hairpin(address),
                there(&before),
                there(&now),
            );
        }
        let new = self
            .branches
            .keys()
            .filter(|branch| !known.contains(branch));
        difference.new_branches = new.copied().collect();
        if self.idle_branches().count() > MOST_IDLE_BRANCHES {
            let idle: BTreeSet<Branch> = self.idle_branches().collect();
            self.branches.retain(|branch, _| !idle.contains(branch));
            difference
                .new_branches
                .retain(|branch| !idle.contains(branch));
            difference.gone_branches = idle.intersection(&known).copied().collect();
        }
        difference
    }

    /// Takes one in. Says whether others may have what it leaves.
    fn change_one(
        &mut self,
        key: ServiceKey,
        view: Option<ServiceView>,
        to: &mut Difference,
    ) -> bool {
        self.waiting.remove(&key);
        match view.as_ref().and_then(|view| view.uid.clone()) {
            Some(uid) => self.uids.insert(key.clone(), uid),
            None => self.uids.remove(&key),
        };
        // What it was refused for may be gone.
        let refused = self.refused.remove(&key).unwrap_or_default();
        let before = self.written.remove(&key).unwrap_or_default();
        let after = view
            .as_ref()
            .map(|view| self.elements_of(&key, view, &before));
        let after = after.unwrap_or_default();
        if let Some(view) = view.filter(|_| after.lacks_vips) {
            tracing::warn!(service = %key, "an address and port of the Service are another's; it gets them once they are free");
            self.waiting.insert(key.clone(), view);
        }
        let had = before.vips.union(&refused.vips);
        let left: Vec<&Vip> = had.filter(|vip| !after.vips.contains(vip)).collect();
        for vip in &left {
            self.owners.remove(vip);
        }
        let freed = !left.is_empty();
        for vip in &after.vips {
            self.owners.insert(*vip, key.clone());
        }
        self.count(&before, &after);
        to.add(&before, &after);
        if after != ServiceElements::default() {
            self.written.insert(key, after);
        }
        freed
    }

    fn elements_of(
        &self,
        key: &ServiceKey,
        view: &ServiceView,
        before: &ServiceElements,
    ) -> ServiceElements {
        let order = match before.order.is_empty() {
            true => &self.inherited,
            false => &before.order,
        };
        let is_taken = |vip: &Vip| self.owners.get(vip).is_some_and(|owner| owner != key);
        of_service(&self.network, key, view, order, &is_taken)
    }

    /// The others go on without it.
    pub(super) fn set_aside(&mut self, key: &ServiceKey, why: String) -> Option<Refusal> {
        let service = self.written.remove(key)?;
        self.count(&service, &ServiceElements::default());
        self.refused.insert(key.clone(), service);
        Some(Refusal {
            service: key.clone(),
            uid: self.uids.get(key).cloned(),
            why,
        })
    }

    /// Those that were set aside are wanted again. Says whether there are any.
    pub(super) fn take_refused_back(&mut self) -> bool {
        let refused = std::mem::take(&mut self.refused);
        let any = !refused.is_empty();
        for (key, service) in refused {
            self.count(&ServiceElements::default(), &service);
            self.written.insert(key, service);
        }
        any
    }

    pub(super) fn refused(&self) -> BTreeSet<ServiceKey> {
        self.refused.keys().cloned().collect()
    }

    fn idle_branches(&self) -> impl Iterator<Item = Branch> {
        let idle = self.branches.iter().filter(|(_, uses)| **uses == 0);
        idle.map(|(branch, _)| *branch)
    }

    /// The table without its elements.
    pub(super) fn layout(&self) -> Layout {
        layout(&self.network, &self.branches.keys().copied().collect())
    }

    /// Keys of the pairs that may reach themselves.
    pub(super) fn hairpins(&self) -> Vec<Key> {
        self.hairpins.keys().map(hairpin).collect()
    }

    /// All elements, each with whose it is.
    pub(super) fn wanted<'a>(&'a self, hairpins: &'a [Key]) -> Wanted<'a, &'a ServiceKey> {
        let mut wanted: Wanted<'_, &ServiceKey> = BTreeMap::new();
        for (service, is) in &self.written {
            for ((set, key), data) in &is.elements {
                let of_set = wanted.entry(set).or_default();
                of_set.insert(key, (data, Some(service)));
            }
        }
        let pairs = hairpins.iter().map(|key| (key, (&Data::None, None)));
        wanted.insert(name::HAIRPINS, pairs.collect());
        wanted
    }

    pub(super) fn services(&self) -> impl Iterator<Item = &ServiceElements> {
        self.written.values()
    }

    /// Where UDP flows may go.
    pub(super) fn udp_targets(&self) -> Targets {
        let mut targets = Targets::default();
        self.services()
            .for_each(|service| targets.extend(&service.udp));
        targets
    }

    fn count(&mut self, before: &ServiceElements, after: &ServiceElements) {
        for branch in after.branches.difference(&before.branches) {
            *self.branches.entry(*branch).or_default() += 1;
        }
        for branch in before.branches.difference(&after.branches) {
            if let Some(uses) = self.branches.get_mut(branch) {
                *uses -= 1;
            }
        }
        for address in after.hairpins.difference(&before.hairpins) {
            *self.hairpins.entry(*address).or_default() += 1;
        }
        for address in before.hairpins.difference(&after.hairpins) {
            if let Some(uses) = self.hairpins.get_mut(address) {
                *uses -= 1;
                if *uses == 0 {
                    self.hairpins.remove(address);
                }
            }
        }
    }
}

/// The key of a pod that may reach itself.
pub(super) fn hairpin(address: &Ipv4Addr) -> Key {
    Key::one([address.octets(), address.octets()].concat())
}
