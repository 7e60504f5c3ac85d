//! Pods that back off go before their time while nobody is active. After the facts of
//! `TestPriorityQueue_Pop`, `TestPriorityQueue_moveToBackoffQ` in `scheduling_queue_test.go`.

use super::*;

/// Lets a pod back off that was refused at `now`, by what an end of a pod may help.
fn backing_off(queue: &mut SchedulingQueue, pod: PodInfo, now: Instant) {
    parked(queue, pod, &[PluginName::NodeResourcesFit], now);
    let gone = crate::testing::pod("gone", "1");
    queue.move_to_active_or_backoff(&ClusterEvent::AssignedPodDeleted(&gone), now);
}

#[test]
fn without_active_pods_one_that_backs_off_is_popped() {
    let (mut queue, start) = (queue(), Instant::now());
    backing_off(&mut queue, pod("a", "1"), start);
    queue.add(pod("active", "1"), start);
    assert_eq!(queue.lengths().backoff, 1);
    assert_eq!(popped(&mut queue).as_deref(), Some("active"));
    assert_eq!(popped(&mut queue).as_deref(), Some("a"));
    assert_eq!(
        (popped(&mut queue), queue.lengths()),
        (None, Lengths::default())
    );
    // That was an attempt like any other: the next back-off is longer.
    queue.retry(&PodUid("a".into()), start);
    assert_eq!(queue.next_flush(), Some(start + 2 * BACKOFF_INITIAL));
}

#[test]
fn while_others_are_active_a_backoff_is_waited_out() {
    let start = Instant::now();
    let mut queue = queue_at(start);
    backing_off(&mut queue, pod("a", "1"), start);
    for name in ["first", "second"] {
        queue.add(pod(name, "1"), start);
    }
    assert_eq!(popped(&mut queue).as_deref(), Some("first"));
    // The window in which it ends is over as a whole.
    let end = start + BACKOFF_INITIAL + Duration::from_secs(1);
    assert_eq!(queue.next_flush(), Some(end));
    queue.flush(end - Duration::from_millis(1));
    assert_eq!(queue.lengths().backoff, 1);
    queue.flush(end);
    assert_eq!((queue.lengths().backoff, queue.lengths().active), (0, 2));
}

#[test]
fn after_an_error_the_backoff_is_waited_out() {
    let (mut queue, start) = (queue(), Instant::now());
    queue.add(pod("a", "1"), start);
    let uid = queue.pop().expect("a").uid.clone();
    queue.retry(&uid, start);
    queue.flush(start + BACKOFF_INITIAL - Duration::from_millis(1));
    assert_eq!(popped(&mut queue), None);
    queue.flush(start + BACKOFF_INITIAL);
    assert_eq!(popped(&mut queue).as_deref(), Some("a"));
    // The refusal of a later attempt is no error.
    queue.add_unschedulable(&uid, by(&[PluginName::NodeResourcesFit]), start);
    let gone = pod("gone", "1");
    queue.move_to_active_or_backoff(&ClusterEvent::AssignedPodDeleted(&gone), start);
    assert_eq!(popped(&mut queue).as_deref(), Some("a"));
}

#[test]
fn who_asks_for_much_waits_it_out() {
    let (mut queue, start) = (queue(), Instant::now());
    let much = PodInfo {
        asks_much: true,
        ..pod("much", "1")
    };
    backing_off(&mut queue, much, start);
    assert_eq!(popped(&mut queue), None);
    queue.flush(start + BACKOFF_INITIAL);
    assert_eq!(popped(&mut queue).as_deref(), Some("much"));
}

#[test]
fn an_attempt_is_paid_for_before_the_next() {
    let (mut queue, start) = (queue(), Instant::now());
    queue.add(pod("a", "1"), start);
    let uid = queue.pop().expect("a").uid.clone();
    queue.charge(&uid, Duration::from_millis(10), start);
    queue.add_unschedulable(&uid, by(&[PluginName::NodeResourcesFit]), start);
    let gone = pod("gone", "1");
    queue.move_to_active_or_backoff(&ClusterEvent::AssignedPodDeleted(&gone), start);
    assert_eq!(popped(&mut queue), None);
    let paid = start + Duration::from_millis(200);
    assert_eq!(queue.next_flush(), Some(paid));
    queue.flush(paid);
    assert_eq!(popped(&mut queue).as_deref(), Some("a"));
}

#[test]
fn whose_namespace_owes_time_lets_others_go_early() {
    let (mut queue, start) = (queue(), Instant::now());
    queue.add(sharing::of("greedy", "spender", 0), start);
    let uid = queue.pop().expect("spender").uid.clone();
    queue.charge(&uid, Duration::from_millis(100), start);
    queue.remove(&uid);
    backing_off(&mut queue, sharing::of("greedy", "urgent", 5), start);
    backing_off(&mut queue, sharing::of("modest", "m", 0), start);
    assert_eq!(popped(&mut queue).as_deref(), Some("m"));
    assert_eq!(popped(&mut queue), None);
    let paid = queue.next_flush().expect("paid, then over");
    assert!(paid < start + BACKOFF_INITIAL);
    queue.flush(paid);
    assert_eq!(popped(&mut queue).as_deref(), Some("urgent"));
}

#[test]
fn a_gated_pod_does_not_back_off() {
    let (mut queue, start) = (queue(), Instant::now());
    let uid = parked(&mut queue, pod("a", "1"), &[], start);
    let metadata = json!({"name": "a", "namespace": "default", "uid": "a"});
    let spec = json!({"containers": [], "schedulingGates": [{"name": "g"}]});
    queue.add(pod_of(json!({"metadata": metadata, "spec": spec})), start);
    assert_eq!((popped(&mut queue), queue.lengths().gated), (None, 1));
    queue.remove(&uid);
    assert_eq!(queue.lengths(), Lengths::default());
}
