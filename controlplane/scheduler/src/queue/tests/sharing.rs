//! Who has taken much time lets others go before.

use super::*;

/// A pod of `namespace`.
pub(super) fn of(namespace: &str, name: &str, priority: i32) -> PodInfo {
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
