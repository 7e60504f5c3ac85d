//! What cannot be carried out: programs that do not start, probes that cannot be asked.

use k8s_openapi::api::core::v1::Event;
use kube::{Api, api::ListParams};
use serde_json::json;

use super::harness::{Cluster, container_status, pod};

#[tokio::test(flavor = "multi_thread")]
async fn probe_that_cannot_be_carried_out_is_told_after_three_tries() {
    let cluster = Cluster::start().await;
    for _ in 0..3 {
        let error = crate::runtime::RuntimeError::NotFound {
            kind: "shim",
            id: "1".to_owned(),
        };
        cluster.runtime.fail_next("exec_sync", error);
    }
    let probe = json!({"exec": {"command": ["check"]}, "periodSeconds": 60});
    cluster
        .create(pod(
            "web",
            json!({"containers": [{"name": "main", "image": "nginx:1", "livenessProbe": probe}]}),
        ))
        .await;
    let events: Api<Event> = Api::namespaced(cluster.client.clone(), "default");
    let said = "Liveness probe errored and resulted in unknown state: shim 1 does not exist";
    cluster
        .wait_until("the event Unhealthy", async || {
            let list = events.list(&ListParams::default()).await.expect("events");
            list.items.iter().any(|event| {
                event.reason.as_deref() == Some("Unhealthy")
                    && event.message.as_deref() == Some(said)
            })
        })
        .await;
    let tries = cluster.runtime.calls();
    let tries = tries.iter().filter(|call| *call == "exec_sync main");
    assert_eq!(tries.count(), 3);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn start_that_fails_for_good_ends_a_pod_that_runs_once() {
    let cluster = Cluster::start().await;
    cluster.runtime.refuse_next_start("exec: no such file");
    cluster
        .create(pod("job", json!({"restartPolicy": "Never"})))
        .await;
    let failed = cluster
        .wait_pod("job", |pod| {
            pod.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Failed")
        })
        .await;
    let state = container_status(&failed).state.expect("state");
    let end = state.terminated.expect("terminated");
    assert_eq!(
        (end.exit_code, end.reason.as_deref(), end.message.as_deref()),
        (128, Some("StartError"), Some("exec: no such file"))
    );
    cluster.stop().await;
}

/// Waits for an event of this reason; the reasons of all that have been told by then.
async fn reasons_with(cluster: &Cluster, reason: &str) -> Vec<String> {
    let events: Api<Event> = Api::namespaced(cluster.client.clone(), "default");
    let told = async || {
        let list = events.list(&ListParams::default()).await.expect("events");
        let reasons = list.items.into_iter().filter_map(|event| event.reason);
        reasons.collect::<Vec<_>>()
    };
    cluster
        .wait_until(reason, async || {
            told().await.iter().any(|one| one == reason)
        })
        .await;
    told().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_without_its_volumes_pulls_nothing() {
    let cluster = Cluster::start().await;
    let volumes = json!([{"name": "v", "configMap": {"name": "none"}}]);
    let container = json!({"name": "main", "image": "nginx:1", "imagePullPolicy": "IfNotPresent",
        "volumeMounts": [{"name": "v", "mountPath": "/v"}]});
    cluster
        .create(pod(
            "web",
            json!({"containers": [container], "volumes": volumes}),
        ))
        .await;
    let told = reasons_with(&cluster, "FailedMount").await;
    let pulls = told.iter().find(|reason| reason.starts_with("Pull"));
    assert_eq!(pulls, None, "{told:?}");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_whose_sandbox_fails_is_not_told_of_its_image() {
    let cluster = Cluster::start().await;
    let error = || crate::runtime::RuntimeError::InvalidConfig {
        message: "no".to_owned(),
    };
    for _ in 0..100 {
        cluster.runtime.fail_next("run_pod_sandbox", error());
    }
    cluster.create(pod("web", json!({}))).await;
    let told = reasons_with(&cluster, "FailedCreatePodSandBox").await;
    assert!(!told.contains(&"Pulled".to_owned()), "{told:?}");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_hears_that_there_is_no_cluster_dns() {
    let cluster = Cluster::start().await;
    cluster.create(pod("web", json!({}))).await;
    reasons_with(&cluster, "MissingClusterDNS").await;
    cluster.stop().await;
}
