//! Pods of a higher priority that fit nowhere: who ends for them, and what is said of it.

use k8s_openapi::api::{core::v1::Event, scheduling::v1::PriorityClass};
use kube::{
    Api,
    api::{DeleteParams, ListParams, PostParams},
};
use serde_json::{Value, json};

use crate::cluster::{Cluster, small, wait};

async fn add_class(cluster: &Cluster, name: &str, value: i32, policy: &str) {
    let classes: Api<PriorityClass> = Api::all(cluster.client.clone());
    let class = json!({"metadata": {"name": name}, "value": value, "preemptionPolicy": policy});
    let class = serde_json::from_value(class).unwrap();
    classes
        .create(&PostParams::default(), &class)
        .await
        .unwrap();
}

/// A node for one pod of one CPU, which `victim` has; and classes.
async fn full_cluster() -> Cluster {
    let cluster = Cluster::start().await;
    add_class(&cluster, "high", 1000, "PreemptLowerPriority").await;
    add_class(&cluster, "higher", 2000, "PreemptLowerPriority").await;
    add_class(&cluster, "polite", 3000, "Never").await;
    cluster.add_node("n", small()).await;
    add(&cluster, "victim", None).await;
    assert_eq!(cluster.placed("victim").await, "n");
    cluster
}

async fn add(cluster: &Cluster, name: &str, class: Option<&str>) {
    let more = class.map_or(json!({}), |class| json!({"priorityClassName": class}));
    cluster.add_pod(name, json!({"cpu": "1"}), more).await;
}

/// As the agent does once the containers have ended.
async fn end(cluster: &Cluster, name: &str) {
    let now = DeleteParams::default().grace_period(0);
    cluster.pods().delete(name, &now).await.unwrap();
}

async fn nominated(cluster: &Cluster, name: &str) -> Option<String> {
    let status = cluster.pods().get(name).await.unwrap().status;
    status.unwrap_or_default().nominated_node_name
}

async fn is_terminating(cluster: &Cluster, name: &str) -> bool {
    let pod = cluster.pods().get(name).await.unwrap();
    pod.metadata.deletion_timestamp.is_some()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_of_a_lower_priority_ends_and_its_room_is_kept() {
    let cluster = full_cluster().await;
    add(&cluster, "preemptor", Some("high")).await;
    wait("the victim to end", || is_terminating(&cluster, "victim")).await;
    let victim = cluster.pods().get("victim").await.unwrap();
    let conditions = victim.status.unwrap().conditions.unwrap();
    let target = conditions
        .iter()
        .find(|condition| condition.type_ == "DisruptionTarget");
    let target = target.unwrap();
    assert_eq!(
        (target.reason.as_deref(), target.message.as_deref()),
        (
            Some("PreemptionByScheduler"),
            Some("default-scheduler: preempting to accommodate a higher priority pod")
        )
    );
    wait("the room to be told", || async {
        nominated(&cluster, "preemptor").await.as_deref() == Some("n")
    })
    .await;
    let uid = cluster
        .pods()
        .get("preemptor")
        .await
        .unwrap()
        .metadata
        .uid
        .unwrap();
    let events: Api<Event> = Api::namespaced(cluster.client.clone(), "default");
    wait("the Event", || async {
        let all = events.list(&ListParams::default()).await.unwrap().items;
        let told = format!("Preempted by pod {uid} on node n");
        all.iter().any(|event| {
            event.reason.as_deref() == Some("Preempted")
                && event.message.as_deref() == Some(&told)
                && event.involved_object.name.as_deref() == Some("victim")
        })
    })
    .await;
    // Whoever comes now, and is not above the preemptor, does not get the room.
    add(&cluster, "latecomer", Some("high")).await;
    let why = cluster.refused("latecomer").await;
    assert!(
        why.starts_with("0/1 nodes are available: 1 Insufficient cpu."),
        "{why}"
    );
    end(&cluster, "victim").await;
    assert_eq!(cluster.placed("preemptor").await, "n");
    assert_eq!(nominated(&cluster, "preemptor").await, None);
    assert!(!is_terminating(&cluster, "preemptor").await);
    assert_eq!(cluster.figure("scheduler_preemption_victims_count", ""), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_that_may_not_preempt_waits() {
    let cluster = full_cluster().await;
    add(&cluster, "polite", Some("polite")).await;
    assert_eq!(
        cluster.refused("polite").await,
        "0/1 nodes are available: 1 Insufficient cpu. preemption: not eligible due to preemptionPolicy=Never."
    );
    assert!(!is_terminating(&cluster, "victim").await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_room_goes_to_who_is_above() {
    let cluster = full_cluster().await;
    add(&cluster, "first", Some("high")).await;
    wait("room for the first", || async {
        nominated(&cluster, "first").await.is_some()
    })
    .await;
    add(&cluster, "second", Some("higher")).await;
    cluster.refused("second").await;
    end(&cluster, "victim").await;
    assert_eq!(cluster.placed("second").await, "n");
    cluster.refused("first").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_scheduler_keeps_the_room_that_was_made() {
    let mut cluster = full_cluster().await;
    add(&cluster, "preemptor", Some("high")).await;
    wait("the room to be told", || async {
        nominated(&cluster, "preemptor").await.is_some()
    })
    .await;
    cluster.stop_scheduler();
    end(&cluster, "victim").await;
    // It was there first, but others were ended for the preemptor.
    let spec: Value = json!({});
    cluster.add_pod("quick", json!({"cpu": "1"}), spec).await;
    cluster.restart_scheduler();
    assert_eq!(cluster.placed("preemptor").await, "n");
    cluster.refused("quick").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_critical_pod_ends_others() {
    let cluster = full_cluster().await;
    add(&cluster, "critical", Some("system-cluster-critical")).await;
    wait("the victim to end", || is_terminating(&cluster, "victim")).await;
    end(&cluster, "victim").await;
    assert_eq!(cluster.placed("critical").await, "n");
}

/// Who waits for room that is kept for another hears when it is kept no more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn room_that_is_kept_no_more_is_offered_to_others() {
    let cluster = full_cluster().await;
    let two = json!({"cpu": "2", "memory": "4Gi", "pods": "10"});
    cluster
        .patch_node_status(
            "n",
            json!({"status": {"allocatable": two, "capacity": two}}),
        )
        .await;
    let high = json!({"priorityClassName": "high"});
    cluster
        .add_pod("large", json!({"cpu": "2"}), high.clone())
        .await;
    wait("room for the large one", || async {
        nominated(&cluster, "large").await.is_some()
    })
    .await;
    cluster.add_pod("small", json!({"cpu": "1"}), high).await;
    cluster.refused("small").await;
    // Somebody takes the nomination back, and the large one will not come again.
    let gone = json!({"status": {"nominatedNodeName": null}, "spec": null});
    let params = kube::api::PatchParams::default();
    let patch = kube::api::Patch::Merge(&gone);
    cluster
        .pods()
        .patch_status("large", &params, &patch)
        .await
        .unwrap();
    assert_eq!(cluster.placed("small").await, "n");
}
