//! TaintToleration: taints keep pods away that do not tolerate them.
//!
//! Source: `pkg/scheduler/framework/plugins/tainttoleration` at v1.37.

use coracle_api::scheduling::tolerates_any;

use crate::{
    framework::{Filter, Reason, Score, normalize_by_max},
    node_info::NodeInfo,
    pod_info::PodInfo,
};

pub(super) struct TaintToleration;

impl Filter for TaintToleration {
    fn filter(&self, pod: &PodInfo, node: &NodeInfo) -> Vec<Reason> {
        let hard = node.taints.iter().filter(|taint| matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute"));
        let untolerated = hard.into_iter().any(|taint| !tolerates_any(&pod.tolerations, taint));
        if untolerated { vec!["node(s) had untolerated taint(s)".into()] } else { Vec::new() }
    }
}

impl Score for TaintToleration {
    /// How many taints would rather not have the pod.
    fn score(&self, pod: &PodInfo, node: &NodeInfo, _nodes_total: usize) -> i64 {
        let soft = node.taints.iter().filter(|taint| taint.effect == "PreferNoSchedule");
        let untolerated = soft.filter(|taint| !tolerates_any(&pod.tolerations, taint)).count();
        i64::try_from(untolerated).unwrap_or(i64::MAX)
    }

    fn normalize(&self, scores: &mut [i64]) {
        normalize_by_max(scores, true);
    }

    fn weight(&self) -> i64 {
        3
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::framework::testing::{info, node, pod_with};

    #[test]
    fn hard_taints_keep_pods_away_and_soft_ones_cost() {
        let mut tainted = info(&node("n1", "4"));
        let taints = json!([
            {"key": "a", "effect": "NoSchedule"}, {"key": "b", "effect": "NoExecute"},
            {"key": "c", "effect": "PreferNoSchedule"}, {"key": "d", "effect": "PreferNoSchedule"},
        ]);
        tainted.taints = serde_json::from_value(taints).expect("taints");
        for (tolerated, fits, score) in
            [(vec!["a", "b", "c"], true, 1), (vec!["a", "c", "d"], false, 0), (vec![], false, 2)]
        {
            let tolerations: Vec<_> = tolerated.iter().map(|key| json!({"key": key, "operator": "Exists"})).collect();
            let pod = pod_with("p", json!({"containers": [], "tolerations": tolerations}));
            assert_eq!(TaintToleration.filter(&pod, &tainted).is_empty(), fits, "{tolerated:?}");
            assert_eq!(TaintToleration.score(&pod, &tainted, 1), score, "{tolerated:?}");
        }
    }
}
