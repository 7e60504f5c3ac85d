//! Jobs: their pods, their end, and what is left of them.

use k8s_openapi::api::{
    batch::v1::{Job, JobStatus},
    core::v1::Pod,
};
use kube::{
    ResourceExt,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::cluster::Cluster;

pub(crate) fn job(name: &str, spec: Value) -> Value {
    let mut spec = spec;
    spec["template"] = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "busybox:1"}]}});
    json!({"metadata": {"name": name}, "spec": spec})
}

/// Ends every running pod that is not ended yet.
pub(crate) async fn end_pods(cluster: &Cluster, phase: &str) {
    for pod in cluster.list::<Pod>("default").await {
        let status = pod.status.clone().unwrap_or_default();
        if status.phase.as_deref() == Some("Running") && pod.metadata.deletion_timestamp.is_none() {
            let ended = Patch::Merge(json!({"status": {"phase": phase, "conditions": [
                {"type": "Ready", "status": "False"}]}}));
            drop(
                cluster
                    .api::<Pod>("default")
                    .patch_status(&pod.name_any(), &PatchParams::default(), &ended)
                    .await,
            );
        }
    }
}

pub(crate) async fn status(cluster: &Cluster, name: &str) -> JobStatus {
    cluster
        .get_opt::<Job>("default", name)
        .await
        .and_then(|job| job.status)
        .unwrap_or_default()
}

pub(crate) fn conditions(status: &JobStatus) -> Vec<(String, String)> {
    let conditions = status
        .conditions
        .iter()
        .flatten()
        .filter(|condition| condition.status == "True");
    conditions
        .map(|c| (c.type_.clone(), c.reason.clone().unwrap_or_default()))
        .collect()
}

