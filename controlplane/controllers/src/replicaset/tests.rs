//! The pure part of the ReplicaSet controller.

use std::time::Duration;

use k8s_openapi::{
    api::{
        apps::v1::{ReplicaSet, ReplicaSetSpec},
        core::v1::{PodTemplateSpec, ReplicationController},
    },
    apimachinery::pkg::apis::meta::v1::Time,
};
use kube::api::ObjectMeta;
use serde_json::json;

use super::{plan::*, *};
use crate::pod::{ContainerStatus, PodCondition, PodSpec, PodStatus};

fn now() -> Timestamp {
    Timestamp::from_second(1_000_000).unwrap()
}

#[derive(Clone, Copy)]
struct Sketch {
    name: &'static str,
    node: &'static str,
    phase: &'static str,
    ready_for: Option<i64>,
    age: i64,
    restarts: i32,
    cost: Option<&'static str>,
}

const PLAIN: Sketch = Sketch {
    name: "p",
    node: "n1",
    phase: "Running",
    ready_for: Some(1000),
    age: 1000,
    restarts: 0,
    cost: None,
};

fn pod(sketch: Sketch) -> Arc<Pod> {
    let at = |ago: i64| Time(Timestamp::from_second(1_000_000 - ago).unwrap());
    Arc::new(Pod {
        metadata: ObjectMeta {
            name: Some(sketch.name.into()),
            uid: Some(sketch.name.into()),
            creation_timestamp: Some(at(sketch.age)),
            labels: Some([("app".to_owned(), "web".to_owned())].into()),
            annotations: sketch.cost.map(|cost| {
                [(
                    "controller.kubernetes.io/pod-deletion-cost".to_owned(),
                    cost.to_owned(),
                )]
                .into()
            }),
            ..ObjectMeta::default()
        },
        spec: Some(PodSpec {
            node_name: (!sketch.node.is_empty()).then(|| sketch.node.into()),
            ..PodSpec::default()
        }),
        status: Some(PodStatus {
            phase: Some(sketch.phase.into()),
            conditions: sketch.ready_for.map(|ago| {
                vec![PodCondition {
                    type_: "Ready".into(),
                    status: "True".into(),
                    last_transition_time: Some(at(ago)),
                    ..PodCondition::default()
                }]
            }),
            container_statuses: Some(vec![ContainerStatus {
                restart_count: sketch.restarts,
                ..ContainerStatus::default()
            }]),
            ..PodStatus::default()
        }),
    })
}

