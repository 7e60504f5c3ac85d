use std::sync::Arc;

use serde_json::json;

use super::*;
use crate::{
    cache::Cache,
    framework::{PluginName, PluginSet},
    plugins,
    testing::{node, node_with, pod, pod_with},
};

fn cache(nodes: &[(&str, &str)]) -> Cache {
    let mut cache = Cache::default();
    for (name, cpu) in nodes {
        cache.set_node(&node(name, cpu));
    }
    cache
}

fn algorithm() -> Algorithm {
    Algorithm::new(Arc::new(plugins::without_binding(&Arc::default())).into())
}

fn place(algorithm: &mut Algorithm, pod: &PodInfo, cache: &Cache) -> Result<String, String> {
    match algorithm.schedule(&mut CycleState::default(), pod, None, &cache.snapshot()) {
        Ok(node) => Ok(node.name.clone()),
        Err(SchedulingFailure::Unschedulable(diagnosis)) => Err(diagnosis.to_string()),
        Err(SchedulingFailure::Error(status)) => Err(status.message()),
    }
}

#[test]
fn pods_spread_over_equal_nodes() {
    let mut cache = cache(&[("a", "4"), ("b", "4"), ("c", "4")]);
    let mut algorithm = algorithm();
    for k in 0..6 {
        let pod = Arc::new(pod(&format!("p{k}"), "100m"));
        let node = place(&mut algorithm, &pod, &cache).expect("fits");
        cache.assume(pod, &node);
    }
    assert!(
        cache
            .snapshot()
            .nodes()
            .iter()
            .all(|node| node.pods.len() == 2)
    );
}

#[test]
fn what_does_not_fit_is_told_in_upstreams_words() {
    let mut cache = cache(&[("a", "1"), ("b", "1")]);
    let taint = json!({"taints": [{"key": "k", "effect": "NoSchedule"}]});
    cache.set_node(&node_with(
        "c",
        taint,
        json!({"allocatable": {"cpu": "64", "pods": "110"}}),
    ));
    assert_eq!(
        place(&mut algorithm(), &pod("p", "2"), &cache),
        Err(
            "0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 Insufficient cpu."
                .to_owned()
        )
    );
    let none = place(&mut algorithm(), &pod("p", "2"), &Cache::default());
    assert_eq!(none, Err("no nodes available to schedule pods".to_owned()));
}

#[test]
fn who_has_refused_a_pod_is_known() {
    let mut cache = cache(&[("a", "1")]);
    cache.set_node(&node_with("c", json!({"unschedulable": true}), json!({})));
    let snapshot = cache.snapshot();
    let refused = algorithm().schedule(&mut CycleState::default(), &pod("p", "2"), None, &snapshot);
    let Err(SchedulingFailure::Unschedulable(diagnosis)) = refused else {
        panic!("it fits")
    };
    let expected: PluginSet = [PluginName::NodeResourcesFit, PluginName::NodeUnschedulable]
        .into_iter()
        .collect();
    assert_eq!(diagnosis.refused_by, expected);
}

#[test]
fn nodes_that_a_pod_does_not_name_are_told_in_one() {
    let cache = cache(&[("a", "1"), ("b", "8"), ("c", "8")]);
    let field = json!({"key": "metadata.name", "operator": "In", "values": ["a"]});
    let terms = json!({"nodeSelectorTerms": [{"matchFields": [field]}]});
    let affinity =
        json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}});
    let asks = |cpu: &str| {
        let container = json!({"name": "c", "resources": {"requests": {"cpu": cpu}}});
        pod_with(
            "p",
            json!({"containers": [container], "affinity": affinity}),
        )
    };
    assert_eq!(
        place(&mut algorithm(), &asks("1"), &cache).as_deref(),
        Ok("a")
    );
    assert_eq!(
        place(&mut algorithm(), &asks("2"), &cache),
        Err("0/3 nodes are available: 1 Insufficient cpu, 2 node(s) didn't satisfy plugin(s) [NodeAffinity]."
            .to_owned())
    );
}

#[test]
fn what_cannot_be_seen_to_keeps_the_pod_waiting() {
    let claims = json!([{"name": "gpu", "resourceClaimName": "g"}]);
    let pod = pod_with("p", json!({"containers": [], "resourceClaims": claims}));
    assert_eq!(
        place(&mut algorithm(), &pod, &cache(&[("a", "4")])),
        Err("0/1 nodes are available: this scheduler does not support resource claims yet; the pod waits instead of being \
             placed as if it had not asked."
            .to_owned())
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
    assert_eq!(place(&mut algorithm(), &pod, &cache).as_deref(), Ok("b"));
}

#[test]
fn large_clusters_are_searched_in_turns() {
    assert_eq!(feasible_wanted(0, None), 1);
    assert_eq!(feasible_wanted(100, None), 100);
    assert_eq!(feasible_wanted(1000, None), 420);
    assert_eq!(feasible_wanted(5000, None), 500);
    assert_eq!(feasible_wanted(5000, Some(100)), 5000);
    assert_eq!(feasible_wanted(5000, Some(1)), 100);
}
