//! Pods that are asked to go at a bad moment, and what goes on beside a slow hook.

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use super::harness::{Cluster, container_status, is_ready, pod, waiting_reason};
use crate::runtime::RuntimeError;

fn hooked(name: &str, seconds: u64) -> Value {
    json!({"name": name, "image": "nginx:1", "imagePullPolicy": "IfNotPresent",
        "lifecycle": {"postStart": {"sleep": {"seconds": seconds}}}})
}

fn plain(name: &str) -> Value {
    json!({"name": name, "image": "nginx:1", "imagePullPolicy": "IfNotPresent"})
}

fn called(cluster: &Cluster, call: &str) -> bool {
    cluster.runtime.calls().iter().any(|made| made == call)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_deleted_before_its_start_is_not_started() {
    let cluster = Cluster::start().await;
    let hold = cluster.runtime.hold("run_pod_sandbox");
    cluster.create(pod("web", json!({}))).await;
    cluster
        .wait_until("its sandbox is being made", async || {
            called(&cluster, "run_pod_sandbox web")
        })
        .await;
    cluster
        .pods()
        .delete("web", &DeleteParams::default())
        .await
        .expect("delete");
    cluster
        .wait_pod("web", |pod| pod.metadata.deletion_timestamp.is_some())
        .await;
    // The agent hears of it by its watch, as of everything: whatever comes after a later pod has
    // come after that, too.
    cluster.create(pod("later", json!({}))).await;
    cluster
        .wait_until("the next one is heard of", async || {
            called(&cluster, "run_pod_sandbox later")
        })
        .await;
    drop(hold);
    cluster.wait_gone("web").await;
    cluster.wait_pod("later", is_ready).await;
    let all = cluster
        .runtime
        .calls()
        .iter()
        .filter(|call| *call == "start_container main")
        .count();
    assert_eq!(all, 1, "only the later pod's");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn deletion_does_not_wait_for_a_post_start_hook() {
    let cluster = Cluster::start().await;
    cluster
        .create(pod(
            "web",
            json!({"terminationGracePeriodSeconds": 600, "containers": [hooked("main", 300)]}),
        ))
        .await;
    cluster
        .wait_until("it is started", async || {
            called(&cluster, "start_container main")
        })
        .await;
    let params = DeleteParams {
        grace_period_seconds: Some(2),
        ..DeleteParams::default()
    };
    cluster.pods().delete("web", &params).await.expect("delete");
    // Long before the hook's end.
    cluster.wait_gone("web").await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hook_holds_up_what_comes_after_it_and_nothing_else() {
    let cluster = Cluster::start().await;
    let containers = json!([plain("first"), hooked("main", 300), plain("last")]);
    let spec = json!({"terminationGracePeriodSeconds": 600, "containers": containers});
    cluster.create(pod("web", spec)).await;
    cluster
        .wait_until("it is started", async || {
            called(&cluster, "start_container main")
        })
        .await;
    let state = |pod: &Pod, name: &str| {
        let statuses = pod
            .status
            .as_ref()
            .and_then(|status| status.container_statuses.clone())
            .unwrap_or_default();
        statuses
            .into_iter()
            .find(|one| one.name == name)
            .unwrap_or_default()
    };
    // The status goes on, and so do restarts of the others.
    let runs = |pod: &Pod| {
        state(pod, "first")
            .state
            .is_some_and(|state| state.running.is_some())
    };
    let seen = cluster.wait_pod("web", runs).await;
    for name in ["main", "last"] {
        let waits = state(&seen, name)
            .state
            .and_then(|state| state.waiting)
            .and_then(|waiting| waiting.reason);
        assert_eq!(waits.as_deref(), Some("ContainerCreating"), "{name}");
    }
    let (_, containers) = cluster
        .runtime_state(&seen.metadata.uid.expect("uid"))
        .await;
    let first = containers
        .iter()
        .find(|one| one.name == "first")
        .expect("it runs");
    cluster.runtime.exit(&first.id, 1, "Error");
    cluster
        .wait_pod("web", |pod| {
            runs(pod) && state(pod, "first").restart_count == 1
        })
        .await;
    assert!(
        !called(&cluster, "start_container last"),
        "it comes after the one with the hook"
    );
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn containers_go_on_when_the_hook_is_done() {
    let cluster = Cluster::start().await;
    cluster
        .create(pod(
            "web",
            json!({"containers": [hooked("main", 1), plain("last")]}),
        ))
        .await;
    cluster.wait_pod("web", is_ready).await;
    assert!(called(&cluster, "start_container last"));
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_hook_ends_its_container() {
    let cluster = Cluster::start().await;
    cluster
        .runtime
        .on_exec(|status, _| crate::runtime::types::ExecResult {
            exit_code: i32::from(status.attempt == 0),
            stdout: Vec::new(),
            stderr: Vec::new(),
        });
    let mut main = plain("main");
    main["lifecycle"] = json!({"postStart": {"exec": {"command": ["hook"]}}});
    cluster
        .create(pod("web", json!({"containers": [main]})))
        .await;
    cluster
        .wait_pod("web", |pod| {
            is_ready(pod) && container_status(pod).restart_count == 1
        })
        .await;
    assert!(called(&cluster, "stop_container main"));
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_nobody_wants_is_looked_for_until_it_is_found() {
    let mut cluster = Cluster::start().await;
    cluster.create(pod("web", json!({}))).await;
    let uid = cluster
        .wait_pod("web", is_ready)
        .await
        .metadata
        .uid
        .expect("uid");
    cluster.stop_agent().await;
    let params = DeleteParams {
        grace_period_seconds: Some(0),
        ..DeleteParams::default()
    };
    cluster.pods().delete("web", &params).await.expect("delete");
    // Without the copy only the runtime knows of it.
    std::fs::remove_dir_all(cluster.agent_dir().join("pods").join(&uid)).expect("directory");
    std::fs::remove_file(cluster.copy_of(&uid)).expect("remove the copy");
    for _ in 0..2 {
        let broken = RuntimeError::NotFound {
            kind: "anything",
            id: String::new(),
        };
        cluster.runtime.fail_next("list_pod_sandboxes", broken);
    }
    cluster.start_agent();
    cluster
        .wait_until("it is removed", async || {
            cluster
                .runtime
                .calls()
                .iter()
                .any(|call| call.starts_with("remove_pod_sandbox"))
        })
        .await;
    cluster.stop().await;
}

/// The object of a finished pod may stay for days, and its address be another pod's by then.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_asks_a_pod_that_is_over() {
    let cluster = Cluster::start().await;
    let mut main = plain("main");
    main["readinessProbe"] = json!({"exec": {"command": ["check"]}, "periodSeconds": 1});
    let spec = json!({"containers": [main], "activeDeadlineSeconds": 2});
    cluster.create(pod("web", spec)).await;
    let phase = |pod: &Pod| {
        pod.status
            .as_ref()
            .and_then(|status| status.phase.clone())
            .unwrap_or_default()
    };
    cluster.wait_pod("web", |pod| phase(pod) == "Failed").await;
    let probes = || {
        cluster
            .runtime
            .calls()
            .iter()
            .filter(|call| *call == "exec_sync main")
            .count()
    };
    let before = probes();
    assert!(before > 0);
    // Another pod's probes tell that two periods have passed.
    let mut other = plain("other");
    other["readinessProbe"] = json!({"exec": {"command": ["check"]}, "periodSeconds": 1});
    cluster
        .create(pod("other", json!({"containers": [other]})))
        .await;
    cluster
        .wait_until("two periods pass", async || {
            cluster
                .runtime
                .calls()
                .iter()
                .filter(|call| *call == "exec_sync other")
                .count()
                >= 3
        })
        .await;
    assert_eq!(probes(), before);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_image_does_not_wait_for_the_crashes_of_the_last_one() {
    let cluster = Cluster::start().await;
    // The first of the two waits until after the second would have waited.
    for name in ["other", "web"] {
        cluster
            .create(pod(name, json!({"containers": [plain(name)]})))
            .await;
        cluster.wait_pod(name, is_ready).await;
        cluster.crash(name, 1).await;
        cluster
            .wait_pod(name, |pod| {
                is_ready(pod) && container_status(pod).restart_count == 1
            })
            .await;
    }
    for name in ["other", "web"] {
        cluster.crash(name, 1).await;
        cluster
            .wait_pod(name, |pod| waiting_reason(pod) == Some("CrashLoopBackOff"))
            .await;
    }
    let patch = json!({"spec": {"containers": [{"name": "web", "image": "nginx:2"}]}});
    cluster
        .pods()
        .patch("web", &PatchParams::default(), &Patch::Strategic(&patch))
        .await
        .expect("patch");
    cluster
        .wait_pod("web", |pod| {
            is_ready(pod) && container_status(pod).image == "nginx:2"
        })
        .await;
    let other = cluster.pods().get("other").await.expect("pod");
    assert_eq!(
        container_status(&other).restart_count,
        1,
        "the back-off of the old image is not over"
    );
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_that_was_never_started_is_no_restart() {
    let cluster = Cluster::start().await;
    let why = RuntimeError::Oci {
        operation: "start container main".to_owned(),
        message: "planted".to_owned(),
    };
    cluster.runtime.fail_next("start_container", why);
    cluster
        .create(pod("once", json!({"restartPolicy": "Never"})))
        .await;
    let seen = cluster.wait_pod("once", is_ready).await;
    let status = container_status(&seen);
    assert_eq!(
        (
            status.restart_count,
            status.last_state.and_then(|state| state.terminated)
        ),
        (0, None)
    );
    let uid = seen.metadata.uid.expect("uid");
    cluster
        .wait_until("it alone is left", async || {
            cluster.runtime_state(&uid).await.1.len() == 1
        })
        .await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namesake_is_another_pod() {
    let cluster = Cluster::start().await;
    cluster.create(pod("web", json!({}))).await;
    let first = cluster
        .wait_pod("web", is_ready)
        .await
        .metadata
        .uid
        .expect("uid");
    // The node may hear of both at once.
    let now = DeleteParams {
        grace_period_seconds: Some(0),
        ..DeleteParams::default()
    };
    cluster.pods().delete("web", &now).await.expect("delete");
    cluster.create(pod("web", json!({}))).await;
    let second = cluster
        .wait_pod("web", is_ready)
        .await
        .metadata
        .uid
        .expect("uid");
    assert_ne!(first, second);
    cluster
        .wait_until("nothing of the first is left", async || {
            let (sandboxes, containers) = cluster.runtime_state(&first).await;
            sandboxes.is_empty() && containers.is_empty()
        })
        .await;
    assert_eq!(cluster.runtime_state(&second).await.0.len(), 1);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_somebody_deletes_is_back() {
    let cluster = Cluster::start().await;
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    let uid = async || {
        nodes
            .get_opt("n1")
            .await
            .expect("get")
            .and_then(|node| node.metadata.uid)
    };
    cluster
        .wait_until("the node is registered", async || uid().await.is_some())
        .await;
    let first = uid().await;
    nodes
        .delete("n1", &DeleteParams::default())
        .await
        .expect("delete");
    cluster
        .wait_until("the node is registered anew", async || {
            uid().await.is_some_and(|now| Some(now) != first)
        })
        .await;
    cluster.stop().await;
}
