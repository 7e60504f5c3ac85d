use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::{
    cache::Cache,
    framework::{CycleState, Framework},
    plugins,
    pod_info::PodUid,
    schedule_one::{Algorithm, SchedulingFailure},
    testing::{node, pod_of},
};

/// A pod of app `app`, with this priority, that asks for so much CPU and was started at that hour.
fn placed((name, app): (&str, &str), priority: i32, cpu: &str, hour: u8) -> PodInfo {
    let metadata =
        json!({"name": name, "namespace": "default", "uid": name, "labels": {"app": app}});
    let started = format!("2026-01-01T{hour:02}:00:00Z");
    pod_of(
        json!({"metadata": metadata, "spec": spec(priority, cpu), "status": {"startTime": started}}),
    )
}

fn spec(priority: i32, cpu: &str) -> Value {
    let requests = json!({"requests": {"cpu": cpu}});
    json!({"priority": priority, "containers": [{"name": "c", "image": "i", "resources": requests}]})
}

fn preemptor(spec: Value) -> PodInfo {
    let metadata = json!({"name": "p", "namespace": "default", "uid": "p", "labels": {"app": "p"}});
    pod_of(json!({"metadata": metadata, "spec": spec}))
}

/// Nodes of 4 CPUs with these pods.
fn cluster(nodes: &[(&str, &[PodInfo])]) -> Cache {
    let mut cache = Cache::default();
    for (name, pods) in nodes {
        cache.set_node(&node(name, "4"));
        for pod in *pods {
            cache.observe(Arc::new(pod.clone()), name);
        }
    }
    cache
}

/// What is said about a pod that fits nowhere: the node and who has to end there, or why nobody.
fn preempted(cache: &mut Cache, pod: &PodInfo, nominated: Option<&str>) -> (String, Vec<String>) {
    let framework = Arc::new(plugins::without_binding(&Arc::default()));
    said(&framework, cache, pod, nominated)
}

fn said(
    framework: &Arc<Framework>,
    cache: &mut Cache,
    pod: &PodInfo,
    nominated: Option<&str>,
) -> (String, Vec<String>) {
    let mut cycle = CycleState::default();
    let before = format!("{:?}", cache.snapshot().nodes());
    let mut algorithm = Algorithm::new(framework.clone().into());
    let attempt = algorithm.schedule(&mut cycle, pod, nominated, &cache.snapshot());
    let Err(SchedulingFailure::Unschedulable(diagnosis)) = attempt.map(|node| node.name.clone())
    else {
        panic!("it fits");
    };
    let (nomination, message) = framework.run_post_filter(&mut Failed {
        filters: &**framework,
        extenders: &framework.extenders,
        cycle: &cycle,
        pod,
        diagnosis: &diagnosis,
        nominated,
        cache,
    });
    let mut after: Vec<char> = format!("{:?}", cache.snapshot().nodes()).chars().collect();
    let mut before: Vec<char> = before.chars().collect();
    // Maps have no order.
    after.sort_unstable();
    before.sort_unstable();
    assert_eq!(after, before, "the cache is left as it was");
    match nomination {
        Nomination::Node { name, victims } => {
            (name, victims.iter().map(|pod| pod.name.clone()).collect())
        }
        Nomination::Withdrawn | Nomination::Unchanged => (message, Vec::new()),
    }
}

fn ends(node: &str, victims: &[&str]) -> (String, Vec<String>) {
    (
        node.to_owned(),
        victims.iter().map(ToString::to_string).collect(),
    )
}

#[test]
fn as_few_as_possible_end_and_the_least_important() {
    let pods = [
        placed(("low", "a"), 1, "1", 1),
        placed(("lower-late", "a"), 0, "1", 3),
        placed(("lower-early", "a"), 0, "1", 2),
        placed(("high", "a"), 50, "1", 1),
    ];
    let mut cache = cluster(&[("n", &pods)]);
    for (cpu, expected) in [
        ("1", vec!["lower-late"]),
        ("2", vec!["lower-early", "lower-late"]),
        ("3", vec!["low", "lower-early", "lower-late"]),
    ] {
        let pod = preemptor(spec(10, cpu));
        assert_eq!(
            preempted(&mut cache, &pod, None),
            ends("n", &expected),
            "{cpu}"
        );
    }
}

#[test]
fn nobody_ends_for_nothing() {
    let pods = [placed(("a", "a"), 5, "4", 1)];
    let mut cache = cluster(&[("n", &pods)]);
    let why = |cache: &mut Cache, spec: Value| preempted(cache, &preemptor(spec), None).0;
    let none =
        "preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod.";
    assert_eq!(why(&mut cache, spec(5, "1")), none);
    let unhelpful =
        "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.";
    assert_eq!(why(&mut cache, spec(9, "5")), unhelpful);
    let mut never = spec(9, "1");
    never["preemptionPolicy"] = json!("Never");
    assert_eq!(
        why(&mut cache, never),
        "preemption: not eligible due to preemptionPolicy=Never."
    );
    cache.observe(Arc::new(placed(("b", "a"), 50, "1", 1)), "n");
    let insufficient = "preemption: 0/1 nodes are available: 1 Insufficient cpu.";
    assert_eq!(why(&mut cache, spec(9, "4")), insufficient);
}

