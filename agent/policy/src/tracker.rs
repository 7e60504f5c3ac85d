//! Takes events, keeps the plan up to date, tells what changed.
//!
//! An event costs what it touches: a pod is matched against the groups in use and the policies of
//! its namespace; a policy against the local pods of its namespace; a namespace's labels against
//! its pods. Only a group that is new looks at all pods.

mod answers;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use coracle_netfilter::policy::{
    Chain, ChainId, Change, Direction, GroupId, Plan, PolicyKey, PortGroupId,
};

pub use self::answers::Place;
use crate::{
    id::digest,
    objects::{Labels, PodKey, PodView},
    policy::{GroupSpec, Policy, PortGroupSpec, Side},
    pool::Pool,
    size::{OF_CHAIN, Size},
};

#[derive(Debug, Clone)]
struct LiveChain {
    chain: Chain,
    pods: usize,
    groups: BTreeMap<GroupId, GroupSpec>,
    port_groups: BTreeMap<PortGroupId, PortGroupSpec>,
}

/// Elements of one direction. Two pods may claim an address for a moment; the first by key has it.
#[derive(Debug, Clone, Default)]
struct Elements {
    claims: BTreeMap<IpAddr, BTreeMap<PodKey, ChainId>>,
    had: BTreeMap<IpAddr, Option<ChainId>>,
}

/// What a local pod has claimed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Bound {
    addresses: Vec<IpAddr>,
    to: Option<ChainId>,
    from: Option<ChainId>,
}

/// The state of the cluster as far as policies look at it, and the plan that follows.
#[derive(Debug, Clone)]
pub struct Tracker {
    node: String,
    pods: BTreeMap<Arc<str>, BTreeMap<Arc<str>, PodView>>,
    namespaces: BTreeMap<String, Labels>,
    policies: BTreeMap<String, BTreeMap<String, Arc<Policy>>>,
    groups: Pool<GroupId, GroupSpec>,
    port_groups: Pool<PortGroupId, PortGroupSpec>,
    chains: BTreeMap<ChainId, LiveChain>,
    had_chain: BTreeMap<ChainId, bool>,
    bound: BTreeMap<PodKey, Bound>,
    /// Local pods to be led anew, at the next look: once, however many policies came.
    unbound: BTreeSet<PodKey>,
    to: Elements,
    from: Elements,
    overfull: Vec<Vec<PolicyKey>>,
    strings: BTreeSet<Arc<str>>,
    sweep_at: usize,
}

/// Strings that are kept before the unused are looked for.
const SWEEP_AT_LEAST: usize = 1024;

impl Tracker {
    /// Of an empty cluster, for the node of this name.
    #[must_use]
    pub fn new(node: &str) -> Self {
        Self {
            node: node.to_owned(),
            pods: BTreeMap::new(),
            namespaces: BTreeMap::new(),
            policies: BTreeMap::new(),
            groups: Pool::default(),
            port_groups: Pool::default(),
            chains: BTreeMap::new(),
            had_chain: BTreeMap::new(),
            overfull: Vec::new(),
            bound: BTreeMap::new(),
            unbound: BTreeSet::new(),
            to: Elements::default(),
            from: Elements::default(),
            strings: BTreeSet::new(),
            sweep_at: SWEEP_AT_LEAST,
        }
    }

    /// A pod is so now; `None`: gone, or nothing that policies speak of.
    pub fn set_pod(&mut self, key: &PodKey, pod: Option<PodView>) {
        let labels = self.namespaces.get(&*key.namespace);
        let old = self
            .pods
            .get(&key.namespace)
            .and_then(|pods| pods.get(&key.name));
        if old == pod.as_ref() {
            return;
        }
        if let Some(old) = old {
            self.groups.remove(old, labels);
            self.port_groups.remove(old, labels);
        }
        if let Some(mut pod) = pod {
            self.groups.add(&pod, labels);
            self.port_groups.add(&pod, labels);
            pod.share(&mut self.strings);
            let pods = self.pods.entry(pod.key.namespace.clone()).or_default();
            pods.insert(pod.key.name.clone(), pod);
        } else if let Some(pods) = self.pods.get_mut(&key.namespace) {
            pods.remove(&key.name);
            if pods.is_empty() {
                self.pods.remove(&key.namespace);
            }
        }
        self.sweep();
        self.unbound.insert(key.clone());
    }

