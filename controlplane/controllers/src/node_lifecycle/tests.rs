//! Silence, conditions and taints of nodes.

use k8s_openapi::api::core::v1::{NodeSpec, NodeStatus};
use kube::api::ObjectMeta;

use super::{plan::*, zones::Eviction, *};

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_000_000 + seconds).unwrap()
}

fn node(conditions: &[(&str, &str)], heartbeat: i64) -> Node {
    Node {
        metadata: ObjectMeta {
            name: Some("n1".into()),
            ..ObjectMeta::default()
        },
        status: Some(NodeStatus {
            conditions: Some(
                conditions
                    .iter()
                    .map(|(kind, status)| NodeCondition {
                        type_: (*kind).into(),
                        status: (*status).into(),
                        last_heartbeat_time: Some(Time(at(heartbeat))),
                        ..NodeCondition::default()
                    })
                    .collect(),
            ),
            ..NodeStatus::default()
        }),
        ..Node::default()
    }
}

#[test]
fn lease_or_status_is_a_sign_of_life_and_nothing_else_is() {
    let seconds = Duration::from_secs;
    let ready = node(&[("Ready", "True")], 0);
    let first = observe(None, &ready, Some(at(0)), seconds(10));
    assert_eq!(first.seen, seconds(10));
    let silent = observe(Some(first.clone()), &ready, Some(at(0)), seconds(20));
    assert_eq!(silent.seen, seconds(10), "nothing new");
    let renewed = observe(Some(silent.clone()), &ready, Some(at(5)), seconds(30));
    assert_eq!(renewed.seen, seconds(30), "the lease");
    let posted = observe(
        Some(silent.clone()),
        &node(&[("Ready", "True")], 5),
        Some(at(0)),
        seconds(30),
    );
    assert_eq!(posted.seen, seconds(30), "the status");
    let marked = observe(
        Some(silent.clone()),
        &node(&[("Ready", "Unknown")], 0),
        Some(at(0)),
        seconds(30),
    );
    assert_eq!(marked.seen, seconds(10), "the monitor's own mark");
    let older = observe(Some(renewed), &ready, Some(at(1)), seconds(40));
    assert_eq!(older.seen, seconds(30), "a lease that went back");
}

#[test]
fn silent_node_is_unknown_in_every_condition() {
    let conditions = silent_conditions(
        &node(&[("Ready", "True"), ("DiskPressure", "False")], 0),
        at(60),
    )
    .unwrap();
    let found = |kind: &str| {
        conditions
            .iter()
            .find(|condition| condition.type_ == kind)
            .unwrap()
    };
    assert_eq!(conditions.len(), 4);
    assert!(
        conditions
            .iter()
            .all(|condition| condition.status == "Unknown")
    );
    assert_eq!(found("Ready").reason.as_deref(), Some("NodeStatusUnknown"));
    assert_eq!(
        found("Ready").message.as_deref(),
        Some("Kubelet stopped posting node status.")
    );
    assert_eq!(
        found("MemoryPressure").reason.as_deref(),
        Some("NodeStatusNeverUpdated")
    );
    let mut unknown = node(&[], 0);
    unknown.status.as_mut().unwrap().conditions = Some(conditions);
    assert_eq!(silent_conditions(&unknown, at(120)), None);
}

fn tainted(
    conditions: &[(&str, &str)],
    cordoned: bool,
    taints: &[(&str, &str)],
    eviction: Eviction,
) -> Option<Vec<String>> {
    let mut node = node(conditions, 0);
    node.spec = Some(NodeSpec {
        unschedulable: Some(cordoned),
        taints: Some(
            taints
                .iter()
                .map(|(key, effect)| Taint {
                    key: (*key).into(),
                    effect: (*effect).into(),
                    ..Taint::default()
                })
                .collect(),
        ),
        ..NodeSpec::default()
    });
    let planned = plan_taints(&node, eviction, at(0))?;
    let mut names: Vec<String> = planned
        .into_iter()
        .map(|taint| {
            format!(
                "{}:{}",
                taint.key.trim_start_matches("node.kubernetes.io/"),
                taint.effect
            )
        })
        .collect();
    names.sort();
    Some(names)
}

#[test]
fn taints_follow_the_conditions_and_leave_foreign_ones() {
    use Eviction::{Begin, Hold, Stop};
    type Names = &'static [(&'static str, &'static str)];
    type Case = (
        Names,
        bool,
        Names,
        Eviction,
        Option<&'static [&'static str]>,
    );
    let ready: Names = &[("Ready", "True")];
    let unknown: Names = &[("Ready", "Unknown")];
    let table: [Case; 14] = [
        (ready, false, &[], Begin, None),
        (
            &[("Ready", "False")],
            false,
            &[],
            Begin,
            Some(&["not-ready:NoExecute", "not-ready:NoSchedule"]),
        ),
        (
            unknown,
            false,
            &[],
            Begin,
            Some(&["unreachable:NoExecute", "unreachable:NoSchedule"]),
        ),
        (unknown, false, &[], Hold, Some(&["unreachable:NoSchedule"])),
        (unknown, false, &[], Stop, Some(&["unreachable:NoSchedule"])),
        // What was begun goes on, and takes the right name, unless everything stops.
        (
            unknown,
            false,
            &[(NOT_READY, NO_EXECUTE)],
            Hold,
            Some(&["unreachable:NoExecute", "unreachable:NoSchedule"]),
        ),
        (
            unknown,
            false,
            &[(UNREACHABLE, NO_EXECUTE), (UNREACHABLE, "NoSchedule")],
            Hold,
            None,
        ),
        (
            unknown,
            false,
            &[(UNREACHABLE, NO_EXECUTE)],
            Stop,
            Some(&["unreachable:NoSchedule"]),
        ),
        // One that has never spoken.
        (&[], false, &[], Begin, Some(&["not-ready:NoSchedule"])),
        (ready, false, &[(NOT_READY, "NoSchedule")], Hold, Some(&[])),
        (
            ready,
            false,
            &[(UNREACHABLE, NO_EXECUTE), ("gpu", "NoSchedule")],
            Hold,
            Some(&["gpu:NoSchedule"]),
        ),
        (ready, true, &[], Begin, Some(&["unschedulable:NoSchedule"])),
        (
            ready,
            false,
            &[("node.kubernetes.io/unschedulable", "NoSchedule")],
            Begin,
            Some(&[]),
        ),
        (
            &[("Ready", "True"), ("MemoryPressure", "True")],
            false,
            &[],
            Begin,
            Some(&["memory-pressure:NoSchedule"]),
        ),
    ];
    for (conditions, cordoned, taints, eviction, expected) in table {
        let expected = expected.map(|names| {
            names
                .iter()
                .map(|name| (*name).to_owned())
                .collect::<Vec<_>>()
        });
        assert_eq!(
            tainted(conditions, cordoned, taints, eviction),
            expected,
            "{conditions:?} {taints:?} {eviction:?}"
        );
    }
}

#[test]
fn taint_that_stays_keeps_its_time() {
    let mut node = node(&[("Ready", "Unknown")], 0);
    let since = Some(Time(at(-100)));
    node.spec = Some(NodeSpec {
        taints: Some(vec![Taint {
            key: UNREACHABLE.into(),
            effect: NO_EXECUTE.into(),
            time_added: since.clone(),
            value: None,
        }]),
        ..NodeSpec::default()
    });
    let planned = plan_taints(&node, Eviction::Begin, at(0)).unwrap();
    let kept = planned
        .iter()
        .find(|taint| taint.effect == NO_EXECUTE)
        .unwrap();
    assert_eq!(kept.time_added, since);
}
