//! What pods get of the node, what they may take, and what they mount.

use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::json;

use super::harness::{Cluster, container_status, is_ready, pod};
use crate::runtime::types::{ContainerState, Resources};

#[tokio::test(flavor = "multi_thread")]
async fn classes_weigh_what_the_pods_here_ask_for() {
    let cluster = Cluster::start().await;
    let weighs = |class: &'static str, shares: u64| {
        let runtime = &cluster.runtime;
        let shares_of = |class: Resources| class.cpu_shares;
        async move || {
            runtime
                .class_cgroup(&format!("/kubepods{class}"))
                .and_then(shares_of)
                == Some(shares)
        }
    };
    cluster
        .wait_until("the classes are empty", weighs("/burstable", 2))
        .await;
    let asks =
        json!([{"name": "main", "image": "nginx:1", "resources": {"requests": {"cpu": "500m"}}}]);
    for name in ["one", "other"] {
        cluster.create(pod(name, json!({"containers": asks}))).await;
    }
    cluster.create(pod("idle", json!({}))).await;
    cluster
        .wait_until("both count", weighs("/burstable", 1024))
        .await;
    assert!(weighs("/besteffort", 2)().await);
    let all = cluster.runtime.class_cgroup("/kubepods").expect("all pods");
    let node = Api::<Node>::all(cluster.client.clone())
        .get("n1")
        .await
        .expect("node")
        .status
        .expect("status");
    let memory = node.capacity.expect("capacity")["memory"].0.clone();
    assert_eq!(
        all.memory_limit_bytes
            .map(|bytes| format!("{}Ki", bytes / 1024)),
        Some(memory)
    );
    cluster
        .pods()
        .delete("one", &DeleteParams::default())
        .await
        .expect("delete");
    cluster
        .wait_until("one is gone", weighs("/burstable", 512))
        .await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_outgrows_its_volume_has_to_go() {
    let cluster = Cluster::start().await;
    let container = json!({"name": "main", "image": "nginx:1", "imagePullPolicy": "IfNotPresent",
        "volumeMounts": [{"name": "v", "mountPath": "/v"}]});
    let spec = json!({"containers": [container],
        "volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1Mi"}}]});
    cluster.create(pod("web", spec)).await;
    let uid = cluster
        .wait_pod("web", is_ready)
        .await
        .metadata
        .uid
        .expect("uid");
    let dir = cluster
        .agent_dir()
        .join("pods")
        .join(uid)
        .join("volumes/kubernetes.io~empty-dir/v");
    std::fs::write(dir.join("file"), vec![1; 3 << 20]).expect("write");
    let phase = |pod: &Pod| {
        pod.status
            .as_ref()
            .and_then(|status| status.phase.clone())
            .unwrap_or_default()
    };
    let status = cluster
        .wait_pod("web", |pod| phase(pod) == "Failed")
        .await
        .status
        .expect("status");
    assert_eq!(status.reason.as_deref(), Some("Evicted"));
    assert_eq!(
        status.message.as_deref(),
        Some("Usage of EmptyDir volume \"v\" exceeds the limit \"1Mi\". ")
    );
    let disrupted = status
        .conditions
        .iter()
        .flatten()
        .any(|condition| condition.type_ == "DisruptionTarget");
    assert!(!disrupted, "it went for what it did itself");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn volumes_stay_fresh_beside_a_container_that_crashes() {
    let mut cluster = Cluster::start().await;
    cluster.sync_interval = std::time::Duration::from_millis(500);
    cluster.restart_agent().await;
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client.clone(), "default");
    let map = serde_json::from_value(json!({"metadata": {"name": "cm"}, "data": {"k": "old"}}))
        .expect("map");
    maps.create(&PostParams::default(), &map)
        .await
        .expect("create");
    let container = |name: &str| {
        json!({"name": name, "image": "nginx:1", "imagePullPolicy": "IfNotPresent",
            "volumeMounts": [{"name": "v", "mountPath": "/v"}]})
    };
    let spec = json!({"containers": [container("crashes"), container("reads")],
        "volumes": [{"name": "v", "configMap": {"name": "cm"}}]});
    cluster.create(pod("web", spec)).await;
    let uid = cluster
        .wait_pod("web", is_ready)
        .await
        .metadata
        .uid
        .expect("uid");
    let crash = async || {
        let (_, containers) = cluster.runtime_state(&uid).await;
        let runs = |state: &ContainerState| matches!(state, ContainerState::Running { .. });
        let found = containers
            .iter()
            .find(|one| one.name == "crashes" && runs(&one.state));
        if let Some(one) = found {
            cluster.runtime.exit(&one.id, 1, "Error");
        }
        found.is_some()
    };
    // The second crash is waited out.
    for _ in 0..2 {
        cluster.wait_until("the container runs", crash).await;
    }
    let backs_off = |pod: &Pod| {
        let mut statuses = pod
            .status
            .iter()
            .flat_map(|status| status.container_statuses.iter().flatten());
        statuses.any(|one| {
            let waiting = one.state.as_ref().and_then(|state| state.waiting.as_ref());
            waiting.and_then(|waiting| waiting.reason.as_deref()) == Some("CrashLoopBackOff")
        })
    };
    cluster.wait_pod("web", backs_off).await;
    let change = Patch::Merge(json!({"data": {"k": "new"}}));
    maps.patch("cm", &PatchParams::default(), &change)
        .await
        .expect("patch");
    let file = cluster
        .agent_dir()
        .join("pods")
        .join(&uid)
        .join("volumes/kubernetes.io~configmap/v/k");
    cluster
        .wait_until("the file is new", async || {
            std::fs::read_to_string(&file).is_ok_and(|text| text == "new")
        })
        .await;
    assert!(
        backs_off(&cluster.pods().get("web").await.expect("get")),
        "nobody has started it meanwhile"
    );
    cluster.stop().await;
}

