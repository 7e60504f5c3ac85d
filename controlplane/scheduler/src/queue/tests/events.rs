//! Which events wake which pods.

use super::*;

/// A pod that waits in vain, for each reason that there is.
fn park_all(queue: &mut SchedulingQueue, now: Instant) {
    let selector = json!({"containers": [], "nodeSelector": {"disk": "ssd"}});
    for (pod, refused_by) in [
        (pod("large", "64"), vec![PluginName::NodeResourcesFit]),
        (
            pod_with("selecting", selector),
            vec![PluginName::NodeAffinity],
        ),
        (
            pod("shy", "1"),
            vec![PluginName::TaintToleration, PluginName::NodeAffinity],
        ),
        (pod("never", "1"), vec![PluginName::DynamicResources]),
        (pod("unlucky", "1"), vec![]),
    ] {
        parked(queue, pod, &refused_by, now);
    }
}

/// Who is woken by `event`. They are parked again, as if they had been so for long: no back-off is
/// in the way.
fn woken(queue: &mut SchedulingQueue, event: &ClusterEvent<'_>, parked: Instant) -> Vec<String> {
    queue.move_to_active_or_backoff(event, parked + Duration::from_secs(60));
    let mut woken: Vec<String> = std::iter::from_fn(|| popped(queue)).collect();
    woken.sort();
    for name in &woken {
        let refused_by = match name.as_str() {
            "large" => by(&[PluginName::NodeResourcesFit]),
            "selecting" => by(&[PluginName::NodeAffinity]),
            "shy" => by(&[PluginName::TaintToleration, PluginName::NodeAffinity]),
            _ => by(&[PluginName::DynamicResources]),
        };
        queue.add_unschedulable(&PodUid(name.as_str().into()), refused_by, parked);
    }
    woken
}

#[test]
fn an_event_wakes_only_those_whom_it_may_help() {
    let (mut queue, start) = (queue(), Instant::now());
    park_all(&mut queue, start);
    let bare = info(&node("n", "4"));
    let mut labelled = bare.clone();
    labelled.labels.insert("disk".to_owned(), "ssd".to_owned());
    let taint = json!({"taints": [{"key": "k", "effect": "NoSchedule"}]});
    let status = json!({"allocatable": {"cpu": "4", "pods": "10"}});
    let tainted = info(&node_with("n", taint, status));
    let huge = info(&node("n", "128"));
    let gone = pod("x", "1");
    let updated = |old, new| ClusterEvent::NodeUpdated { old, new };
    for (event, expected) in [
        (ClusterEvent::AssignedPodAdded(&gone), vec!["unlucky"]),
        (ClusterEvent::AssignedPodDeleted(&gone), vec!["large"]),
        (updated(&bare, &labelled), vec!["selecting"]),
        (updated(&tainted, &bare), vec!["shy"]),
        (updated(&bare, &huge), vec!["large"]),
        (updated(&bare, &bare), vec![]),
        (ClusterEvent::NodeAdded(&huge), vec!["large", "shy"]),
    ] {
        assert_eq!(woken(&mut queue, &event, start), expected, "{event:?}");
    }
}

#[test]
fn a_parked_pod_waits_until_something_happens() {
    let (mut queue, start) = (queue(), Instant::now());
    let pod = pod("a", "1");
    parked(&mut queue, pod, &[PluginName::NodeResourcesFit], start);
    queue.flush(start + Duration::from_secs(60));
    assert_eq!(popped(&mut queue), None);
}
