//! NodeResourcesBalancedAllocation: the node whose CPU and memory are used most evenly with the
//! pod.
//!
//! Source: `pkg/scheduler/framework/plugins/noderesources/balanced_allocation.go` at v1.37.

use crate::{
    framework::{CycleState, MAX_NODE_SCORE, Plugin, PluginName, Score},
    node_info::NodeInfo,
    pod_info::PodInfo,
};

pub(super) struct NodeResourcesBalancedAllocation;

impl Plugin for NodeResourcesBalancedAllocation {
    fn name(&self) -> PluginName {
        PluginName::NodeResourcesBalancedAllocation
    }
}

impl Score for NodeResourcesBalancedAllocation {
    /// How much better balanced CPU and memory use would be with the pod than without, around 50.
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        reason = "a score of two digits"
    )]
    fn score(&self, _: &CycleState, pod: &PodInfo, node: &NodeInfo) -> i64 {
        let share = |used: i64, capacity: i64| {
            if capacity == 0 {
                1.0
            } else {
                (used as f64 / capacity as f64).min(1.0)
            }
        };
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
