//! StatefulSets, as upstream's conformance asks of them.

use std::{collections::BTreeMap, sync::atomic::Ordering};

use k8s_openapi::api::{
    apps::v1::{ControllerRevision, StatefulSet},
    autoscaling::v1::Scale,
    core::v1::{Event, Pod},
};
use kube::{
    ResourceExt,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::cluster::Cluster;

/// `spec` goes into that of a set of three pods.
pub(crate) fn stateful_set(spec: Value) -> Value {
    let mut set = json!({"metadata": {"name": "web"}, "spec": {
        "replicas": 3, "serviceName": "webs",
        "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "c", "image": "i:1"}]},
        },
    }});
    for (field, value) in spec.as_object().unwrap() {
        set["spec"][field] = value.clone();
    }
    set
}

pub(crate) fn image(tag: &str) -> Value {
    json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": tag}]}}}})
}

pub(crate) async fn merge(cluster: &Cluster, patch: Value) {
    cluster.merge::<StatefulSet>("default", "web", patch).await;
}

async fn with_set(spec: Value) -> Cluster {
    let cluster = Cluster::start().await;
    cluster.run_agent();
    cluster
        .create::<StatefulSet>("default", stateful_set(spec))
        .await;
    cluster
}

/// The image of each pod.
pub(crate) async fn images(cluster: &Cluster) -> BTreeMap<String, String> {
    let pods = cluster.list::<Pod>("default").await;
    let image = |pod: &Pod| pod.spec.as_ref()?.containers[0].image.clone();
    pods.iter()
        .map(|pod| (pod.name_any(), image(pod).unwrap()))
        .collect()
}

/// Whether these pods are there, with these images, and the status says that all is done.
pub(crate) async fn is_complete(cluster: &Cluster, expect: &[(&str, &str)]) -> bool {
    let set: StatefulSet = cluster.get_opt("default", "web").await.unwrap();
    let status = set.status.clone().unwrap_or_default();
    let count = i32::try_from(expect.len()).unwrap();
    let expect = expect
        .iter()
        .map(|(pod, image)| ((*pod).to_owned(), (*image).to_owned()));
    images(cluster).await == expect.collect()
        && status.observed_generation == set.metadata.generation
        && status.replicas == count
        && status.ready_replicas.unwrap_or(0) == count
        && status.available_replicas == Some(count)
}

pub(crate) async fn has(cluster: &Cluster, expect: &[(&str, &str)]) {
    let what = format!("{expect:?}");
    cluster.wait(&what, || is_complete(cluster, expect)).await;
}

const THREE: [(&str, &str); 3] = [("web-0", "i:1"), ("web-1", "i:1"), ("web-2", "i:1")];

async fn ready(cluster: &Cluster, pod: &str, status: &str) {
    let patch = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": status}]}});
    cluster
        .api::<Pod>("default")
        .patch_status(pod, &PatchParams::default(), &Patch::Strategic(patch))
        .await
        .unwrap();
}

/// Deletes it, and waits for another.
async fn replace(cluster: &Cluster, pod: &str) {
    let before: Pod = cluster.get_opt("default", pod).await.unwrap();
    cluster
        .api::<Pod>("default")
        .delete(pod, &DeleteParams::default())
        .await
        .unwrap();
    cluster
        .wait("another", || async {
            let after = cluster.get_opt::<Pod>("default", pod).await;
            after.is_some_and(|after| after.uid() != before.uid())
        })
        .await;
}

