//! Which pods are popped, and when.

mod early;
mod events;
mod sharing;

use serde_json::{Value, json};

use super::*;
use crate::{
    framework::PluginName,
    plugins,
    testing::{info, node, node_with, pod, pod_of, pod_with},
};

const BACKOFF_INITIAL: Duration = Duration::from_secs(1);
const BACKOFF_MAX: Duration = Duration::from_secs(10);

fn queue_at(start: Instant) -> SchedulingQueue {
    let framework = Arc::new(plugins::without_binding(&Arc::default()));
    let waits = ExponentialBackoff::new(BACKOFF_INITIAL, BACKOFF_MAX);
    SchedulingQueue::new(framework.into(), waits, start)
}

fn queue() -> SchedulingQueue {
    queue_at(Instant::now())
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
