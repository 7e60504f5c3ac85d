//! What pods wish for: near, or apart, by weight.
//!
//! Source: `pkg/scheduler/framework/plugins/interpodaffinity/scoring.go` at v1.37, with its default arguments.

use super::{InterPodAffinity, Places, means};
use crate::{
    framework::{CycleState, MAX_NODE_SCORE, PreScore, Score, Status},
    node_info::NodeInfo,
    pod_info::PodInfo,
    snapshot::Snapshot,
};

/// What it counts that a pod on the node requires to be near pods like this one.
const HARD_POD_AFFINITY_WEIGHT: i64 = 1;

/// How much each place is wished for.
struct Wishes(Places);

impl PreScore for InterPodAffinity {
    fn pre_score(&self, cycle: &mut CycleState, pod: &PodInfo, _: &[&NodeInfo], snapshot: &Snapshot<'_>) -> Status {
        let mut places = Places::default();
        let has_wishes = !pod.terms.preferred.is_empty();
        // Without own wishes only those of others count.
        let nodes = snapshot.nodes().iter().filter(|node| has_wishes || node.pods_with_affinity > 0);
        for node in nodes {
            for placed in node.pods.values().filter(|placed| has_wishes || !placed.terms.is_empty()) {
                add_wishes(&mut places, pod, placed, node, snapshot);
            }
        }
        if places.is_empty() {
            return Status::SKIP;
        }
        cycle.write(Wishes(places));
        Status::SUCCESS
    }
}

fn add_wishes(places: &mut Places, pod: &PodInfo, placed: &PodInfo, node: &NodeInfo, snapshot: &Snapshot<'_>) {
    for wish in pod.terms.preferred.iter().filter(|wish| means(&wish.term, placed, snapshot)) {
        places.add(node, &wish.term.topology_key, wish.weight);
    }
    for term in placed.terms.required.iter().filter(|term| means(term, pod, snapshot)) {
        places.add(node, &term.topology_key, HARD_POD_AFFINITY_WEIGHT);
    }
    for wish in placed.terms.preferred.iter().filter(|wish| means(&wish.term, pod, snapshot)) {
        places.add(node, &wish.term.topology_key, wish.weight);
    }
}

impl Score for InterPodAffinity {
    fn score(&self, cycle: &CycleState, _: &PodInfo, node: &NodeInfo) -> i64 {
        cycle.read().map_or(0, |Wishes(places)| places.of_node(&node.labels).sum())
    }

    /// The least wished for gets 0, the most 100.
    fn normalize(&self, _: &PodInfo, _: &[&NodeInfo], scores: &mut [i64]) {
        let (min, max) =
            scores.iter().fold((i64::MAX, i64::MIN), |(min, max), score| (min.min(*score), max.max(*score)));
        for score in scores {
            *score = if max > min { MAX_NODE_SCORE * (*score - min) / (max - min) } else { 0 };
        }
    }

    fn weight(&self) -> i64 {
        2
    }
}
