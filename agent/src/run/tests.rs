//! A whole agent over a fake runtime, against a real API server in memory.

mod admission;
mod endings;
mod harness;
mod reboot;
mod resources;
mod restart;
mod start_errors;
mod volumes;

use k8s_openapi::api::core::v1::{ConfigMap, Event, Node, Pod};
use kube::{
    Api,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::json;

use crate::runtime::types::ContainerState;
use harness::{Cluster, container_status, is_ready, pod, waiting_reason};

#[tokio::test(flavor = "multi_thread")]
async fn pod_with_a_present_image_becomes_ready() {
    let cluster = Cluster::start().await;
    cluster.create(pod("web", json!({}))).await;
    let ready = cluster.wait_pod("web", is_ready).await;
    let status = ready.status.expect("status");
    assert_eq!(status.phase.as_deref(), Some("Running"));
    assert!(status.pod_ip.is_some() && status.start_time.is_some() && status.host_ip.is_some());
    assert_eq!(status.qos_class.as_deref(), Some("BestEffort"));
    let container = &status.container_statuses.expect("containers")[0];
    assert!(container.ready && container.started == Some(true) && container.restart_count == 0);
    assert!(
        container
            .container_id
            .as_deref()
            .is_some_and(|id| id.starts_with("coracle://"))
    );
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn crashed_container_restarts_and_then_backs_off() {
    let cluster = Cluster::start().await;
    cluster.create(pod("web", json!({}))).await;
    cluster.wait_pod("web", is_ready).await;
    cluster.crash("web", 1).await;
    cluster
        .wait_pod("web", |pod| {
            is_ready(pod) && container_status(pod).restart_count == 1
        })
        .await;
    cluster.crash("web", 2).await;
    let waiting = cluster
        .wait_pod("web", |pod| waiting_reason(pod) == Some("CrashLoopBackOff"))
        .await;
    let status = container_status(&waiting);
    assert_eq!(
        status
            .last_state
            .as_ref()
            .and_then(|state| state.terminated.as_ref())
            .map(|end| end.exit_code),
        Some(2)
    );
    assert!(!is_ready(&waiting));
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_would_change_the_node_is_refused() {
    let cluster = Cluster::start().await;
    let sysctl =
        |name: &str| json!({"securityContext": {"sysctls": [{"name": name, "value": "1"}]}});
    cluster
        .create(pod("bad", sysctl("kernel.core_pattern")))
        .await;
    cluster
        .create(pod("good", sysctl("net.ipv4.tcp_syncookies")))
        .await;
    let failed = |pod: &Pod| {
        pod.status
            .as_ref()
            .is_some_and(|status| status.phase.as_deref() == Some("Failed"))
    };
    let bad = cluster.wait_pod("bad", failed).await;
    let status = bad.status.expect("status");
    assert_eq!(status.reason.as_deref(), Some("SysctlForbidden"));
    let message = "Pod was rejected: forbidden sysctl: \"kernel.core_pattern\" not allowlisted";
    assert_eq!(status.message.as_deref(), Some(message));
    cluster.wait_pod("good", is_ready).await;
    assert!(
        !cluster
            .runtime
            .calls()
            .iter()
            .any(|call| call.contains("bad")),
        "{:?}",
        cluster.runtime.calls()
    );
    let events: Api<Event> = Api::namespaced(cluster.client.clone(), "default");
    cluster
        .wait_until("the event SysctlForbidden", async || {
            let list = events.list(&ListParams::default()).await.expect("events");
            list.items
                .iter()
                .any(|event| event.reason.as_deref() == Some("SysctlForbidden"))
        })
        .await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_pod_leaves_nothing() {
    let cluster = Cluster::start().await;
    cluster
        .create(pod(
            "web",
            json!({"volumes": [{"name": "v", "emptyDir": {}}]}),
        ))
        .await;
    let uid = cluster
        .wait_pod("web", is_ready)
        .await
        .metadata
        .uid
        .expect("uid");
    cluster.delete("web").await;
    let left = cluster.runtime_state(&uid).await;
    assert!(left.0.is_empty() && left.1.is_empty(), "{left:?}");
    cluster
        .wait_until("the pod's directory and copy are gone", async || {
            !cluster.agent_dir().join("pods").join(&uid).exists() && !cluster.copy_of(&uid).exists()
        })
        .await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn absent_image_is_a_waiting_reason_until_it_comes() {
    let cluster = Cluster::start().await;
    cluster.images.withhold("nginx:1");
    cluster.create(pod("web", json!({}))).await;
    cluster
        .wait_pod("web", |pod| {
            matches!(
                waiting_reason(pod),
                Some("ErrImagePull" | "ImagePullBackOff")
            )
        })
        .await;
    cluster
        .wait_pod("web", |pod| waiting_reason(pod) == Some("ImagePullBackOff"))
        .await;
    cluster.images.provide("nginx:1");
    cluster.wait_pod("web", is_ready).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn environment_comes_from_config_maps() {
    let cluster = Cluster::start().await;
    let spec = json!({"containers": [{"name": "main", "image": "nginx:1", "args": ["$(COLOR)"], "env": [
        {"name": "COLOR", "valueFrom": {"configMapKeyRef": {"name": "cm", "key": "color"}}},
        {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}]}]});
    cluster.create(pod("web", spec)).await;
    cluster
        .wait_pod("web", |pod| {
            waiting_reason(pod) == Some("CreateContainerConfigError")
        })
        .await;
    let map: ConfigMap =
        serde_json::from_value(json!({"metadata": {"name": "cm"}, "data": {"color": "blue"}}))
            .expect("map");
    Api::<ConfigMap>::namespaced(cluster.client.clone(), "default")
        .create(&PostParams::default(), &map)
        .await
        .expect("create");
    let ready = cluster.wait_pod("web", is_ready).await;
    let (_, containers) = cluster
        .runtime_state(&ready.metadata.uid.expect("uid"))
        .await;
    let config = cluster
        .runtime
        .container_config(&containers[0].id)
        .expect("config");
    assert_eq!(config.args, ["blue"]);
    assert!(config.env.contains(&("NODE".to_owned(), "n1".to_owned())));
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sub_path_without_a_value_keeps_the_container_from_the_volume() {
    let cluster = Cluster::start().await;
    let mount = json!({"name": "v", "mountPath": "/data", "subPathExpr": "$(TENANT)"});
    let main =
        |env| json!({"name": "main", "image": "nginx:1", "env": env, "volumeMounts": [mount]});
    let volumes = json!([{"name": "v", "emptyDir": {}}]);
    for (name, env) in [
        ("empty", json!([{"name": "TENANT", "value": ""}])),
        ("absent", json!([])),
    ] {
        cluster
            .create(pod(
                name,
                json!({"containers": [main(env)], "volumes": volumes}),
            ))
            .await;
        let waiting = cluster
            .wait_pod(name, |pod| {
                waiting_reason(pod) == Some("CreateContainerConfigError")
            })
            .await;
        let message = container_status(&waiting)
            .state
            .and_then(|state| state.waiting?.message);
        assert_eq!(
            message.as_deref(),
            Some("missing value for TENANT"),
            "{name}"
        );
        let volume = format!(
            "pods/{}/volumes/kubernetes.io~empty-dir/v",
            waiting.metadata.uid.expect("uid")
        );
        let made = std::fs::read_dir(cluster.agent_dir().join(volume))
            .expect("the volume")
            .count();
        assert_eq!(made, 0, "{name}");
    }
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn init_containers_run_before_the_others() {
    let cluster = Cluster::start().await;
    cluster
        .create(pod(
            "web",
            json!({"initContainers": [{"name": "init", "image": "nginx:1"}]}),
        ))
        .await;
    let uid = cluster
        .wait_pod("web", |_| true)
        .await
        .metadata
        .uid
        .expect("uid");
    cluster
        .wait_until("the init container runs", async || {
            cluster
                .runtime_state(&uid)
                .await
                .1
                .iter()
                .any(|c| c.name == "init" && matches!(c.state, ContainerState::Running { .. }))
        })
        .await;
    let (_, containers) = cluster.runtime_state(&uid).await;
    assert_eq!(containers.len(), 1);
    cluster.runtime.exit(&containers[0].id, 0, "Completed");
    cluster.wait_pod("web", is_ready).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn finished_job_pod_succeeds_and_stays() {
    let cluster = Cluster::start().await;
    cluster
        .create(pod("job", json!({"restartPolicy": "Never"})))
        .await;
    cluster.wait_pod("job", is_ready).await;
    cluster.crash("job", 0).await;
    let done = cluster
        .wait_pod("job", |pod| {
            pod.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Succeeded")
        })
        .await;
    assert!(!is_ready(&done));
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn failing_liveness_probe_restarts() {
    let cluster = Cluster::start().await;
    cluster
        .runtime
        .on_exec(|status, _| crate::runtime::types::ExecResult {
            exit_code: i32::from(status.attempt == 0),
            stdout: Vec::new(),
            stderr: b"sick".to_vec(),
        });
    let probe = json!({"exec": {"command": ["check"]}, "periodSeconds": 1, "failureThreshold": 1});
    cluster
        .create(pod(
            "web",
            json!({"containers": [{"name": "main", "image": "nginx:1", "livenessProbe": probe}]}),
        ))
        .await;
    cluster
        .wait_pod("web", |pod| {
            is_ready(pod) && container_status(pod).restart_count == 1
        })
        .await;
    let events: Api<Event> = Api::namespaced(cluster.client.clone(), "default");
    cluster
        .wait_until("the event Unhealthy", async || {
            let list = events.list(&ListParams::default()).await.expect("events");
            list.items.iter().any(|event| {
                event.reason.as_deref() == Some("Unhealthy")
                    && event.message.as_deref() == Some("Liveness probe failed: sick")
            })
        })
        .await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_sandbox_is_made_anew() {
    let cluster = Cluster::start().await;
    cluster.create(pod("web", json!({}))).await;
    let uid = cluster
        .wait_pod("web", is_ready)
        .await
        .metadata
        .uid
        .expect("uid");
    let (sandboxes, _) = cluster.runtime_state(&uid).await;
    cluster.runtime.kill_sandbox(&sandboxes[0].id);
    cluster
        .wait_pod("web", |pod| {
            is_ready(pod) && container_status(pod).restart_count == 1
        })
        .await;
    let stopped = format!("stop_pod_sandbox {}", sandboxes[0].id);
    assert!(
        cluster.runtime.calls().contains(&stopped),
        "the dead sandbox keeps its network"
    );
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn node_registers_with_what_it_has() {
    let cluster = Cluster::start().await;
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    cluster
        .wait_until("the node is Ready", async || {
            let node = nodes.get_opt("n1").await.expect("get");
            let conditions = node
                .and_then(|node| node.status)
                .and_then(|status| status.conditions)
                .unwrap_or_default();
            conditions
                .iter()
                .any(|c| c.type_ == "Ready" && c.status == "True")
        })
        .await;
    let node = nodes.get("n1").await.expect("node");
    let status = node.status.expect("status");
    assert!(status.capacity.expect("capacity").contains_key("memory"));
    assert_eq!(status.addresses.expect("addresses").len(), 2);
    nodes
        .delete("n1", &DeleteParams::default())
        .await
        .expect("delete");
    cluster
        .wait_until("the node registers again", async || {
            nodes.get_opt("n1").await.expect("get").is_some()
        })
        .await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_image_replaces_the_container() {
    let cluster = Cluster::start().await;
    cluster.create(pod("web", json!({}))).await;
    cluster.wait_pod("web", is_ready).await;
    let patch = json!({"spec": {"containers": [{"name": "main", "image": "nginx:2"}]}});
    cluster
        .pods()
        .patch("web", &PatchParams::default(), &Patch::Strategic(&patch))
        .await
        .expect("patch");
    let changed: Pod = cluster
        .wait_pod("web", |pod| {
            is_ready(pod) && container_status(pod).image == "nginx:2"
        })
        .await;
    assert_eq!(container_status(&changed).restart_count, 1);
    cluster.stop().await;
}