/// As a chart does it: the ConfigMap first, then whoever is to read it, and all in a moment.
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_never_starts_with_a_config_map_of_before_it_was_made() {
    let cluster = Cluster::start().await;
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client.clone(), "default");
    let map = json!({"metadata": {"name": "cm"}, "data": {"k": "first"}});
    let map = serde_json::from_value(map).expect("map");
    let params = PostParams::default();
    maps.create(&params, &map).await.expect("create");
    for number in 0..5 {
        let changed = Patch::Merge(json!({"data": {"k": number.to_string()}}));
        let params = PatchParams::default();
        maps.patch("cm", &params, &changed).await.expect("patch");
        let mounts = json!([{"name": "v", "mountPath": "/v"}]);
        let container = json!({"name": "c", "image": "nginx:1", "volumeMounts": mounts});
        let spec = json!({"containers": [container], "volumes": [{"name": "v", "configMap": {"name": "cm"}}]});
        let name = format!("web-{number}");
        cluster.create(pod(&name, spec)).await;
        let ready = cluster.wait_pod(&name, is_ready).await;
        let uid = ready.metadata.uid.expect("uid");
        let dir = cluster.agent_dir().join("pods").join(uid);
        let file = dir.join("volumes/kubernetes.io~configmap/v/k");
        let text = std::fs::read_to_string(file).expect("the file");
        assert_eq!(text, number.to_string());
    }
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn resize_changes_a_running_container() {
    let cluster = Cluster::start().await;
    let sized = |limits: serde_json::Value| json!({"name": "main", "image": "nginx:1", "resources": {"limits": limits}});
    cluster
        .create(pod(
            "web",
            json!({"containers": [sized(json!({"cpu": "100m", "memory": "64Mi"}))]}),
        ))
        .await;
    let before = cluster.wait_pod("web", is_ready).await;
    let resize = async |limits: serde_json::Value| {
        let requirements = json!({"limits": limits, "requests": limits});
        let patch = json!({"spec": {"containers": [{"name": "main", "resources": requirements}]}});
        let patch = Patch::Strategic(&patch);
        cluster
            .pods()
            .patch_subresource("resize", "web", &PatchParams::default(), &patch)
            .await
    };
    let limit = |pod: &Pod, name: &str| {
        let limits = container_status(pod)
            .resources
            .and_then(|resources| resources.limits)
            .unwrap_or_default();
        limits.get(name).map(|amount| amount.0.clone())
    };
    resize(json!({"cpu": "200m", "memory": "32Mi"}))
        .await
        .expect("resize");
    let after = cluster
        .wait_pod("web", |pod| {
            limit(pod, "cpu").as_deref() == Some("200m") && !is_resizing(pod)
        })
        .await;
    assert_eq!(
        (
            limit(&after, "memory").as_deref(),
            container_status(&after).restart_count
        ),
        (Some("32Mi"), 0)
    );
    assert_eq!(
        container_status(&after).container_id,
        container_status(&before).container_id
    );
    let (sandboxes, containers) = cluster
        .runtime_state(&after.metadata.uid.expect("uid"))
        .await;
    for resources in [&sandboxes[0].resources, &containers[0].resources] {
        assert_eq!(
            (resources.cpu_quota_us, resources.memory_limit_bytes),
            (Some(20_000), Some(32 << 20))
        );
    }

    // More than its node has.
    let refused = resize(json!({"cpu": "10M", "memory": "32Mi"})).await;
    let why = refused.expect_err("refused").to_string();
    assert!(
        why.contains("Node didn't have enough allocatable resources: cpu"),
        "{why}"
    );
    cluster.stop().await;
}

fn is_resizing(pod: &Pod) -> bool {
    let mut conditions = pod
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    conditions.any(|condition| condition.type_.starts_with("PodResize"))
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_are_evicted_one_after_the_other_while_the_node_is_short() {
    // However many process IDs are free, they are too few.
    let cluster = Cluster::start_with("pid.available<100%".parse().expect("thresholds")).await;
    for (name, class) in [("system", "system-node-critical"), ("web", "")] {
        cluster
            .create(pod(name, json!({"priorityClassName": class})))
            .await;
    }
    let phase = |pod: &Pod| {
        pod.status
            .as_ref()
            .and_then(|status| status.phase.clone())
            .unwrap_or_default()
    };
    let evicted = cluster
        .wait_pod("web", |pod| phase(pod) == "Failed")
        .await
        .status
        .expect("status");
    assert_eq!(evicted.reason.as_deref(), Some("Evicted"));
    let message = evicted.message.unwrap_or_default();
    assert!(
        message.starts_with("The node was low on resource: pids. Threshold quantity: "),
        "{message}"
    );
    let conditions = evicted.conditions.unwrap_or_default();
    let target = conditions
        .iter()
        .find(|condition| condition.type_ == "DisruptionTarget")
        .expect("condition");
    assert_eq!(
        (&*target.status, target.reason.as_deref()),
        ("True", Some("TerminationByKubelet"))
    );
    let spared = cluster.wait_pod("system", is_ready).await;
    assert_eq!(phase(&spared), "Running");
    // The next one goes, too.
    cluster.create(pod("later", json!({}))).await;
    cluster
        .wait_pod("later", |pod| phase(pod) == "Failed")
        .await;
    cluster.stop().await;
}