fn first_deleted(a: Sketch, b: Sketch, related: &[Arc<Pod>]) -> String {
    let pods = [
        pod(Sketch { name: "a", ..a }),
        pod(Sketch { name: "b", ..b }),
    ];
    match plan_scale(1, &pods, related, now()) {
        ScalePlan::Delete(gone) if gone.len() == 1 => gone[0].metadata.name.clone().unwrap(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn least_missed_pod_is_deleted_first() {
    let cases = [
        (
            "unassigned",
            Sketch {
                node: "",
                phase: "Pending",
                ready_for: None,
                ..PLAIN
            },
        ),
        (
            "pending",
            Sketch {
                phase: "Pending",
                ready_for: None,
                ..PLAIN
            },
        ),
        (
            "not ready",
            Sketch {
                ready_for: None,
                ..PLAIN
            },
        ),
        (
            "cheap",
            Sketch {
                cost: Some("-5"),
                ..PLAIN
            },
        ),
        (
            "ready only just",
            Sketch {
                ready_for: Some(10),
                ..PLAIN
            },
        ),
        (
            "restarting",
            Sketch {
                restarts: 3,
                ..PLAIN
            },
        ),
        ("young", Sketch { age: 10, ..PLAIN }),
    ];
    for (why, less) in cases {
        assert_eq!(first_deleted(less, PLAIN, &[]), "a", "{why}");
        assert_eq!(first_deleted(PLAIN, less, &[]), "b", "{why}, other order");
    }
}

#[test]
fn pod_on_the_fuller_node_is_deleted_first() {
    let related = [
        pod(PLAIN),
        pod(Sketch {
            node: "n2",
            ..PLAIN
        }),
        pod(Sketch {
            node: "n2",
            ..PLAIN
        }),
    ];
    assert_eq!(
        first_deleted(
            PLAIN,
            Sketch {
                node: "n2",
                ..PLAIN
            },
            &related
        ),
        "b"
    );
}

#[test]
fn missing_pods_are_counted_and_capped() {
    for (wanted, have, create) in [(3, 0, 3), (3, 2, 1), (5000, 0, 500)] {
        let pods: Vec<_> = (0..have).map(|_| pod(PLAIN)).collect();
        match plan_scale(wanted, &pods, &[], now()) {
            ScalePlan::Create(n) => assert_eq!(n, create),
            other => panic!("{wanted} {have}: {other:?}"),
        }
    }
    assert!(matches!(
        plan_scale(1, &[pod(PLAIN)], &[], now()),
        ScalePlan::Nothing
    ));
}

fn replica_set(min_ready_seconds: i32) -> ReplicaSet {
    ReplicaSet {
        metadata: ObjectMeta {
            generation: Some(7),
            name: Some("rs".into()),
            ..ObjectMeta::default()
        },
        spec: ReplicaSetSpec {
            min_ready_seconds: Some(min_ready_seconds),
            template: Some(PodTemplateSpec {
                metadata: Some(ObjectMeta {
                    labels: Some([("app".to_owned(), "web".to_owned())].into()),
                    ..ObjectMeta::default()
                }),
                spec: None,
            }),
            ..ReplicaSetSpec::default()
        },
        status: None,
    }
}

#[test]
fn status_counts_ready_available_labelled_and_terminating() {
    let pods = [
        pod(Sketch {
            ready_for: Some(100),
            ..PLAIN
        }),
        pod(Sketch {
            ready_for: Some(10),
            ..PLAIN
        }),
        pod(Sketch {
            ready_for: None,
            ..PLAIN
        }),
    ];
    let (status, again) = plan_status(&replica_set(30), &pods, 2, None, now());
    assert_eq!(status.replicas, 3);
    assert_eq!(status.ready_replicas, Some(2));
    assert_eq!(status.available_replicas, Some(1));
    assert_eq!(status.fully_labeled_replicas, Some(3));
    assert_eq!(status.terminating_replicas, Some(2));
    assert_eq!(status.observed_generation, Some(7));
    assert_eq!(
        again,
        Some(Duration::from_secs(20)),
        "when the second becomes available"
    );
}

#[test]
fn failure_becomes_a_condition_and_success_removes_it() {
    let failure = ManageFailure {
        reason: "FailedCreate",
        message: "exceeded quota".into(),
    };
    let mut rs = replica_set(0);
    let (status, _) = plan_status(&rs, &[], 0, Some(&failure), now());
    let condition = &status.conditions.as_ref().unwrap()[0].clone();
    assert_eq!(
        (condition.type_.as_deref(), condition.reason.as_deref()),
        (Some("ReplicaFailure"), Some("FailedCreate"))
    );
    rs.status = Some(status);
    let (status, _) = plan_status(&rs, &[], 0, None, now());
    assert_eq!(status.conditions, None);
}

#[test]
fn pod_carries_the_template_and_its_owner() {
    let rs = replica_set(0);
    let made = pod_from_template(&rs);
    assert_eq!(made.metadata.generate_name.as_deref(), Some("rs-"));
    let owner = &made.metadata.owner_references.as_ref().unwrap()[0];
    assert_eq!(
        (
            owner.kind.as_str(),
            owner.api_version.as_str(),
            owner.controller
        ),
        ("ReplicaSet", "apps/v1", Some(true))
    );
}

#[test]
fn a_replication_controller_says_what_it_can_and_no_more() {
    let rc: ReplicationController = serde_json::from_value(json!({
        "metadata": {"name": "rc", "namespace": "ns", "uid": "u", "generation": 7},
        "spec": {"replicas": 2, "minReadySeconds": 30, "selector": {"app": "web"},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": []}}},
    }))
    .unwrap();
    let selector = rc.selector().unwrap();
    let pairs = selector.match_labels.as_ref().unwrap();
    assert_eq!(pairs.get("app").map(String::as_str), Some("web"));
    assert_eq!((rc.replicas(), rc.min_ready_seconds()), (2, 30));
    let made = pod_from_template(&rc);
    let owner = &made.metadata.owner_references.unwrap()[0];
    assert_eq!(
        (&*owner.api_version, &*owner.kind),
        ("v1", "ReplicationController")
    );

    let failure = ManageFailure {
        reason: "FailedCreate",
        message: "no room".into(),
    };
    let (status, _) = plan_status(&rc, &[pod(PLAIN)], 3, Some(&failure), now());
    let mut written = rc.clone();
    written.set_status(ReplicationController::tells(status.clone()));
    let told = serde_json::to_value(written.status.as_ref().unwrap()).unwrap();
    assert_eq!(told["readyReplicas"], 1);
    assert_eq!(told["conditions"][0]["reason"], "FailedCreate");
    // The number of those that end does not show, and is no reason to write again.
    let again = ReplicationController::tells(status);
    assert!(!status_differs(written.status().as_ref(), &again));
}