pub(crate) async fn ended(cluster: &Cluster, name: &str, phase: &str) -> JobStatus {
    cluster
        .wait(&format!("{name} to end"), || async {
            end_pods(cluster, phase).await;
            conditions(&status(cluster, name).await)
                .iter()
                .any(|(kind, _)| kind == "Complete" || kind == "Failed")
        })
        .await;
    status(cluster, name).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn job_completes_after_as_many_successes_as_asked_for() {
    let cluster = Cluster::start().await;
    cluster.run_agent();
    cluster
        .create::<Job>(
            "default",
            job("sum", json!({"completions": 5, "parallelism": 2})),
        )
        .await;
    let status = ended(&cluster, "sum", "Succeeded").await;
    assert_eq!(
        (status.succeeded, status.failed, status.active),
        (Some(5), None, None)
    );
    let reason = "CompletionsReached".to_owned();
    assert_eq!(
        conditions(&status),
        [
            ("SuccessCriteriaMet".to_owned(), reason.clone()),
            ("Complete".to_owned(), reason)
        ]
    );
    let pods = cluster.list::<Pod>("default").await;
    assert_eq!(pods.len(), 5);
    assert!(
        pods.iter().all(|pod| pod.finalizers().is_empty()),
        "{pods:?}"
    );
    // The pods go with the Job.
    cluster
        .api::<Job>("default")
        .delete("sum", &DeleteParams::background())
        .await
        .unwrap();
    cluster
        .wait("the pods to go", || async {
            cluster.list::<Pod>("default").await.is_empty()
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn job_fails_at_its_limit_and_expires() {
    let cluster = Cluster::start().await;
    cluster.run_agent();
    cluster
        .create::<Job>("default", job("never", json!({"backoffLimit": 0})))
        .await;
    let status = ended(&cluster, "never", "Failed").await;
    assert_eq!(
        (status.succeeded, status.failed, status.active),
        (None, Some(1), None)
    );
    let reason = "BackoffLimitExceeded".to_owned();
    assert_eq!(
        conditions(&status),
        [
            ("FailureTarget".to_owned(), reason.clone()),
            ("Failed".to_owned(), reason)
        ]
    );
    cluster
        .merge::<Job>(
            "default",
            "never",
            json!({"spec": {"ttlSecondsAfterFinished": 0}}),
        )
        .await;
    cluster
        .wait("the Job to expire", || async {
            cluster.get_opt::<Job>("default", "never").await.is_none()
        })
        .await;
    cluster
        .wait("its pod to go", || async {
            cluster.list::<Pod>("default").await.is_empty()
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deadline_and_deletion_end_running_pods() {
    let cluster = Cluster::start().await;
    cluster.run_agent();
    cluster
        .create::<Job>(
            "default",
            job(
                "late",
                json!({"activeDeadlineSeconds": 1, "parallelism": 2}),
            ),
        )
        .await;
    cluster
        .create::<Job>("default", job("gone", json!({})))
        .await;
    cluster
        .wait("late to fail", || async {
            let conditions = conditions(&status(&cluster, "late").await);
            conditions.contains(&("Failed".to_owned(), "DeadlineExceeded".to_owned()))
        })
        .await;
    cluster
        .api::<Job>("default")
        .delete("gone", &DeleteParams::foreground())
        .await
        .unwrap();
    cluster
        .wait("gone to go", || async {
            cluster.get_opt::<Job>("default", "gone").await.is_none()
        })
        .await;
    cluster
        .wait("its pods to go", || async {
            cluster.list::<Pod>("default").await.is_empty()
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn suspended_job_runs_once_it_is_resumed() {
    let cluster = Cluster::start().await;
    cluster.run_agent();
    cluster
        .create::<Job>("default", job("later", json!({"suspend": true})))
        .await;
    cluster
        .wait("the condition", || async {
            conditions(&status(&cluster, "later").await)
                == [("Suspended".to_owned(), "JobSuspended".to_owned())]
        })
        .await;
    assert!(cluster.list::<Pod>("default").await.is_empty());
    cluster
        .merge::<Job>("default", "later", json!({"spec": {"suspend": false}}))
        .await;
    let status = ended(&cluster, "later", "Succeeded").await;
    assert_eq!(status.succeeded, Some(1));
}

async fn active(cluster: &Cluster, name: &str) -> Vec<Pod> {
    let mine = |pod: &Pod| {
        pod.owner_references()
            .iter()
            .any(|owner| owner.name == name)
    };
    let all = cluster.list::<Pod>("default").await;
    all.into_iter()
        .filter(|pod| mine(pod) && pod.metadata.deletion_timestamp.is_none())
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn job_that_is_suspended_or_scaled_down_has_failed_nothing() {
    let cluster = Cluster::start().await;
    cluster.run_agent();
    let spec = json!({"backoffLimit": 0, "parallelism": 3, "completions": 3});
    cluster.create::<Job>("default", job("calm", spec)).await;
    let runs = |count: i32| {
        let cluster = &cluster;
        cluster.wait("so many pods to run", move || async move {
            let status = status(cluster, "calm").await;
            let settled =
                status.terminating.unwrap_or(0) == 0 && status.ready.unwrap_or(0) == count;
            status.active.unwrap_or(0) == count && settled
        })
    };
    runs(3).await;
    for (patch, count) in [
        (json!({"parallelism": 1}), 1),
        (json!({"suspend": true}), 0),
        (json!({"suspend": false}), 1),
    ] {
        cluster
            .merge::<Job>("default", "calm", json!({"spec": patch}))
            .await;
        runs(count).await;
        let status = status(&cluster, "calm").await;
        assert_eq!(status.failed, None, "{patch}: {status:?}");
        assert!(
            !conditions(&status)
                .iter()
                .any(|(kind, _)| kind == "FailureTarget"),
            "{patch}: {status:?}"
        );
    }
    let status = ended(&cluster, "calm", "Succeeded").await;
    assert_eq!((status.succeeded, status.failed), (Some(3), None));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_that_a_job_lets_go_can_be_deleted() {
    let cluster = Cluster::start().await;
    cluster.run_agent();
    for name in ["relabelled", "orphaned"] {
        cluster.create::<Job>("default", job(name, json!({}))).await;
    }
    cluster
        .wait("the pods to run", || async {
            status(&cluster, "relabelled").await.ready == Some(1)
                && status(&cluster, "orphaned").await.ready == Some(1)
        })
        .await;
    let (relabelled, orphaned) = (
        active(&cluster, "relabelled").await,
        active(&cluster, "orphaned").await,
    );
    let (relabelled, orphaned) = (relabelled[0].name_any(), orphaned[0].name_any());
    let labels = json!({"metadata": {"labels": {"batch.kubernetes.io/controller-uid": null, "controller-uid": null}}});
    cluster.merge::<Pod>("default", &relabelled, labels).await;
    cluster
        .api::<Job>("default")
        .delete("orphaned", &DeleteParams::orphan())
        .await
        .unwrap();
    for name in [&relabelled, &orphaned] {
        cluster
            .wait("the pod to be let go", || async {
                let pod = cluster
                    .get_opt::<Pod>("default", name)
                    .await
                    .expect("nobody has deleted it");
                pod.owner_references().is_empty() && pod.finalizers().is_empty()
            })
            .await;
        cluster
            .api::<Pod>("default")
            .delete(name, &DeleteParams::default())
            .await
            .unwrap();
        cluster
            .wait("the pod to go", || async {
                cluster.get_opt::<Pod>("default", name).await.is_none()
            })
            .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pod_that_is_deleted_before_it_has_a_node_is_replaced() {
    // No agent: nothing is ever bound.
    let cluster = Cluster::start().await;
    cluster
        .create::<Job>(
            "default",
            job("waiting", json!({"podReplacementPolicy": "Failed"})),
        )
        .await;
    cluster
        .wait("its pod", || async {
            active(&cluster, "waiting").await.len() == 1
        })
        .await;
    let first = active(&cluster, "waiting").await[0].name_any();
    cluster
        .api::<Pod>("default")
        .delete(&first, &DeleteParams::default())
        .await
        .unwrap();
    cluster
        .wait("its end", || async {
            cluster.get_opt::<Pod>("default", &first).await.is_none()
        })
        .await;
    cluster
        .wait("the failure to be counted", || async {
            status(&cluster, "waiting").await.failed == Some(1)
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn job_of_another_manager_expires_too() {
    let cluster = Cluster::start().await;
    let spec = json!({"managedBy": "example.org/queue", "ttlSecondsAfterFinished": 0});
    cluster.create::<Job>("default", job("foreign", spec)).await;
    let at = "2026-01-01T00:00:00Z";
    let condition = |kind: &str| json!({"type": kind, "status": "True", "reason": "Done", "lastTransitionTime": at});
    let status = json!({"startTime": at, "completionTime": at, "succeeded": 1, "ready": 0, "terminating": 0,
        "uncountedTerminatedPods": {}, "conditions": [condition("SuccessCriteriaMet"), condition("Complete")]});
    let done = Patch::Merge(json!({"status": status}));
    cluster
        .api::<Job>("default")
        .patch_status("foreign", &PatchParams::default(), &done)
        .await
        .unwrap();
    cluster
        .wait("it to expire", || async {
            cluster.get_opt::<Job>("default", "foreign").await.is_none()
        })
        .await;
}
