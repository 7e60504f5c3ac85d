//! Which pods get which nodes, and what is said of those that get none.

use k8s_openapi::api::{
    apps::v1::ReplicaSet,
    core::v1::{Namespace, Service},
};
use kube::{
    Api, Resource, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::cluster::{Cluster, small, wait};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_more_of_an_extended_resource_is_promised_than_there_is() {
    let cluster = Cluster::start().await;
    cluster.add_node("bare", small()).await;
    let mut with_gpu = small();
    with_gpu["nvidia.com/gpu"] = json!("1");
    cluster.add_node("gpu", with_gpu).await;
    cluster
        .add_pod("first", json!({"nvidia.com/gpu": "1"}), json!({}))
        .await;
    assert_eq!(cluster.placed("first").await, "gpu");
    cluster
        .add_pod("second", json!({"nvidia.com/gpu": "1"}), json!({}))
        .await;
    assert_eq!(
        cluster.refused("second").await,
        "0/2 nodes are available: 2 Insufficient nvidia.com/gpu. \
             preemption: 0/2 nodes are available: 1 No preemption victims found for incoming pod, 1 Preemption is not helpful for scheduling."
    );
    cluster
        .pods()
        .delete("first", &DeleteParams::default().grace_period(0))
        .await
        .unwrap();
    assert_eq!(cluster.placed("second").await, "gpu");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn why_a_pod_waits_is_told_in_upstreams_words_and_order() {
    let cluster = Cluster::start().await;
    cluster.add_node("a", small()).await;
    cluster.add_node("b", small()).await;
    cluster
        .add_node_with(
            "c",
            json!({"taints": [{"key": "k", "effect": "NoSchedule"}]}),
            small(),
        )
        .await;
    cluster
        .add_node_with("d", json!({"taints": null, "unschedulable": true}), small())
        .await;
    let why = "0/4 nodes are available: 1 node(s) had untolerated taint(s), 1 node(s) were unschedulable, 2 Insufficient cpu. \
             preemption: 0/4 nodes are available: 4 Preemption is not helpful for scheduling.";
    // Nodes may come after the pod has been looked at.
    wait("all nodes to be known", || async {
        cluster.figure("scheduler_cache_size", "type=\"nodes\"") == 4
    })
    .await;
    cluster
        .add_pod("large", json!({"cpu": "64"}), json!({}))
        .await;
    assert_eq!(cluster.refused("large").await, why);
    wait("the Event", || async {
        !cluster.failures().await.is_empty()
    })
    .await;
    let event = &cluster.failures().await[0];
    let said = [&event.message, &event.type_, &event.reporting_component]
        .map(|text| text.clone().unwrap_or_default());
    assert_eq!(said, [why, "Warning", "default-scheduler"]);
    assert_eq!(event.involved_object.name.as_deref(), Some("large"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_scheduler_cannot_see_to_is_not_ignored() {
    let cluster = Cluster::start().await;
    cluster.add_node("n", small()).await;
    let claims = json!([{"name": "gpu", "resourceClaimName": "g"}]);
    cluster
        .add_pod("claiming", json!({}), json!({"resourceClaims": claims}))
        .await;
    assert_eq!(
        cluster.refused("claiming").await,
        "0/1 nodes are available: this scheduler does not support resource claims yet; the pod waits instead of being placed as \
         if it had not asked. preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
    );
    cluster.add_pod("modest", json!({}), json!({})).await;
    cluster.placed("modest").await;
    let names: Vec<String> = cluster
        .pods()
        .list(&ListParams::default())
        .await
        .unwrap()
        .iter()
        .map(ResourceExt::name_any)
        .collect();
    assert_eq!(names, ["claiming", "modest"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gated_pod_is_tried_once_its_last_gate_is_gone() {
    let cluster = Cluster::start().await;
    cluster.add_node("n", small()).await;
    let gates = json!({"schedulingGates": [{"name": "example.org/a"}, {"name": "example.org/b"}]});
    cluster.add_pod("gated", json!({}), gates).await;
    let is_gated = || async { cluster.figure("scheduler_pending_pods", "queue=\"gated\"") == 1 };
    wait("the gate to be seen", is_gated).await;
    let open = async |gates: Value| {
        let patch = Patch::Merge(json!({"spec": {"schedulingGates": gates}}));
        cluster
            .pods()
            .patch("gated", &PatchParams::default(), &patch)
            .await
            .unwrap();
    };
    open(json!([{"name": "example.org/b"}])).await;
    cluster.add_pod("free", json!({}), json!({})).await;
    cluster.placed("free").await;
    assert!(is_gated().await);
    assert_eq!(
        cluster.scheduled("gated").await.unwrap().reason.as_deref(),
        Some("SchedulingGated")
    );
    open(json!([])).await;
    cluster.placed("gated").await;
    assert_eq!(cluster.attempts(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_of_a_quorum_share_no_node() {
    let cluster = Cluster::start().await;
    let add_node = async |name: &str| {
        cluster.add_node(name, small()).await;
        cluster
            .patch_node(
                name,
                json!({"metadata": {"labels": {"kubernetes.io/hostname": name}}}),
            )
            .await;
    };
    add_node("a").await;
    add_node("b").await;
    let term = json!({"labelSelector": {"matchLabels": {"app": "db"}}, "topologyKey": "kubernetes.io/hostname"});
    let apart =
        json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}});
    for name in ["first", "second", "third"] {
        cluster
            .add_labelled_pod(name, json!({"app": "db"}), json!({"affinity": apart}))
            .await;
    }
    let placed = [
        cluster.placed("first").await,
        cluster.placed("second").await,
    ];
    assert_ne!(placed[0], placed[1]);
    assert_eq!(
        cluster.refused("third").await,
        "0/2 nodes are available: 2 node(s) didn't match pod anti-affinity rules. \
             preemption: 0/2 nodes are available: 2 No preemption victims found for incoming pod."
    );
    // Who says nothing is kept away by those who do.
    cluster
        .add_labelled_pod("intruder", json!({"app": "db"}), json!({}))
        .await;
    assert_eq!(
        cluster.refused("intruder").await,
        "0/2 nodes are available: 2 node(s) didn't satisfy existing pods anti-affinity rules. \
             preemption: 0/2 nodes are available: 2 No preemption victims found for incoming pod."
    );
    let gone = DeleteParams::default();
    cluster.pods().delete("intruder", &gone).await.unwrap();
    add_node("c").await;
    assert_eq!(cluster.placed("third").await, "c");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_follows_another_into_a_namespace_that_is_labelled() {
    let cluster = Cluster::start().await;
    cluster.add_node("n", small()).await;
    cluster
        .patch_node("n", json!({"metadata": {"labels": {"zone": "z"}}}))
        .await;
    cluster
        .add_labelled_pod("leader", json!({"app": "db"}), json!({}))
        .await;
    cluster.placed("leader").await;
    let term = json!({
        "labelSelector": {"matchLabels": {"app": "db"}},
        "namespaceSelector": {"matchLabels": {"team": "blue"}},
        "topologyKey": "zone",
    });
    let near = json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}});
    cluster
        .add_labelled_pod("follower", json!({}), json!({"affinity": near}))
        .await;
    assert_eq!(
        cluster.refused("follower").await,
        "0/1 nodes are available: 1 node(s) didn't match pod affinity rules. \
             preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
    );
    let namespaces: Api<Namespace> = Api::all(cluster.client.clone());
    let patch = Patch::Merge(json!({"metadata": {"labels": {"team": "blue"}}}));
    namespaces
        .patch("default", &PatchParams::default(), &patch)
        .await
        .unwrap();
    cluster.placed("follower").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_are_spread_as_they_require() {
    let cluster = Cluster::start().await;
    for (name, zone) in [("a", "1"), ("b", "1"), ("c", "2")] {
        cluster.add_node(name, small()).await;
        cluster
            .patch_node(name, json!({"metadata": {"labels": {"zone": zone}}}))
            .await;
    }
    cluster
        .patch_node("c", json!({"spec": {"unschedulable": true}}))
        .await;
    let spread = json!({"topologySpreadConstraints": [{
        "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }]});
    wait("all nodes to be known", || async {
        cluster.figure("scheduler_cache_size", "type=\"nodes\"") == 3
    })
    .await;
    cluster
        .add_labelled_pod("first", json!({"app": "web"}), spread.clone())
        .await;
    cluster.placed("first").await;
    cluster
        .add_labelled_pod("second", json!({"app": "web"}), spread)
        .await;
    assert_eq!(
        cluster.refused("second").await,
        "0/3 nodes are available: 1 node(s) were unschedulable, 2 node(s) didn't match pod topology spread constraints. \
             preemption: 0/3 nodes are available: 1 Preemption is not helpful for scheduling, 2 No preemption victims found for incoming pod."
    );
    cluster
        .patch_node("c", json!({"spec": {"unschedulable": null}}))
        .await;
    assert_eq!(cluster.placed("second").await, "c");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_that_somebody_selects_are_spread_although_one_node_has_their_image() {
    let cluster = Cluster::start().await;
    let large = json!({"cpu": "16", "memory": "64Gi", "pods": "110"});
    for name in ["a", "b", "c"] {
        cluster.add_node(name, large.clone()).await;
        cluster
            .patch_node(
                name,
                json!({"metadata": {"labels": {"kubernetes.io/hostname": name}}}),
            )
            .await;
    }
    let images = json!({"status": {"images": [{"names": ["docker.io/library/i:latest"], "sizeBytes": 900 << 20}]}});
    cluster
        .nodes()
        .patch_status("a", &PatchParams::default(), &Patch::Merge(images))
        .await
        .unwrap();
    let service = json!({"metadata": {"name": "web"}, "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]}});
    let services: Api<Service> = Api::namespaced(cluster.client.clone(), "default");
    services
        .create(
            &PostParams::default(),
            &serde_json::from_value(service).unwrap(),
        )
        .await
        .unwrap();
    let labels = json!({"app": "db"});
    let template = json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let set = json!({"metadata": {"name": "db"}, "spec": {"selector": {"matchLabels": labels}, "template": template}});
    let sets: Api<ReplicaSet> = Api::namespaced(cluster.client.clone(), "default");
    let set = sets
        .create(
            &PostParams::default(),
            &serde_json::from_value(set).unwrap(),
        )
        .await
        .unwrap();
    let mut owner = set.controller_owner_ref(&()).unwrap();
    owner.block_owner_deletion = None;
    // A restarted scheduler has listed all of it before it decides.
    let mut cluster = cluster;
    cluster.restart_scheduler();
    for (app, owners) in [("web", json!([])), ("db", json!([owner]))] {
        let mut nodes = Vec::new();
        for number in 0..6 {
            let name = format!("{app}-{number}");
            cluster
                .add_owned_pod(&name, json!({"app": app}), owners.clone())
                .await;
            nodes.push(cluster.placed(&name).await);
        }
        nodes.sort_unstable();
        assert_eq!(nodes, ["a", "a", "b", "b", "c", "c"], "{app}");
    }
}
