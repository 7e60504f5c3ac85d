//! Which pods count: `TestGroupPods`, by what one of them does to the result.

use std::{sync::Arc, time::Duration};

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
use serde_json::json;

use super::{ago, seen};
use crate::{
    pod::Pod,
    pod_autoscaler::replicas::{Proposal, Sample, Samples, by_average},
};

/// What a pod counts as.
#[derive(Debug, PartialEq)]
enum Counts {
    Ready,
    Unready,
}

struct Case {
    what: &'static str,
    resource: &'static str,
    /// Seconds since its start, if it has begun.
    started: Option<u64>,
    /// Its readiness, and the seconds since it changed.
    ready: Option<(bool, u64)>,
    /// Seconds since the measurement, and over how many it went.
    measured: (u64, u64),
    expect: Counts,
}

#[test]
fn a_pods_cpu_counts_once_it_is_its_load() {
    let cpu = |what, started, ready, measured, expect| Case {
        what,
        resource: "cpu",
        started: Some(started),
        ready,
        measured,
        expect,
    };
    let table = [
        Case {
            what: "memory is memory",
            resource: "memory",
            started: None,
            ready: None,
            measured: (0, 60),
            expect: Counts::Ready,
        },
        cpu("no condition", 0, None, (0, 60), Counts::Unready),
        cpu(
            "ready and fresh",
            60,
            Some((true, 30)),
            (0, 30),
            Counts::Ready,
        ),
        cpu(
            "ready, measured before",
            60,
            Some((true, 30)),
            (0, 60),
            Counts::Unready,
        ),
        cpu(
            "unready since its start",
            600,
            Some((false, 594)),
            (0, 0),
            Counts::Unready,
        ),
        cpu(
            "ready for long",
            180,
            Some((true, 180)),
            (120, 60),
            Counts::Ready,
        ),
        cpu(
            "was ready once",
            600,
            Some((false, 540)),
            (0, 0),
            Counts::Ready,
        ),
        cpu(
            "unready after the delay",
            600,
            Some((false, 590)),
            (0, 0),
            Counts::Ready,
        ),
    ];
    for case in table {
        assert_eq!(counts(&case), case.expect, "{}", case.what);
    }
}

/// Beside a ready pod that uses twice what it should: an unready one is taken to use nothing.
fn counts(case: &Case) -> Counts {
    let now = Timestamp::now();
    let time = |seconds| Time(ago(now, seconds));
    let conditions = case.ready.map(|(is_ready, since)| {
        let status = if is_ready { "True" } else { "False" };
        json!([{"type": "Ready", "status": status, "lastTransitionTime": time(since)}])
    });
    let pod = json!({"metadata": {"name": "it"}, "spec": {},
        "status": {"phase": "Succeeded", "startTime": case.started.map(time), "conditions": conditions}});
    let it: Arc<Pod> = Arc::new(serde_json::from_value(pod).unwrap());
    let pods = [super::pods("r", &[], now)[0].clone(), it];
    let sample = |measured: (u64, u64)| Sample {
        at: ago(now, measured.0),
        window: Duration::from_secs(measured.1),
        value: 200,
    };
    let samples: Samples = [
        ("test-pod-0".to_owned(), sample((0, 60))),
        ("it".to_owned(), sample(case.measured)),
    ]
    .into();
    let Proposal { replicas, .. } =
        by_average(&seen(&pods, 2, case.resource, now), samples, 100).unwrap();
    match replicas {
        4 => Counts::Ready,
        2 => Counts::Unready,
        other => panic!("{} of {}", other, case.what),
    }
}
