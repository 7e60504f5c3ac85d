//! When pods that wait are tried again, and what is left of attempts that fail.

use std::sync::atomic::Ordering::SeqCst;

use kube::api::DeleteParams;
use serde_json::json;

use crate::cluster::{Cluster, small, wait};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_wakes_only_those_whom_it_may_help() {
    let cluster = Cluster::start().await;
    cluster.add_node("n", small()).await;
    cluster
        .add_pod("going", json!({"cpu": "10m"}), json!({}))
        .await;
    cluster.placed("going").await;
    cluster
        .add_pod("large", json!({"cpu": "64"}), json!({}))
        .await;
    cluster
        .add_pod(
            "choosy",
            json!({}),
            json!({"nodeSelector": {"disk": "ssd"}}),
        )
        .await;
    cluster.refused("large").await;
    assert_eq!(
        cluster.refused("choosy").await,
        "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector. \
             preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
    );
    assert_eq!(cluster.attempts(), 2);
    // Room is nothing to a pod that waits for a label,
    cluster
        .pods()
        .delete("going", &DeleteParams::default().grace_period(0))
        .await
        .unwrap();
    wait("the large one to be tried again", || async {
        cluster.attempts() == 3
    })
    .await;
    // and a label nothing to one that waits for room.
    cluster
        .patch_node("n", json!({"metadata": {"labels": {"disk": "ssd"}}}))
        .await;
    cluster.placed("choosy").await;
    assert_eq!(cluster.attempts(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_binding_that_fails_gives_its_room_back() {
    let cluster = Cluster::start().await;
    cluster.add_node("n", small()).await;
    *cluster.watched.unbindable.lock().unwrap() = Some("unlucky".to_owned());
    cluster
        .add_pod("unlucky", json!({"cpu": "1"}), json!({}))
        .await;
    wait("a binding to fail", || async {
        cluster.watched.failed_bindings.load(SeqCst) > 0
    })
    .await;
    let message = cluster.not_scheduled("unlucky", "SchedulerError").await;
    assert!(!message.is_empty(), "it says what has failed");
    cluster
        .add_pod("next", json!({"cpu": "1"}), json!({}))
        .await;
    cluster.placed("next").await;
    assert_eq!(
        cluster.refused("unlucky").await,
        "0/1 nodes are available: 1 Insufficient cpu. \
             preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scheduler_that_is_started_again_counts_what_was_placed() {
    let mut cluster = Cluster::start().await;
    cluster.add_node("n", small()).await;
    cluster
        .add_pod("before", json!({"cpu": "600m"}), json!({}))
        .await;
    cluster.placed("before").await;
    cluster.stop_scheduler();
    cluster
        .add_pod("meanwhile", json!({"cpu": "600m"}), json!({}))
        .await;
    cluster
        .add_pod("small", json!({"cpu": "300m"}), json!({}))
        .await;
    cluster.restart_scheduler();
    cluster.placed("small").await;
    assert_eq!(
        cluster.refused("meanwhile").await,
        "0/1 nodes are available: 1 Insufficient cpu. \
             preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."
    );
    cluster
        .pods()
        .delete("before", &DeleteParams::default().grace_period(0))
        .await
        .unwrap();
    cluster.placed("meanwhile").await;
}
