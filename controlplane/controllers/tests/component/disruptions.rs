//! Disruption budgets: what they allow, and what evictions take from them.

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::Pod,
    policy::v1::{PodDisruptionBudget, PodDisruptionBudgetStatus},
};
use kube::api::{EvictParams, ListParams};
use serde_json::{Value, json};

use crate::cluster::Cluster;

async fn deployment(cluster: &Cluster, replicas: i32) {
    let object = json!({"metadata": {"name": "web"}, "spec": {"replicas": replicas,
        "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    cluster.create::<Deployment>("default", object).await;
}

async fn budget(cluster: &Cluster, name: &str, spec: Value) {
    let mut object =
        json!({"metadata": {"name": name}, "spec": {"selector": {"matchLabels": {"app": "web"}}}});
    object["spec"]
        .as_object_mut()
        .unwrap()
        .extend(spec.as_object().unwrap().clone());
    cluster
        .create::<PodDisruptionBudget>("default", object)
        .await;
}

async fn status(cluster: &Cluster, name: &str) -> PodDisruptionBudgetStatus {
    let budget: Option<PodDisruptionBudget> = cluster.get_opt("default", name).await;
    budget.and_then(|budget| budget.status).unwrap_or_default()
}

/// Waits for expected, healthy, desired and allowed.
async fn counted(cluster: &Cluster, name: &str, expect: [i32; 4]) {
    cluster
        .wait(&format!("{name} to count {expect:?}"), || async {
            let status = status(cluster, name).await;
            let counts = [
                status.expected_pods,
                status.current_healthy,
                status.desired_healthy,
                status.disruptions_allowed,
            ];
            counts == expect.map(Some) && status.disrupted_pods.is_none()
        })
        .await;
}

async fn a_pod(cluster: &Cluster) -> String {
    let pods = cluster
        .api::<Pod>("default")
        .list(&ListParams::default().labels("app=web"))
        .await
        .unwrap();
    let pod = pods
        .items
        .into_iter()
        .find(|pod| pod.metadata.deletion_timestamp.is_none())
        .unwrap();
    pod.metadata.name.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_budget_lets_pods_go_one_by_one() {
    let cluster = Cluster::start().await;
    cluster.run_agent();
    deployment(&cluster, 2).await;
    budget(&cluster, "b", json!({"maxUnavailable": "50%"})).await;
    counted(&cluster, "b", [2, 2, 1, 1]).await;
    let pods = cluster.api::<Pod>("default");
    pods.evict(&a_pod(&cluster).await, &EvictParams::default())
        .await
        .unwrap();
    // The Deployment makes another; then the next may go.
    counted(&cluster, "b", [2, 2, 1, 1]).await;
    cluster
        .merge::<PodDisruptionBudget>("default", "b", json!({"spec": {"maxUnavailable": 0}}))
        .await;
    counted(&cluster, "b", [2, 2, 2, 0]).await;
    let refused = pods
        .evict(&a_pod(&cluster).await, &EvictParams::default())
        .await
        .unwrap_err();
    assert!(
        matches!(&refused, kube::Error::Api(status) if status.code == 429),
        "{refused}"
    );
    cluster
        .merge::<Deployment>("default", "web", json!({"spec": {"replicas": 3}}))
        .await;
    cluster
        .merge::<PodDisruptionBudget>("default", "b", json!({"spec": {"maxUnavailable": 1}}))
        .await;
    counted(&cluster, "b", [3, 3, 2, 1]).await;
    pods.evict(&a_pod(&cluster).await, &EvictParams::default())
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_budget_that_cannot_be_counted_says_so() {
    let cluster = Cluster::start().await;
    let owner = json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "controller": true}]);
    let pod = json!({"metadata": {"name": "p", "labels": {"app": "web"}, "ownerReferences": owner,
        "finalizers": ["example.com/kept"]}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    cluster.create::<Pod>("default", pod).await;
    budget(&cluster, "b", json!({"maxUnavailable": 1})).await;
    cluster
        .wait("the failure", || async {
            let conditions = status(&cluster, "b").await.conditions.unwrap_or_default();
            conditions.iter().any(|condition| {
                condition.reason == "SyncFailed"
                    && condition.message == "jobs.batch does not implement the scale subresource"
            })
        })
        .await;
    // A number of pods needs no owners.
    budget(&cluster, "plain", json!({"minAvailable": 1})).await;
    counted(&cluster, "plain", [1, 0, 1, 0]).await;
}
