//! The engine for Services over nftables: each Service is some elements of maps, and the rules are
//! the same for all.
//!
//! ```text
//! prerouting, output -> services: address . protocol . port -> pick-3, or by the ways below
//!                         pick-3: endpoints: address . protocol . port . random(3) -> DNAT
//!                         mark-pick-3: the same, masqueraded; pick-3-for-10800: clients stay where they were
//!                         external-local: this node's pods and itself -> anywhere -> pick-3; others -> here -> local-pick-1
//!                         guard: allowed: address . protocol . port . client -> guarded -> as above
//! postrouting -> a pod that reaches itself (hairpins), what is marked: masquerade
//! input, output, forward (new) -> unserved: drop or refuse; the rest of the Services' range: refuse
//! ```
//! A connection looks up one element, however many Services there are; a Service that comes or goes
//! writes its own elements; of a thousand endpoints one that leaves writes three. No program is
//! executed. A transaction is all of a change or nothing of it, and the kernel says of each Service
//! in it why it is not taken.

mod elements;
mod layout;
mod pick;
mod sticky;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    io,
    net::{Ipv4Addr, SocketAddr},
    time::{Duration, Instant},
};

use self::{
    elements::{Order, ServiceElements, Vip, of_service},
    layout::{TABLE, layout, name},
    pick::Pick,
};
use super::{
    batch::{Batch, Data, Key},
    kernel::{self, CommitError, Present},
    transition::{Held, Wanted, transition},
};
use crate::{
    engine::{EngineError, Refusal, ServiceEngine},
    flows::Targets,
    generation,
    iptables::{Iptables, IptablesError, rules::BaseRules},
    service::{ServiceKey, ServiceNetwork, ServiceView},
};

/// Services set aside are tried again this often: somebody may have loaded a module.
const RETRY_REFUSED: Duration = Duration::from_secs(300);
/// Comparisons for one request: each sets aside what the kernel has refused.
const ROUNDS: usize = 4;

