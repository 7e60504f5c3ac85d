//! How many pods on nodes use each claim: one that only one pod may use at a time keeps the others
//! away from all nodes.
//!
//! Source: `usedPVCSet` of `pkg/scheduler/backend/cache/snapshot.go` at v1.37.

use std::collections::HashMap;

use crate::pod_info::PodInfo;

/// By namespace and name of the claim.
#[derive(Debug, Default)]
pub(crate) struct ClaimUses(HashMap<String, HashMap<String, usize>>);

impl ClaimUses {
    /// A pod is on a node.
    pub(crate) fn add(&mut self, pod: &PodInfo) {
        if pod.claims().is_empty() {
            return;
        }
        let uses = self.0.entry(pod.namespace.clone()).or_default();
        for claim in pod.claims() {
            *uses.entry(claim.name.clone()).or_default() += 1;
        }
    }

    /// It is there no more.
    pub(crate) fn remove(&mut self, pod: &PodInfo) {
        let Some(uses) = self.0.get_mut(&pod.namespace) else {
            return;
        };
        for claim in pod.claims() {
            if let Some(count) = uses.get_mut(&claim.name) {
                *count -= 1;
                if *count == 0 {
                    uses.remove(&claim.name);
                }
            }
        }
        if uses.is_empty() {
            self.0.remove(&pod.namespace);
        }
    }

    /// Whether a pod on a node uses the claim.
    pub(crate) fn is_used(&self, namespace: &str, claim: &str) -> bool {
        self.0
            .get(namespace)
            .is_some_and(|uses| uses.contains_key(claim))
    }
}
