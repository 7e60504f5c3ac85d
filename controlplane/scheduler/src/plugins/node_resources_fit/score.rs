//! How well a node suits by what is left of it: the emptier, the fuller, or by points.
//!
//! Source: `resource_allocation.go`, `least_allocated.go`, `most_allocated.go`,
//! `requested_to_capacity_ratio.go` in `pkg/scheduler/framework/plugins/noderesources` at v1.37.

use super::NodeResourcesFit;
use crate::{
    config::{RatioPoint, Strategy},
    framework::{CycleState, MAX_NODE_SCORE, Score},
    node_info::NodeInfo,
    pod_info::PodInfo,
    resources::Resources,
};

/// All of it is used.
const WHOLE: i64 = 100;
/// The best score of a point of a shape.
const MAX_POINT_SCORE: i64 = 10;

impl Score for NodeResourcesFit {
    /// By each resource that counts and that the node has, by weight.
    fn score(&self, _: &CycleState, pod: &PodInfo, node: &NodeInfo) -> i64 {
        let told = &self.0.strategy;
        let (mut sum, mut weights) = (0, 0);
        for weighted in &told.resources {
            let (used, capacity) = with_pod(&weighted.name, pod, node);
            if capacity <= 0 {
                continue;
            }
            let score = match told.strategy {
                Strategy::LeastAllocated => least(used, capacity),
                Strategy::MostAllocated => share(used.min(capacity), capacity),
                Strategy::RequestedToCapacityRatio => ratio(told.shape(), used, capacity),
            };
            // A point of nothing says nothing.
            if told.strategy == Strategy::RequestedToCapacityRatio && score == 0 {
                continue;
            }
            sum += score * weighted.weight();
            weights += weighted.weight();
        }
        match (told.strategy, weights) {
            (_, 0) => 0,
            (Strategy::RequestedToCapacityRatio, weights) => (sum + weights / 2) / weights,
            (_, weights) => sum / weights,
        }
    }
}

/// What of a resource is used once the pod is there, and what there is. A pod that does not ask for
/// an extended resource is not judged by it.
fn with_pod(name: &str, pod: &PodInfo, node: &NodeInfo) -> (i64, i64) {
    if Resources::is_scalar(name) && pod.requests.scalar(name) == 0 {
        return (0, 0);
    }
    // Who asks for no CPU or memory takes some all the same.
    let (used, asked) = match name {
        "cpu" | "memory" => (&node.nonzero, &pod.nonzero),
        _ => (&node.requested, &pod.requests),
    };
    let used = used.amount(name).max(0).saturating_add(asked.amount(name));
    (used, node.allocatable.amount(name))
}

/// The free share.
fn least(used: i64, capacity: i64) -> i64 {
    share((capacity - used).max(0), capacity)
}

/// `part` of `whole`, out of [`MAX_NODE_SCORE`].
fn share(part: i64, whole: i64) -> i64 {
    let share = i128::from(part) * i128::from(MAX_NODE_SCORE) / i128::from(whole);
    i64::try_from(share).unwrap_or(MAX_NODE_SCORE)
}

/// Where the use of a node is on the lines between the points.
fn ratio(shape: &[RatioPoint], used: i64, capacity: i64) -> i64 {
    let used = match used > capacity {
        true => WHOLE,
        false => share(used, capacity) * WHOLE / MAX_NODE_SCORE,
    };
    let of = |point: &RatioPoint| point.score * (MAX_NODE_SCORE / MAX_POINT_SCORE);
    let after = shape.iter().position(|point| used <= point.utilization);
    match (after, shape) {
        (None, shape) => shape.last().map_or(0, of),
        (Some(0), shape) => shape.first().map_or(0, of),
        (Some(index), shape) => {
            let (from, to) = (&shape[index - 1], &shape[index]);
            let rise = (of(to) - of(from)) * (used - from.utilization);
            of(from) + rise / (to.utilization - from.utilization)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;
    use crate::{
        config::FitArgs,
        testing::{info, node_with, pod_with},
    };

    fn scored(strategy: Value, on_it: &[Value], asked: &Value) -> i64 {
        let args: FitArgs = serde_json::from_value(json!({"scoringStrategy": strategy})).unwrap();
        let has = json!({"cpu": "10", "memory": "10Gi", "pods": "110", "example.org/gpu": "4"});
        let mut node = info(&node_with("n", json!({}), json!({"allocatable": has})));
        let pod = |name: &str, asked: &Value| {
            let resources = json!({"requests": asked});
            pod_with(
                name,
                json!({"containers": [{"name": "c", "resources": resources}]}),
            )
        };
        for (number, asked) in on_it.iter().enumerate() {
            node.add_pod(Arc::new(pod(&format!("p{number}"), asked)));
        }
        NodeResourcesFit::new(&args).score(&CycleState::default(), &pod("new", asked), &node)
    }

    #[test]
    fn the_emptier_the_fuller_or_what_the_points_say() {
        let half = [json!({"cpu": "4", "memory": "2Gi"})];
        let asked = json!({"cpu": "1", "memory": "1Gi"});
        let gpu = json!({"cpu": "1", "memory": "1Gi", "example.org/gpu": "1"});
        let shape = |points: &[[i64; 2]]| {
            let points: Vec<Value> = points
                .iter()
                .map(|[utilization, score]| json!({"utilization": utilization, "score": score}))
                .collect();
            json!({"type": "RequestedToCapacityRatio", "requestedToCapacityRatio": {"shape": points}})
        };
        let with = |kind: &str, resources: Value| json!({"type": kind, "resources": resources});
        let binned = json!([{"name": "example.org/gpu", "weight": 3}, {"name": "cpu"}]);
        for (strategy, asked, expect) in [
            // Of the CPU a half is used then, of memory 30 %.
            (json!({}), &asked, 60),
            (json!({"type": "MostAllocated"}), &asked, 40),
            (with("MostAllocated", json!([{"name": "cpu"}])), &asked, 50),
            (
                with("LeastAllocated", json!([{"name": "memory"}])),
                &asked,
                70,
            ),
            // Who asks for none is not judged by it.
            (with("MostAllocated", binned.clone()), &asked, 50),
            (with("MostAllocated", binned), &gpu, (25 * 3 + 50) / 4),
            (shape(&[[0, 0], [100, 10]]), &asked, 40),
            (shape(&[[0, 10], [100, 0]]), &asked, 60),
            (shape(&[[40, 4], [60, 10]]), &asked, 55),
        ] {
            assert_eq!(scored(strategy.clone(), &half, asked), expect, "{strategy}");
        }
        let full = [json!({"cpu": "10", "memory": "10Gi"})];
        for (kind, expect) in [("LeastAllocated", 0), ("MostAllocated", 100)] {
            assert_eq!(
                scored(json!({"type": kind}), &full, &asked),
                expect,
                "{kind}"
            );
        }
    }
}