async fn messages(cluster: &Cluster) -> Vec<String> {
    let events = cluster.list::<Event>("default").await;
    let of_set = events
        .into_iter()
        .filter(|event| event.involved_object.kind.as_deref() == Some("StatefulSet"));
    of_set
        .filter_map(|event| Some(format!("{} {}", event.reason?, event.message?)))
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_have_names_and_come_in_their_order() {
    let cluster = Cluster::start().await;
    cluster.agent.hold.store(true, Ordering::Relaxed);
    cluster.run_agent();
    let set: StatefulSet = cluster.create("default", stateful_set(json!({}))).await;
    for (ordinal, name) in ["web-0", "web-1", "web-2"].iter().enumerate() {
        cluster
            .wait(name, || async {
                let pod = cluster.get_opt::<Pod>("default", name).await;
                pod.is_some_and(|pod| pod.spec.unwrap().node_name.is_some())
            })
            .await;
        assert_eq!(
            images(&cluster).await.len(),
            ordinal + 1,
            "{name} is the last"
        );
        ready(&cluster, name, "True").await;
    }
    has(&cluster, &THREE).await;
    let pod: Pod = cluster.get_opt("default", "web-2").await.unwrap();
    let (labels, spec) = (pod.labels(), pod.spec.as_ref().unwrap());
    assert_eq!(labels["statefulset.kubernetes.io/pod-name"], "web-2");
    assert_eq!(labels["apps.kubernetes.io/pod-index"], "2");
    let status = cluster
        .get_opt::<StatefulSet>("default", "web")
        .await
        .unwrap()
        .status
        .unwrap();
    assert_eq!(
        Some(&labels["controller-revision-hash"]),
        status.update_revision.as_ref()
    );
    assert_eq!(status.current_revision, status.update_revision);
    assert_eq!(
        (spec.hostname.as_deref(), spec.subdomain.as_deref()),
        (Some("web-2"), Some("webs"))
    );
    let owner = &pod.owner_references()[0];
    assert_eq!(
        (&*owner.kind, &*owner.uid, owner.controller),
        ("StatefulSet", &*set.uid().unwrap(), Some(true))
    );
    let expect = "SuccessfulCreate create Pod web-2 in StatefulSet web successful";
    cluster
        .wait(expect, || async {
            messages(&cluster).await.iter().any(|said| said == expect)
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scaling_halts_while_a_pod_is_unwell_and_goes_from_the_last() {
    let cluster = with_set(json!({"replicas": 1})).await;
    has(&cluster, &THREE[..1]).await;
    ready(&cluster, "web-0", "False").await;
    let api = cluster.api::<StatefulSet>("default");
    cluster.has_seen_ready("web", 0).await;
    let three = Patch::Merge(json!({"spec": {"replicas": 3}}));
    let scaled: Scale = api
        .patch_scale("web", &PatchParams::default(), &three)
        .await
        .unwrap();
    assert_eq!(scaled.status.unwrap().selector.as_deref(), Some("app=web"));
    let seen = || async {
        let set: StatefulSet = cluster.get_opt("default", "web").await.unwrap();
        set.status.unwrap().observed_generation == set.metadata.generation
    };
    cluster.wait("it to be seen", seen).await;
    assert_eq!(images(&cluster).await.len(), 1);
    ready(&cluster, "web-0", "True").await;
    has(&cluster, &THREE).await;
    for pod in ["web-0", "web-2"] {
        ready(&cluster, pod, "False").await;
    }
    cluster.has_seen_ready("web", 1).await;
    merge(&cluster, json!({"spec": {"replicas": 0}})).await;
    cluster.wait("it to be seen", seen).await;
    assert_eq!(images(&cluster).await.len(), 3, "web-0 was unwell before");
    ready(&cluster, "web-2", "True").await;
    has(&cluster, &[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_parallel_scaling_waits_for_nobody() {
    let cluster = Cluster::start().await;
    cluster.agent.hold.store(true, Ordering::Relaxed);
    cluster.run_agent();
    let spec = json!({"podManagementPolicy": "Parallel", "ordinals": {"start": 5}});
    cluster
        .create::<StatefulSet>("default", stateful_set(spec))
        .await;
    let count = |expect: usize| {
        let cluster = &cluster;
        move || async move { images(cluster).await.len() == expect }
    };
    cluster.wait("three that are not ready", count(3)).await;
    let names: Vec<_> = images(&cluster).await.into_keys().collect();
    assert_eq!(names, ["web-5", "web-6", "web-7"]);
    merge(&cluster, json!({"spec": {"replicas": 0}})).await;
    cluster.wait("none", count(0)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_rolls_out_from_the_last_and_is_taken_back_by_its_revision() {
    let cluster = with_set(json!({})).await;
    has(&cluster, &THREE).await;
    cluster.agent.hold.store(true, Ordering::Relaxed);
    merge(&cluster, image("i:2")).await;
    let partly = || async {
        let set: StatefulSet = cluster.get_opt("default", "web").await.unwrap();
        let status = set.status.unwrap();
        status.updated_replicas == Some(1) && status.current_replicas == Some(2)
    };
    cluster.wait("the last to be replaced", partly).await;
    let expect = [("web-0", "i:1"), ("web-1", "i:1"), ("web-2", "i:2")];
    let expect = expect.map(|(pod, image)| (pod.to_owned(), image.to_owned()));
    assert_eq!(images(&cluster).await, BTreeMap::from(expect));
    cluster.agent.hold.store(false, Ordering::Relaxed);
    ready(&cluster, "web-2", "True").await;
    has(
        &cluster,
        &[("web-0", "i:2"), ("web-1", "i:2"), ("web-2", "i:2")],
    )
    .await;
    let history = async || {
        let mut all = cluster.list::<ControllerRevision>("default").await;
        all.sort_by_key(|one| one.revision);
        all
    };
    let before = history().await;
    let numbers = |all: &[ControllerRevision]| -> Vec<_> {
        all.iter().filter_map(|one| one.revision).collect()
    };
    assert_eq!(numbers(&before), [1, 2]);
    let hash = &before[0].labels()["controller.kubernetes.io/hash"];
    assert_eq!(before[0].name_any(), format!("web-{hash}"));
    // As `kubectl rollout undo` does it.
    let undo = Patch::Strategic(before[0].data.0.clone());
    let api = cluster.api::<StatefulSet>("default");
    let params = PatchParams::default();
    api.patch("web", &params, &undo).await.unwrap();
    has(&cluster, &THREE).await;
    let after = history().await;
    assert_eq!(numbers(&after), [2, 3], "the first is the newest again");
    assert_eq!(after[1].name_any(), before[0].name_any());
    let complete = || async {
        let status = api.get("web").await.unwrap().status.unwrap();
        status.current_revision == Some(after[1].name_any())
    };
    cluster.wait("it to be current", complete).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_canary_is_above_the_partition_and_pods_below_come_again_as_they_were() {
    let rolling =
        |partition: i32| json!({"updateStrategy": {"rollingUpdate": {"partition": partition}}});
    let cluster = with_set(rolling(2)).await;
    has(&cluster, &THREE).await;
    merge(&cluster, image("i:2")).await;
    has(
        &cluster,
        &[("web-0", "i:1"), ("web-1", "i:1"), ("web-2", "i:2")],
    )
    .await;
    replace(&cluster, "web-0").await;
    replace(&cluster, "web-2").await;
    has(
        &cluster,
        &[("web-0", "i:1"), ("web-1", "i:1"), ("web-2", "i:2")],
    )
    .await;
    merge(&cluster, json!({"spec": rolling(1)})).await;
    has(
        &cluster,
        &[("web-0", "i:1"), ("web-1", "i:2"), ("web-2", "i:2")],
    )
    .await;
    let status = cluster
        .get_opt::<StatefulSet>("default", "web")
        .await
        .unwrap()
        .status
        .unwrap();
    assert_eq!(
        (status.current_replicas, status.updated_replicas),
        (Some(1), Some(2))
    );
    assert_ne!(status.current_revision, status.update_revision);
    merge(&cluster, json!({"spec": rolling(0)})).await;
    has(
        &cluster,
        &[("web-0", "i:2"), ("web-1", "i:2"), ("web-2", "i:2")],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_template_that_does_not_work_is_left_behind_in_parallel() {
    let cluster = Cluster::start().await;
    cluster.agent.hold.store(true, Ordering::Relaxed);
    cluster.run_agent();
    let spec = json!({"podManagementPolicy": "Parallel"});
    cluster
        .create::<StatefulSet>("default", stateful_set(spec))
        .await;
    let three = || async { images(&cluster).await.len() == 3 };
    cluster.wait("pods that never become ready", three).await;
    cluster.agent.hold.store(false, Ordering::Relaxed);
    merge(&cluster, image("i:2")).await;
    has(
        &cluster,
        &[("web-0", "i:2"), ("web-1", "i:2"), ("web-2", "i:2")],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_that_failed_is_made_anew() {
    let cluster = with_set(json!({"replicas": 1})).await;
    has(&cluster, &THREE[..1]).await;
    let first: Pod = cluster.get_opt("default", "web-0").await.unwrap();
    let failed = Patch::Merge(json!({"status": {"phase": "Failed"}}));
    let (api, params) = (cluster.api::<Pod>("default"), PatchParams::default());
    api.patch_status("web-0", &params, &failed).await.unwrap();
    let another = || async {
        let pod = cluster.get_opt::<Pod>("default", "web-0").await;
        pod.is_some_and(|pod| pod.uid() != first.uid())
    };
    cluster.wait("another", another).await;
    has(&cluster, &THREE[..1]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_is_adopted_by_name_and_selector_made_itself_and_let_go() {
    let cluster = Cluster::start().await;
    cluster.run_agent();
    let template = stateful_set(json!({}))["spec"]["template"].take();
    for name in ["web-0", "stranger-1"] {
        let pod =
            json!({"metadata": {"name": name, "labels": {"app": "web"}}, "spec": template["spec"]});
        cluster.create::<Pod>("default", pod).await;
    }
    let orphan: Pod = cluster.get_opt("default", "web-0").await.unwrap();
    cluster
        .create::<StatefulSet>(
            "default",
            stateful_set(json!({"replicas": 1, "updateStrategy": {"type": "OnDelete"}})),
        )
        .await;
    let is_itself = || async {
        let pod: Pod = cluster.get_opt("default", "web-0").await.unwrap();
        assert_eq!(pod.uid(), orphan.uid());
        let label = pod.labels().get("statefulset.kubernetes.io/pod-name");
        pod.owner_references().len() == 1 && label.is_some_and(|label| label == "web-0")
    };
    cluster
        .wait("the orphan to be one of the set", is_itself)
        .await;
    let stranger: Pod = cluster.get_opt("default", "stranger-1").await.unwrap();
    assert!(stranger.owner_references().is_empty());
    let away = json!({"metadata": {"labels": {"app": "other"}}});
    cluster.merge::<Pod>("default", "web-0", away).await;
    let is_free = || async {
        let pod: Pod = cluster.get_opt("default", "web-0").await.unwrap();
        pod.owner_references().is_empty()
    };
    cluster.wait("the pod to be let go", is_free).await;
    // Its name is taken as long as it is there.
    cluster
        .api::<Pod>("default")
        .delete("web-0", &DeleteParams::default())
        .await
        .unwrap();
    cluster
        .wait("a pod of the set's own", || async {
            let pod = cluster.get_opt::<Pod>("default", "web-0").await;
            pod.is_some_and(|pod| pod.owner_references().len() == 1)
        })
        .await;
}
