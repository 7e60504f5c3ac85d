//! Spreading that is wished for: the place with fewer pods of the kind is the better.
//!
//! Source: `pkg/scheduler/framework/plugins/podtopologyspread/scoring.go` at v1.37.

use std::collections::HashMap;

use super::{PodTopologySpread, add, counts, has_all_labels, selected};
use crate::{
    framework::{CycleState, MAX_NODE_SCORE, PreScore, Score, Status},
    node_info::NodeInfo,
    pod_info::PodInfo,
    snapshot::Snapshot,
};

/// Each node is a place: its pods are counted as it is scored.
const HOSTNAME: &str = "kubernetes.io/hostname";

/// A count a constraint that is wished for.
struct Wishes(Vec<Domains>);

struct Domains {
    pods: HashMap<String, i64>,
    /// What one pod counts: more where there are more places, or these would be watered down.
    weight: f64,
}

impl PreScore for PodTopologySpread {
    fn pre_score(
        &self,
        cycle: &mut CycleState,
        pod: &PodInfo,
        feasible: &[&NodeInfo],
        snapshot: &Snapshot<'_>,
    ) -> Status {
        let constraints = &pod.soft_spread;
        if constraints.is_empty() {
            return Status::SKIP;
        }
        let scored: Vec<&&NodeInfo> = feasible.iter().filter(|node| has_all_labels(node, constraints)).collect();
        let mut wishes = Vec::with_capacity(constraints.len());
        for constraint in constraints {
            let key = &constraint.topology_key;
            let mut pods = HashMap::new();
            if key != HOSTNAME {
                scored.iter().filter_map(|node| node.labels.get(key)).for_each(|value| add(&mut pods, value, 0));
            }
            let places = if key == HOSTNAME { scored.len() } else { pods.len() };
            for node in snapshot.nodes().iter().filter(|node| has_all_labels(node, constraints)) {
                // Places that no feasible node is in need no count.
                if let Some(value) = node.labels.get(key)
                    && let Some(sum) = pods.get_mut(value)
                    && counts(constraint, pod, node)
                {
                    *sum += selected(constraint, pod, node);
                }
            }
            wishes.push(Domains { pods, weight: weight(places) });
        }
        cycle.write(Wishes(wishes));
        Status::SUCCESS
    }
}

impl Score for PodTopologySpread {
    /// How many pods of the kind are where the node is: less is better.
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "counts of pods")]
    fn score(&self, cycle: &CycleState, pod: &PodInfo, node: &NodeInfo) -> i64 {
        let Some(Wishes(wishes)) = cycle.read() else { return 0 };
        if !has_all_labels(node, &pod.soft_spread) {
            return 0;
        }
        let scores = pod.soft_spread.iter().zip(wishes).map(|(constraint, domains)| {
            let count = match node.labels.get(&constraint.topology_key) {
                Some(_) if constraint.topology_key == HOSTNAME => selected(constraint, pod, node),
                Some(value) => domains.pods.get(value).copied().unwrap_or(0),
                None => 0,
            };
            // What may differ without harm makes differences small.
            count as f64 * domains.weight + (constraint.max_skew - 1) as f64
        });
        scores.sum::<f64>().round() as i64
    }

    fn normalize(&self, pod: &PodInfo, nodes: &[&NodeInfo], scores: &mut [i64]) {
        let is_scored = |node: &NodeInfo| has_all_labels(node, &pod.soft_spread);
        let ranked = nodes.iter().zip(scores.iter()).filter(|(node, _)| is_scored(node)).map(|(_, score)| *score);
        let (min, max) = ranked.fold((i64::MAX, 0), |(min, max), score| (min.min(score), max.max(score)));
        for (node, score) in nodes.iter().zip(scores) {
            *score = match (is_scored(node), max) {
                (false, _) => 0,
                (true, 0) => MAX_NODE_SCORE,
                (true, _) => MAX_NODE_SCORE * (max + min - *score) / max,
            };
        }
    }

    fn weight(&self) -> i64 {
        2
    }
}

#[allow(clippy::cast_precision_loss, reason = "a count of places")]
fn weight(places: usize) -> f64 {
    (places as f64 + 2.0).ln()
}
