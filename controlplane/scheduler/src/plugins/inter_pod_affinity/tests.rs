//! Four nodes with a few pods, and what the plugin says of each.

mod cost;
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
    testing::{node_of, pod_of},
};

const ZONE: &str = "zone";

fn labelled(name: &str, namespace: &str, labels: &Value, affinity: &Value) -> PodInfo {
    let metadata = json!({"name": name, "namespace": namespace, "uid": name, "labels": labels});
    pod_of(json!({"metadata": metadata, "spec": {"containers": [], "affinity": affinity}}))
}

/// Two nodes of one zone, one of another, one of none.
fn cluster(placed: Vec<(PodInfo, &str)>) -> Cache {
    let mut cache = Cache::default();
    for (name, zone) in [
        ("a1", Some("a")),
        ("a2", Some("a")),
        ("b1", Some("b")),
        ("bare", None),
    ] {
        let mut labels = json!({"kubernetes.io/hostname": name});
        if let Some(zone) = zone {
            labels[ZONE] = json!(zone);
        }
        cache.set_node(&node_of(name, labels));
    }
    for (namespace, team) in [("default", "blue"), ("other", "red")] {
        cache.set_namespace(namespace, [("team".to_owned(), team.to_owned())].into());
    }
    for (pod, node) in placed {
        cache.observe(Arc::new(pod), node);
    }
    cache
}

/// What is said of each node; nothing of those that are fine.
fn refused(pod: &PodInfo, cache: &Cache) -> Vec<(String, String)> {
    let (mut cycle, snapshot) = (CycleState::default(), cache.snapshot());
    let (_, status) = InterPodAffinity::default().pre_filter(&mut cycle, pod, &snapshot);
    if status.code() == Code::Skip {
        return Vec::new();
    }
    let statuses = snapshot.nodes().iter().map(|node| {
        (
            node.name.clone(),
            InterPodAffinity::default()
                .filter(&cycle, pod, node)
                .message(),
        )
    });
    statuses
        .filter(|(_, message)| !message.is_empty())
        .collect()
}

fn term(key: &str, selector: Value) -> Value {
    json!({"labelSelector": selector, "topologyKey": key})
}

fn app(name: &str) -> Value {
    json!({"matchLabels": {"app": name}})
}

fn near(terms: Value) -> Value {
    json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}})
}

fn apart(terms: Value) -> Value {
    json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}})
}
