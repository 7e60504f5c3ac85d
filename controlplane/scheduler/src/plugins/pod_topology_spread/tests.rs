use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::{
    cache::Cache,
    framework::{Code, PreScore, Score},
    testing::{info, node_of, pod_of},
};

const ZONE: &str = "zone";
const HOST: &str = "kubernetes.io/hostname";

fn pod_in(namespace: &str, name: &str, app: &str, more: Value) -> PodInfo {
    let mut spec = json!({"containers": []});
    for (key, value) in more.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    let metadata =
        json!({"name": name, "namespace": namespace, "uid": name, "labels": {"app": app}});
    pod_of(json!({"metadata": metadata, "spec": spec}))
}

fn constraint(key: &str, skew: i32, more: Value) -> Value {
    let mut constraint = json!({
        "maxSkew": skew, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        constraint[key] = value.clone();
    }
    constraint
}

/// Zone 1 with the nodes a and b, zone 2 with x and y; so many pods `web` on each.
fn cluster(pods: [usize; 4]) -> Cache {
    let mut cache = Cache::default();
    for ((name, zone), count) in [("a", "1"), ("b", "1"), ("x", "2"), ("y", "2")]
        .into_iter()
        .zip(pods)
    {
        cache.set_node(&node_of(name, json!({ZONE: zone, HOST: name})));
        for number in 0..count {
            cache.observe(
                Arc::new(pod_in(
                    "default",
                    &format!("{name}{number}"),
                    "web",
                    json!({}),
                )),
                name,
            );
        }
    }
    cache
}

fn statuses(pod: &PodInfo, cache: &Cache) -> Vec<(String, Status)> {
    let (mut cycle, snapshot) = (CycleState::default(), cache.snapshot());
    let (_, status) = PodTopologySpread.pre_filter(&mut cycle, pod, &snapshot);
    if status.code() == Code::Skip {
        return Vec::new();
    }
    let nodes = snapshot.nodes().iter();
    nodes
        .map(|node| {
            (
                node.name.clone(),
                PodTopologySpread.filter(&cycle, pod, node),
            )
        })
        .collect()
}

fn refused(pod: &PodInfo, cache: &Cache) -> Vec<String> {
    let refused = statuses(pod, cache)
        .into_iter()
        .filter(|(_, status)| !status.is_success());
    refused.map(|(name, _)| name).collect()
}

fn on_nodes(names: &[&str]) -> Value {
    let expression = json!({"key": HOST, "operator": "In", "values": names});
    let terms = json!({"nodeSelectorTerms": [{"matchExpressions": [expression]}]});
    json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}})
}

/// After the cases of `filtering_test.go`.
#[test]
fn no_place_gets_more_than_it_may() {
    let one = |more| json!([constraint(ZONE, 1, more)]);
    let hosts = |skew| json!([constraint(HOST, skew, json!({}))]);
    /// Its name, the pods on each node, the pod's app, what more it says, and who refuses it.
    type Case = (
        &'static str,
        [usize; 4],
        &'static str,
        Value,
        &'static [&'static str],
    );
    let cases: [Case; 12] = [
        (
            "no pods",
            [0, 0, 0, 0],
            "web",
            json!({"topologySpreadConstraints": one(json!({}))}),
            &[],
        ),
        (
            "3/3",
            [2, 1, 0, 3],
            "web",
            json!({"topologySpreadConstraints": one(json!({}))}),
            &[],
        ),
        (
            "3/2",
            [2, 1, 1, 1],
            "web",
            json!({"topologySpreadConstraints": one(json!({}))}),
            &["a", "b"],
        ),
        (
            "2/1/0/3",
            [2, 1, 0, 3],
            "web",
            json!({"topologySpreadConstraints": hosts(1)}),
            &["a", "b", "y"],
        ),
        (
            "2/1/0/3 by two",
            [2, 1, 0, 3],
            "web",
            json!({"topologySpreadConstraints": hosts(2)}),
            &["a", "y"],
        ),
        (
            "not of its kind",
            [2, 1, 0, 3],
            "db",
            json!({"topologySpreadConstraints": hosts(1)}),
            &["a", "y"],
        ),
        (
            "only where it may be",
            [2, 1, 0, 3],
            "web",
            json!({"topologySpreadConstraints": hosts(1), "affinity": on_nodes(&["a", "y"])}),
            &["y"],
        ),
        (
            "everywhere",
            [2, 1, 0, 3],
            "web",
            json!({
                "topologySpreadConstraints": [constraint(HOST, 1, json!({"nodeAffinityPolicy": "Ignore"}))],
                "affinity": on_nodes(&["a", "y"]),
            }),
            &["a", "b", "y"],
        ),
        (
            "places to come",
            [1, 0, 1, 0],
            "web",
            json!({"topologySpreadConstraints": one(json!({"minDomains": 3}))}),
            &["a", "b", "x", "y"],
        ),
        (
            "enough places",
            [1, 0, 1, 0],
            "web",
            json!({"topologySpreadConstraints": one(json!({"minDomains": 2}))}),
            &[],
        ),
        (
            "two constraints",
            [2, 1, 0, 2],
            "web",
            json!({"topologySpreadConstraints": [constraint(ZONE, 1, json!({})), constraint(HOST, 1, json!({}))]}),
            &["a", "b", "y"],
        ),
        ("no constraint", [9, 0, 0, 0], "web", json!({}), &[]),
    ];
    for (name, pods, app, spec, expected) in cases {
        assert_eq!(
            refused(&pod_in("default", "p", app, spec), &cluster(pods)),
            expected,
            "{name}"
        );
    }
}

