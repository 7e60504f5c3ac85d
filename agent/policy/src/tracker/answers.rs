//! What the tracker knows, for who asks: whose address that is, which policy's rule decided, and
//! what another node makes of the same cluster.

use std::{collections::BTreeMap, net::IpAddr};

use coracle_netfilter::policy::{Chain, PolicyKey};

use super::Tracker;
use crate::{
    objects::{PodKey, PodView},
    policy::Policy,
};

/// A rule of a policy, by its place in the object's list.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Which policy.
    pub policy: PolicyKey,
    /// Of the rules of the direction, from 0 on.
    pub at: usize,
}

impl Tracker {
    /// The same cluster as the node of that name sees it.
    #[must_use]
    pub fn for_node(&self, node: &str) -> Self {
        let mut other = Self::new(node);
        for (name, labels) in &self.namespaces {
            other.set_namespace(name, Some(labels.clone()));
        }
        for pod in self.pods() {
            other.set_pod(&pod.key, Some(pod.clone()));
        }
        for policy in self.policies.values().flat_map(BTreeMap::values) {
            other.set_policy(&policy.key, Some(Policy::clone(policy)));
        }
        // Pods are led to chains by this.
        other.changes();
        other
    }

    /// All pods that policies can speak of.
    pub fn pods(&self) -> impl Iterator<Item = &PodView> {
        self.pods.values().flat_map(BTreeMap::values)
    }

    /// The pod of this name.
    #[must_use]
    pub fn pod(&self, key: &PodKey) -> Option<&PodView> {
        self.pods.get(&key.namespace)?.get(&key.name)
    }

    /// The pod at this address.
    #[must_use]
    pub fn pod_at(&self, address: IpAddr) -> Option<&PodView> {
        self.pods().find(|pod| pod.addresses.contains(&address))
    }

    /// The policy of this name.
    #[must_use]
    pub fn policy(&self, key: &PolicyKey) -> Option<&Policy> {
        let policy = self.policies.get(&key.namespace)?.get(&key.name)?;
        Some(policy)
    }

    /// The pods that a policy selects, on whichever node.
    pub fn selected<'a>(&'a self, policy: &'a Policy) -> impl Iterator<Item = &'a PodView> {
        let pods = self.pods.get(&*policy.key.namespace);
        let pods = pods.into_iter().flat_map(BTreeMap::values);
        pods.filter(|pod| policy.pods.matches(|label| pod.labels.get(label)))
    }

    /// Whose rule one of a chain's rules is: several policies may say the same. Empty where they
    /// have changed since the chain was made.
    #[must_use]
    pub fn places(&self, chain: &Chain, rule: usize) -> Vec<Place> {
        let Some(rule) = chain.rules.get(rule) else {
            return Vec::new();
        };
        let policies = chain.policies.iter();
        let sides = policies.filter_map(|key| {
            let side = self.policy(key)?.side(chain.direction)?;
            let at = side.rules.iter().position(|one| one == rule)?;
            Some(Place {
                policy: key.clone(),
                at: *side.places.get(at)?,
            })
        });
        sides.collect()
    }
}
