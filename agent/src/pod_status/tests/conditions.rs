//! Conditions: whose they are, and when they change.

use super::*;

#[test]
fn running_pod_is_ready() {
    let status = World::new(two("Always"))
        .container("a", 0, running())
        .container("b", 0, running())
        .status();
    for kind in [
        "Ready",
        "ContainersReady",
        "Initialized",
        "PodReadyToStartContainers",
        "PodScheduled",
    ] {
        assert_eq!(condition(&status, kind).status, "True", "{kind}");
        assert_eq!(
            condition(&status, kind).observed_generation,
            Some(3),
            "{kind}"
        );
    }
    assert_eq!(status.pod_ip.as_deref(), Some("10.0.0.2"));
    assert_eq!(status.host_ip.as_deref(), Some("192.0.2.1"));
}

#[test]
fn unready_containers_are_named() {
    let status = World::new(two("Always"))
        .container("a", 0, running())
        .status();
    let ready = condition(&status, "Ready");
    assert_eq!(
        (
            ready.status.as_str(),
            ready.reason.as_deref(),
            ready.message.as_deref()
        ),
        (
            "False",
            Some("ContainersNotReady"),
            Some("containers with unready status: [b]")
        )
    );
}

#[test]
fn terminating_pod_is_not_ready() {
    let mut world = World::new(two("Always"))
        .container("a", 0, running())
        .container("b", 0, running());
    world.terminating = true;
    assert_eq!(condition(&world.status(), "Ready").status, "False");
}

#[test]
fn transition_times_are_kept_while_nothing_changes() {
    let mut world = World::new(two("Always"))
        .container("a", 0, running())
        .container("b", 0, running());
    let mut before = world.status();
    for condition in before.conditions.iter_mut().flatten() {
        condition.last_transition_time = Some(api_time(at(50)));
    }
    world.previous = before;
    let status = world.status();
    assert_eq!(
        condition(&status, "Ready").last_transition_time,
        Some(api_time(at(50)))
    );
    assert_eq!(status, world.previous);
}

#[test]
fn foreign_conditions_are_kept() {
    let mut world = World::new(two("Always"));
    world.previous = serde_json::from_value(
        json!({"conditions": [{"type": "DisruptionTarget", "status": "True"}]}),
    )
    .expect("status");
    assert_eq!(
        condition(&world.status(), "DisruptionTarget").status,
        "True"
    );
}

#[test]
fn readiness_gates_hold_back_ready_only() {
    let mut spec = two("Always");
    spec["readinessGates"] = json!([{"conditionType": "x/y"}]);
    let status = World::new(spec)
        .container("a", 0, running())
        .container("b", 0, running())
        .status();
    assert_eq!(condition(&status, "ContainersReady").status, "True");
    assert_eq!(
        condition(&status, "Ready").reason.as_deref(),
        Some("ReadinessGatesNotReady")
    );
}

#[test]
fn resize_is_told_until_it_is_done() {
    let container = json!({"name": "a", "image": "img", "resources": {
        "limits": {"memory": "64Mi"}, "requests": {"memory": "64Mi"}}});
    let mut world = World::new(json!({"containers": [container]})).container("a", 0, running());
    world.containers[0].resources = Resources {
        cpu_shares: Some(2),
        memory_limit_bytes: Some(32 << 20),
        ..Resources::default()
    };
    let why = StatusReason::new("Deferred", "no room".to_owned());
    world.resize_pending = Some(why);
    let status = world.status();
    assert_eq!(condition(&status, "PodResizeInProgress").status, "True");
    let pending = condition(&status, "PodResizePending");
    assert_eq!(
        (pending.reason.as_deref(), pending.message.as_deref()),
        (Some("Deferred"), Some("no room"))
    );
    let one = serde_json::to_value(&status.container_statuses.as_ref().expect("statuses")[0])
        .expect("JSON");
    assert_eq!(
        one["resources"],
        json!({"limits": {"memory": "32Mi"}, "requests": {"memory": "64Mi"}})
    );
    assert_eq!(one["allocatedResources"], json!({"memory": "64Mi"}));

    world.previous = status;
    world.containers[0].resources.memory_limit_bytes = Some(64 << 20);
    world.resize_pending = None;
    let status = world.status();
    let kinds: Vec<&str> = status
        .conditions
        .iter()
        .flatten()
        .map(|condition| &*condition.type_)
        .collect();
    assert_eq!(
        kinds,
        [
            "PodReadyToStartContainers",
            "Initialized",
            "Ready",
            "ContainersReady",
            "PodScheduled"
        ]
    );
}
