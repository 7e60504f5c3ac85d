//! The claims of StatefulSets' pods: who makes them, and with whom they go.

use k8s_openapi::api::{
    apps::v1::StatefulSet,
    core::v1::{Event, PersistentVolumeClaim, Pod},
};
use kube::{ResourceExt, api::DeleteParams};
use serde_json::{Value, json};

use crate::{
    cluster::Cluster,
    stateful_sets::{has, merge, stateful_set},
};

fn with_claims(policy: Value) -> Value {
    stateful_set(json!({
        "replicas": 2, "persistentVolumeClaimRetentionPolicy": policy,
        "volumeClaimTemplates": [{"metadata": {"name": "data", "labels": {"tier": "db"}}, "spec": {
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}],
    }))
}

const TWO: [(&str, &str); 2] = [("web-0", "i:1"), ("web-1", "i:1")];

async fn start(policy: Value) -> Cluster {
    let cluster = Cluster::start().await;
    cluster.run_agent();
    cluster
        .create::<StatefulSet>("default", with_claims(policy))
        .await;
    has(&cluster, &TWO).await;
    cluster
}

/// Each claim, and the kinds of its owners.
async fn claims(cluster: &Cluster) -> Vec<(String, String)> {
    let claims = cluster.list::<PersistentVolumeClaim>("default").await;
    let of_one = |claim: &PersistentVolumeClaim| {
        let owners = claim.owner_references().iter();
        let kinds: Vec<_> = owners.map(|owner| owner.kind.clone()).collect();
        (claim.name_any(), kinds.join(" "))
    };
    claims.iter().map(of_one).collect()
}

async fn wait_for(cluster: &Cluster, expect: &[(&str, &str)]) {
    let expect: Vec<_> = expect
        .iter()
        .map(|(name, owners)| ((*name).to_owned(), (*owners).to_owned()))
        .collect();
    let what = format!("{expect:?}");
    cluster
        .wait(&what, || async { claims(cluster).await == expect })
        .await;
}

async fn hold(cluster: &Cluster, claim: &str, finalizers: Value) {
    let patch = json!({"metadata": {"finalizers": finalizers}});
    cluster
        .merge::<PersistentVolumeClaim>("default", claim, patch)
        .await;
}

async fn delete<K>(cluster: &Cluster, name: &str)
where
    K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + serde::de::DeserializeOwned
        + std::fmt::Debug,
{
    let api = cluster.api::<K>("default");
    drop(api.delete(name, &DeleteParams::background()).await.unwrap());
}

async fn messages(cluster: &Cluster) -> Vec<String> {
    let events = cluster.list::<Event>("default").await.into_iter();
    events
        .filter_map(|event| Some(format!("{} {}", event.reason?, event.message?)))
        .collect()
}

async fn is_told(cluster: &Cluster, expect: &str) {
    cluster
        .wait(expect, || async {
            messages(cluster).await.iter().any(|said| said == expect)
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_are_made_by_their_template_and_outlive_set_and_pods() {
    let cluster = start(json!({})).await;
    let claim: PersistentVolumeClaim = cluster.get_opt("default", "data-web-1").await.unwrap();
    assert_eq!(json!(claim.labels()), json!({"app": "web", "tier": "db"}));
    let spec = json!(claim.spec);
    assert_eq!(
        (&spec["accessModes"], &spec["resources"]),
        (
            &json!(["ReadWriteOnce"]),
            &json!({"requests": {"storage": "1Gi"}})
        )
    );
    let pod: Pod = cluster.get_opt("default", "web-1").await.unwrap();
    let volumes = json!(pod.spec.unwrap().volumes);
    assert_eq!(
        volumes[0],
        json!({"name": "data", "persistentVolumeClaim": {"claimName": "data-web-1"}})
    );
    is_told(
        &cluster,
        "SuccessfulCreate create Claim data-web-1 Pod web-1 in StatefulSet web success",
    )
    .await;
    merge(&cluster, json!({"spec": {"replicas": 1}})).await;
    has(&cluster, &TWO[..1]).await;
    delete::<StatefulSet>(&cluster, "web").await;
    cluster
        .wait("the pods to go", || async {
            cluster.list::<Pod>("default").await.is_empty()
        })
        .await;
    let uid = claim.uid();
    wait_for(&cluster, &[("data-web-0", ""), ("data-web-1", "")]).await;
    // A set of that name finds them.
    cluster
        .create::<StatefulSet>("default", with_claims(json!({})))
        .await;
    has(&cluster, &TWO).await;
    let again: PersistentVolumeClaim = cluster.get_opt("default", "data-web-1").await.unwrap();
    assert_eq!(again.uid(), uid);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_go_with_the_set_or_with_pods_that_are_too_many() {
    let cluster = start(json!({"whenDeleted": "Delete", "whenScaled": "Delete"})).await;
    let both = [("data-web-0", "StatefulSet"), ("data-web-1", "StatefulSet")];
    wait_for(&cluster, &both).await;
    merge(&cluster, json!({"spec": {"replicas": 1}})).await;
    wait_for(&cluster, &both[..1]).await;
    merge(&cluster, json!({"spec": {"replicas": 2}})).await;
    has(&cluster, &TWO).await;
    wait_for(&cluster, &both).await;
    let none = json!({"spec": {"persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"}}});
    merge(&cluster, none).await;
    wait_for(&cluster, &[("data-web-0", ""), ("data-web-1", "")]).await;
    let all = json!({"spec": {"persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Delete"}}});
    merge(&cluster, all).await;
    wait_for(&cluster, &both).await;
    delete::<StatefulSet>(&cluster, "web").await;
    wait_for(&cluster, &[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_goes_with_its_pod_is_waited_for_by_the_next() {
    let cluster = start(json!({"whenScaled": "Delete"})).await;
    wait_for(&cluster, &[("data-web-0", ""), ("data-web-1", "")]).await;
    hold(&cluster, "data-web-1", json!(["example.org/hold"])).await;
    let claim: PersistentVolumeClaim = cluster.get_opt("default", "data-web-1").await.unwrap();
    merge(&cluster, json!({"spec": {"replicas": 1}})).await;
    let goes = || async {
        let claim = cluster
            .get_opt::<PersistentVolumeClaim>("default", "data-web-1")
            .await;
        claim.unwrap().metadata.deletion_timestamp.is_some()
    };
    cluster.wait("the claim to begin to go", goes).await;
    merge(&cluster, json!({"spec": {"replicas": 2}})).await;
    let seen = || async {
        let set: StatefulSet = cluster.get_opt("default", "web").await.unwrap();
        set.status.unwrap().observed_generation == set.metadata.generation
    };
    cluster.wait("it to be seen", seen).await;
    assert!(cluster.get_opt::<Pod>("default", "web-1").await.is_none());
    hold(&cluster, "data-web-1", Value::Null).await;
    has(&cluster, &TWO).await;
    let next: PersistentVolumeClaim = cluster.get_opt("default", "data-web-1").await.unwrap();
    assert_ne!(next.uid(), claim.uid());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_is_being_deleted_is_waited_for_and_told_of() {
    let cluster = start(json!({})).await;
    hold(&cluster, "data-web-1", json!(["example.org/hold"])).await;
    delete::<PersistentVolumeClaim>(&cluster, "data-web-1").await;
    delete::<Pod>(&cluster, "web-1").await;
    is_told(
        &cluster,
        "FailedCreate create Pod web-1 in StatefulSet web failed error: pvc data-web-1 is being deleted",
    )
    .await;
    assert!(cluster.get_opt::<Pod>("default", "web-1").await.is_none());
    hold(&cluster, "data-web-1", Value::Null).await;
    has(&cluster, &TWO).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pending_pod_gets_another_claim_when_its_own_is_gone() {
    // Nobody binds the pod: a claim that one on a node uses does not go.
    let cluster = Cluster::start().await;
    cluster
        .create::<StatefulSet>("default", with_claims(json!({})))
        .await;
    let claim = async || {
        let claim = cluster.get_opt::<PersistentVolumeClaim>("default", "data-web-0");
        claim.await.and_then(|claim| claim.uid())
    };
    let pod = || async { cluster.get_opt::<Pod>("default", "web-0").await.is_some() };
    cluster.wait("the pod", pod).await;
    let first = claim().await;
    delete::<PersistentVolumeClaim>(&cluster, "data-web-0").await;
    cluster
        .wait("another", || async {
            let next = claim().await;
            next.is_some() && next != first
        })
        .await;
}
