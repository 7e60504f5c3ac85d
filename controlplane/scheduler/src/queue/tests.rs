use serde_json::{Value, json};

use super::*;
use crate::{
    framework::PluginName,
    plugins,
    testing::{info, node, node_with, pod, pod_of, pod_with},
};

fn queue() -> SchedulingQueue {
    SchedulingQueue::new(Arc::new(plugins::without_binding()))
}

fn popped(queue: &mut SchedulingQueue) -> Option<String> {
    queue.pop().map(|pod| pod.name.clone())
}

fn by(names: &[PluginName]) -> PluginSet {
    names.iter().copied().collect()
}

/// Parks a pod that these plugins have refused.
fn parked(
    queue: &mut SchedulingQueue,
    pod: PodInfo,
    refused_by: &[PluginName],
    now: Instant,
) -> PodUid {
    queue.add(pod, now);
    let uid = queue.pop().expect("the pod").uid.clone();
    queue.add_unschedulable(&uid, by(refused_by), now);
    uid
}

#[test]
fn higher_priority_goes_first_then_first_come() {
    let mut queue = queue();
    for (name, priority) in [("a", 0), ("b", 5), ("c", 0), ("d", 5)] {
        let mut pod = pod(name, "1");
        pod.priority = priority;
        queue.add(pod, Instant::now());
    }
    let order: Vec<_> = std::iter::from_fn(|| popped(&mut queue)).collect();
    assert_eq!(order, ["b", "d", "a", "c"]);
}

#[test]
fn a_parked_pod_comes_back_after_an_event_that_helps_and_its_backoff() {
    let (mut queue, start) = (queue(), Instant::now());
    parked(
        &mut queue,
        pod("a", "1"),
        &[PluginName::NodeResourcesFit],
        start,
    );
    queue.flush(start + Duration::from_secs(60));
    assert_eq!(popped(&mut queue), None, "nothing has changed");
    let gone = pod("x", "1");
    queue.move_to_active_or_backoff(
        &ClusterEvent::AssignedPodDeleted(&gone),
        start + Duration::from_millis(500),
    );
    assert_eq!(popped(&mut queue), None, "still backing off");
    assert_eq!(queue.next_flush(), Some(start + BACKOFF_INITIAL));
    queue.flush(start + BACKOFF_INITIAL);
    assert_eq!(popped(&mut queue).as_deref(), Some("a"));
}

#[test]
fn an_event_wakes_only_those_whom_it_may_help() {
    let (mut queue, start) = (queue(), Instant::now());
    parked(
        &mut queue,
        pod("large", "64"),
        &[PluginName::NodeResourcesFit],
        start,
    );
    let selecting = pod_with(
        "selecting",
        json!({"containers": [], "nodeSelector": {"disk": "ssd"}}),
    );
    parked(&mut queue, selecting, &[PluginName::NodeAffinity], start);
    parked(
        &mut queue,
        pod("shy", "1"),
        &[PluginName::TaintToleration, PluginName::NodeAffinity],
        start,
    );
    parked(
        &mut queue,
        pod("never", "1"),
        &[PluginName::VolumeBinding],
        start,
    );
    parked(&mut queue, pod("unlucky", "1"), &[], start);
    let later = start + Duration::from_secs(60);
    let bare = info(&node("n", "4"));
    let mut labelled = bare.clone();
    labelled.labels.insert("disk".to_owned(), "ssd".to_owned());
    let taint = json!({"taints": [{"key": "k", "effect": "NoSchedule"}]});
    let tainted = info(&node_with(
        "n",
        taint,
        json!({"allocatable": {"cpu": "4", "pods": "10"}}),
    ));
    let huge = info(&node("n", "128"));
    let gone = pod("x", "1");
    let events = [
        (ClusterEvent::AssignedPodAdded(&gone), vec!["unlucky"]),
        (ClusterEvent::AssignedPodDeleted(&gone), vec!["large"]),
        (
            ClusterEvent::NodeUpdated {
                old: &bare,
                new: &labelled,
            },
            vec!["selecting"],
        ),
        (
            ClusterEvent::NodeUpdated {
                old: &tainted,
                new: &bare,
            },
            vec!["shy"],
        ),
        (
            ClusterEvent::NodeUpdated {
                old: &bare,
                new: &huge,
            },
            vec!["large"],
        ),
        (
            ClusterEvent::NodeUpdated {
                old: &bare,
                new: &bare,
            },
            vec![],
        ),
        (ClusterEvent::NodeAdded(&huge), vec!["large", "shy"]),
    ];
    for (event, expected) in events {
        queue.move_to_active_or_backoff(&event, later);
        let mut woken: Vec<String> = std::iter::from_fn(|| popped(&mut queue)).collect();
        woken.sort();
        assert_eq!(woken, expected, "{event:?}");
        for name in woken {
            let refused_by = match name.as_str() {
                "large" => by(&[PluginName::NodeResourcesFit]),
                "selecting" => by(&[PluginName::NodeAffinity]),
                "shy" => by(&[PluginName::TaintToleration, PluginName::NodeAffinity]),
                _ => by(&[PluginName::VolumeBinding]),
            };
            // As if that were long ago: no back-off is in the way.
            queue.add_unschedulable(&PodUid(name.as_str().into()), refused_by, start);
        }
    }
}

