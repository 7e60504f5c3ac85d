//! NodeResourcesBalancedAllocation: the node whose resources are used most evenly with the pod.
//!
//! Source: `pkg/scheduler/framework/plugins/noderesources/balanced_allocation.go` at v1.37.

use crate::{
    config::BalancedArgs,
    framework::{CycleState, MAX_NODE_SCORE, Plugin, PluginName, Score},
    node_info::NodeInfo,
    pod_info::PodInfo,
    resources::Resources,
};

/// Which resources count.
pub(super) struct NodeResourcesBalancedAllocation(Vec<String>);

impl NodeResourcesBalancedAllocation {
    pub(super) fn new(told: &BalancedArgs) -> Self {
        Self(told.resources.iter().map(|one| one.name.clone()).collect())
    }

    /// How far from one another the used shares are: their standard deviation.
    #[allow(
        clippy::cast_precision_loss,
        reason = "shares, of which two digits count"
    )]
    fn imbalance(&self, pod: &PodInfo, node: &NodeInfo, used: impl Fn(&str) -> i64) -> f64 {
        let (mut shares, mut count) = ([0.0; MOST], 0);
        for name in &self.0 {
            // A pod that asks for none is not judged by it.
            let counts = !Resources::is_scalar(name) || pod.requests.scalar(name) > 0;
            let capacity = node.allocatable.amount(name);
            if counts && capacity > 0 && count < MOST {
                shares[count] = (used(name) as f64 / capacity as f64).min(1.0);
                count += 1;
            }
        }
        let shares = &shares[..count];
        match shares {
            [one, other] => (one - other).abs() / 2.0,
            [] | [_] => 0.0,
            many => {
                let mean = many.iter().sum::<f64>() / many.len() as f64;
                let squares = many.iter().map(|share| (share - mean).powi(2));
                (squares.sum::<f64>() / many.len() as f64).sqrt()
            }
        }
    }
}

/// Resources beyond which no more are looked at.
const MOST: usize = 16;

impl Plugin for NodeResourcesBalancedAllocation {
    fn name(&self) -> PluginName {
        PluginName::NodeResourcesBalancedAllocation
    }
}

impl Score for NodeResourcesBalancedAllocation {
    /// How much better balanced the use would be with the pod than without, around 50.
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        reason = "a score of two digits"
    )]
    fn score(&self, _: &CycleState, pod: &PodInfo, node: &NodeInfo) -> i64 {
        let used = |name: &str| node.requested.amount(name);
        let before = self.imbalance(pod, node, used);
        let after = self.imbalance(pod, node, |name| {
            used(name).saturating_add(pod.requests.amount(name))
        });
        let gain = (1.0 + before - after) / 2.0;
        (gain * MAX_NODE_SCORE as f64).round() as i64
    }
}
