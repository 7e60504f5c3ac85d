//! The plan for `NetworkPolicy`: which packets to and from this node's pods pass.
//!
//! A pod that a policy selects is led to a chain, which lets through what one of its rules names
//! and drops the rest. Whose addresses a rule names are groups: a pod that comes or goes is an
//! element of some groups, and no rule changes. Plain data, and the difference of two plans.

mod selected;
mod verdict;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::IpAddr,
    sync::Arc,
};

pub use self::{
    selected::Selected,
    verdict::{Packet, Step, Verdict},
};
use crate::service::Protocol;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Of its digits.
            #[must_use]
            pub fn new(digits: &str) -> Self {
                Self(digits.into())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

id! {
    /// Names a group by what selects it: 20 hexadecimal digits.
    GroupId
}
id! {
    /// Names a port group by what selects it: 20 hexadecimal digits.
    PortGroupId
}
id! {
    /// Names a chain by its direction, its policies and their rules: 20 hexadecimal digits. A chain
    /// never changes; a policy that changes makes another. Those of [`Selected::shut`] have words.
    ChainId
}

/// Which policy.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PolicyKey {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
}

impl fmt::Display for PolicyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Addresses from `first` to `last`, both of one family and both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct IpRange {
    /// The lowest address.
    pub first: IpAddr,
    /// The highest address.
    pub last: IpAddr,
}

impl IpRange {
    /// Whether `address` is in it.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        self.first.is_ipv4() == address.is_ipv4() && self.first <= address && address <= self.last
    }
}

/// Address, protocol and port.
pub type PortElement = (IpAddr, Protocol, u16);

/// Seen from the pod that a policy selects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Direction {
    /// To the pod.
    Ingress,
    /// From the pod.
    Egress,
}

/// Who is at the other end.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Peer {
    /// Anybody.
    Any,
    /// A pod of the group.
    Group(GroupId),
    /// An address in one of these disjoint, sorted ranges.
    Blocks(Vec<IpRange>),
}

/// The destination's port.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ports {
    /// Any protocol, any port.
    Any,
    /// Protocol, first and last port: disjoint, sorted.
    Numbers(Vec<(Protocol, u16, u16)>),
    /// Destination, protocol and port are in the group.
    Named(PortGroupId),
}

/// Lets a packet through if peer and port are these.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rule {
    /// Who is at the other end.
    pub peer: Peer,
    /// The destination's port.
    pub ports: Ports,
}

/// What pods with the same policies let through; the rest is dropped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chain {
    /// Which way.
    pub direction: Direction,
    /// Whose rules these are.
    pub policies: Vec<PolicyKey>,
    /// One is enough.
    pub rules: Vec<Rule>,
}

/// All that a node's kernel shall hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// Addresses of the pods of each group.
    pub groups: BTreeMap<GroupId, BTreeSet<IpAddr>>,
    /// Ports by name, of the pods that have them.
    pub port_groups: BTreeMap<PortGroupId, BTreeSet<PortElement>>,
    /// The chains in use.
    pub chains: BTreeMap<ChainId, Chain>,
    /// What decides on packets to a pod of this node.
    pub to: BTreeMap<IpAddr, ChainId>,
    /// What decides on packets from a pod of this node.
    pub from: BTreeMap<IpAddr, ChainId>,
}

/// What became of sets. A set that is removed takes its elements along.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetChange<I, E> {
    /// Sets that are new; their elements are in `added`.
    pub made: BTreeSet<I>,
    /// Sets that are gone.
    pub removed: BTreeSet<I>,
    /// Elements that came.
    pub added: BTreeMap<I, BTreeSet<E>>,
    /// Elements that went, of sets that stay.
    pub dropped: BTreeMap<I, BTreeSet<E>>,
}

impl<I, E> Default for SetChange<I, E> {
    fn default() -> Self {
        Self {
            made: BTreeSet::new(),
            removed: BTreeSet::new(),
            added: BTreeMap::new(),
            dropped: BTreeMap::new(),
        }
    }
}

/// What leads from one plan to the next. To be written in one transaction.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Change {
    /// Groups.
    pub groups: SetChange<GroupId, IpAddr>,
    /// Port groups.
    pub port_groups: SetChange<PortGroupId, PortElement>,
    /// Chains that are new.
    pub chains_made: BTreeMap<ChainId, Chain>,
    /// Chains that are gone.
    pub chains_removed: BTreeSet<ChainId>,
    /// Elements of `to`: the new chain, `None` if the element is gone.
    pub to: BTreeMap<IpAddr, Option<ChainId>>,
    /// Elements of `from`, alike.
    pub from: BTreeMap<IpAddr, Option<ChainId>>,
}

impl Change {
    /// Whether nothing is to be done.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether only elements change: no set, no chain.
    #[must_use]
    pub fn is_elements_only(&self) -> bool {
        self.groups.made.is_empty()
            && self.groups.removed.is_empty()
            && self.port_groups.made.is_empty()
            && self.port_groups.removed.is_empty()
            && self.chains_made.is_empty()
            && self.chains_removed.is_empty()
    }
}

impl Plan {
    /// Carries a change out.
    pub fn apply(&mut self, change: &Change) {
        apply_sets(&mut self.groups, &change.groups);
        apply_sets(&mut self.port_groups, &change.port_groups);
        self.chains.extend(change.chains_made.clone());
        self.chains
            .retain(|id, _| !change.chains_removed.contains(id));
        apply_elements(&mut self.to, &change.to);
        apply_elements(&mut self.from, &change.from);
    }
}

fn apply_sets<I: Ord + Clone, E: Ord + Copy>(
    sets: &mut BTreeMap<I, BTreeSet<E>>,
    change: &SetChange<I, E>,
) {
    sets.retain(|id, _| !change.removed.contains(id));
    for id in &change.made {
        sets.entry(id.clone()).or_default();
    }
    for (id, elements) in &change.added {
        if let Some(set) = sets.get_mut(id) {
            set.extend(elements);
        }
    }
    for (id, elements) in &change.dropped {
        if let Some(set) = sets.get_mut(id) {
            set.retain(|element| !elements.contains(element));
        }
    }
}

fn apply_elements(
    elements: &mut BTreeMap<IpAddr, ChainId>,
    change: &BTreeMap<IpAddr, Option<ChainId>>,
) {
    for (address, chain) in change {
        match chain {
            Some(chain) => elements.insert(*address, chain.clone()),
            None => elements.remove(address),
        };
    }
}