/// Why Services could not be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NftablesError {
    /// It cannot be read.
    #[error("list the nftables table {}", TABLE.name)]
    List(#[source] io::Error),
    /// What is to be left in iptables' tables cannot be written.
    #[error(transparent)]
    Iptables(#[from] IptablesError),
    /// Nobody's rules were taken, or there is no end to what is refused.
    #[error("write the nftables table {}: {why}", TABLE.name)]
    Write {
        /// What the kernel said.
        why: String,
    },
}

/// A Service without elements.
#[derive(Debug)]
struct Refused {
    service: ServiceElements,
    why: String,
}

/// Keeps the table of Services.
#[derive(Debug)]
pub struct Services {
    iptables: Iptables,
    network: ServiceNetwork,
    /// What the engine over iptables has left there was looked for.
    alone: bool,
    written: HashMap<ServiceKey, ServiceElements>,
    uids: HashMap<ServiceKey, String>,
    /// Who has what packets are sent to.
    owners: HashMap<Vip, ServiceKey>,
    /// Services some of whose VIPs are another's.
    waiting: BTreeMap<ServiceKey, ServiceView>,
    refused: BTreeMap<ServiceKey, Refused>,
    refused_at: Option<Instant>,
    /// Refused since last asked.
    news: Vec<Refusal>,
    /// Addresses of endpoints of this node, and how many Services have them.
    hairpins: BTreeMap<Ipv4Addr, usize>,
    /// Chains that are there.
    picks: BTreeSet<Pick>,
    /// In which order a predecessor has numbered endpoints.
    inherited: Order,
    /// The rules as they were written, by chain.
    rules: Option<BTreeMap<String, Vec<Vec<u8>>>>,
    suspect: bool,
    verified: Option<u32>,
}

impl ServiceEngine for Services {
    fn apply(
        &mut self,
        changes: Vec<(ServiceKey, Option<ServiceView>)>,
    ) -> Result<bool, EngineError> {
        self.write_changes(changes).map_err(EngineError::new)
    }

    fn reconcile(&mut self) -> Result<bool, EngineError> {
        self.write_all().map_err(EngineError::new)
    }

    fn is_suspect(&self) -> bool {
        self.suspect
    }

    fn is_disturbed(&self) -> bool {
        generation::read().is_ok_and(|now| Some(now) != self.verified)
    }

    fn udp_targets(&self) -> Targets {
        let mut targets = Targets::default();
        let all = self.written.values();
        all.for_each(|service| targets.extend(&service.udp));
        targets
    }

    fn take_refusals(&mut self) -> Vec<Refusal> {
        std::mem::take(&mut self.news)
    }

    fn refused(&self) -> usize {
        self.refused.len()
    }
}

/// What turns one state of some Services into another.
#[derive(Default)]
struct Difference {
    /// Elements that go, and those that come, by set.
    gone: BTreeMap<&'static str, Vec<Key>>,
    new: BTreeMap<&'static str, Vec<(Key, Data)>>,
    udp_changed: bool,
    /// Where clients may be remembered with an endpoint that is no more.
    moved: BTreeMap<Vip, BTreeSet<SocketAddr>>,
}

impl Services {
    /// Knows nothing of the kernel's table yet: the first [`ServiceEngine::apply`] reconciles.
    #[must_use]
    pub fn new(iptables: Iptables, network: ServiceNetwork) -> Self {
        Self {
            iptables,
            network: network.ipv4(),
            alone: false,
            written: HashMap::new(),
            uids: HashMap::new(),
            owners: HashMap::new(),
            waiting: BTreeMap::new(),
            refused: BTreeMap::new(),
            refused_at: None,
            news: Vec::new(),
            hairpins: BTreeMap::new(),
            picks: BTreeSet::new(),
            inherited: Order::new(),
            rules: None,
            suspect: true,
            verified: None,
        }
    }

    fn write_changes(
        &mut self,
        changes: Vec<(ServiceKey, Option<ServiceView>)>,
    ) -> Result<bool, NftablesError> {
        if self.rules.is_none() && self.inherited.is_empty() {
            self.inherited = inherited_order().map_err(NftablesError::List)?;
        }
        let hairpins: BTreeSet<Ipv4Addr> = self.hairpins.keys().copied().collect();
        let picks = self.picks.clone();
        let mut difference = Difference::default();
        let mut freed = false;
        for (key, view) in changes {
            freed |= self.change(key, view, &mut difference);
        }
        if freed {
            // Somebody may wait for what one has left.
            for (key, view) in std::mem::take(&mut self.waiting) {
                self.change(key, Some(view), &mut difference);
            }
        }
        let udp_changed = difference.udp_changed;
        if self.suspect {
            return self.write_all().map(|_| true);
        }
        let batch = self.batch(&difference, &hairpins, &picks);
        if let Err(error) = self.commit(batch) {
            tracing::debug!(%error, "compares Services with the kernel's after a refusal");
            self.suspect = true;
            return self.write_all().map(|_| true);
        }
        if self.picks != picks {
            self.read_rules();
        }
        self.forget_clients(&difference.moved);
        Ok(udp_changed)
    }

    /// Takes a Service in. Says whether others may have what it leaves.
    fn change(&mut self, key: ServiceKey, view: Option<ServiceView>, to: &mut Difference) -> bool {
        self.waiting.remove(&key);
        match view.as_ref().and_then(|view| view.uid.clone()) {
            Some(uid) => self.uids.insert(key.clone(), uid),
            None => self.uids.remove(&key),
        };
        // What it was refused for may be gone.
        let refused = self.refused.remove(&key);
        let before_owned = refused
            .map(|refused| refused.service.vips)
            .unwrap_or_default();
        let before = self.written.remove(&key).unwrap_or_default();
        let order = match before.order.is_empty() {
            true => &self.inherited,
            false => &before.order,
        };
        let owners = &self.owners;
        let is_taken = |vip: &Vip| owners.get(vip).is_some_and(|owner| *owner != key);
        let after = view
            .as_ref()
            .map(|view| of_service(&self.network, &key, view, order, &is_taken));
        let after = after.unwrap_or_default();
        if let Some(view) = view.filter(|_| after.lacks_vips) {
            tracing::warn!(service = %key, "an address and port of the Service are another's; it gets them once they are free");
            self.waiting.insert(key.clone(), view);
        }
        let had = before.vips.union(&before_owned);
        let left: Vec<Vip> = had
            .filter(|vip| !after.vips.contains(vip))
            .copied()
            .collect();
        for vip in &left {
            self.owners.remove(vip);
        }
        for vip in &after.vips {
            self.owners.insert(*vip, key.clone());
        }
        self.count_hairpins(&before.hairpins, &after.hairpins);
        self.picks.extend(&after.picks);
        to.add(&before, &after);
        if after != ServiceElements::default() {
            self.written.insert(key, after);
        }
        !left.is_empty()
    }

    fn batch(
        &self,
        difference: &Difference,
        hairpins_before: &BTreeSet<Ipv4Addr>,
        picks_before: &BTreeSet<Pick>,
    ) -> Batch {
        let mut batch = Batch::new();
        for pick in self.picks.difference(picks_before) {
            batch.add_chain(&TABLE, &pick.chain(), None);
            for rule in pick.rules() {
                batch.add_rule(&TABLE, &pick.chain(), &rule);
            }
        }
        for (set, keys) in &difference.gone {
            batch.delete_elements(&TABLE, set, keys);
        }
        for (set, elements) in &difference.new {
            let elements = elements.iter().map(|(key, data)| (key, data));
            batch.add_elements(&TABLE, set, elements);
        }
        let now: BTreeSet<Ipv4Addr> = self.hairpins.keys().copied().collect();
        let keys = |addresses: &BTreeSet<Ipv4Addr>, others: &BTreeSet<Ipv4Addr>| -> Vec<Key> {
            addresses.difference(others).map(hairpin).collect()
        };
        batch.delete_elements(&TABLE, name::HAIRPINS, &keys(hairpins_before, &now));
        let new = keys(&now, hairpins_before);
        batch.add_elements(
            &TABLE,
            name::HAIRPINS,
            new.iter().map(|key| (key, &Data::None)),
        );
        batch
    }

    /// Sends a transaction that knows what is there; counts it.
    fn commit(&mut self, batch: Batch) -> Result<(), CommitError> {
        if batch.is_empty() {
            return Ok(());
        }
        let before = generation::read().ok();
        let ours_alone = self.verified.filter(|verified| before == Some(*verified));
        self.verified = None;
        kernel::commit(batch)?;
        // If somebody else writes meanwhile, the kernel counts more than this, and the table is
        // compared again.
        self.verified = ours_alone.map(|before| before.wrapping_add(1));
        Ok(())
    }

    /// Remembers the rules as they were just written.
    fn read_rules(&mut self) {
        let present = kernel::present(&TABLE).ok().flatten();
        self.rules = present.map(|present| present.chains);
    }

    fn write_all(&mut self) -> Result<bool, NftablesError> {
        self.retry_refused();
        let before = generation::read().ok();
        if !self.suspect && before.is_some() && before == self.verified {
            return Ok(false);
        }
        for _ in 0..ROUNDS {
            match self.compare()? {
                Compared::Same(generation) => {
                    self.verified = generation;
                    self.suspect = false;
                    return self.take_over().map(|()| false);
                }
                Compared::Written => {
                    self.suspect = false;
                    self.inherited = Order::new();
                    self.read_rules();
                    let all = self.written.values();
                    let sticky = all.flat_map(ServiceElements::sticky).collect();
                    self.forget_clients(&sticky);
                    return self.take_over().map(|()| true);
                }
                Compared::Refused(services) => {
                    for (key, why) in services {
                        self.set_aside(key, why);
                    }
                }
            }
        }
        Err(NftablesError::Write {
            why: "the kernel refuses one Service after the other".to_owned(),
        })
    }

    /// Once this table is there, takes away what the engine over iptables has left: connections that
    /// are there go on as they were translated.
    fn take_over(&mut self) -> Result<(), NftablesError> {
        if self.alone {
            return Ok(());
        }
        let (nat, filter) = BaseRules::new(self.network.clone()).of_other_engine();
        self.iptables.ensure("nat", &nat)?;
        self.iptables.ensure("filter", &filter)?;
        self.alone = true;
        Ok(())
    }

    /// Compares the kernel's table with what it should be, and writes the difference.
    fn compare(&mut self) -> Result<Compared, NftablesError> {
        self.suspect = true;
        let generation = generation::read().ok();
        self.picks = self
            .written
            .values()
            .flat_map(|service| &service.picks)
            .copied()
            .collect();
        let layout = layout(&self.network, &self.picks);
        let present = kernel::present(&TABLE).map_err(NftablesError::List)?;
        let held = present.map(|present| self.held(present)).transpose();
        let held = held.map_err(NftablesError::List)?;
        let hairpins: Vec<Key> = self.hairpins.keys().map(hairpin).collect();
        let mut wanted: Wanted<'_, &ServiceKey> = BTreeMap::new();
        for (service, is) in &self.written {
            for ((set, key), data) in &is.elements {
                wanted
                    .entry(set)
                    .or_default()
                    .insert(key, (data, Some(service)));
            }
        }
        let pairs = hairpins.iter().map(|key| (key, (&Data::None, None)));
        wanted.insert(name::HAIRPINS, pairs.collect());
        let (batch, blame) = transition(&layout, held.as_ref(), &wanted).into_parts();
        if batch.is_empty() {
            return Ok(Compared::Same(generation));
        }
        self.verified = None;
        match kernel::commit(batch) {
            Ok(()) => Ok(Compared::Written),
            Err(CommitError::Refused(refused)) => {
                let whose = |message: &u32| {
                    let at = blame.partition_point(|(last, _)| last < message);
                    blame.get(at).and_then(|(_, owner)| *owner)
                };
                let culprits = refused
                    .iter()
                    .map(|(message, why)| Some((whose(message)?.clone(), why.to_string())));
                let culprits: Option<BTreeMap<ServiceKey, String>> = culprits.collect();
                let nobodys = || NftablesError::Write {
                    why: CommitError::Refused(refused).to_string(),
                };
                culprits.map(Compared::Refused).ok_or_else(nobodys)
            }
            Err(error) => Err(NftablesError::Write {
                why: coracle_telemetry::ErrorChain(&error).to_string(),
            }),
        }
    }

    fn held(&self, present: Present) -> io::Result<Held> {
        let known = self.rules.as_ref();
        let is_right =
            |chain: &String, rules| known.is_some_and(|known| known.get(chain) == Some(rules));
        let chains = present.chains.iter();
        let chains = chains.map(|(name, rules)| (name.clone(), is_right(name, rules)));
        let sets = present.sets.keys().filter(|set| *set != name::STICKY);
        let elements = sets.map(|set| Ok((set.clone(), kernel::elements(&TABLE, set)?)));
        Ok(Held {
            chains: chains.collect(),
            elements: elements.collect::<io::Result<_>>()?,
            sets: present.sets,
        })
    }

    /// The others go on without it. What it has is still its own.
    fn set_aside(&mut self, key: ServiceKey, why: String) {
        let Some(service) = self.written.remove(&key) else {
            return;
        };
        self.count_hairpins(&service.hairpins, &BTreeSet::new());
        self.news.push(Refusal {
            service: key.clone(),
            uid: self.uids.get(&key).cloned(),
            why: why.clone(),
        });
        self.refused_at.get_or_insert_with(Instant::now);
        self.refused.insert(key, Refused { service, why });
    }

    fn retry_refused(&mut self) {
        if self
            .refused_at
            .is_none_or(|at| at.elapsed() < RETRY_REFUSED)
        {
            return;
        }
        self.refused_at = None;
        for (key, Refused { service, why }) in std::mem::take(&mut self.refused) {
            tracing::debug!(service = %key, why, "tries a refused Service again");
            self.count_hairpins(&BTreeSet::new(), &service.hairpins);
            self.written.insert(key, service);
            self.suspect = true;
        }
    }

    fn count_hairpins(&mut self, before: &BTreeSet<Ipv4Addr>, after: &BTreeSet<Ipv4Addr>) {
        for address in after.difference(before) {
            *self.hairpins.entry(*address).or_default() += 1;
        }
        for address in before.difference(after) {
            if let Some(count) = self.hairpins.get_mut(address) {
                *count -= 1;
                if *count == 0 {
                    self.hairpins.remove(address);
                }
            }
        }
    }
}

/// What a comparison came to.
enum Compared {
    /// The kernel's table is right; it was at this count of changes.
    Same(Option<u32>),
    Written,
    /// Nothing is written, because of these.
    Refused(BTreeMap<ServiceKey, String>),
}

impl Difference {
    fn add(&mut self, before: &ServiceElements, after: &ServiceElements) {
        self.udp_changed |= before.udp != after.udp;
        if before.elements == after.elements {
            return;
        }
        for (at @ (set, key), data) in &before.elements {
            if after.elements.get(at) != Some(data) {
                self.gone.entry(set).or_default().push(key.clone());
            }
        }
        for (at @ (set, key), data) in &after.elements {
            if before.elements.get(at) != Some(data) {
                let new = self.new.entry(set).or_default();
                new.push((key.clone(), data.clone()));
            }
        }
        self.moved.extend(after.sticky());
    }
}

/// Removes the table; there need not be one.
///
/// # Errors
/// [`NftablesError`].
pub fn remove() -> Result<(), NftablesError> {
    if kernel::present(&TABLE)
        .map_err(NftablesError::List)?
        .is_none()
    {
        return Ok(());
    }
    let mut batch = Batch::new();
    batch.delete_table(&TABLE);
    kernel::commit(batch).map_err(|error| NftablesError::Write {
        why: coracle_telemetry::ErrorChain(&error).to_string(),
    })
}

fn hairpin(address: &Ipv4Addr) -> Key {
    Key::one([address.octets(), address.octets()].concat())
}

/// How a predecessor has numbered endpoints.
fn inherited_order() -> io::Result<Order> {
    let mut order = Order::new();
    for (set, local) in [(name::ENDPOINTS, false), (name::LOCAL_ENDPOINTS, true)] {
        let mut numbered: BTreeMap<(Vip, u32), SocketAddr> = BTreeMap::new();
        for (key, data) in kernel::elements(&TABLE, set)? {
            numbered.extend(elements::parse_endpoint(&key, &data));
        }
        for ((vip, _), endpoint) in numbered {
            order.entry((vip, local)).or_default().push(endpoint);
        }
    }
    Ok(order)
}

#[cfg(test)]
pub(crate) mod tests;
