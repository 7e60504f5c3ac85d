//! What the API is told about pods that wait.

use std::sync::atomic::Ordering::SeqCst;

use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::cluster::{Cluster, small, wait};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_that_fit_nowhere_are_told_once_however_often_they_are_tried() {
    const WAITING: usize = 100;
    let cluster = Cluster::start().await;
    cluster.add_node("n", small()).await;
    for number in 0..WAITING {
        cluster
            .add_pod(&format!("large-{number}"), json!({"cpu": "64"}), json!({}))
            .await;
    }
    for number in 0..WAITING {
        let message = cluster.refused(&format!("large-{number}")).await;
        assert_eq!(
            message,
            "0/1 nodes are available: 1 Insufficient cpu. \
             preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
        );
    }
    wait("the events", || async {
        cluster.failures().await.len() == WAITING
    })
    .await;
    let told = cluster.watched.status_writes.load(SeqCst);
    assert!(
        (WAITING..WAITING + 10).contains(&told),
        "{told}: a pod may change while it is told of"
    );
    // A pod that ends lets all of them be tried again.
    cluster
        .add_pod("small", json!({"cpu": "10m"}), json!({}))
        .await;
    cluster.placed("small").await;
    let before = cluster.attempts();
    cluster
        .pods()
        .delete("small", &DeleteParams::default().grace_period(0))
        .await
        .unwrap();
    wait("all of them to be tried again", || async {
        cluster.attempts() >= before + WAITING
    })
    .await;
    assert_eq!(cluster.watched.status_writes.load(SeqCst), told);
    assert_eq!(cluster.failures().await.len(), WAITING);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_refusal_does_not_touch_a_pod_that_is_bound() {
    let cluster = Cluster::start().await;
    cluster
        .watched
        .permits
        .forget_permits(Semaphore::MAX_PERMITS);
    cluster.add_node("n", small()).await;
    cluster.add_pod("p", json!({"cpu": "64"}), json!({})).await;
    wait("the refusal to be sent", || async {
        cluster.watched.status_writes.load(SeqCst) == 1
    })
    .await;
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "n"}});
    let params = PostParams::default();
    let _: Value = cluster
        .pods()
        .create_subresource("binding", "p", &params, &binding)
        .await
        .unwrap();
    cluster.watched.permits.add_permits(100);
    // What is written after it has arrived is told after it, too.
    cluster.add_pod("q", json!({"cpu": "64"}), json!({})).await;
    cluster.refused("q").await;
    assert_eq!(cluster.scheduled("p").await.unwrap().status, "True");
}
