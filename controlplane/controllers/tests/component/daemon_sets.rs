//! DaemonSets, as upstream's conformance asks of them.

use std::{collections::BTreeSet, sync::atomic::Ordering};

use k8s_openapi::api::{
    apps::v1::{ControllerRevision, DaemonSet},
    core::v1::{Node, Pod},
};
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::cluster::{Cluster, named_node};

fn daemon_set(strategy: Value) -> Value {
    json!({"metadata": {"name": "ds"}, "spec": {
        "selector": {"matchLabels": {"app": "ds"}},
        "updateStrategy": strategy,
        "template": {
            "metadata": {"labels": {"app": "ds"}},
            "spec": {"containers": [{"name": "c", "image": "i:1"}]},
        },
    }})
}

fn image(tag: &str) -> Value {
    json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": tag}]}}}})
}

/// A control plane with these nodes.
async fn with_nodes(names: &[&str]) -> Cluster {
    let cluster = Cluster::start().await;
    cluster.run_agent();
    for name in names {
        cluster.add_node(name, "192.0.2.1").await;
    }
    cluster
}

async fn label(cluster: &Cluster, node: &str, labels: Value) {
    let patch = Patch::Merge(json!({"metadata": {"labels": labels}}));
    Api::<Node>::all(cluster.client.clone())
        .patch(node, &PatchParams::default(), &patch)
        .await
        .unwrap();
}

/// Waits until there is one pod on each of the `nodes`, with this image, and the status says so.
async fn runs_on(cluster: &Cluster, nodes: &[&str], image: &str) {
    let wanted: BTreeSet<_> = nodes.iter().map(|node| (*node).to_owned()).collect();
    let what = format!("{image} to run on {nodes:?}");
    cluster
        .wait(&what, || async {
            let pods = cluster.list::<Pod>("default").await;
            let placed: BTreeSet<_> = pods.iter().filter_map(named_node).collect();
            let ds: DaemonSet = cluster.get_opt("default", "ds").await.unwrap();
            let status = ds.status.unwrap_or_default();
            let count = i32::try_from(wanted.len()).unwrap();
            pods.len() == wanted.len()
                && placed == wanted
                && pods.iter().all(|pod| {
                    pod.spec.as_ref().unwrap().containers[0].image.as_deref() == Some(image)
                })
                && status.observed_generation == ds.metadata.generation
                && status.desired_number_scheduled == count
                && status.current_number_scheduled == count
                && status.updated_number_scheduled.unwrap_or(0) == count
                && status.number_available.unwrap_or(0) == count
                && status.number_misscheduled == 0
        })
        .await;
}

/// The agent looks again at what it has passed by when something changes. A pod may be gone by
/// then: the first of them that becomes ready lets the controller go on.
async fn let_the_agent_go_on(cluster: &Cluster) {
    cluster.agent.hold.store(false, Ordering::Relaxed);
    let touch = Patch::Merge(json!({"metadata": {"annotations": {"touched": "yes"}}}));
    for pod in cluster.list::<Pod>("default").await {
        let touched = cluster
            .api::<Pod>("default")
            .patch(&pod.name_any(), &PatchParams::default(), &touch)
            .await;
        match touched {
            Err(kube::Error::Api(status)) if status.code == 404 => (),
            touched => drop(touched.unwrap()),
        }
    }
}