#[test]
fn a_gated_pod_is_not_tried_before_its_last_gate_is_gone() {
    let (mut queue, now) = (queue(), Instant::now());
    let gated = |gates: Value| {
        let metadata = json!({"name": "p", "namespace": "default", "uid": "p"});
        pod_of(json!({"metadata": metadata, "spec": {"containers": [], "schedulingGates": gates}}))
    };
    queue.add(gated(json!([{"name": "a"}, {"name": "b"}])), now);
    queue.add(gated(json!([{"name": "b"}])), now);
    queue.move_to_active_or_backoff(&ClusterEvent::NodeAdded(&info(&node("n", "4"))), now);
    queue.flush(now + UNSCHEDULABLE_MAX);
    assert_eq!((popped(&mut queue), queue.lengths().gated), (None, 1));
    queue.add(gated(json!([])), now);
    assert_eq!(
        (popped(&mut queue).as_deref(), queue.lengths()),
        (Some("p"), Lengths::default())
    );
    queue.add(gated(json!([])), now);
    queue.remove(&PodUid("p".into()));
    queue.add(gated(json!([{"name": "a"}])), now);
    queue.remove(&PodUid("p".into()));
    assert_eq!(queue.lengths(), Lengths::default());
}

#[test]
fn backoff_doubles_up_to_its_limit() {
    let (mut queue, mut now) = (queue(), Instant::now());
    queue.add(pod("a", "1"), now);
    let mut waits = Vec::new();
    for _ in 0..6 {
        let uid = queue.pop().expect("a").uid.clone();
        queue.retry(&uid, now);
        let next = queue.next_flush().expect("backing off");
        waits.push((next - now).as_secs());
        now = next;
        queue.flush(now);
    }
    assert_eq!(waits, [1, 2, 4, 8, 10, 10]);
}

#[test]
fn a_pod_that_asks_for_less_is_tried_after_its_backoff() {
    let (mut queue, start) = (queue(), Instant::now());
    parked(
        &mut queue,
        pod("a", "8"),
        &[PluginName::NodeResourcesFit],
        start,
    );
    let later = start + BACKOFF_INITIAL;
    queue.add(pod("a", "8"), later);
    assert_eq!(popped(&mut queue), None, "nothing has changed");
    queue.add(pod("a", "1"), later);
    assert_eq!(popped(&mut queue).as_deref(), Some("a"));
}

#[test]
fn a_pod_is_tried_again_after_a_while_whatever_happens() {
    let (mut queue, start) = (queue(), Instant::now());
    parked(
        &mut queue,
        pod("a", "1"),
        &[PluginName::VolumeBinding],
        start,
    );
    queue.flush(start + UNSCHEDULABLE_MAX);
    assert_eq!(popped(&mut queue).as_deref(), Some("a"));
}

#[test]
fn a_removed_pod_is_forgotten_in_every_state() {
    let (mut queue, now) = (queue(), Instant::now());
    for name in ["active", "flight", "parked", "backoff"] {
        queue.add(pod(name, "1"), now);
    }
    let by_name = |name: &str| PodUid(name.into());
    while popped(&mut queue).is_some() {}
    queue.add_unschedulable(&by_name("parked"), PluginSet::default(), now);
    queue.retry(&by_name("backoff"), now);
    queue.remove(&by_name("active"));
    queue.add(pod("active", "1"), now);
    for name in ["active", "flight", "parked", "backoff"] {
        queue.remove(&by_name(name));
    }
    queue.move_to_active_or_backoff(&ClusterEvent::AssignedPodDeleted(&pod("x", "1")), now);
    queue.flush(now + Duration::from_secs(1000));
    assert_eq!(
        (popped(&mut queue), queue.next_flush(), queue.entries.len()),
        (None, None, 0)
    );
}