#[test]
fn pods_that_do_not_count_are_not_counted() {
    let mut cache = cluster([0, 0, 0, 0]);
    cache.observe(Arc::new(pod_in("other", "1", "web", json!({}))), "a");
    cache.observe(Arc::new(pod_in("default", "2", "db", json!({}))), "a");
    let mut ending = pod_in("default", "3", "web", json!({}));
    ending.terminating = true;
    cache.observe(Arc::new(ending), "a");
    let spread = |more| json!({"topologySpreadConstraints": [constraint(HOST, 1, more)]});
    assert!(refused(&pod_in("default", "p", "web", spread(json!({}))), &cache).is_empty());
    cache.observe(Arc::new(pod_in("default", "4", "web", json!({}))), "a");
    assert_eq!(
        refused(&pod_in("default", "p", "web", spread(json!({}))), &cache),
        ["a"]
    );
    // Of another revision.
    let of_revision = |name: &str, hash: &str, spec: Value| {
        let metadata = json!({"name": name, "namespace": "default", "uid": name, "labels": {"app": "web", "hash": hash}});
        pod_of(json!({"metadata": metadata, "spec": spec}))
    };
    let mut spec = spread(json!({"matchLabelKeys": ["hash"]}));
    spec["containers"] = json!([]);
    assert!(refused(&of_revision("p", "2", spec), &cache).is_empty());
}

#[test]
fn nodes_without_a_place_and_those_that_do_not_count() {
    let mut cache = cluster([1, 0, 0, 0]);
    cache.set_node(&node_of("bare", json!({HOST: "bare"})));
    let zones = json!({"topologySpreadConstraints": [constraint(ZONE, 1, json!({}))]});
    let said: Vec<_> = statuses(&pod_in("default", "p", "web", zones), &cache)
        .into_iter()
        .filter(|(_, status)| !status.is_success())
        .map(|(name, status)| (name, status.code(), status.message()))
        .collect();
    assert_eq!(
        said,
        [
            ("a".to_owned(), Code::Unschedulable, NOT_MATCHED.to_owned()),
            ("b".to_owned(), Code::Unschedulable, NOT_MATCHED.to_owned()),
            (
                "bare".to_owned(),
                Code::UnschedulableAndUnresolvable,
                LABEL_MISSING.to_owned()
            ),
        ]
    );
    // x and y are empty and tainted: they count, unless taints do.
    let mut cache = cluster([1, 1, 0, 0]);
    for name in ["x", "y"] {
        let mut node = node_of(name, json!({ZONE: "2", HOST: name}));
        let taint = json!({"taints": [{"key": "k", "effect": "NoSchedule"}]});
        node.spec = Some(serde_json::from_value(taint).expect("a spec"));
        cache.set_node(&node);
    }
    for (policy, expected) in [("Ignore", vec!["a", "b"]), ("Honor", vec![])] {
        let spread = json!({"topologySpreadConstraints": [constraint(HOST, 1, json!({"nodeTaintsPolicy": policy}))]});
        assert_eq!(
            refused(&pod_in("default", "p", "web", spread), &cache),
            expected,
            "{policy}"
        );
    }
}

