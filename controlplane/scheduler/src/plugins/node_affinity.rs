//! NodeAffinity: `nodeSelector`, required and preferred node affinity. A few terms ask each node;
//! many are answered for all nodes at once (`node_affinity/many.rs`).
//!
//! Source: `pkg/scheduler/framework/plugins/nodeaffinity` at v1.37.

mod many;

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use coracle_api::scheduling::{NodeView, meets_term, required_affinity_matches};
use k8s_openapi::api::core::v1::{Affinity, NodeSelectorTerm, PreferredSchedulingTerm};

use self::many::Nodes;

use crate::{
    config::NodeAffinityArgs,
    framework::{
        Actions, ClusterEvent, CycleState, EnqueueExtensions, Filter, NodeNames, Plugin,
        PluginName, PreFilter, PreScore, QueueingHint, Score, Status, normalize_by_max,
    },
    node_info::NodeInfo,
    pod_info::{PodInfo, nodes_length},
    snapshot::Snapshot,
};

/// How much may be written in terms that ask each node.
const FEW: usize = 64;

#[derive(Clone, Default)]
pub(super) struct NodeAffinity {
    /// Asked of every pod of the profile, beside what it asks itself.
    added: Option<Arc<Affinity>>,
}

/// The nodes that many terms allow, by name.
struct Allowed(HashSet<String>);

/// What many preferences say of the nodes that they do not leave alone, by name.
struct Preferred(HashMap<String, i64>);

impl NodeAffinity {
    pub(super) fn new(told: &NodeAffinityArgs) -> Self {
        let added = told.added_affinity.clone().map(|node_affinity| Affinity {
            node_affinity: Some(node_affinity),
            ..Affinity::default()
        });
        Self {
            added: added.map(Arc::new),
        }
    }

    /// Whether the profile allows the node.
    fn admits(&self, node: &NodeInfo) -> bool {
        let added = self.added.as_deref();
        added.is_none() || required_affinity_matches(None, added, view(node))
    }

    fn requires(&self) -> bool {
        let added = self.added.as_ref().and_then(|it| it.node_affinity.as_ref());
        added.is_some_and(|it| {
            let required = &it.required_during_scheduling_ignored_during_execution;
            required.is_some()
        })
    }
}

impl Plugin for NodeAffinity {
    fn name(&self) -> PluginName {
        PluginName::NodeAffinity
    }
}

impl PreFilter for NodeAffinity {
    /// The nodes that a pod names, as a DaemonSet's do: the others need no look.
    fn pre_filter(
        &self,
        cycle: &mut CycleState,
        pod: &PodInfo,
        all: &Snapshot<'_>,
    ) -> (Option<NodeNames>, Status) {
        let Some(terms) = pod.required_nodes() else {
            return (
                None,
                if pod.node_selector.is_empty() && !self.requires() {
                    Status::SKIP
                } else {
                    Status::SUCCESS
                },
            );
        };
        if nodes_length(terms) > FEW {
            let nodes = Nodes::of(all.nodes().iter());
            cycle.write(Allowed(
                nodes
                    .allowed(&pod.node_selector, terms)
                    .into_iter()
                    .map(|node| node.name.clone())
                    .collect(),
            ));
        }
        let mut names = NodeNames::new();
        for term in terms {
            match names_of(term) {
                Some(of_term) => names.extend(of_term),
                // Terms are alternatives: this one leaves all nodes.
                None => return (None, Status::SUCCESS),
            }
        }
        if names.is_empty() && !terms.is_empty() {
            return (
                None,
                Status::unresolvable(vec!["pod affinity terms conflict".into()]),
            );
        }
        ((!names.is_empty()).then_some(names), Status::SUCCESS)
    }
}

