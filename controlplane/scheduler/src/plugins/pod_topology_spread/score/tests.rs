use std::{collections::BTreeMap, sync::Arc};

use coracle_api::selector::LabelSelector;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::{
    cache::Cache,
    framework::Code,
    pod_info::PodUid,
    selectors::{SelectorKind, SelectorOwner},
    testing::{node_of, pod_of},
};

const ZONE: &str = "topology.kubernetes.io/zone";

fn pod(name: &str, app: &str, spec: Value) -> PodInfo {
    let owner = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "r", "controller": true}]);
    let metadata = json!({"name": name, "namespace": "default", "uid": name, "labels": {"app": app},
        "ownerReferences": owner});
    pod_of(json!({"metadata": metadata, "spec": spec}))
}

/// A Service or a ReplicaSet that selects `app`.
fn select(cache: &mut Cache, kind: SelectorKind, app: &str) {
    let name = if kind == SelectorKind::ReplicaSet {
        "rs"
    } else {
        "service"
    };
    let owner = SelectorOwner {
        kind,
        namespace: "default".to_owned(),
        name: name.to_owned(),
    };
    cache.set_selector(
        owner,
        Some(Arc::new(LabelSelector::from_map(&json!({"app": app})))),
    );
}

/// The feasible nodes with their scores, or none if there is nothing to score.
fn raw(
    cache: &Cache,
    pod: &PodInfo,
    is_feasible: impl Fn(&NodeInfo) -> bool,
) -> Option<BTreeMap<String, i64>> {
    let (mut cycle, snapshot) = (CycleState::default(), cache.snapshot());
    let feasible: Vec<&NodeInfo> = snapshot
        .nodes()
        .iter()
        .filter(|node| is_feasible(node))
        .collect();
    let status = PodTopologySpread::default().pre_score(&mut cycle, pod, &feasible, &snapshot);
    let score = |node: &&NodeInfo| {
        (
            node.name.clone(),
            PodTopologySpread::default().score(&cycle, pod, node),
        )
    };
    (status.code() != Code::Skip).then(|| feasible.iter().map(score).collect())
}

fn normalized(cache: &Cache, pod: &PodInfo) -> Vec<i64> {
    let Some(raw) = raw(cache, pod, |_| true) else {
        return Vec::new();
    };
    let nodes: Vec<&NodeInfo> = cache.snapshot().nodes().iter().collect();
    let mut scores: Vec<i64> = nodes.iter().map(|node| raw[&node.name]).collect();
    PodTopologySpread::default().normalize(pod, &nodes, &mut scores);
    scores
}

/// Three nodes, two pods of app `web` on the first.
fn cluster(zones: [Option<&str>; 3]) -> Cache {
    let mut cache = Cache::default();
    for (name, zone) in ["a", "b", "c"].into_iter().zip(zones) {
        let mut labels = json!({HOSTNAME: name});
        if let Some(zone) = zone {
            labels[ZONE] = json!(zone);
        }
        cache.set_node(&node_of(name, labels));
    }
    for name in ["1", "2"] {
        cache.observe(Arc::new(pod(name, "web", json!({"containers": []}))), "a");
    }
    cache
}

#[test]
fn who_is_selected_is_spread_without_asking() {
    let plain = json!({"containers": []});
    for kind in [SelectorKind::Service, SelectorKind::ReplicaSet] {
        // Over nodes although there are no zones; over zones before nodes.
        for (zones, expected) in [
            ([None; 3], [40, 100, 100]),
            ([Some("1"), Some("1"), Some("2")], [50, 75, 100]),
        ] {
            let mut cache = cluster(zones);
            assert!(
                normalized(&cache, &pod("p", "web", plain.clone())).is_empty(),
                "nobody selects it"
            );
            select(&mut cache, kind, "web");
            assert_eq!(
                normalized(&cache, &pod("p", "web", plain.clone())),
                expected,
                "{kind:?} {zones:?}"
            );
        }
    }
    // Who says something gets what it says.
    let mut cache = cluster([None; 3]);
    select(&mut cache, SelectorKind::Service, "web");
    let hard = json!({"maxSkew": 9, "topologyKey": HOSTNAME, "whenUnsatisfiable": "DoNotSchedule"});
    let hard = json!({"containers": [], "topologySpreadConstraints": [hard]});
    assert!(normalized(&cache, &pod("p", "web", hard)).is_empty());
    // And who is in no zone counts as one.
    let mut cache = cluster([None, Some("1"), Some("2")]);
    select(&mut cache, SelectorKind::Service, "web");
    assert_eq!(
        raw(&cache, &pod("p", "web", plain), |_| true).expect("scores")["a"],
        5
    );
}