/// After the cases of `scoring_test.go`.
#[test]
fn the_emptier_place_is_the_better() {
    let soft = |key, skew| constraint(key, skew, json!({"whenUnsatisfiable": "ScheduleAnyway"}));
    for (name, pods, constraints, expected) in [
        (
            "hosts",
            [2, 1, 0, 3],
            json!([soft(HOST, 1)]),
            [20, 60, 100, 0],
        ),
        (
            "no pods",
            [0, 0, 0, 0],
            json!([soft(HOST, 1)]),
            [100, 100, 100, 100],
        ),
        (
            "zones",
            [2, 1, 0, 1],
            json!([soft(ZONE, 1)]),
            [25, 25, 100, 100],
        ),
    ] {
        let cache = cluster(pods);
        let (mut cycle, snapshot) = (CycleState::default(), cache.snapshot());
        let pod = pod_in(
            "default",
            "p",
            "web",
            json!({"topologySpreadConstraints": constraints}),
        );
        let feasible: Vec<&NodeInfo> = snapshot.nodes().iter().collect();
        assert!(
            PodTopologySpread
                .pre_score(&mut cycle, &pod, &feasible, &snapshot)
                .is_success()
        );
        let mut scores: Vec<i64> = feasible
            .iter()
            .map(|node| PodTopologySpread.score(&cycle, &pod, node))
            .collect();
        PodTopologySpread.normalize(&pod, &feasible, &mut scores);
        assert_eq!(scores, expected, "{name}");
    }
}

#[test]
fn only_what_changes_a_count_is_worth_an_attempt() {
    let spread = json!({"topologySpreadConstraints": [constraint(ZONE, 1, json!({}))]});
    let waiting = pod_in("default", "p", "web", spread);
    let (web, db) = (
        pod_in("default", "1", "web", json!({})),
        pod_in("default", "2", "db", json!({})),
    );
    let foreign = pod_in("other", "3", "web", json!({}));
    let (in_zone, bare) = (
        info(&node_of("n", json!({ZONE: "3"}))),
        info(&node_of("n", json!({}))),
    );
    for (event, expected) in [
        (ClusterEvent::AssignedPodAdded(&web), QueueingHint::Queue),
        (ClusterEvent::AssignedPodDeleted(&web), QueueingHint::Queue),
        (ClusterEvent::AssignedPodDeleted(&db), QueueingHint::Skip),
        (
            ClusterEvent::AssignedPodDeleted(&foreign),
            QueueingHint::Skip,
        ),
        (
            ClusterEvent::AssignedPodUpdated {
                old: &web,
                new: &db,
            },
            QueueingHint::Queue,
        ),
        (
            ClusterEvent::AssignedPodUpdated { old: &db, new: &db },
            QueueingHint::Skip,
        ),
        (ClusterEvent::NodeAdded(&in_zone), QueueingHint::Queue),
        (ClusterEvent::NodeAdded(&bare), QueueingHint::Skip),
        (ClusterEvent::NodeDeleted(&in_zone), QueueingHint::Queue),
        (
            ClusterEvent::NodeUpdated {
                old: &bare,
                new: &in_zone,
            },
            QueueingHint::Queue,
        ),
        (
            ClusterEvent::NodeUpdated {
                old: &in_zone,
                new: &in_zone,
            },
            QueueingHint::Skip,
        ),
    ] {
        assert_eq!(
            PodTopologySpread.hint(&waiting, &event),
            expected,
            "{event:?}"
        );
    }
}