/// A pod of `namespace`.
fn of(namespace: &str, name: &str, priority: i32) -> PodInfo {
    PodInfo {
        namespace: namespace.to_owned(),
        priority,
        ..pod(name, "1")
    }
}

/// Takes the next pod, whose attempt takes so long.
fn attempted(queue: &mut SchedulingQueue, took: Duration, now: Instant) -> Option<String> {
    queue.flush(now);
    let pod = queue.pop()?;
    queue.charge(&pod.uid, took, now + took);
    Some(pod.name.clone())
}

#[test]
fn who_has_taken_much_time_goes_behind_others_of_its_priority() {
    let (mut queue, start) = (queue(), Instant::now());
    for number in 0..4 {
        queue.add(of("greedy", &format!("g{number}"), 0), start);
    }
    let second = Duration::from_secs(1);
    assert_eq!(
        attempted(&mut queue, second, start).as_deref(),
        Some("g0"),
        "nobody owes anything yet"
    );
    for (namespace, name, priority) in [
        ("modest", "m0", 0),
        ("modest", "m1", 0),
        ("greedy", "urgent", 5),
    ] {
        queue.add(of(namespace, name, priority), start + second);
    }
    let short = Duration::from_micros(100);
    let order: Vec<_> =
        std::iter::from_fn(|| attempted(&mut queue, short, start + second)).collect();
    assert_eq!(
        order,
        ["urgent", "m0", "m1", "g1", "g2", "g3"],
        "priority stands above it, and nothing is lost"
    );
}

#[test]
fn who_owes_is_back_in_line_in_time() {
    let (mut queue, start) = (queue(), Instant::now());
    queue.add(of("greedy", "g0", 0), start);
    // An hour alone is not paid for with hours.
    let hour = Duration::from_secs(3600);
    attempted(&mut queue, hour, start);
    for (namespace, name) in [("greedy", "g1"), ("modest", "m0"), ("modest", "m1")] {
        queue.add(of(namespace, name, 0), start + hour);
    }
    assert_eq!(
        attempted(&mut queue, Duration::ZERO, start + hour).as_deref(),
        Some("m0")
    );
    let paid = start + hour + Duration::from_secs(10);
    assert_eq!(
        attempted(&mut queue, Duration::ZERO, paid).as_deref(),
        Some("g1"),
        "it came first"
    );
}

#[test]
fn of_those_who_owe_the_one_that_took_less_goes_first() {
    let (mut queue, start) = (queue(), Instant::now());
    for (namespace, name) in [("a", "a0"), ("b", "b0"), ("a", "a1"), ("b", "b1")] {
        queue.add(of(namespace, name, 0), start);
    }
    attempted(&mut queue, Duration::from_millis(900), start);
    attempted(&mut queue, Duration::from_millis(300), start);
    assert_eq!(
        (popped(&mut queue).as_deref(), popped(&mut queue).as_deref()),
        (Some("b1"), Some("a1"))
    );
}

#[test]
fn an_attempt_that_took_long_is_paid_with_a_longer_backoff() {
    let (mut queue, start) = (queue(), Instant::now());
    let label = |value: &str| {
        let metadata =
            json!({"name": "p", "namespace": "default", "uid": "p", "labels": {"a": value}});
        pod_of(json!({"metadata": metadata, "spec": {"containers": []}}))
    };
    queue.add(label("0"), start);
    let uid = queue.pop().expect("p").uid.clone();
    queue.charge(&uid, Duration::from_millis(1500), start);
    queue.add_unschedulable(&uid, by(&[PluginName::InterPodAffinity]), start);
    for second in 1..30 {
        let now = start + Duration::from_secs(second);
        queue.add(label(&second.to_string()), now);
        queue.flush(now);
        assert_eq!(
            popped(&mut queue),
            None,
            "however often it is changed: {second}"
        );
    }
    queue.flush(start + Duration::from_secs(30));
    assert_eq!(popped(&mut queue).as_deref(), Some("p"));
}