    /// A namespace has these labels now; `None`: gone.
    pub fn set_namespace(&mut self, name: &str, labels: Option<Labels>) {
        let old = self.namespaces.get(name);
        let pods = self.pods.get(name).into_iter().flat_map(BTreeMap::values);
        self.groups.relabel(old, labels.as_ref(), pods.clone());
        self.port_groups.relabel(old, labels.as_ref(), pods);
        match labels {
            Some(labels) => self.namespaces.insert(name.to_owned(), labels),
            None => self.namespaces.remove(name),
        };
    }

    /// A policy is so now; `None`: gone.
    pub fn set_policy(&mut self, key: &PolicyKey, policy: Option<Policy>) {
        let policies = self.policies.entry(key.namespace.clone()).or_default();
        match policy {
            Some(policy) => policies.insert(key.name.clone(), Arc::new(policy)),
            None => policies.remove(&key.name),
        };
        if policies.is_empty() {
            self.policies.remove(&key.namespace);
        }
        let pods = self
            .pods
            .get(&*key.namespace)
            .into_iter()
            .flat_map(BTreeMap::values);
        let local = pods.filter(|pod| *pod.node == *self.node);
        self.unbound.extend(local.map(|pod| pod.key.clone()));
    }

    /// The whole plan as of the last [`Self::changes`], for taking over and for comparing.
    #[must_use]
    pub fn plan(&self) -> Plan {
        let chains = self.chains.iter();
        Plan {
            groups: self.groups.sets(),
            port_groups: self.port_groups.sets(),
            chains: chains
                .map(|(id, live)| (id.clone(), live.chain.clone()))
                .collect(),
            to: self.to.all(),
            from: self.from.all(),
        }
    }

    /// Policies that select a pod and are too large together, so that they let nothing through.
    /// Since the last call.
    pub fn take_overfull(&mut self) -> Vec<Vec<PolicyKey>> {
        std::mem::take(&mut self.overfull)
    }

    /// What changed since the last call.
    pub fn changes(&mut self) -> Change {
        for pod in std::mem::take(&mut self.unbound) {
            self.bind(&pod);
        }
        let mut change = Change {
            groups: self.groups.changes(),
            port_groups: self.port_groups.changes(),
            to: self.to.changes(),
            from: self.from.changes(),
            ..Change::default()
        };
        for (id, had) in std::mem::take(&mut self.had_chain) {
            match (had, self.chains.get(&id)) {
                (false, Some(live)) => {
                    change.chains_made.insert(id, live.chain.clone());
                }
                (true, None) => {
                    change.chains_removed.insert(id);
                }
                _ => {}
            }
        }
        change
    }

    /// Leads a pod to the chains of the policies that select it.
    fn bind(&mut self, key: &PodKey) {
        let pod = self
            .pods
            .get(&key.namespace)
            .and_then(|pods| pods.get(&key.name));
        let pod = pod.filter(|pod| *pod.node == *self.node);
        let addresses = pod.map(|pod| pod.addresses.clone()).unwrap_or_default();
        let selecting: Vec<Arc<Policy>> = pod.map_or_else(Vec::new, |pod| {
            let policies = self.policies.get(&*key.namespace);
            let policies = policies.into_iter().flat_map(BTreeMap::values);
            let selecting = policies.filter(|p| p.pods.matches(|label| pod.labels.get(label)));
            selecting.cloned().collect()
        });
        // The new before the old: what both use is not made again.
        let new = Bound {
            addresses,
            to: self.acquire(Direction::Ingress, &selecting),
            from: self.acquire(Direction::Egress, &selecting),
        };
        let old = self.bound.remove(key).unwrap_or_default();
        if new != old {
            self.to.claim(
                key,
                &old.addresses,
                old.to.as_ref(),
                &new.addresses,
                new.to.as_ref(),
            );
            let (before, after) = (old.from.as_ref(), new.from.as_ref());
            self.from
                .claim(key, &old.addresses, before, &new.addresses, after);
        }
        for chain in [old.to, old.from].into_iter().flatten() {
            self.release(&chain);
        }
        if new.to.is_some() || new.from.is_some() {
            self.bound.insert(key.clone(), new);
        }
    }