async fn revisions(cluster: &Cluster) -> Vec<ControllerRevision> {
    let mut all = cluster.list::<ControllerRevision>("default").await;
    all.sort_by_key(|one| one.revision);
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_is_on_each_node_that_is_selected_and_comes_again() {
    let cluster = with_nodes(&["a", "b"]).await;
    let ds: DaemonSet = cluster.create("default", daemon_set(json!({}))).await;
    runs_on(&cluster, &["a", "b"], "i:1").await;
    for pod in cluster.list::<Pod>("default").await {
        let owner = &pod.owner_references()[0];
        assert_eq!(
            (&*owner.kind, &*owner.uid, owner.controller),
            ("DaemonSet", &*ds.uid().unwrap(), Some(true))
        );
    }
    cluster.add_node("c", "192.0.2.3").await;
    runs_on(&cluster, &["a", "b", "c"], "i:1").await;
    let selected = json!({"spec": {"template": {"spec": {"nodeSelector": {"color": "blue"}}}}});
    cluster.merge::<DaemonSet>("default", "ds", selected).await;
    runs_on(&cluster, &[], "i:1").await;
    label(&cluster, "b", json!({"color": "blue"})).await;
    runs_on(&cluster, &["b"], "i:1").await;
    let pod = cluster.list::<Pod>("default").await.remove(0);
    let failed = Patch::Merge(json!({"status": {"phase": "Failed"}}));
    cluster
        .api::<Pod>("default")
        .patch_status(&pod.name_any(), &PatchParams::default(), &failed)
        .await
        .unwrap();
    cluster
        .wait("the failed pod to be replaced", || async {
            let pods = cluster.list::<Pod>("default").await;
            pods.len() == 1 && pods[0].uid() != pod.uid()
        })
        .await;
    label(&cluster, "b", json!({"color": "green"})).await;
    runs_on(&cluster, &[], "i:1").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_rolls_out_and_is_taken_back_by_its_revision() {
    let cluster = with_nodes(&["a", "b", "c"]).await;
    cluster
        .create::<DaemonSet>("default", daemon_set(json!({})))
        .await;
    runs_on(&cluster, &["a", "b", "c"], "i:1").await;
    cluster.agent.hold.store(true, Ordering::Relaxed);
    cluster
        .merge::<DaemonSet>("default", "ds", image("i:2"))
        .await;
    cluster
        .wait("a first pod to be replaced", || async {
            let ds: DaemonSet = cluster.get_opt("default", "ds").await.unwrap();
            let status = ds.status.unwrap();
            status.updated_number_scheduled == Some(1) && status.number_unavailable == Some(1)
        })
        .await;
    let pods = cluster.list::<Pod>("default").await;
    let old = pods
        .iter()
        .filter(|pod| pod.spec.as_ref().unwrap().containers[0].image.as_deref() == Some("i:1"));
    assert_eq!(old.count(), 2, "one at a time");
    let_the_agent_go_on(&cluster).await;
    runs_on(&cluster, &["a", "b", "c"], "i:2").await;
    let history = revisions(&cluster).await;
    let numbers: Vec<_> = history.iter().map(|one| one.revision.unwrap()).collect();
    assert_eq!(numbers, [1, 2]);
    // As `kubectl rollout undo` does it.
    let undo = Patch::Strategic(history[0].data.0.clone());
    cluster
        .api::<DaemonSet>("default")
        .patch("ds", &PatchParams::default(), &undo)
        .await
        .unwrap();
    runs_on(&cluster, &["a", "b", "c"], "i:1").await;
    let after = revisions(&cluster).await;
    let numbers: Vec<_> = after.iter().map(|one| one.revision.unwrap()).collect();
    assert_eq!(numbers, [2, 3], "the first is the newest again");
    assert_eq!(after[1].name_any(), history[0].name_any());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_comes_before_the_old_one_goes_where_it_may() {
    let cluster = with_nodes(&["a"]).await;
    let surge = json!({"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}});
    cluster
        .create::<DaemonSet>("default", daemon_set(surge))
        .await;
    runs_on(&cluster, &["a"], "i:1").await;
    cluster.agent.hold.store(true, Ordering::Relaxed);
    cluster
        .merge::<DaemonSet>("default", "ds", image("i:2"))
        .await;
    cluster
        .wait("two pods", || async {
            cluster.list::<Pod>("default").await.len() == 2
        })
        .await;
    let pods = cluster.list::<Pod>("default").await;
    let images: BTreeSet<_> = pods
        .iter()
        .filter_map(|pod| pod.spec.as_ref().unwrap().containers[0].image.as_deref())
        .collect();
    assert_eq!(images, BTreeSet::from(["i:1", "i:2"]), "the old one stays");
    let_the_agent_go_on(&cluster).await;
    runs_on(&cluster, &["a"], "i:2").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn old_revisions_go_but_for_those_of_pods() {
    let cluster = with_nodes(&["a"]).await;
    let mut wanted = daemon_set(json!({"type": "OnDelete"}));
    wanted["spec"]["revisionHistoryLimit"] = 1.into();
    cluster.create::<DaemonSet>("default", wanted).await;
    cluster
        .wait("its first pod", || async {
            cluster.list::<Pod>("default").await.len() == 1
        })
        .await;
    for number in 2..=4 {
        cluster
            .merge::<DaemonSet>("default", "ds", image(&format!("i:{number}")))
            .await;
        cluster
            .wait("its revision", || async {
                let newest = revisions(&cluster).await.pop();
                newest.and_then(|newest| newest.revision) == Some(number)
            })
            .await;
    }
    cluster
        .wait("the second and third to go", || async {
            let all = revisions(&cluster).await;
            let numbers: Vec<_> = all.iter().filter_map(|one| one.revision).collect();
            numbers == [1, 4]
        })
        .await;
    let pods = cluster.list::<Pod>("default").await;
    let image = pods[0].spec.as_ref().unwrap().containers[0].image.clone();
    assert_eq!((pods.len(), image.as_deref()), (1, Some("i:1")), "OnDelete");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_that_a_rollout_has_not_reached_are_left_alone_when_it_is_taken_back() {
    let cluster = with_nodes(&["a", "b", "c"]).await;
    cluster
        .create::<DaemonSet>("default", daemon_set(json!({})))
        .await;
    runs_on(&cluster, &["a", "b", "c"], "i:1").await;
    let uids = || async {
        let pods = cluster.list::<Pod>("default").await;
        let uids = pods.iter().filter_map(ResourceExt::uid);
        uids.collect::<BTreeSet<_>>()
    };
    let before = uids().await;
    cluster.agent.hold.store(true, Ordering::Relaxed);
    cluster
        .merge::<DaemonSet>("default", "ds", image("i:2"))
        .await;
    cluster
        .wait("a pod that does not become ready", || async {
            let ds: DaemonSet = cluster.get_opt("default", "ds").await.unwrap();
            let status = ds.status.unwrap();
            status.updated_number_scheduled == Some(1) && status.number_unavailable == Some(1)
        })
        .await;
    cluster
        .merge::<DaemonSet>("default", "ds", image("i:1"))
        .await;
    let_the_agent_go_on(&cluster).await;
    runs_on(&cluster, &["a", "b", "c"], "i:1").await;
    let after = uids().await;
    assert_eq!(
        before.intersection(&after).count(),
        2,
        "{before:?} {after:?}"
    );
}
