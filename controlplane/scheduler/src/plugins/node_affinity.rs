//! NodeAffinity: `nodeSelector`, required and preferred node affinity. A few terms ask each node;
//! many are answered for all nodes at once (`node_affinity/many.rs`).
//!
//! Source: `pkg/scheduler/framework/plugins/nodeaffinity` at v1.37.

mod many;

use std::collections::{HashMap, HashSet};

use coracle_api::scheduling::{NodeView, meets_term, required_affinity_matches};
use k8s_openapi::api::core::v1::{NodeSelectorTerm, PreferredSchedulingTerm};

use self::many::Nodes;

use crate::{
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

pub(super) struct NodeAffinity;

/// The nodes that many terms allow, by name.
struct Allowed(HashSet<String>);

/// What many preferences say of the nodes that they do not leave alone, by name.
struct Preferred(HashMap<String, i64>);

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
                if pod.node_selector.is_empty() {
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
        let preferred = preferred(pod);
        if preferred.is_empty() {
            return Status::SKIP;
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
    /// Sum of the weights of the preferences that the node meets.
    fn score(&self, cycle: &CycleState, pod: &PodInfo, node: &NodeInfo) -> i64 {
        if let Some(Preferred(scores)) = cycle.read() {
            return scores.get(&node.name).copied().unwrap_or(0);
        }
        let met = preferred(pod)
            .iter()
            .filter(|preference| meets_term(&preference.preference, view(node)));
        met.map(|preference| i64::from(preference.weight)).sum()
    }

    fn normalize(&self, _: &PodInfo, _: &[&NodeInfo], scores: &mut [i64]) {
        normalize_by_max(scores, false);
    }

    fn weight(&self) -> i64 {
        2
    }
}

impl EnqueueExtensions for NodeAffinity {
    fn events(&self) -> Actions {
        Actions::ADD_NODE | Actions::UPDATE_NODE_LABEL
    }

    fn hint(&self, pod: &PodInfo, event: &ClusterEvent<'_>) -> QueueingHint {
        let helps = match event {
            ClusterEvent::NodeAdded(node) => allows(pod, node),
            ClusterEvent::NodeUpdated { old, new } => !allows(pod, old) && allows(pod, new),
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

fn preferred(pod: &PodInfo) -> &[PreferredSchedulingTerm] {
    let affinity = pod
        .affinity
        .as_ref()
        .and_then(|affinity| affinity.node_affinity.as_ref());
    let preferred = affinity.and_then(|one| {
        one.preferred_during_scheduling_ignored_during_execution
            .as_deref()
    });
    preferred.unwrap_or_default()
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
