//! The machine ends under its pods, with and without the runtime's records.

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::harness::{Cluster, container_status, is_ready, pod, waiting_reason};

fn phase(pod: &Pod) -> &str {
    pod.status
        .as_ref()
        .and_then(|status| status.phase.as_deref())
        .unwrap_or_default()
}

/// A pull has failed; the pod may be waiting for the next, or for its next start, already.
fn lacks_its_image(pod: &Pod) -> bool {
    matches!(
        waiting_reason(pod),
        Some("ErrImagePull" | "ImagePullBackOff" | "CrashLoopBackOff")
    )
}

fn starts(cluster: &Cluster, name: &str) -> usize {
    cluster
        .runtime
        .calls()
        .iter()
        .filter(|call| **call == format!("start_container {name}"))
        .count()
}

fn copy(cluster: &Cluster, uid: &str) -> Option<Pod> {
    let text = std::fs::read(cluster.copy_of(uid)).ok()?;
    serde_json::from_slice(&text).ok()
}

async fn reboot(cluster: &mut Cluster, keep_records: bool) {
    cluster.stop_agent().await;
    cluster.runtime.reboot(keep_records);
    cluster.start_agent();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_never_restarts_fails_with_its_node() {
    for keep_records in [true, false] {
        let mut cluster = Cluster::start().await;
        cluster
            .create(pod("job", json!({"restartPolicy": "Never"})))
            .await;
        let uid = cluster
            .wait_pod("job", is_ready)
            .await
            .metadata
            .uid
            .expect("uid");
        cluster
            .wait_until("the copy tells of it", async || {
                copy(&cluster, &uid).is_some_and(|copy| is_ready(&copy))
            })
            .await;
        reboot(&mut cluster, keep_records).await;
        let failed = cluster.wait_pod("job", |pod| phase(pod) == "Failed").await;
        let end = container_status(&failed)
            .state
            .and_then(|state| state.terminated)
            .expect("terminated");
        assert_eq!(
            (end.exit_code, end.reason.as_deref()),
            (255, Some("Unknown")),
            "{keep_records}"
        );
        assert_eq!(starts(&cluster, "main"), 1, "{keep_records}");
        cluster.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_succeeded_does_not_run_again_after_a_reboot() {
    let two = json!({"restartPolicy": "OnFailure", "containers": [
        {"name": "once", "image": "nginx:1", "imagePullPolicy": "IfNotPresent"},
        {"name": "main", "image": "nginx:1", "imagePullPolicy": "IfNotPresent"}]});
    for keep_records in [true, false] {
        let mut cluster = Cluster::start().await;
        cluster.create(pod("job", two.clone())).await;
        let uid = cluster
            .wait_pod("job", is_ready)
            .await
            .metadata
            .uid
            .expect("uid");
        let (_, containers) = cluster.runtime_state(&uid).await;
        let once = containers
            .iter()
            .find(|one| one.name == "once")
            .expect("it runs");
        cluster.runtime.exit(&once.id, 0, "Completed");
        let ended = |pod: &Pod| {
            let statuses = pod
                .status
                .as_ref()
                .and_then(|status| status.container_statuses.as_ref());
            let state = statuses
                .into_iter()
                .flatten()
                .find(|one| one.name == "once")
                .and_then(|one| one.state.as_ref());
            state.is_some_and(|state| state.terminated.is_some())
        };
        cluster.wait_pod("job", ended).await;
        // Where no record is left, the node's copy of the pod says what has ended.
        cluster
            .wait_until("the copy tells of it", async || {
                copy(&cluster, &uid).is_some_and(|copy| ended(&copy))
            })
            .await;
        reboot(&mut cluster, keep_records).await;
        cluster
            .wait_until("the other one runs again", async || {
                starts(&cluster, "main") == 2
            })
            .await;
        let counted = |pod: &Pod| {
            let statuses = pod
                .status
                .as_ref()
                .and_then(|status| status.container_statuses.as_ref());
            statuses
                .into_iter()
                .flatten()
                .any(|one| one.name == "main" && one.restart_count == 1)
        };
        cluster.wait_pod("job", counted).await;
        assert_eq!(starts(&cluster, "once"), 1, "{keep_records}");
        cluster.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn restarts_are_counted_on_after_a_reboot() {
    for keep_records in [true, false] {
        let mut cluster = Cluster::start().await;
        cluster.create(pod("web", json!({}))).await;
        cluster.wait_pod("web", is_ready).await;
        cluster.crash("web", 1).await;
        let restarted = |pod: &Pod| is_ready(pod) && container_status(pod).restart_count == 1;
        let uid = cluster
            .wait_pod("web", restarted)
            .await
            .metadata
            .uid
            .expect("uid");
        // Where no record is left, restarts are counted on from the node's copy of the pod.
        cluster
            .wait_until("the copy tells of it", async || {
                copy(&cluster, &uid).is_some_and(|copy| restarted(&copy))
            })
            .await;
        reboot(&mut cluster, keep_records).await;
        cluster
            .wait_pod("web", |pod| {
                is_ready(pod) && container_status(pod).restart_count == 2
            })
            .await;
        cluster.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ephemeral_container_runs_once_in_its_life() {
    for keep_records in [true, false] {
        let mut cluster = Cluster::start().await;
        cluster.create(pod("web", json!({}))).await;
        cluster.wait_pod("web", is_ready).await;
        let debug: Value =
            json!({"spec": {"ephemeralContainers": [{"name": "debug", "image": "nginx:1"}]}});
        let patch = Patch::Strategic(&debug);
        let pods = cluster.pods();
        pods.patch_subresource(
            "ephemeralcontainers",
            "web",
            &PatchParams::default(),
            &patch,
        )
        .await
        .expect("debug");
        let runs = |pod: &Pod| {
            let statuses = pod
                .status
                .as_ref()
                .and_then(|status| status.ephemeral_container_statuses.as_ref());
            statuses.into_iter().flatten().any(|one| {
                one.state
                    .as_ref()
                    .is_some_and(|state| state.running.is_some())
            })
        };
        let uid = cluster
            .wait_pod("web", runs)
            .await
            .metadata
            .uid
            .expect("uid");
        // Where no record is left, the node's copy of the pod says what has run.
        cluster
            .wait_until("the copy tells of it", async || {
                copy(&cluster, &uid).is_some_and(|copy| runs(&copy))
            })
            .await;
        reboot(&mut cluster, keep_records).await;
        cluster
            .wait_pod("web", |pod| {
                is_ready(pod) && container_status(pod).restart_count == 1
            })
            .await;
        assert_eq!(starts(&cluster, "debug"), 1, "{keep_records}");
        cluster.stop().await;
    }
}

/// The copy on disk is of before the pod ran, and nothing else is left but the API, which is away.
#[tokio::test(flavor = "multi_thread")]
async fn an_old_copy_alone_starts_nothing_that_must_run_once() {
    let mut cluster = Cluster::start().await;
    cluster
        .create(pod("job", json!({"restartPolicy": "Never"})))
        .await;
    let ran = cluster.wait_pod("job", is_ready).await;
    cluster.stop_agent().await;
    let copy = Pod {
        status: None,
        ..ran.clone()
    };
    let path = cluster.copy_of(ran.metadata.uid.as_deref().expect("uid"));
    std::fs::write(path, serde_json::to_vec(&copy).expect("JSON")).expect("write the copy");
    cluster.runtime.reboot(false);
    cluster.start_agent();
    cluster.wait_pod("job", |pod| phase(pod) == "Failed").await;
    assert_eq!(starts(&cluster, "main"), 1);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_starts_again_from_what_it_ran_without_proof() {
    for keep_records in [true, false] {
        let mut cluster = Cluster::start().await;
        cluster.create(pod("web", json!({}))).await;
        cluster.wait_pod("web", is_ready).await;
        cluster.images.close("nginx:1");
        reboot(&mut cluster, keep_records).await;
        let runs = |pod: &Pod| is_ready(pod) && container_status(pod).restart_count == 1;
        // Without records it is as any other, whatever its status says.
        cluster
            .wait_pod("web", |pod| {
                if keep_records {
                    runs(pod)
                } else {
                    lacks_its_image(pod)
                }
            })
            .await;
        assert_eq!(starts(&cluster, "main"), if keep_records { 2 } else { 1 });
        cluster.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_status_claims_opens_no_image() {
    let mut cluster = Cluster::start().await;
    cluster.images.close("nginx:1");
    cluster.stop_agent().await;
    cluster.create(pod("thief", json!({}))).await;
    let claim = json!({"status": {"containerStatuses": [{"name": "main", "image": "nginx:1",
        "imageID": "sha256:nginx:1", "ready": true, "restartCount": 0, "containerID": "coracle://x",
        "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}]}});
    let params = PatchParams::default();
    cluster
        .pods()
        .patch_status("thief", &params, &Patch::Merge(&claim))
        .await
        .expect("claim");
    cluster.start_agent();
    cluster.wait_pod("thief", lacks_its_image).await;
    assert_eq!(starts(&cluster, "main"), 0);
    cluster.stop().await;
}
