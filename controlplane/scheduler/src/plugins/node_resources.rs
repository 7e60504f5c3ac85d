//! NodeResourcesFit and its scores: LeastAllocated and BalancedAllocation.
//!
//! Source: `pkg/scheduler/framework/plugins/noderesources/{fit,least_allocated,balanced_allocation}.go` at v1.37.

use crate::{
    framework::{Filter, MAX_NODE_SCORE, Reason, Score},
    node_info::NodeInfo,
    pod_info::PodInfo,
};

pub(super) struct NodeResourcesFit;

impl Filter for NodeResourcesFit {
    fn filter(&self, pod: &PodInfo, node: &NodeInfo) -> Vec<Reason> {
        let mut reasons = Vec::new();
        let pods = i64::try_from(node.pods.len()).unwrap_or(i64::MAX);
        if pods + 1 > node.pods_max {
            reasons.push("Too many pods".into());
        }
        let (asked, has, used) = (&pod.requests, &node.allocatable, &node.requested);
        for (amount, free, reason) in [
            (asked.milli_cpu, has.milli_cpu - used.milli_cpu, "Insufficient cpu"),
            (asked.memory_bytes, has.memory_bytes - used.memory_bytes, "Insufficient memory"),
            (
                asked.ephemeral_storage_bytes,
                has.ephemeral_storage_bytes - used.ephemeral_storage_bytes,
                "Insufficient ephemeral-storage",
            ),
        ] {
            if amount > 0 && amount > free {
                reasons.push(reason.into());
            }
        }
        for (name, asked) in &asked.scalars {
            if *asked > 0 && *asked > has.scalar(name) - used.scalar(name) {
                reasons.push(format!("Insufficient {name}").into());
            }
        }
        reasons
    }
}

pub(super) struct LeastAllocated;

impl Score for LeastAllocated {
    /// The free share of CPU and of memory, averaged.
    fn score(&self, pod: &PodInfo, node: &NodeInfo, _nodes_total: usize) -> i64 {
        let free = |capacity: i64, used: i64| {
            if capacity == 0 || used > capacity { 0 } else { (capacity - used) * MAX_NODE_SCORE / capacity }
        };
        let cpu = free(node.allocatable.milli_cpu, node.nonzero.milli_cpu + pod.nonzero.milli_cpu);
        let memory = free(node.allocatable.memory_bytes, node.nonzero.memory_bytes + pod.nonzero.memory_bytes);
        i64::midpoint(cpu, memory)
    }

    fn weight(&self) -> i64 {
        1
    }
}

pub(super) struct BalancedAllocation;

impl Score for BalancedAllocation {
    /// How much better balanced CPU and memory use would be with the pod than without, around 50.
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "a score of two digits")]
    fn score(&self, pod: &PodInfo, node: &NodeInfo, _nodes_total: usize) -> i64 {
        let share =
            |used: i64, capacity: i64| if capacity == 0 { 1.0 } else { (used as f64 / capacity as f64).min(1.0) };
        let imbalance = |cpu: i64, memory: i64| {
            let cpu = share(cpu, node.allocatable.milli_cpu);
            let memory = share(memory, node.allocatable.memory_bytes);
            (cpu - memory).abs() / 2.0
        };
        let before = imbalance(node.requested.milli_cpu, node.requested.memory_bytes);
        let after = imbalance(
            node.requested.milli_cpu + pod.requests.milli_cpu,
            node.requested.memory_bytes + pod.requests.memory_bytes,
        );
        let gain = (1.0 + before - after) / 2.0;
        (gain * MAX_NODE_SCORE as f64).round() as i64
    }

    fn weight(&self) -> i64 {
        1
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::framework::testing::{info, node, node_with, pod, pod_with};

    #[test]
    fn a_pod_fits_until_the_node_is_full() {
        let mut node = info(&node("n", "2"));
        for name in ["a", "b"] {
            let pod = pod(name, "1");
            assert!(NodeResourcesFit.filter(&pod, &node).is_empty());
            node.add_pod(&pod);
        }
        assert_eq!(NodeResourcesFit.filter(&pod("c", "1"), &node), ["Insufficient cpu"]);
        assert!(NodeResourcesFit.filter(&pod("d", "0"), &node).is_empty(), "who asks for nothing fits");
        node.pods_max = 2;
        assert_eq!(NodeResourcesFit.filter(&pod("d", "0"), &node), ["Too many pods"]);
    }

    #[test]
    fn no_more_of_an_extended_resource_is_given_than_the_node_has() {
        let allocatable = json!({"cpu": "8", "pods": "10", "example.org/gpu": "2", "hugepages-2Mi": "4Mi"});
        let mut node = info(&node_with("n", json!({}), json!({"allocatable": allocatable})));
        let asking = |name: &str, requests: Value| {
            pod_with(name, json!({"containers": [{"name": "c", "resources": {"requests": requests}}]}))
        };
        let one = asking("a", json!({"example.org/gpu": "1", "hugepages-2Mi": "4Mi"}));
        assert!(NodeResourcesFit.filter(&one, &node).is_empty());
        node.add_pod(&one);
        let refused = |requests| NodeResourcesFit.filter(&asking("b", requests), &node);
        assert!(refused(json!({"example.org/gpu": "1"})).is_empty());
        assert_eq!(refused(json!({"example.org/gpu": "2"})), ["Insufficient example.org/gpu"]);
        assert_eq!(refused(json!({"hugepages-2Mi": "2Mi"})), ["Insufficient hugepages-2Mi"]);
        assert_eq!(refused(json!({"example.org/none": "1"})), ["Insufficient example.org/none"]);
        node.remove_pod(&one.uid);
        assert!(NodeResourcesFit.filter(&one, &node).is_empty());
    }

    #[test]
    fn the_emptier_node_scores_higher() {
        let empty = info(&node("a", "4"));
        let mut busy = info(&node("b", "4"));
        busy.add_pod(&pod("x", "3"));
        let pod = pod("p", "1");
        assert!(LeastAllocated.score(&pod, &empty, 2) > LeastAllocated.score(&pod, &busy, 2));
    }
}
