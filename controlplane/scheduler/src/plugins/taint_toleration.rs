//! TaintToleration: taints keep pods away that do not tolerate them.

use k8s_openapi::api::core::v1::{Taint, Toleration};

use crate::{
    framework::{Filter, Reason, Score, normalize_by_max},
    node_info::NodeInfo,
    pod_info::PodInfo,
};

pub(super) struct TaintToleration;

impl Filter for TaintToleration {
    fn filter(&self, pod: &PodInfo, node: &NodeInfo) -> Vec<Reason> {
        let hard = node.taints.iter().filter(|taint| matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute"));
        let untolerated = hard.into_iter().any(|taint| !pod.tolerations.iter().any(|t| tolerates(t, taint)));
        if untolerated { vec!["node(s) had untolerated taint(s)".into()] } else { Vec::new() }
    }
}

impl Score for TaintToleration {
    /// How many taints would rather not have the pod.
    fn score(&self, pod: &PodInfo, node: &NodeInfo, _nodes_total: usize) -> i64 {
        let soft = node.taints.iter().filter(|taint| taint.effect == "PreferNoSchedule");
        let untolerated = soft.filter(|taint| !pod.tolerations.iter().any(|t| tolerates(t, taint))).count();
        i64::try_from(untolerated).unwrap_or(i64::MAX)
    }

    fn normalize(&self, scores: &mut [i64]) {
        normalize_by_max(scores, true);
    }

    fn weight(&self) -> i64 {
        3
    }
}

/// Source: `k8s.io/component-helpers/scheduling/corev1` `ToleratesTaint` at v1.37.
pub(super) fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let effect = toleration.effect.as_deref().unwrap_or("");
    let key = toleration.key.as_deref().unwrap_or("");
    if !effect.is_empty() && effect != taint.effect || !key.is_empty() && key != taint.key {
        return false;
    }
    match toleration.operator.as_deref().unwrap_or("") {
        "" | "Equal" => {
            !key.is_empty() && toleration.value.as_deref().unwrap_or("") == taint.value.as_deref().unwrap_or("")
        }
        "Exists" => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn tolerations_match_as_upstream() {
        let taint: Taint =
            serde_json::from_value(json!({"key": "k", "value": "v", "effect": "NoSchedule"})).expect("a taint");
        let cases: [(Value, bool); 7] = [
            (json!({"key": "k", "operator": "Equal", "value": "v", "effect": "NoSchedule"}), true),
            (json!({"key": "k", "value": "v"}), true),
            (json!({"key": "k", "value": "other"}), false),
            (json!({"key": "k", "operator": "Exists"}), true),
            (json!({"operator": "Exists"}), true),
            (json!({"key": "k", "operator": "Exists", "effect": "NoExecute"}), false),
            (json!({"key": "other", "operator": "Exists"}), false),
        ];
        for (toleration, expect) in cases {
            let parsed = serde_json::from_value(toleration.clone()).expect("a toleration");
            assert_eq!(tolerates(&parsed, &taint), expect, "{toleration}");
        }
    }
}
