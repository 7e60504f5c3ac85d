//! What pods wish for: near, or apart, by weight.
//!
//! Source: `pkg/scheduler/framework/plugins/interpodaffinity/scoring.go` at v1.37.

use super::{InterPodAffinity, Places, add_where, is_same_place, kinds::Kinds, means};
use crate::{
    framework::{CycleState, MAX_NODE_SCORE, PreScore, Score, Status},
    node_info::NodeInfo,
    pod_info::PodInfo,
    snapshot::Snapshot,
};

/// How much each place is wished for.
struct Wishes(Places);

impl PreScore for InterPodAffinity {
    fn pre_score(
        &self,
        cycle: &mut CycleState,
        pod: &PodInfo,
        _: &[&NodeInfo],
        snapshot: &Snapshot<'_>,
    ) -> Status {
        if self.ignores_wishes && pod.terms.preferred.is_empty() {
            return Status::SKIP;
        }
        let mut places = Places::default();
        add_own_wishes(&mut places, pod, snapshot);
        for (terms, on) in snapshot.affinity_index().about(&pod.namespace) {
            let required = terms.required.iter().filter(|_| self.required_counts > 0);
            for term in required.filter(|term| means(term, pod, snapshot)) {
                add_where(
                    &mut places,
                    snapshot,
                    &term.topology_key,
                    self.required_counts,
                    on,
                );
            }
            let preferred = terms.preferred.iter();
            for wish in preferred.filter(|wish| means(&wish.term, pod, snapshot)) {
                add_where(
                    &mut places,
                    snapshot,
                    &wish.term.topology_key,
                    wish.weight,
                    on,
                );
            }
        }
        if places.is_empty() {
            return Status::SKIP;
        }
        cycle.write(Wishes(places));
        Status::SUCCESS
    }
}

/// The pods that the pod wishes to be near, or apart from.
fn add_own_wishes(places: &mut Places, pod: &PodInfo, snapshot: &Snapshot<'_>) {
    let wishes = &pod.terms.preferred;
    if wishes.is_empty() {
        return;
    }
    let kinds = Kinds::of(pod, wishes.iter().map(|wish| &wish.term), snapshot);
    for same in wishes.chunk_by(|one, other| is_same_place(&one.term, &other.term)) {
        let key = &same[0].term.topology_key;
        if !kinds.has_places(key) {
            continue;
        }
        let mut weights = vec![0; kinds.len()];
        for wish in same {
            kinds
                .meant(&wish.term)
                .iter()
                .for_each(|kind| weights[kind] += wish.weight);
        }
        kinds.add(
            places,
            key,
            weights
                .into_iter()
                .enumerate()
                .filter(|(_, weight)| *weight != 0),
        );
    }
}

impl Score for InterPodAffinity {
    fn score(&self, cycle: &CycleState, _: &PodInfo, node: &NodeInfo) -> i64 {
        cycle
            .read()
            .map_or(0, |Wishes(places)| places.of_node(&node.labels).sum())
    }

    /// The least wished for gets 0, the most 100.
    fn normalize(&self, _: &PodInfo, _: &[&NodeInfo], scores: &mut [i64]) {
        let (min, max) = scores
            .iter()
            .fold((i64::MAX, i64::MIN), |(min, max), score| {
                (min.min(*score), max.max(*score))
            });
        for score in scores {
            *score = if max > min {
                MAX_NODE_SCORE * (*score - min) / (max - min)
            } else {
                0
            };
        }
    }
}