/// What upstream's `initPreScoreState`, `PreScore` and `Score` come to.
#[derive(Debug)]
struct Model<'a> {
    /// Zone and whether there is a host name, by node.
    nodes: &'a [(Option<usize>, bool)],
    /// Node, and whether it is of the kind and not ending.
    pods: &'a [(usize, bool)],
    feasible: &'a [bool],
}

impl Model<'_> {
    fn value(&self, node: usize, key: &str) -> Option<String> {
        let (zone, has_name) = self.nodes[node];
        if key == ZONE {
            zone.map(|zone| zone.to_string())
        } else {
            has_name.then(|| node.to_string())
        }
    }

    #[allow(clippy::cast_possible_truncation, reason = "counts of pods")]
    fn score(&self, node: usize, constraints: &[(&str, i64)], require_all: bool) -> i64 {
        let is_in = |node: usize| {
            !require_all
                || constraints
                    .iter()
                    .all(|(key, _)| self.value(node, key).is_some())
        };
        if !is_in(node) {
            return IN_NO_PLACE;
        }
        let scored: Vec<usize> = (0..self.nodes.len())
            .filter(|node| self.feasible[*node] && is_in(*node))
            .collect();
        let mut sum = 0.0;
        for (key, skew) in constraints {
            let Some(own) = self.value(node, key) else {
                continue;
            };
            let in_place = |other: usize| {
                if *key == HOSTNAME {
                    other == node
                } else {
                    is_in(other) && self.value(other, key).as_ref() == Some(&own)
                }
            };
            let count = self
                .pods
                .iter()
                .filter(|(other, counts)| *counts && in_place(*other))
                .count();
            let mut places: Vec<_> = scored.iter().map(|other| self.value(*other, key)).collect();
            if *key != HOSTNAME {
                places.sort();
                places.dedup();
            }
            sum += count as f64 * ((places.len() + 2) as f64).ln() + (skew - 1) as f64;
        }
        sum.round() as i64
    }
}

proptest! {
    /// Pods are counted by their labels, once for all of one kind; looking at each has to come to
    /// the same.
    #[test]
    fn scores_are_those_of_the_rule(
        nodes in proptest::collection::vec((proptest::option::of(0..3_usize), proptest::bool::weighted(0.9)), 1..6),
        placed in proptest::collection::vec((0..6_usize, any::<bool>(), proptest::bool::weighted(0.2)), 0..12),
        gone in proptest::collection::vec(any::<bool>(), 12),
        feasible in proptest::collection::vec(any::<bool>(), 6),
        own in any::<bool>(),
    ) {
        let mut cache = Cache::default();
        select(&mut cache, SelectorKind::Service, "web");
        for (number, (zone, has_name)) in nodes.iter().enumerate() {
            let mut labels = json!({});
            if let Some(zone) = zone {
                labels[ZONE] = json!(zone.to_string());
            }
            if *has_name {
                labels[HOSTNAME] = json!(number.to_string());
            }
            cache.set_node(&node_of(&number.to_string(), labels));
        }
        let mut pods = Vec::new();
        for (number, (place, web, ends)) in placed.iter().enumerate() {
            let place = place % nodes.len();
            let mut one = pod(&number.to_string(), if *web { "web" } else { "db" }, json!({"containers": []}));
            cache.observe(Arc::new(one.clone()), &place.to_string());
            if *ends {
                one.terminating = true;
                cache.observe(Arc::new(one.clone()), &place.to_string());
            }
            if gone[number] {
                cache.remove_pod(&one.uid);
            } else {
                pods.push((place, *web && !*ends));
            }
        }
        let wish = |key: &str, skew: i64| json!({"maxSkew": skew, "topologyKey": key,
            "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {"matchLabels": {"app": "web"}}});
        let mut spec = json!({"containers": []});
        if own {
            spec["topologySpreadConstraints"] = json!([wish(HOSTNAME, 1), wish(ZONE, 2)]);
        }
        let constraints = if own { [(HOSTNAME, 1), (ZONE, 2)] } else { [(HOSTNAME, 3), (ZONE, 5)] };
        let model = Model { nodes: &nodes, pods: &pods, feasible: &feasible };
        let number = |node: &NodeInfo| node.name.parse::<usize>().expect("a number");
        let found = raw(&cache, &pod("p", "web", spec), |node| feasible[number(node)]).expect("scores");
        for (name, score) in found {
            let node = name.parse().expect("a number");
            prop_assert_eq!(score, model.score(node, &constraints, own), "node {} of {:?}", node, model);
        }
        for number in 0..placed.len() {
            cache.remove_pod(&PodUid(number.to_string().into()));
        }
        prop_assert!(cache.snapshot().label_counts().is_empty() && cache.snapshot().affinity_index().is_empty());
    }
}
