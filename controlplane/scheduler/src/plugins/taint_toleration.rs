//! TaintToleration: taints keep pods away that do not tolerate them.
//!
//! Source: `pkg/scheduler/framework/plugins/tainttoleration` at v1.37.

use crate::{
    framework::{
        Actions, ClusterEvent, CycleState, EnqueueExtensions, Filter, Plugin, PluginName, PreScore,
        QueueingHint, Score, Status, normalize_by_max,
    },
    node_info::NodeInfo,
    pod_info::PodInfo,
    snapshot::Snapshot,
};

#[derive(Clone, Copy)]
pub(super) struct TaintToleration;

impl Plugin for TaintToleration {
    fn name(&self) -> PluginName {
        PluginName::TaintToleration
    }
}

impl Filter for TaintToleration {
    fn filter(&self, _: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Status {
        if is_tolerated(pod, node) {
            return Status::SUCCESS;
        }
        Status::unresolvable(vec!["node(s) had untolerated taint(s)".into()])
    }
}

impl PreScore for TaintToleration {
    fn pre_score(
        &self,
        _: &mut CycleState,
        _: &PodInfo,
        feasible: &[&NodeInfo],
        _: &Snapshot<'_>,
    ) -> Status {
        let mut taints = feasible.iter().flat_map(|node| &node.taints);
        if taints.any(|taint| taint.effect == PREFER_NO_SCHEDULE) {
            Status::SUCCESS
        } else {
            Status::SKIP
        }
    }
}

impl Score for TaintToleration {
    /// How many taints would rather not have the pod.
    fn score(&self, _: &CycleState, pod: &PodInfo, node: &NodeInfo) -> i64 {
        let soft = node
            .taints
            .iter()
            .filter(|taint| taint.effect == PREFER_NO_SCHEDULE);
        let untolerated = soft
            .filter(|taint| !pod.tolerations.tolerate(taint))
            .count();
        i64::try_from(untolerated).unwrap_or(i64::MAX)
    }

    fn normalize(&self, _: &PodInfo, _: &[&NodeInfo], scores: &mut [i64]) {
        normalize_by_max(scores, true);
    }
}

impl EnqueueExtensions for TaintToleration {
    fn events(&self) -> Actions {
        Actions::ADD_NODE | Actions::UPDATE_NODE_TAINT | Actions::UPDATE_POD_TOLERATION
    }

    fn hint(&self, pod: &PodInfo, event: &ClusterEvent<'_>) -> QueueingHint {
        let helps = match event {
            ClusterEvent::NodeAdded(node) => is_tolerated(pod, node),
            ClusterEvent::NodeUpdated { old, new } => {
                !is_tolerated(pod, old) && is_tolerated(pod, new)
            }
            ClusterEvent::Updated { .. } => true,
            _ => false,
        };
        helps.into()
    }
}

const PREFER_NO_SCHEDULE: &str = "PreferNoSchedule";

/// Whether the pod tolerates all that keeps pods from the node.
fn is_tolerated(pod: &PodInfo, node: &NodeInfo) -> bool {
    let mut hard = node
        .taints
        .iter()
        .filter(|taint| matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute"));
    hard.all(|taint| pod.tolerations.tolerate(taint))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::{info, node, pod_with};

    #[test]
    fn hard_taints_keep_pods_away_and_soft_ones_cost() {
        let mut tainted = info(&node("n1", "4"));
        let taints = json!([
            {"key": "a", "effect": "NoSchedule"}, {"key": "b", "effect": "NoExecute"},
            {"key": "c", "effect": "PreferNoSchedule"}, {"key": "d", "effect": "PreferNoSchedule"},
        ]);
        tainted.taints = serde_json::from_value(taints).expect("taints");
        for (tolerated, fits, score) in [
            (vec!["a", "b", "c"], true, 1),
            (vec!["a", "c", "d"], false, 0),
            (vec![], false, 2),
        ] {
            let tolerations: Vec<_> = tolerated
                .iter()
                .map(|key| json!({"key": key, "operator": "Exists"}))
                .collect();
            let pod = pod_with("p", json!({"containers": [], "tolerations": tolerations}));
            assert_eq!(
                TaintToleration
                    .filter(&CycleState::default(), &pod, &tainted)
                    .is_success(),
                fits,
                "{tolerated:?}"
            );
            assert_eq!(
                TaintToleration.score(&CycleState::default(), &pod, &tainted),
                score,
                "{tolerated:?}"
            );
        }
    }
}
