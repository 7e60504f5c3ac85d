//! Many pods on their way at once.

use std::sync::atomic::Ordering::SeqCst;

use serde_json::json;

use crate::cluster::{Batches, Cluster, small, wait};

const PODS: usize = 300;

/// So many pods wait when a scheduler starts, and `batches` is what its server makes of many
/// bindings in one request. All of them get a node.
async fn all_are_bound(batches: Batches) -> Cluster {
    let mut cluster = Cluster::start().await;
    cluster.stop_scheduler();
    *cluster.watched.batches.lock().unwrap() = batches;
    let large = json!({"cpu": "64", "memory": "64Gi", "pods": "1000"});
    cluster.add_node("n", large).await;
    for number in 0..PODS {
        let name = format!("p-{number}");
        cluster
            .add_pod(&name, json!({"cpu": "10m"}), json!({}))
            .await;
    }
    cluster.restart_scheduler();
    wait("all pods to be bound", || async {
        let pods = cluster.pods().list(&Default::default()).await.unwrap();
        let is_bound = |pod: &k8s_openapi::api::core::v1::Pod| {
            pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) == Some("n")
        };
        pods.items.iter().filter(|pod| is_bound(pod)).count() == PODS
    })
    .await;
    cluster
}

/// Bindings that came to nothing.
fn failed(cluster: &Cluster) -> usize {
    cluster.figure("scheduler_schedule_attempts_total", "result=\"error\"")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_that_come_together_are_bound_together() {
    let cluster = all_are_bound(Batches::Served).await;
    let sent = cluster.watched.batches_sent.load(SeqCst);
    assert!((1..PODS / 4).contains(&sent), "{sent} requests for {PODS}");
    assert_eq!(failed(&cluster), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_has_no_batches_is_asked_once() {
    let cluster = all_are_bound(Batches::Unknown).await;
    // Both that may be under way can have asked before the first was answered.
    let sent = cluster.watched.batches_sent.load(SeqCst);
    assert!((1..=2).contains(&sent), "{sent}");
    assert_eq!(failed(&cluster), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_of_whom_an_answer_says_nothing_are_tried_again() {
    let cluster = all_are_bound(Batches::LostOnce).await;
    assert!(failed(&cluster) > 0);
}

/// Whatever a server answers: as long as the pod is there and has no node, it waits for one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_that_is_only_said_to_be_gone_is_tried_again() {
    for code in [404, 409] {
        let cluster = Cluster::start().await;
        cluster.add_node("n", small()).await;
        *cluster.watched.answered_once.lock().unwrap() = Some(("p".to_owned(), code));
        cluster.add_pod("p", json!({"cpu": "1"}), json!({})).await;
        assert_eq!(cluster.placed("p").await, "n", "{code}");
        assert_eq!(cluster.watched.failed_bindings.load(SeqCst), 1);
    }
}