    fn acquire(&mut self, direction: Direction, selecting: &[Arc<Policy>]) -> Option<ChainId> {
        let sides: Vec<(&PolicyKey, &Side)> = selecting
            .iter()
            .filter_map(|policy| Some((&policy.key, policy.side(direction)?)))
            .collect();
        if sides.is_empty() {
            return None;
        }
        let id = chain_id(direction, &sides);
        if let Some(live) = self.chains.get_mut(&id) {
            live.pods += 1;
            return Some(id);
        }
        let mut live = LiveChain {
            chain: Chain {
                direction,
                policies: sides.iter().map(|(key, _)| (*key).clone()).collect(),
                rules: Vec::new(),
            },
            pods: 1,
            groups: BTreeMap::new(),
            port_groups: BTreeMap::new(),
        };
        let (mut seen, mut size) = (BTreeSet::new(), Size::new(OF_CHAIN));
        let all = || sides.iter().flat_map(|(_, side)| &side.rules);
        let mut rules = all().filter(|rule| seen.insert(*rule));
        // Together they are more than a kernel can be asked to hold: nothing is let through.
        if rules.all(|rule| size.takes(rule)) {
            seen.clear();
            let rules = all().filter(|rule| seen.insert(*rule));
            live.chain.rules.extend(rules.cloned());
            for (_, side) in &sides {
                live.groups.extend(side.groups.clone());
                live.port_groups.extend(side.port_groups.clone());
            }
        } else {
            let policies = live.chain.policies.clone();
            self.overfull.push(policies);
        }
        let (pods, namespaces) = (&self.pods, &self.namespaces);
        let all = move || {
            pods.iter().flat_map(move |(namespace, pods)| {
                let labels = namespaces.get(&**namespace);
                pods.values().map(move |pod| (pod, labels))
            })
        };
        for (group, spec) in &live.groups {
            self.groups.acquire(group, spec, all());
        }
        for (group, spec) in &live.port_groups {
            self.port_groups.acquire(group, spec, all());
        }
        self.had_chain.entry(id.clone()).or_insert(false);
        self.chains.insert(id.clone(), live);
        Some(id)
    }

    fn release(&mut self, id: &ChainId) {
        let Some(live) = self.chains.get_mut(id) else {
            return;
        };
        live.pods -= 1;
        if live.pods > 0 {
            return;
        }
        if let Some(live) = self.chains.remove(id) {
            self.had_chain.entry(id.clone()).or_insert(true);
            for group in live.groups.keys() {
                self.groups.release(group);
            }
            for group in live.port_groups.keys() {
                self.port_groups.release(group);
            }
        }
    }

    /// Lets go of strings that no pod has any more, once there are twice as many as after the
    /// last time.
    fn sweep(&mut self) {
        if self.strings.len() >= self.sweep_at {
            self.strings.retain(|text| Arc::strong_count(text) > 1);
            self.sweep_at = (self.strings.len() * 2).max(SWEEP_AT_LEAST);
        }
    }
}

fn chain_id(direction: Direction, sides: &[(&PolicyKey, &Side)]) -> ChainId {
    let mut parts = vec![match direction {
        Direction::Ingress => "ingress",
        Direction::Egress => "egress",
    }];
    for (key, side) in sides {
        parts.extend([&*key.namespace, &*key.name, &*side.digest]);
    }
    ChainId::new(&digest(parts))
}

impl Elements {
    fn claim(
        &mut self,
        pod: &PodKey,
        old_addresses: &[IpAddr],
        old: Option<&ChainId>,
        new_addresses: &[IpAddr],
        new: Option<&ChainId>,
    ) {
        for address in old_addresses.iter().filter(|_| old.is_some()) {
            self.touch(*address);
            if let Some(claims) = self.claims.get_mut(address) {
                claims.remove(pod);
                if claims.is_empty() {
                    self.claims.remove(address);
                }
            }
        }
        for (address, chain) in new_addresses.iter().filter_map(|a| Some((a, new?))) {
            self.touch(*address);
            let claims = self.claims.entry(*address).or_default();
            claims.insert(pod.clone(), chain.clone());
        }
    }

    fn touch(&mut self, address: IpAddr) {
        let now = self.get(address).cloned();
        self.had.entry(address).or_insert(now);
    }

    fn get(&self, address: IpAddr) -> Option<&ChainId> {
        self.claims.get(&address)?.values().next()
    }

    fn all(&self) -> BTreeMap<IpAddr, ChainId> {
        let addresses = self.claims.keys();
        addresses
            .filter_map(|a| Some((*a, self.get(*a)?.clone())))
            .collect()
    }

    fn changes(&mut self) -> BTreeMap<IpAddr, Option<ChainId>> {
        let had = std::mem::take(&mut self.had);
        had.into_iter()
            .map(|(address, had)| (address, had, self.get(address).cloned()))
            .filter(|(_, had, has)| had != has)
            .map(|(address, _, has)| (address, has))
            .collect()
    }
}
