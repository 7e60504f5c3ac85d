//! Two zones of two nodes with a few pods, and what the plugin says of each node.

mod counting;
mod events;
mod filtering;
mod model;
mod scoring;

use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::{
    cache::Cache,
    framework::{Code, PreScore, Score},
    testing::{info, node_of, pod_of},
};

const ZONE: &str = "zone";
const HOST: &str = "kubernetes.io/hostname";

fn pod_in(namespace: &str, name: &str, app: &str, more: Value) -> PodInfo {
    let mut spec = json!({"containers": []});
    for (key, value) in more.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    let metadata =
        json!({"name": name, "namespace": namespace, "uid": name, "labels": {"app": app}});
    pod_of(json!({"metadata": metadata, "spec": spec}))
}

fn constraint(key: &str, skew: i32, more: Value) -> Value {
    let mut constraint = json!({
        "maxSkew": skew, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        constraint[key] = value.clone();
    }
    constraint
}

/// Zone 1 with the nodes a and b, zone 2 with x and y; so many pods `web` on each.
fn cluster(pods: [usize; 4]) -> Cache {
    let mut cache = Cache::default();
    for ((name, zone), count) in [("a", "1"), ("b", "1"), ("x", "2"), ("y", "2")]
        .into_iter()
        .zip(pods)
    {
        cache.set_node(&node_of(name, json!({ZONE: zone, HOST: name})));
        for number in 0..count {
            cache.observe(
                Arc::new(pod_in(
                    "default",
                    &format!("{name}{number}"),
                    "web",
                    json!({}),
                )),
                name,
            );
        }
    }
    cache
}

fn statuses(pod: &PodInfo, cache: &Cache) -> Vec<(String, Status)> {
    let (mut cycle, snapshot) = (CycleState::default(), cache.snapshot());
    let (_, status) = PodTopologySpread::default().pre_filter(&mut cycle, pod, &snapshot);
    if status.code() == Code::Skip {
        return Vec::new();
    }
    let nodes = snapshot.nodes().iter();
    nodes
        .map(|node| {
            (
                node.name.clone(),
                PodTopologySpread::default().filter(&cycle, pod, node),
            )
        })
        .collect()
}

fn refused(pod: &PodInfo, cache: &Cache) -> Vec<String> {
    let refused = statuses(pod, cache)
        .into_iter()
        .filter(|(_, status)| !status.is_success());
    refused.map(|(name, _)| name).collect()
}
