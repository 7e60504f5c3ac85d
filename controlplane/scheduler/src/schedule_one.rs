//! Pure: a pod and the cache to a node, or why there is none.
//!
//! Source: `pkg/scheduler/schedule_one.go` at v1.37.

use std::collections::BTreeMap;

use crate::{
    cache::Cache,
    framework::{Filter, Reason, Score},
    node_info::NodeInfo,
    plugins,
    pod_info::PodInfo,
};

/// Clusters up to this size are searched whole.
const FEASIBLE_MIN: usize = 100;

/// The plugins, and where the last search ended.
pub(crate) struct Algorithm {
    filters: Vec<Box<dyn Filter>>,
    scores: Vec<Box<dyn Score>>,
    /// Large clusters are searched in turns, so that every node is looked at in time.
    next_start: usize,
}

/// Why a pod fits nowhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Unschedulable {
    /// `0/3 nodes are available: 1 Insufficient cpu, 2 node(s) were unschedulable.`
    NoNode { nodes_total: usize, reasons: BTreeMap<Reason, usize> },
    /// It requires what no plugin here sees to; nowhere is better than against its will.
    Unsupported(Vec<&'static str>),
}

impl std::fmt::Display for Unschedulable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NoNode { nodes_total: 0, .. } => f.write_str("no nodes available to schedule pods"),
            Self::NoNode { nodes_total, reasons } => {
                // Upstream sorts the whole texts, count included.
                let mut texts: Vec<String> =
                    reasons.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
                texts.sort();
                write!(f, "0/{nodes_total} nodes are available: {}.", texts.join(", "))
            }
            Self::Unsupported(what) => write!(
                f,
                "this scheduler does not support {} yet; the pod waits instead of being placed as if it had not asked",
                what.join(", ")
            ),
        }
    }
}

impl Algorithm {
    pub(crate) fn new() -> Self {
        Self { filters: plugins::filters(), scores: plugins::scores(), next_start: 0 }
    }

    /// The best node for `pod`.
    ///
    /// # Errors
    /// [`Unschedulable`], with the reasons of all nodes.
    pub(crate) fn schedule(&mut self, pod: &PodInfo, cache: &Cache) -> Result<String, Unschedulable> {
        if !pod.unsupported.is_empty() {
            return Err(Unschedulable::Unsupported(pod.unsupported.clone()));
        }
        let nodes: Vec<&NodeInfo> = cache.nodes().filter(|node| node.known).collect();
        let feasible = self.feasible(pod, &nodes)?;
        match feasible.as_slice() {
            [only] => Ok(only.name.clone()),
            _ => Ok(self.best(pod, &feasible, nodes.len()).name.clone()),
        }
    }

    fn feasible<'a>(&mut self, pod: &PodInfo, nodes: &[&'a NodeInfo]) -> Result<Vec<&'a NodeInfo>, Unschedulable> {
        let wanted = feasible_wanted(nodes.len());
        let mut feasible = Vec::new();
        let mut reasons = BTreeMap::new();
        let mut looked_at = 0;
        for offset in 0..nodes.len() {
            let node = nodes[(self.next_start + offset) % nodes.len()];
            looked_at += 1;
            let refusals = self.filters.iter().map(|filter| filter.filter(pod, node)).find(|r| !r.is_empty());
            match refusals {
                None => feasible.push(node),
                Some(refusals) => refusals.into_iter().for_each(|reason| *reasons.entry(reason).or_insert(0) += 1),
            }
            if feasible.len() >= wanted {
                break;
            }
        }
        if feasible.is_empty() {
            return Err(Unschedulable::NoNode { nodes_total: nodes.len(), reasons });
        }
        self.next_start = (self.next_start + looked_at) % nodes.len();
        Ok(feasible)
    }

    /// The node of the highest weighted sum; of equals the one with the fewest pods, then by name, so that
    /// decisions can be told in advance.
    fn best<'a>(&self, pod: &PodInfo, feasible: &[&'a NodeInfo], nodes_total: usize) -> &'a NodeInfo {
        let mut totals = vec![0; feasible.len()];
        for plugin in &self.scores {
            let mut scores: Vec<i64> = feasible.iter().map(|node| plugin.score(pod, node, nodes_total)).collect();
            plugin.normalize(&mut scores);
            for (total, score) in totals.iter_mut().zip(scores) {
                *total += score * plugin.weight();
            }
        }
        let ranked = feasible.iter().zip(totals);
        let best = ranked.max_by(|(a, a_total), (b, b_total)| {
            a_total.cmp(b_total).then(b.pods.len().cmp(&a.pods.len())).then(b.name.cmp(&a.name))
        });
        best.expect("there is a feasible node").0
    }
}