impl Filter for NodeAffinity {
    fn filter(&self, cycle: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Status {
        if !self.admits(node) {
            let why = "node(s) didn't match scheduler-enforced node affinity";
            return Status::unresolvable(vec![why.into()]);
        }
        if matches(cycle, pod, node) {
            return Status::SUCCESS;
        }
        Status::unresolvable(vec![
            "node(s) didn't match Pod's node affinity/selector".into(),
        ])
    }
}

impl PreScore for NodeAffinity {
    fn pre_score(
        &self,
        cycle: &mut CycleState,
        pod: &PodInfo,
        on: &[&NodeInfo],
        _: &Snapshot<'_>,
    ) -> Status {
        let preferred = preferred(pod.affinity.as_deref());
        if preferred.is_empty() {
            let added = self.added.as_deref();
            return match self::preferred(added).is_empty() {
                true => Status::SKIP,
                false => Status::SUCCESS,
            };
        }
        if nodes_length(preferred.iter().map(|one| &one.preference)) > FEW {
            let scores = Nodes::of(on.iter().copied()).scores(preferred);
            cycle.write(Preferred(
                scores
                    .into_iter()
                    .map(|(node, score)| (node.name.clone(), score))
                    .collect(),
            ));
        }
        Status::SUCCESS
    }
}

impl Score for NodeAffinity {
    /// Sum of the weights of the preferences that the node meets, the profile's and the pod's.
    fn score(&self, cycle: &CycleState, pod: &PodInfo, node: &NodeInfo) -> i64 {
        let added = met(preferred(self.added.as_deref()), node);
        let own = match cycle.read() {
            Some(Preferred(scores)) => scores.get(&node.name).copied().unwrap_or(0),
            None => met(preferred(pod.affinity.as_deref()), node),
        };
        added + own
    }

    fn normalize(&self, _: &PodInfo, _: &[&NodeInfo], scores: &mut [i64]) {
        normalize_by_max(scores, false);
    }
}

impl EnqueueExtensions for NodeAffinity {
    fn events(&self) -> Actions {
        Actions::ADD_NODE | Actions::UPDATE_NODE_LABEL
    }

    fn hint(&self, pod: &PodInfo, event: &ClusterEvent<'_>) -> QueueingHint {
        let helps = match event {
            ClusterEvent::NodeAdded(node) => self.admits(node) && allows(pod, node),
            ClusterEvent::NodeUpdated { old, new } => {
                let will_do = |node: &NodeInfo| self.admits(node) && allows(pod, node);
                !will_do(old) && will_do(new)
            }
            _ => false,
        };
        helps.into()
    }
}

/// Whether the node is one that the pod requires, as far as PreFilter has found out already.
pub(super) fn matches(cycle: &CycleState, pod: &PodInfo, node: &NodeInfo) -> bool {
    cycle.read().map_or_else(
        || allows(pod, node),
        |Allowed(nodes)| nodes.contains(&node.name),
    )
}

fn allows(pod: &PodInfo, node: &NodeInfo) -> bool {
    required_affinity_matches(
        Some(&pod.node_selector),
        pod.affinity.as_deref(),
        view(node),
    )
}

fn preferred(affinity: Option<&Affinity>) -> &[PreferredSchedulingTerm] {
    let affinity = affinity.and_then(|affinity| affinity.node_affinity.as_ref());
    let preferred = affinity.and_then(|one| {
        one.preferred_during_scheduling_ignored_during_execution
            .as_deref()
    });
    preferred.unwrap_or_default()
}

fn met(preferred: &[PreferredSchedulingTerm], node: &NodeInfo) -> i64 {
    let met = preferred
        .iter()
        .filter(|preference| meets_term(&preference.preference, view(node)));
    met.map(|preference| i64::from(preference.weight)).sum()
}

/// The nodes that a term names; `None` if it names none. Its requirements have to hold together.
fn names_of(term: &NodeSelectorTerm) -> Option<NodeNames> {
    let named = |key: &str, operator: &str| key == "metadata.name" && operator == "In";
    let fields = term
        .match_fields
        .iter()
        .flatten()
        .filter(|field| named(&field.key, &field.operator));
    let sets = fields.map(|field| {
        field
            .values
            .iter()
            .flatten()
            .cloned()
            .collect::<NodeNames>()
    });
    sets.reduce(|one, other| one.intersection(&other).cloned().collect())
}

/// A node as affinity sees it.
fn view(node: &NodeInfo) -> NodeView<'_> {
    NodeView {
        name: &node.name,
        labels: &node.labels,
    }
}

#[cfg(test)]
mod tests;
