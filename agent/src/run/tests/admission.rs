//! Pods that are bound to a node without its scheduler's leave.

use k8s_openapi::api::core::v1::{Event, Node, Pod};
use kube::{
    Api,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::json;

use super::harness::{Cluster, is_ready, pod};

fn phase(pod: &Pod) -> &str {
    pod.status
        .as_ref()
        .and_then(|status| status.phase.as_deref())
        .unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_whose_host_port_is_taken_fails() {
    let cluster = Cluster::start().await;
    let port = json!({"containers": [{"name": "main", "image": "nginx:1", "ports": [{"containerPort": 80, "hostPort": 80}]}]});
    cluster.create(pod("first", port.clone())).await;
    cluster.wait_pod("first", is_ready).await;
    cluster.create(pod("second", port.clone())).await;
    let failed = cluster
        .wait_pod("second", |pod| phase(pod) == "Failed")
        .await
        .status
        .expect("status");
    assert_eq!(failed.reason.as_deref(), Some("NodePorts"));
    let message =
        "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports";
    assert_eq!(failed.message, Some(format!("Pod was rejected: {message}")));
    assert_eq!(failed.container_statuses, None);
    assert!(
        !cluster
            .runtime
            .calls()
            .contains(&"run_pod_sandbox second".to_owned())
    );
    let events: Api<Event> = Api::namespaced(cluster.client.clone(), "default");
    cluster
        .wait_until("the event", async || {
            let list = events.list(&ListParams::default()).await.expect("events");
            list.items.iter().any(|event| {
                (event.reason.as_deref(), event.message.as_deref())
                    == (Some("NodePorts"), Some(message))
            })
        })
        .await;
    // A refused pod takes nothing, goes as any other, and the port is free once its holder is gone.
    for name in ["second", "first"] {
        cluster.delete(name).await;
    }
    cluster.create(pod("third", port)).await;
    cluster.wait_pod("third", is_ready).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_runs_keeps_its_place_over_a_restart() {
    let mut cluster = Cluster::start().await;
    let cpus = |milli: usize| {
        json!({"containers": [{"name": "main", "image": "nginx:1", "imagePullPolicy": "IfNotPresent",
            "resources": {"requests": {"cpu": format!("{milli}m")}}}]})
    };
    let all = std::thread::available_parallelism()
        .expect("a number")
        .get()
        * 1000;
    cluster.create(pod("late", cpus(all))).await;
    cluster.wait_pod("late", is_ready).await;
    // More than there is, but the API takes it.
    cluster.create(pod("huge", cpus(all + 1))).await;
    let huge = cluster
        .wait_pod("huge", |pod| phase(pod) == "Failed")
        .await
        .status
        .expect("status");
    assert_eq!(huge.reason.as_deref(), Some("OutOfcpu"));
    cluster.stop_agent().await;
    // Older than the one that runs, by its making.
    cluster.create(pod("early", cpus(100))).await;
    cluster.start_agent();
    let early = cluster
        .wait_pod("early", |pod| phase(pod) == "Failed")
        .await
        .status
        .expect("status");
    assert_eq!(early.reason.as_deref(), Some("OutOfcpu"));
    assert!(is_ready(&cluster.pods().get("late").await.expect("get")));
    cluster.stop().await;
}

/// All are judged before the first of them has a worker that could say anything.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_pod_takes_no_place() {
    let mut cluster = Cluster::start().await;
    cluster.stop_agent().await;
    let all = std::thread::available_parallelism()
        .expect("a number")
        .get()
        * 1000;
    let asks = |milli: usize| json!([{"name": "main", "image": "nginx:1", "resources": {"requests": {"cpu": format!("{milli}m")}}}]);
    let wild = json!({"sysctls": [{"name": "kernel.msgmax", "value": "1"}]});
    let fine = ["a", "b", "c", "d", "e", "f"];
    for name in ["first", "second"] {
        cluster
            .create(pod(
                name,
                json!({"containers": asks(all), "securityContext": wild}),
            ))
            .await;
    }
    for name in fine {
        cluster
            .create(pod(name, json!({"containers": asks(1)})))
            .await;
    }
    cluster.start_agent();
    for name in fine {
        cluster.wait_pod(name, is_ready).await;
    }
    for name in ["first", "second"] {
        let refused = cluster
            .wait_pod(name, |pod| phase(pod) == "Failed")
            .await
            .status
            .expect("status");
        let message = "Pod was rejected: forbidden sysctl: \"kernel.msgmax\" not allowlisted";
        assert_eq!(
            (refused.reason.as_deref(), refused.message.as_deref()),
            (Some("SysctlForbidden"), Some(message))
        );
        assert_eq!(refused.container_statuses, None);
    }
    cluster.stop().await;
}

/// The label may reach the API, the scheduler and a pod the node before the node's own watch does.
#[tokio::test(flavor = "multi_thread")]
async fn a_label_that_came_just_now_counts() {
    let cluster = Cluster::start().await;
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    cluster
        .wait_until("the node is there", async || {
            nodes.get_opt("n1").await.expect("get").is_some()
        })
        .await;
    cluster
        .create(pod("before", json!({"nodeSelector": {"disk": "ssd"}})))
        .await;
    let refused = cluster
        .wait_pod("before", |pod| phase(pod) == "Failed")
        .await
        .status
        .expect("status");
    assert_eq!(refused.reason.as_deref(), Some("NodeAffinity"));
    let label = json!({"metadata": {"labels": {"disk": "ssd"}}});
    nodes
        .patch("n1", &PatchParams::default(), &Patch::Merge(&label))
        .await
        .expect("label");
    cluster
        .create(pod("after", json!({"nodeSelector": {"disk": "ssd"}})))
        .await;
    cluster.wait_pod("after", is_ready).await;
    cluster.stop().await;
}