proptest! {
    /// Against the definition: with the pod on it, no place has more than `maxSkew` above the place
    /// with the fewest.
    #[test]
    fn counts_decide_as_the_rule_says(
        zones in proptest::collection::vec(proptest::option::of(0..3_usize), 1..6),
        placed in proptest::collection::vec((0..6_usize, any::<bool>()), 0..12),
        skew in 1..3_i32,
        min_domains in 1..4_i32,
        is_of_kind in any::<bool>(),
    ) {
        let mut cache = Cache::default();
        for (number, zone) in zones.iter().enumerate() {
            let labels = zone.map_or_else(|| json!({}), |zone| json!({ZONE: zone.to_string()}));
            cache.set_node(&node_of(&number.to_string(), labels));
        }
        for (number, (place, web)) in placed.iter().enumerate() {
            let pod = pod_in("default", &number.to_string(), if *web { "web" } else { "db" }, json!({}));
            cache.observe(Arc::new(pod), &(place % zones.len()).to_string());
        }
        let spread = json!({"topologySpreadConstraints": [constraint(ZONE, skew, json!({"minDomains": min_domains}))]});
        let pod = pod_in("default", "p", if is_of_kind { "web" } else { "db" }, spread);
        let refused = refused(&pod, &cache);
        let in_zone = |wanted: usize| {
            let webs = placed.iter().filter(|(place, web)| *web && zones[place % zones.len()] == Some(wanted));
            i32::try_from(webs.count()).expect("few")
        };
        let mut known: Vec<usize> = zones.iter().copied().flatten().collect();
        known.sort_unstable();
        known.dedup();
        let is_enough = known.len() >= usize::try_from(min_domains).expect("positive");
        let fewest = known.iter().map(|zone| in_zone(*zone)).min().filter(|_| is_enough).unwrap_or(0);
        for (number, zone) in zones.iter().enumerate() {
            let fits = zone.is_some_and(|zone| in_zone(zone) + i32::from(is_of_kind) - fewest <= skew);
            prop_assert_eq!(!refused.contains(&number.to_string()), fits, "node {}", number);
        }
    }

    /// An event after which the pod fits where it did not must not be taken for one that does not
    /// help.
    #[test]
    fn no_event_that_helps_is_missed(
        zones in proptest::collection::vec(proptest::option::of(0..3_usize), 1..5),
        placed in proptest::collection::vec((0..5_usize, any::<bool>()), 0..8),
        changing in (0..5_usize, any::<bool>()),
        coming in proptest::option::of(0..3_usize),
        min_domains in 1..4_i32,
    ) {
        let labels = |zone: &Option<usize>| zone.map_or_else(|| json!({}), |zone| json!({ZONE: zone.to_string()}));
        let other = pod_in("default", "other", if changing.1 { "web" } else { "db" }, json!({}));
        let cluster = |has_other: bool, has_node: bool| {
            let mut cache = Cache::default();
            for (number, zone) in zones.iter().enumerate() {
                cache.set_node(&node_of(&number.to_string(), labels(zone)));
            }
            if has_node {
                cache.set_node(&node_of("coming", labels(&coming)));
            }
            for (number, (place, web)) in placed.iter().enumerate() {
                let pod = pod_in("default", &number.to_string(), if *web { "web" } else { "db" }, json!({}));
                cache.observe(Arc::new(pod), &(place % zones.len()).to_string());
            }
            if has_other {
                cache.observe(Arc::new(other.clone()), &(changing.0 % zones.len()).to_string());
            }
            cache
        };
        let spread = json!({"topologySpreadConstraints": [constraint(ZONE, 1, json!({"minDomains": min_domains}))]});
        let waiting = pod_in("default", "p", "web", spread);
        let fits = |cache: &Cache| statuses(&waiting, cache).iter().any(|(_, status)| status.is_success());
        let hint = |event: ClusterEvent<'_>| PodTopologySpread.hint(&waiting, &event);
        let [neither, pod_too, node_too] = [(false, false), (true, false), (false, true)].map(|(a, b)| fits(&cluster(a, b)));
        if pod_too && !neither {
            prop_assert_eq!(hint(ClusterEvent::AssignedPodAdded(&other)), QueueingHint::Queue);
        }
        if neither && !pod_too {
            prop_assert_eq!(hint(ClusterEvent::AssignedPodDeleted(&other)), QueueingHint::Queue);
        }
        let node = info(&node_of("coming", labels(&coming)));
        if node_too && !neither {
            prop_assert_eq!(hint(ClusterEvent::NodeAdded(&node)), QueueingHint::Queue);
        }
        if neither && !node_too {
            prop_assert_eq!(hint(ClusterEvent::NodeDeleted(&node)), QueueingHint::Queue);
        }
    }
}
