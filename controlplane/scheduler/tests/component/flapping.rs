//! Nodes that come and go while pods are placed.

use std::collections::BTreeMap;

use kube::api::{DeleteParams, ListParams};
use serde_json::{Value, json};

use crate::cluster::{Cluster, wait};

const NODES: usize = 12;
const PODS: usize = 240;
/// Pods that a node has room for: ten fewer fit than there are.
const ROOM: usize = 20;
const NONE: Value = Value::Null;

fn node(number: usize) -> String {
    format!("n-{number}")
}

fn room() -> Value {
    json!({"cpu": format!("{}m", ROOM * 100), "memory": "64Gi", "pods": "1000"})
}

/// What happens to a node, by turns: it is cordoned, tainted, unwell, or its object goes and comes
/// again, with its pods where they were.
async fn flap(cluster: &Cluster, turn: usize) {
    let name = node(turn * 7 % NODES);
    let tainted = json!([{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]);
    match turn % 4 {
        0 => {
            let spec = json!({"spec": {"unschedulable": true}});
            cluster.patch_node(&name, spec).await;
            let spec = json!({"spec": {"unschedulable": NONE}});
            cluster.patch_node(&name, spec).await;
        }
        1 => {
            let taints = json!({"spec": {"taints": tainted}});
            cluster.patch_node(&name, taints).await;
            let taints = json!({"spec": {"taints": NONE}});
            cluster.patch_node(&name, taints).await;
        }
        2 => {
            let label = |value: Value| json!({"metadata": {"labels": {"zone": value}}});
            cluster.patch_node(&name, label(json!("a"))).await;
            cluster.patch_node(&name, label(NONE)).await;
        }
        _ => {
            let now = DeleteParams::default();
            cluster.nodes().delete(&name, &now).await.unwrap();
            cluster.add_node(&name, room()).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_node_that_comes_and_goes_is_given_too_much() {
    let cluster = Cluster::start().await;
    for number in 0..NODES {
        cluster.add_node(&node(number), room()).await;
    }
    for number in 0..PODS {
        let name = format!("p-{number}");
        cluster
            .add_pod(&name, json!({"cpu": "100m"}), json!({}))
            .await;
        if number % 3 == 0 {
            flap(&cluster, number / 3).await;
        }
    }
    // All of it is there again, and exactly enough.
    wait("all pods to have a node", || async {
        placed(&cluster).await.values().sum::<usize>() == PODS
    })
    .await;
    let placed = placed(&cluster).await;
    assert!(placed.values().all(|count| *count <= ROOM), "{placed:?}");
}

/// How many pods each node has.
async fn placed(cluster: &Cluster) -> BTreeMap<String, usize> {
    let pods = cluster.pods().list(&ListParams::default()).await.unwrap();
    let mut placed = BTreeMap::new();
    for node in pods.items.into_iter().filter_map(|pod| pod.spec?.node_name) {
        *placed.entry(node).or_default() += 1;
    }
    placed
}
