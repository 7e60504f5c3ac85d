//! All nodes, as they stand for one attempt, and what else it looks at.
//!
//! A view into the cache, not a copy: the scheduler's one task decides without a break, so nothing
//! changes under it.

use std::collections::HashMap;

use crate::{
    affinity_index::AffinityIndex, budgets::Budgets, claim_uses::ClaimUses, images::Images,
    label_counts::LabelCounts, namespaces::Namespaces, node_info::NodeInfo, pod_info::PodInfo,
    priorities::Priorities, selectors::Selectors, spread_counts::SpreadCounts,
};

/// What there is beside the nodes.
#[derive(Debug, Default)]
pub(crate) struct Surroundings {
    pub(crate) namespaces: Namespaces,
    pub(crate) images: Images,
    pub(crate) selectors: Selectors,
    pub(crate) label_counts: LabelCounts,
    pub(crate) spread_counts: SpreadCounts,
    pub(crate) affinity_index: AffinityIndex,
    pub(crate) claim_uses: ClaimUses,
    pub(crate) priorities: Priorities,
    pub(crate) budgets: Budgets,
}

impl Surroundings {
    /// A pod is on this node.
    pub(crate) fn count(&mut self, pod: &PodInfo, node: &str) {
        self.label_counts
            .add((&pod.namespace, &pod.labels), pod.terminating, node);
        if !pod.terminating {
            self.spread_counts.count(pod, node);
        }
        self.affinity_index.add(pod, node);
        self.claim_uses.add(pod);
        self.priorities.add(pod.priority);
    }

    /// It is there no more. In the state in which it was counted.
    pub(crate) fn uncount(&mut self, pod: &PodInfo, node: &str) {
        self.label_counts
            .remove((&pod.namespace, &pod.labels), pod.terminating, node);
        if !pod.terminating {
            self.spread_counts.uncount(pod, node);
        }
        self.affinity_index.remove(pod, node);
        self.claim_uses.remove(pod);
        self.priorities.remove(pod.priority);
    }
}

/// A borrowed view of the cache for one attempt.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Snapshot<'a> {
    nodes: &'a [NodeInfo],
    index: &'a HashMap<String, usize>,
    around: &'a Surroundings,
}

impl<'a> Snapshot<'a> {
    /// `index` says where in `nodes` each is, by name.
    pub(crate) fn new(
        nodes: &'a [NodeInfo],
        index: &'a HashMap<String, usize>,
        around: &'a Surroundings,
    ) -> Self {
        Self {
            nodes,
            index,
            around,
        }
    }

    /// In a stable order, so that the search for feasible nodes can go round.
    pub(crate) fn nodes(&self) -> &'a [NodeInfo] {
        self.nodes
    }

    pub(crate) fn namespaces(&self) -> &'a Namespaces {
        &self.around.namespaces
    }

    pub(crate) fn images(&self) -> &'a Images {
        &self.around.images
    }

    pub(crate) fn selectors(&self) -> &'a Selectors {
        &self.around.selectors
    }

    pub(crate) fn label_counts(&self) -> &'a LabelCounts {
        &self.around.label_counts
    }

    pub(crate) fn spread_counts(&self) -> &'a SpreadCounts {
        &self.around.spread_counts
    }

    pub(crate) fn affinity_index(&self) -> &'a AffinityIndex {
        &self.around.affinity_index
    }

    pub(crate) fn claim_uses(&self) -> &'a ClaimUses {
        &self.around.claim_uses
    }

    pub(crate) fn node(&self, name: &str) -> Option<&'a NodeInfo> {
        self.position(name).map(|position| &self.nodes[position])
    }

    /// Where among the nodes the one of this name is.
    pub(crate) fn position(&self, name: &str) -> Option<usize> {
        self.index.get(name).copied()
    }

    pub(crate) fn budgets(&self) -> &'a Budgets {
        &self.around.budgets
    }

    pub(crate) fn priorities(&self) -> &'a Priorities {
        &self.around.priorities
    }
}
