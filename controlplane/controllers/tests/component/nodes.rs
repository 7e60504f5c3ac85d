//! Node ranges, silent nodes, and what every namespace gets.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, Pod, ServiceAccount};
use kube::{
    Api,
    api::{DeleteParams, PostParams},
};
use serde_json::json;

use crate::cluster::Cluster;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_node_gets_a_range_of_its_own_and_a_gone_ones_range_is_given_again() {
    let cluster = Cluster::start().await;
    for (name, ip) in [
        ("n1", "192.0.2.11"),
        ("n2", "192.0.2.12"),
        ("n3", "192.0.2.13"),
    ] {
        cluster.add_node(name, ip).await;
    }
    let range = |name: &'static str| {
        let cluster = &cluster;
        async move { cluster.node(name).await.spec.unwrap_or_default().pod_cidr }
    };
    let mut ranges = Vec::new();
    for name in ["n1", "n2", "n3"] {
        cluster
            .wait("a podCIDR", || async { range(name).await.is_some() })
            .await;
        ranges.push(range(name).await.unwrap());
    }
    let freed = ranges[1].clone();
    ranges.sort();
    assert_eq!(ranges, ["10.42.0.0/24", "10.42.1.0/24", "10.42.2.0/24"]);
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    nodes.delete("n2", &DeleteParams::default()).await.unwrap();
    cluster
        .wait("n2 to go", || async {
            nodes.get_opt("n2").await.unwrap().is_none()
        })
        .await;
    let late: Node = serde_json::from_value(json!({"metadata": {"name": "n4"}})).unwrap();
    nodes.create(&PostParams::default(), &late).await.unwrap();
    cluster
        .wait("a podCIDR", || async { range("n4").await.is_some() })
        .await;
    assert_eq!(range("n4").await.unwrap(), freed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_namespace_gets_an_account_and_the_root_certificate() {
    let cluster = Cluster::start().await;
    let namespaces: Api<Namespace> = Api::all(cluster.client.clone());
    let namespace: Namespace =
        serde_json::from_value(json!({"metadata": {"name": "fresh"}})).unwrap();
    namespaces
        .create(&PostParams::default(), &namespace)
        .await
        .unwrap();
    for name in ["fresh", "kube-system"] {
        cluster
            .wait("account and certificate", || async {
                let account: Option<ServiceAccount> = cluster.get_opt(name, "default").await;
                let bundle: Option<ConfigMap> = cluster.get_opt(name, "kube-root-ca.crt").await;
                account.is_some()
                    && bundle.is_some_and(|bundle| bundle.data.unwrap()["ca.crt"] == cluster.ca_pem)
            })
            .await;
    }
    cluster
        .api::<ServiceAccount>("fresh")
        .delete("default", &DeleteParams::default())
        .await
        .unwrap();
    cluster
        .merge::<ConfigMap>(
            "fresh",
            "kube-root-ca.crt",
            json!({"data": {"ca.crt": "mine", "more": "x"}}),
        )
        .await;
    cluster
        .wait("both to come back", || async {
            let account: Option<ServiceAccount> = cluster.get_opt("fresh", "default").await;
            let bundle: ConfigMap = cluster.get_opt("fresh", "kube-root-ca.crt").await.unwrap();
            account.is_some()
                && bundle.data.unwrap() == [("ca.crt".to_owned(), cluster.ca_pem.clone())].into()
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_node_becomes_unknown_and_its_pods_are_evicted() {
    let cluster = Cluster::start_with(|config| {
        config.node_monitor_period = Duration::from_millis(50);
        config.node_monitor_grace = Duration::from_millis(600);
        config.eviction_timeout = Duration::from_secs(2);
    })
    .await;
    cluster.add_node("n1", "192.0.2.11").await;
    cluster.add_node("n2", "192.0.2.12").await;
    let alive = {
        let (client, shutdown) = (cluster.client.clone(), cluster.shutdown.clone());
        coracle_telemetry::spawn("task of a test", async move {
            let leases: Api<k8s_openapi::api::coordination::v1::Lease> =
                Api::namespaced(client, "kube-node-lease");
            let mut ticks = tokio::time::interval(Duration::from_millis(100));
            while !shutdown.is_cancelled() {
                ticks.tick().await;
                let now = k8s_openapi::jiff::Timestamp::now()
                    .strftime("%Y-%m-%dT%H:%M:%S.%6fZ")
                    .to_string();
                let patch = kube::api::Patch::Merge(json!({"spec": {"renewTime": now}}));
                leases
                    .patch("n2", &Default::default(), &patch)
                    .await
                    .unwrap();
            }
        })
    };
    cluster.run_agent();
    // The fake agent binds to n1.
    let pod = json!({"metadata": {"name": "p"}, "spec": {
        "containers": [{"name": "c", "image": "i"}],
        "tolerations": [{"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1}],
    }});
    cluster.create::<Pod>("default", pod).await;
    cluster
        .wait("n1 to be unknown", || async {
            let conditions = cluster
                .node("n1")
                .await
                .status
                .unwrap_or_default()
                .conditions
                .unwrap_or_default();
            conditions.iter().any(|c| {
                c.type_ == "Ready"
                    && c.status == "Unknown"
                    && c.reason.as_deref() == Some("NodeStatusUnknown")
            })
        })
        .await;
    cluster
        .wait("the taints", || async {
            let taints = cluster
                .node("n1")
                .await
                .spec
                .unwrap_or_default()
                .taints
                .unwrap_or_default();
            taints
                .iter()
                .filter(|taint| taint.key == "node.kubernetes.io/unreachable")
                .count()
                == 2
        })
        .await;
    cluster
        .wait("the eviction", || async {
            cluster.get_opt::<Pod>("default", "p").await.is_none()
        })
        .await;
    let other = cluster.node("n2").await;
    assert!(
        other
            .spec
            .unwrap_or_default()
            .taints
            .unwrap_or_default()
            .is_empty()
    );
    alive.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_node_is_told_whose_serving_certificates_are_believed() {
    let cluster = Cluster::start().await;
    cluster.add_node("n1", "192.0.2.11").await;
    let told = || async {
        let annotations = cluster
            .node("n1")
            .await
            .metadata
            .annotations
            .unwrap_or_default();
        annotations.get("coracle.dev/kubelet-ca").cloned()
    };
    cluster
        .wait("the authority", || async {
            told().await.as_ref() == Some(&cluster.kubelet_ca_pem)
        })
        .await;
    // As a Node of data from before the authority was made anew.
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    let other = json!({"metadata": {"annotations": {"coracle.dev/kubelet-ca": "of another"}}});
    nodes
        .patch(
            "n1",
            &kube::api::PatchParams::default(),
            &kube::api::Patch::Merge(other),
        )
        .await
        .unwrap();
    cluster
        .wait("the present authority", || async {
            told().await.as_ref() == Some(&cluster.kubelet_ca_pem)
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_node_is_told_how_pods_reach_each_other_and_told_again() {
    const ANNOTATION: &str = "coracle.dev/pod-network";
    const EXPECTED: &str = r#"{"mode":"auto","vxlanPort":4789,"clusterCIDR":"10.42.0.0/16"}"#;
    let cluster = Cluster::start().await;
    cluster.add_node("n1", "192.0.2.11").await;
    let told = || async {
        let annotations = cluster
            .node("n1")
            .await
            .metadata
            .annotations
            .unwrap_or_default();
        annotations.get(ANNOTATION).cloned()
    };
    cluster
        .wait("the annotation", || async {
            told().await.as_deref() == Some(EXPECTED)
        })
        .await;
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    let other = json!({"metadata": {"annotations": {(ANNOTATION): r#"{"mode":"direct"}"#}}});
    nodes
        .patch(
            "n1",
            &kube::api::PatchParams::default(),
            &kube::api::Patch::Merge(other),
        )
        .await
        .unwrap();
    cluster
        .wait("what the server says", || async {
            told().await.as_deref() == Some(EXPECTED)
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_terminates_on_a_node_out_of_service_goes_at_once() {
    let cluster = Cluster::start().await;
    cluster.add_node("n1", "192.0.2.11").await;
    // Nobody runs there: the pods stay where they are bound, and are never said to have ended.
    for name in ["going", "staying"] {
        let pod = json!({"metadata": {"name": name, "finalizers": ["example.com/kept"]},
            "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}]}});
        cluster.create::<Pod>("default", pod).await;
    }
    let pods: Api<Pod> = cluster.api("default");
    pods.delete("going", &Default::default()).await.unwrap();
    let phase = |name: &'static str| {
        let pods = pods.clone();
        async move {
            let status = pods.get(name).await.unwrap().status;
            status.and_then(|status| status.phase)
        }
    };
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    let params = kube::api::PatchParams::default();
    let taint = json!({"spec": {"taints": [{"key": "node.kubernetes.io/out-of-service", "effect": "NoSchedule"}]}});
    nodes
        .patch("n1", &params, &kube::api::Patch::Merge(taint))
        .await
        .unwrap();
    let down = json!({"status": {"conditions": [{"type": "Ready", "status": "Unknown", "reason": "r", "message": "m"}]}});
    nodes
        .patch_status("n1", &params, &kube::api::Patch::Merge(down))
        .await
        .unwrap();
    cluster
        .wait("the end of the pod", || async {
            phase("going").await.as_deref() == Some("Failed")
        })
        .await;
    assert_eq!(phase("staying").await.as_deref(), Some("Pending"));
    let free = json!({"metadata": {"finalizers": null}});
    cluster.merge::<Pod>("default", "going", free).await;
    cluster
        .wait("the pod to go", || async {
            cluster.get_opt::<Pod>("default", "going").await.is_none()
        })
        .await;
}