#[test]
fn the_node_that_costs_least_is_chosen() {
    let full =
        |name: &'static str, priority: i32, hour: u8| placed((name, "a"), priority, "4", hour);
    let half = |name: &'static str, priority: i32| placed((name, "a"), priority, "2", 1);
    let (a3, b2) = ([full("a", 3, 1)], [full("b", 2, 1)]);
    let mut by_highest = cluster(&[("n1", &a3), ("n2", &b2)]);
    let pod = preemptor(spec(10, "4"));
    assert_eq!(preempted(&mut by_highest, &pod, None), ends("n2", &["b"]));
    let (two, one) = ([half("a", 2), half("b", -5)], [full("c", 2, 1)]);
    let mut by_sum = cluster(&[("n1", &two), ("n2", &one)]);
    assert_eq!(preempted(&mut by_sum, &pod, None), ends("n2", &["c"]));
    let (early, late) = ([full("a", 2, 1)], [full("b", 2, 2)]);
    let mut by_start = cluster(&[("n1", &early), ("n2", &late)]);
    assert_eq!(preempted(&mut by_start, &pod, None), ends("n2", &["b"]));
}

#[test]
fn a_budget_protects_as_long_as_there_is_another_way() {
    let (web, db) = (
        [placed(("a", "web"), 0, "4", 1)],
        [placed(("b", "db"), 5, "4", 1)],
    );
    let mut cache = cluster(&[("n1", &web), ("n2", &db)]);
    let budget = json!({"spec": {"selector": {"matchLabels": {"app": "web"}}},
        "status": {"disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1}});
    let key = coracle_client::cache::Key::new("default", "web");
    let pod = preemptor(spec(10, "1"));
    assert_eq!(preempted(&mut cache, &pod, None), ends("n1", &["a"]));
    cache.set_budget(&key, Some(&serde_json::from_value(budget).unwrap()));
    assert_eq!(preempted(&mut cache, &pod, None), ends("n2", &["b"]));
    cache.remove_pod(&PodUid("b".into()));
    cache.observe(Arc::new(placed(("c", "db"), 50, "4", 1)), "n2");
    assert_eq!(
        preempted(&mut cache, &pod, None),
        ends("n1", &["a"]),
        "rather than nothing"
    );
}

#[test]
fn one_that_keeps_the_pod_away_by_a_term_ends() {
    let pods = [
        placed(("quiet", "a"), 0, "1", 1),
        placed(("foe", "foe"), 0, "1", 1),
    ];
    let mut cache = cluster(&[("n", &pods)]);
    let mut spec = spec(10, "1");
    let term = json!({"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "foe"}}});
    spec["affinity"] =
        json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}});
    assert_eq!(
        preempted(&mut cache, &preemptor(spec), None),
        ends("n", &["foe"])
    );
}

#[test]
fn one_that_makes_the_spread_uneven_ends() {
    let crowd = [placed(("a", "p"), 0, "1", 1), placed(("b", "p"), 0, "1", 2)];
    let high = [placed(("c", "x"), 50, "4", 1)];
    let mut cache = cluster(&[("n1", &crowd), ("n2", &high)]);
    let mut spec = spec(10, "1");
    spec["topologySpreadConstraints"] = json!([{"maxSkew": 1, "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": "p"}}}]);
    assert_eq!(
        preempted(&mut cache, &preemptor(spec), None),
        ends("n1", &["a", "b"])
    );
}

#[test]
fn while_the_room_is_being_made_nobody_else_ends() {
    let mut dying = placed(("a", "a"), 0, "4", 1);
    (dying.terminating, dying.preempted) = (true, true);
    let (here, there) = ([dying], [placed(("b", "a"), 0, "4", 1)]);
    let mut cache = cluster(&[("n1", &here), ("n2", &there)]);
    let pod = preemptor(spec(10, "1"));
    let waits = "preemption: not eligible due to a terminating pod on the nominated node.";
    assert_eq!(preempted(&mut cache, &pod, Some("n1")).0, waits);
    let (_, victims) = preempted(&mut cache, &pod, Some("gone"));
    assert_eq!(victims.len(), 1, "the node it was to have is gone");
    let victim = PodUid("b".into());
    cache.set_ending(&victim, true);
    assert_eq!(
        preempted(&mut cache, &pod, Some("n2")).0,
        waits,
        "the watch is late"
    );
    cache.set_ending(&victim, false);
    let (_, victims) = preempted(&mut cache, &pod, Some("n2"));
    assert_eq!(victims.len(), 1, "it could not be ended");
}