/// How many feasible nodes are enough: all of a small cluster, a shrinking share of a large one.
fn feasible_wanted(nodes: usize) -> usize {
    if nodes <= FEASIBLE_MIN {
        return nodes.max(1);
    }
    let percent = 50_usize.saturating_sub(nodes / 125).max(5);
    (nodes * percent / 100).max(FEASIBLE_MIN)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::framework::testing::{node, node_with, pod, pod_with};

    fn cache(nodes: &[(&str, &str)]) -> Cache {
        let mut cache = Cache::default();
        for (name, cpu) in nodes {
            cache.set_node(&node(name, cpu));
        }
        cache
    }

    #[test]
    fn pods_spread_over_equal_nodes() {
        let mut cache = cache(&[("a", "4"), ("b", "4"), ("c", "4")]);
        let mut algorithm = Algorithm::new();
        for k in 0..6 {
            let pod = pod(&format!("p{k}"), "100m");
            let node = algorithm.schedule(&pod, &cache).expect("fits");
            cache.assume(&pod, &node);
        }
        assert!(cache.nodes().all(|node| node.pods.len() == 2));
    }

    #[test]
    fn what_does_not_fit_is_told_in_upstreams_words() {
        let mut cache = cache(&[("a", "1"), ("b", "1")]);
        let taint = json!({"taints": [{"key": "k", "effect": "NoSchedule"}]});
        cache.set_node(&node_with("c", taint, json!({"allocatable": {"cpu": "64", "pods": "110"}})));
        let refused = Algorithm::new().schedule(&pod("p", "2"), &cache).expect_err("too large");
        assert_eq!(
            refused.to_string(),
            "0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 Insufficient cpu."
        );
        let none = Algorithm::new().schedule(&pod("p", "2"), &Cache::default()).expect_err("no nodes");
        assert_eq!(none.to_string(), "no nodes available to schedule pods");
    }

    #[test]
    fn what_cannot_be_seen_to_keeps_the_pod_waiting() {
        let term = json!({"labelSelector": {}, "topologyKey": "kubernetes.io/hostname"});
        let apart = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}});
        let pod = pod_with("p", json!({"containers": [], "affinity": apart}));
        let refused = Algorithm::new().schedule(&pod, &cache(&[("a", "4")])).expect_err("it asks for too much");
        assert_eq!(
            refused.to_string(),
            "this scheduler does not support required pod anti-affinity yet; the pod waits instead of being placed as if it \
             had not asked"
        );
    }

    #[test]
    fn preferences_decide_between_feasible_nodes() {
        let cache = cache(&[("a", "4"), ("b", "4")]);
        let preference = json!({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{
            "weight": 1,
            "preference": {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["b"]}]},
        }]}});
        let pod = pod_with("p", json!({"containers": [], "affinity": preference}));
        assert_eq!(Algorithm::new().schedule(&pod, &cache).as_deref(), Ok("b"));
    }

    #[test]
    fn large_clusters_are_searched_in_turns() {
        assert_eq!(feasible_wanted(0), 1);
        assert_eq!(feasible_wanted(100), 100);
        assert_eq!(feasible_wanted(1000), 420);
        assert_eq!(feasible_wanted(5000), 500);
    }
}
