//! Spreading that is wished for: the place with fewer pods of the kind is the better. Who says
//! nothing about it, and is selected by a Service or a controller, wishes to be spread over nodes
//! and zones all the same.
//!
//! Source: `pkg/scheduler/framework/plugins/podtopologyspread/scoring.go`,
//! `systemDefaultConstraints` in `plugin.go` at v1.37.

#[cfg(test)]
mod tests;

use std::collections::HashMap;

use super::{PodTopologySpread, counts, has_all_labels};
use crate::{
    framework::{CycleState, MAX_NODE_SCORE, PreScore, Score, Status},
    label_counts::Counts,
    node_info::NodeInfo,
    pod_info::{PodInfo, SpreadConstraint},
    snapshot::Snapshot,
};

/// Each node is a place.
const HOSTNAME: &str = "kubernetes.io/hostname";
/// What a pod wishes that says nothing: topology key and `maxSkew`.
const SYSTEM_DEFAULTS: [(&str, i64); 2] = [(HOSTNAME, 3), ("topology.kubernetes.io/zone", 5)];

/// The score of a node that is in no place for one of the wishes, before it is one out of 100.
const IN_NO_PLACE: i64 = -1;
/// Constraints beyond which it is looked first whether any node is in all those places.
const MANY: usize = 16;

/// What Score compares nodes by.
struct Wishes {
    /// In place of the pod's own, if it has none.
    defaults: Option<Vec<SpreadConstraint>>,
    is_of_system: bool,
    /// One a constraint.
    domains: Vec<Domains>,
}

/// The pods that a constraint selects, by place.
struct Domains {
    pods: Pods,
    /// What one pod counts: more where there are more places, or these would be watered down.
    weight: f64,
}

enum Pods {
    ByNode(Counts),
    ByValue(HashMap<String, i64>),
}

impl PreScore for PodTopologySpread {
    fn pre_score(
        &self,
        cycle: &mut CycleState,
        pod: &PodInfo,
        feasible: &[&NodeInfo],
        snapshot: &Snapshot<'_>,
    ) -> Status {
        let says_nothing = pod.soft_spread.is_empty() && pod.hard_spread.is_empty();
        let defaults = match (&self.defaults, says_nothing) {
            (_, false) => None,
            (None, true) => defaults(pod, snapshot),
            (Some(_), true) => self.of_profile(false, pod, snapshot),
        };
        let constraints = defaults.as_deref().unwrap_or(&pod.soft_spread);
        if constraints.is_empty() {
            return Status::SKIP;
        }
        // A pod's own wishes leave out nodes that are in no place for one of them, and so do the
        // profile's. The system's do not: where there are no zones, pods are spread over nodes all
        // the same, and nodes without a zone are one.
        let is_of_system = says_nothing && self.defaults.is_none();
        let all = if is_of_system { &[] } else { constraints };
        let scored: Vec<&NodeInfo> = feasible
            .iter()
            .filter(|node| has_all_labels(node, all))
            .copied()
            .collect();
        // No node is told from another, and whoever writes a pod chooses how many constraints it
        // has.
        if scored.is_empty() && constraints.len() > MANY {
            return Status::SKIP;
        }
        let domains = constraints.iter().map(|constraint| {
            let selected = constraint.selected(&pod.namespace, snapshot.label_counts());
            if constraint.topology_key == HOSTNAME {
                return Domains {
                    pods: Pods::ByNode(selected),
                    weight: weight(scored.len()),
                };
            }
            // Places that no feasible node is in need no count.
            let mut pods: HashMap<String, i64> = HashMap::new();
            for value in scored.iter().map(|node| place(node, constraint)) {
                if !pods.contains_key(value) {
                    pods.insert(value.to_owned(), 0);
                }
            }
            for (node, count) in selected {
                if let Some(node) = snapshot
                    .node(&node)
                    .filter(|node| has_all_labels(node, all))
                    && let Some(sum) = pods.get_mut(place(node, constraint))
                    && counts(constraint, cycle, pod, node)
                {
                    *sum += count;
                }
            }
            let weight = weight(pods.len());
            Domains {
                pods: Pods::ByValue(pods),
                weight,
            }
        });
        let domains = domains.collect();
        cycle.write(Wishes {
            defaults,
            is_of_system,
            domains,
        });
        Status::SUCCESS
    }
}

impl Score for PodTopologySpread {
    /// How many pods of the kind are where the node is: less is better.
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        reason = "counts of pods"
    )]
    fn score(&self, cycle: &CycleState, pod: &PodInfo, node: &NodeInfo) -> i64 {
        let Some(Wishes {
            defaults,
            is_of_system,
            domains,
        }) = cycle.read()
        else {
            return 0;
        };
        let constraints = defaults.as_deref().unwrap_or(&pod.soft_spread);
        if !is_of_system && !has_all_labels(node, constraints) {
            return IN_NO_PLACE;
        }
        let scores = constraints
            .iter()
            .zip(domains)
            .filter_map(|(constraint, domains)| {
                let value = node.labels.get(&constraint.topology_key)?;
                let count = match &domains.pods {
                    Pods::ByNode(pods) => pods.get(node.name.as_str()),
                    Pods::ByValue(pods) => pods.get(value),
                };
                // What may differ without harm makes differences small.
                Some(
                    count.copied().unwrap_or(0) as f64 * domains.weight
                        + (constraint.max_skew - 1) as f64,
                )
            });
        scores.sum::<f64>().round() as i64
    }

    fn normalize(&self, _: &PodInfo, _: &[&NodeInfo], scores: &mut [i64]) {
        let is_scored = |score: i64| score != IN_NO_PLACE;
        let ranked = scores.iter().copied().filter(|score| is_scored(*score));
        let (min, max) = ranked.fold((i64::MAX, 0), |(min, max), score| {
            (min.min(score), max.max(score))
        });
        for score in scores {
            *score = match (is_scored(*score), max) {
                (false, _) => 0,
                (true, 0) => MAX_NODE_SCORE,
                (true, _) => MAX_NODE_SCORE * (max + min - *score) / max,
            };
        }
    }
}

/// The system's wishes for a pod that somebody selects.
fn defaults(pod: &PodInfo, snapshot: &Snapshot<'_>) -> Option<Vec<SpreadConstraint>> {
    let selector =
        snapshot
            .selectors()
            .of_similar(&pod.namespace, &pod.labels, pod.controller.as_ref())?;
    Some(
        SYSTEM_DEFAULTS
            .map(|(key, skew)| SpreadConstraint::wish(key, skew, selector.clone()))
            .into(),
    )
}

fn place<'a>(node: &'a NodeInfo, constraint: &SpreadConstraint) -> &'a str {
    node.labels
        .get(&constraint.topology_key)
        .map_or("", String::as_str)
}

#[allow(clippy::cast_precision_loss, reason = "a count of places")]
fn weight(places: usize) -> f64 {
    (places as f64 + 2.0).ln()
}
