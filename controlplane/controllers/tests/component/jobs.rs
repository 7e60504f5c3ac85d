//! Jobs: their pods, their end, and what is left of them.

use k8s_openapi::api::batch::v1::{Job, JobStatus};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::cluster::Cluster;

fn job(name: &str, spec: Value) -> Value {
    let mut spec = spec;
    spec["template"] = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "busybox:1"}]}});
    json!({"metadata": {"name": name}, "spec": spec})
}

/// Ends every running pod that is not ended yet.
async fn end_pods(cluster: &Cluster, phase: &str) {
    for pod in cluster.list::<Pod>("default").await {
        let status = pod.status.clone().unwrap_or_default();
        if status.phase.as_deref() == Some("Running") && pod.metadata.deletion_timestamp.is_none() {
            let ended = Patch::Merge(json!({"status": {"phase": phase, "conditions": [
                {"type": "Ready", "status": "False"}]}}));
            drop(cluster.api::<Pod>("default").patch_status(&pod.name_any(), &PatchParams::default(), &ended).await);
        }
    }
}

async fn status(cluster: &Cluster, name: &str) -> JobStatus {
    cluster.get_opt::<Job>("default", name).await.and_then(|job| job.status).unwrap_or_default()
}

fn conditions(status: &JobStatus) -> Vec<(String, String)> {
    let conditions = status.conditions.iter().flatten().filter(|condition| condition.status == "True");
    conditions.map(|c| (c.type_.clone(), c.reason.clone().unwrap_or_default())).collect()
}

async fn ended(cluster: &Cluster, name: &str, phase: &str) -> JobStatus {
    cluster
        .wait(&format!("{name} to end"), || async {
            end_pods(cluster, phase).await;
            conditions(&status(cluster, name).await).iter().any(|(kind, _)| kind == "Complete" || kind == "Failed")
        })
        .await;
    status(cluster, name).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn job_completes_after_as_many_successes_as_asked_for() {
    let cluster = Cluster::start().await;
    cluster.run_agent();
    cluster.create::<Job>("default", job("sum", json!({"completions": 5, "parallelism": 2}))).await;
    let status = ended(&cluster, "sum", "Succeeded").await;
    assert_eq!((status.succeeded, status.failed, status.active), (Some(5), None, None));
    let reason = "CompletionsReached".to_owned();
    assert_eq!(
        conditions(&status),
        [("SuccessCriteriaMet".to_owned(), reason.clone()), ("Complete".to_owned(), reason)]
    );
    let pods = cluster.list::<Pod>("default").await;
    assert_eq!(pods.len(), 5);
    assert!(pods.iter().all(|pod| pod.finalizers().is_empty()), "{pods:?}");
    // The pods go with the Job.
    cluster.api::<Job>("default").delete("sum", &DeleteParams::background()).await.unwrap();
    cluster.wait("the pods to go", || async { cluster.list::<Pod>("default").await.is_empty() }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn job_fails_at_its_limit_and_expires() {
    let cluster = Cluster::start().await;
    cluster.run_agent();
    cluster.create::<Job>("default", job("never", json!({"backoffLimit": 0}))).await;
    let status = ended(&cluster, "never", "Failed").await;
    assert_eq!((status.succeeded, status.failed, status.active), (None, Some(1), None));
    let reason = "BackoffLimitExceeded".to_owned();
    assert_eq!(conditions(&status), [("FailureTarget".to_owned(), reason.clone()), ("Failed".to_owned(), reason)]);
    cluster.merge::<Job>("default", "never", json!({"spec": {"ttlSecondsAfterFinished": 0}})).await;
    cluster.wait("the Job to expire", || async { cluster.get_opt::<Job>("default", "never").await.is_none() }).await;
    cluster.wait("its pod to go", || async { cluster.list::<Pod>("default").await.is_empty() }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deadline_and_deletion_end_running_pods() {
    let cluster = Cluster::start().await;
    cluster.run_agent();
    cluster.create::<Job>("default", job("late", json!({"activeDeadlineSeconds": 1, "parallelism": 2}))).await;
    cluster.create::<Job>("default", job("gone", json!({}))).await;
    cluster
        .wait("late to fail", || async {
            let conditions = conditions(&status(&cluster, "late").await);
            conditions.contains(&("Failed".to_owned(), "DeadlineExceeded".to_owned()))
        })
        .await;
    cluster.api::<Job>("default").delete("gone", &DeleteParams::foreground()).await.unwrap();
    cluster.wait("gone to go", || async { cluster.get_opt::<Job>("default", "gone").await.is_none() }).await;
    cluster.wait("its pods to go", || async { cluster.list::<Pod>("default").await.is_empty() }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn suspended_job_runs_once_it_is_resumed() {
    let cluster = Cluster::start().await;
    cluster.run_agent();
    cluster.create::<Job>("default", job("later", json!({"suspend": true}))).await;
    cluster
        .wait("the condition", || async {
            conditions(&status(&cluster, "later").await) == [("Suspended".to_owned(), "JobSuspended".to_owned())]
        })
        .await;
    assert!(cluster.list::<Pod>("default").await.is_empty());
    cluster.merge::<Job>("default", "later", json!({"spec": {"suspend": false}})).await;
    let status = ended(&cluster, "later", "Succeeded").await;
    assert_eq!(status.succeeded, Some(1));
}
