//! Upstream's own cases: `replica_calculator_test.go` and `horizontal_test.go` at v1.37.

mod groups;
mod limits;
mod replicas;
mod requests;
mod rounds;

use std::{sync::Arc, time::Duration};

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
use serde_json::{Value, json};

use super::{
    replicas::{Seen, Tolerances, Warmup},
    usage::PodMetrics,
};
use crate::pod::Pod;

/// The settings of upstream's tests.
pub(super) const WARMUP: Warmup = Warmup {
    cpu_initialization: Duration::from_secs(120),
    initial_readiness: Duration::from_secs(10),
};

pub(super) fn ago(now: Timestamp, seconds: u64) -> Timestamp {
    now.checked_sub(Duration::from_secs(seconds)).unwrap()
}

/// One pod a letter, `test-pod-0` and so on: ready, unready, hot (it has just started), Hot and
/// unready, pending, failed, going away.
pub(super) fn pods(letters: &str, requests: &[&str], now: Timestamp) -> Vec<Arc<Pod>> {
    let pod = |(number, letter): (usize, char)| {
        let started = match letter {
            'h' | 'H' => ago(now, 30),
            _ => ago(now, 180),
        };
        let phase = match letter {
            'p' => "Pending",
            'f' => "Failed",
            _ => "Running",
        };
        let is_ready = matches!(letter, 'r' | 'h');
        let container = |number_of: usize| {
            let asked = requests.get(number).map(|cpu| json!({"cpu": cpu}));
            json!({"name": format!("container{number_of}"), "resources": {"requests": asked.unwrap_or(json!({}))}})
        };
        let mut object = json!({
            "metadata": {"name": format!("test-pod-{number}"), "namespace": "test-namespace"},
            "spec": {"containers": [container(1), container(2)]},
            "status": {"phase": phase, "startTime": Time(started), "conditions": [
                {"type": "Ready", "status": if is_ready { "True" } else { "False" }, "lastTransitionTime": Time(started)},
            ]},
        });
        if letter == 'd' {
            object["metadata"]["deletionTimestamp"] = json!(Time(now));
        }
        Arc::new(serde_json::from_value(object).unwrap())
    };
    letters.chars().enumerate().map(pod).collect()
}

/// What each container of each pod uses of `resource`, in thousandths.
pub(super) fn metrics(resource: &str, levels: &[Vec<i64>], now: Timestamp) -> Vec<PodMetrics> {
    let of = |(pod, levels): (usize, &Vec<i64>)| {
        let containers: Vec<Value> = levels
            .iter()
            .enumerate()
            .map(|(number, level)| {
                json!({"name": format!("container{}", number + 1), "usage": {resource: format!("{level}m")}})
            })
            .collect();
        let object = json!({"metadata": {"name": format!("test-pod-{pod}")}, "timestamp": Time(now),
            "window": "1m0s", "containers": containers});
        serde_json::from_value(object).unwrap()
    };
    levels.iter().enumerate().map(of).collect()
}

/// The same in both containers of each pod.
pub(super) fn both(levels: &[i64]) -> Vec<Vec<i64>> {
    levels.iter().map(|level| vec![*level, *level]).collect()
}

pub(super) fn seen<'a>(
    pods: &'a [Arc<Pod>],
    current: i32,
    resource: &'a str,
    now: Timestamp,
) -> Seen<'a> {
    Seen {
        pods,
        current,
        resource,
        tolerances: Tolerances { down: 0.1, up: 0.1 },
        warmup: WARMUP,
        now,
    }
}
