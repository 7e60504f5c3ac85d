//! Jobs that say which failures count, and which successes are enough.

use k8s_openapi::api::{
    batch::v1::{Job, JobStatus},
    core::v1::Pod,
};
use kube::{
    ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::{
    cluster::Cluster,
    jobs::{conditions, job, status},
};

const INDEX: &str = "batch.kubernetes.io/job-completion-index";

/// Ends the running pods of an index with that exit code.
async fn end_index(cluster: &Cluster, index: &str, code: i32) {
    for pod in cluster.list::<Pod>("default").await {
        let is_meant = pod.annotations().get(INDEX).is_some_and(|own| own == index);
        let phase = pod.status.as_ref().and_then(|status| status.phase.clone());
        if !is_meant || phase.as_deref() != Some("Running") {
            continue;
        }
        let phase = if code == 0 { "Succeeded" } else { "Failed" };
        let now = k8s_openapi::jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ");
        let ended =
            json!({"exitCode": code, "finishedAt": now.to_string(), "startedAt": now.to_string()});
        let container = json!({"name": "c", "image": "i", "imageID": "i", "ready": false, "restartCount": 0,
            "state": {"terminated": ended}});
        let status = json!({"status": {"phase": phase, "containerStatuses": [container],
            "conditions": [{"type": "Ready", "status": "False"}]}});
        drop(
            cluster
                .api::<Pod>("default")
                .patch_status(
                    &pod.name_any(),
                    &PatchParams::default(),
                    &Patch::Merge(status),
                )
                .await,
        );
    }
}

/// Ends the pods of these indexes so, again and again, until the Job has ended.
async fn run(spec: Value, ends: &[(&str, i32)]) -> (Cluster, JobStatus) {
    let cluster = Cluster::start().await;
    cluster.run_agent();
    cluster.create::<Job>("default", job("j", spec)).await;
    let has_ended = || async {
        for (index, code) in ends {
            end_index(&cluster, index, *code).await;
        }
        let conditions = conditions(&status(&cluster, "j").await);
        conditions
            .iter()
            .any(|(kind, _)| kind == "Complete" || kind == "Failed")
    };
    cluster.wait("the Job to end", has_ended).await;
    let status = status(&cluster, "j").await;
    (cluster, status)
}

fn indexed(more: Value) -> Value {
    let mut spec = json!({"completionMode": "Indexed", "completions": 3, "parallelism": 3});
    for (key, value) in more.as_object().unwrap() {
        spec[key] = value.clone();
    }
    spec
}

fn reasons(status: &JobStatus) -> Vec<String> {
    conditions(status)
        .into_iter()
        .map(|(_, reason)| reason)
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_index_that_fails_leaves_the_others_alone() {
    let (cluster, status) = run(
        indexed(json!({"backoffLimitPerIndex": 0})),
        &[("0", 0), ("1", 1), ("2", 0)],
    )
    .await;
    assert_eq!(reasons(&status), ["FailedIndexes"; 2]);
    assert_eq!(status.completed_indexes.as_deref(), Some("0,2"));
    assert_eq!(status.failed_indexes.as_deref(), Some("1"));
    assert_eq!((status.succeeded, status.failed), (Some(2), Some(1)));
    let pods = cluster.list::<Pod>("default").await;
    assert_eq!(pods.len(), 3, "no index is tried twice");
    assert!(pods.iter().all(|pod| pod.finalizers().is_empty()));
    let failures = "batch.kubernetes.io/job-index-failure-count";
    assert!(pods.iter().all(|pod| pod.annotations()[failures] == "0"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failure_that_the_policy_names_fails_the_job_at_once() {
    let rule = json!({"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}});
    let spec = indexed(json!({"podFailurePolicy": {"rules": [rule]}}));
    let (cluster, status) = run(spec, &[("1", 42)]).await;
    assert_eq!(reasons(&status), ["PodFailurePolicy"; 2]);
    assert_eq!((status.failed, status.active), (Some(3), None));
    let message = status.conditions.unwrap()[0].message.clone().unwrap();
    assert!(
        message.starts_with("Container c for pod default/j-1-")
            && message.ends_with(" failed with exit code 42 matching FailJob rule at index 0"),
        "{message}"
    );
    drop(cluster);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn some_successes_end_a_job_with_a_success_policy() {
    let spec = indexed(
        json!({"successPolicy": {"rules": [{"succeededIndexes": "1-2", "succeededCount": 1}]}}),
    );
    let (cluster, status) = run(spec, &[("2", 0)]).await;
    assert_eq!(reasons(&status), ["SuccessPolicy"; 2]);
    assert_eq!((status.succeeded, status.failed), (Some(1), None));
    let left = || async { cluster.list::<Pod>("default").await.len() == 1 };
    cluster.wait("the pods that ran still to go", left).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_indexed_job_can_be_made_smaller() {
    let cluster = Cluster::start().await;
    cluster.run_agent();
    let spec = indexed(json!({"completions": 5, "parallelism": 5}));
    cluster.create::<Job>("default", job("j", spec)).await;
    let done = || async {
        end_index(&cluster, "1", 0).await;
        end_index(&cluster, "4", 0).await;
        status(&cluster, "j").await.completed_indexes.as_deref() == Some("1,4")
    };
    cluster.wait("two indexes", done).await;
    let smaller = json!({"spec": {"completions": 2, "parallelism": 2}});
    cluster.merge::<Job>("default", "j", smaller).await;
    let cut = || async {
        end_index(&cluster, "0", 0).await;
        let status = status(&cluster, "j").await;
        conditions(&status)
            .iter()
            .any(|(kind, _)| kind == "Complete")
    };
    cluster.wait("the Job to complete", cut).await;
    let status = status(&cluster, "j").await;
    assert_eq!(status.completed_indexes.as_deref(), Some("0,1"));
    assert_eq!((status.succeeded, status.failed), (Some(2), None));
}
