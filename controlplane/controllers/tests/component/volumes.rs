//! Claims and volumes: bound once, released, protected while they are used, made on nodes.

mod attach_detach;
mod local_path;

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use http::{Method, Request};
use k8s_openapi::api::{
    core::v1::{Event, PersistentVolume, PersistentVolumeClaim, Pod},
    storage::v1::StorageClass,
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
    client::Body,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::cluster::Cluster;

/// An object in no namespace.
async fn create<K>(cluster: &Cluster, object: Value) -> K
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Serialize + std::fmt::Debug,
{
    let object: K = serde_json::from_value(object).unwrap();
    let api: Api<K> = Api::all(cluster.client.clone());
    api.create(&PostParams::default(), &object).await.unwrap()
}

fn volumes(cluster: &Cluster) -> Api<PersistentVolume> {
    Api::all(cluster.client.clone())
}

async fn volume(cluster: &Cluster, name: &str, policy: &str) {
    let object = json!({"metadata": {"name": name}, "spec": {"capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"], "persistentVolumeReclaimPolicy": policy, "hostPath": {"path": "/data"}}});
    create::<PersistentVolume>(cluster, object).await;
}

/// Of no class.
async fn claim(cluster: &Cluster, name: &str) {
    let object = json!({"metadata": {"name": name}, "spec": {"storageClassName": "", "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}}}});
    cluster
        .create::<PersistentVolumeClaim>("default", object)
        .await;
}

async fn get(cluster: &Cluster, name: &str) -> Value {
    let claim: Option<PersistentVolumeClaim> = cluster.get_opt("default", name).await;
    json!(claim)
}

async fn get_volume(cluster: &Cluster, name: &str) -> Value {
    json!(volumes(cluster).get_opt(name).await.unwrap())
}

async fn is_told(cluster: &Cluster, about: &str, reason: &str, message: &str) -> bool {
    let events = cluster.list::<Event>("default").await;
    events.iter().any(|event| {
        event.involved_object.name.as_deref() == Some(about)
            && event.reason.as_deref() == Some(reason)
            && event
                .message
                .as_deref()
                .unwrap_or_default()
                .contains(message)
    })
}

async fn delete_claim(cluster: &Cluster, name: &str) {
    let claims = cluster.api::<PersistentVolumeClaim>("default");
    claims.delete(name, &DeleteParams::default()).await.unwrap();
}

async fn wait_for_phase(cluster: &Cluster, claim: &str, phase: &str) {
    let what = format!("claim {claim} to be {phase}");
    let is_there = || async { get(cluster, claim).await["status"]["phase"] == phase };
    cluster.wait(&what, is_there).await;
}

async fn wait_for_volume(cluster: &Cluster, volume: &str, phase: &str) {
    let what = format!("volume {volume} to be {phase}");
    let is_there = || async { get_volume(cluster, volume).await["status"]["phase"] == phase };
    cluster.wait(&what, is_there).await;
}

/// The names of the volumes that claims have, each with the claim it says it has.
async fn bindings(cluster: &Cluster) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for claim in cluster.list::<PersistentVolumeClaim>("default").await {
        let object = json!(claim);
        if object["status"]["phase"] != "Bound" {
            continue;
        }
        let name = object["spec"]["volumeName"].as_str().unwrap().to_owned();
        let volume = get_volume(cluster, &name).await;
        let reference = &volume["spec"]["claimRef"];
        assert_eq!(
            reference["uid"].as_str(),
            claim.metadata.uid.as_deref(),
            "{volume}"
        );
        found.push((claim.name_any(), name));
    }
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_volume_is_given_to_one_of_two_claims_and_retained_after_it() {
    let cluster = Cluster::start().await;
    claim(&cluster, "a").await;
    claim(&cluster, "b").await;
    let none = "no persistent volumes available for this claim and no storage class is set";
    let are_told = || async {
        is_told(&cluster, "a", "FailedBinding", none).await
            && is_told(&cluster, "b", "FailedBinding", none).await
    };
    cluster.wait("both to be told", are_told).await;
    volume(&cluster, "v", "Retain").await;
    wait_for_volume(&cluster, "v", "Bound").await;
    let one_is_bound = || async { bindings(&cluster).await.len() == 1 };
    cluster.wait("one claim to be bound", one_is_bound).await;
    let (has, _) = bindings(&cluster).await.remove(0);
    let object = get(&cluster, &has).await;
    assert_eq!(object["status"]["capacity"], json!({"storage": "1Gi"}));
    let finalizers = json!(["kubernetes.io/pvc-protection"]);
    assert_eq!(object["metadata"]["finalizers"], finalizers);
    delete_claim(&cluster, &has).await;
    wait_for_volume(&cluster, "v", "Released").await;
    // What is in it is of the claim that was, and nobody else's.
    volume(&cluster, "w", "Retain").await;
    let other = if has == "a" { "b" } else { "a" };
    wait_for_phase(&cluster, other, "Bound").await;
    assert_eq!(
        bindings(&cluster).await,
        [(other.to_owned(), "w".to_owned())]
    );
    let released = get_volume(&cluster, "v").await;
    assert_eq!(released["status"]["phase"], "Released");
    assert_eq!(released["metadata"]["deletionTimestamp"], Value::Null);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_that_come_together_are_given_a_volume_each() {
    let cluster = Cluster::start().await;
    for number in 0..12 {
        volume(&cluster, &format!("v{number}"), "Retain").await;
        claim(&cluster, &format!("c{number}")).await;
    }
    let are_bound = || async { bindings(&cluster).await.len() == 12 };
    cluster.wait("all to be bound", are_bound).await;
    let mut names: Vec<_> = bindings(&cluster)
        .await
        .into_iter()
        .map(|(_, to)| to)
        .collect();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 12);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_reclaimed_here_fails_and_stays() {
    let cluster = Cluster::start().await;
    for (volume_name, policy, reason) in [
        ("deleted", "Delete", "VolumeFailedDelete"),
        ("recycled", "Recycle", "VolumeFailedRecycle"),
    ] {
        volume(&cluster, volume_name, policy).await;
        claim(&cluster, volume_name).await;
        wait_for_phase(&cluster, volume_name, "Bound").await;
        delete_claim(&cluster, volume_name).await;
        wait_for_volume(&cluster, volume_name, "Failed").await;
        let is_said = || async { is_told(&cluster, volume_name, reason, "").await };
        cluster.wait("the event", is_said).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_and_its_volume_stay_while_a_pod_uses_them() {
    let cluster = Cluster::start().await;
    cluster.run_agent();
    volume(&cluster, "v", "Retain").await;
    claim(&cluster, "data").await;
    wait_for_phase(&cluster, "data", "Bound").await;
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}],
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]}});
    cluster.create::<Pod>("default", pod).await;
    let is_running = || async {
        let pod: Pod = cluster.get_opt("default", "p").await.unwrap();
        json!(pod)["status"]["phase"] == "Running"
    };
    cluster.wait("the pod to run", is_running).await;
    delete_claim(&cluster, "data").await;
    let params = DeleteParams::default();
    volumes(&cluster).delete("v", &params).await.unwrap();
    // Another claim comes and goes meanwhile, by the same workers.
    claim(&cluster, "idle").await;
    delete_claim(&cluster, "idle").await;
    let is_gone = |name: &'static str| {
        let cluster = &cluster;
        move || async move { get(cluster, name).await.is_null() }
    };
    cluster.wait("the idle claim to go", is_gone("idle")).await;
    assert_eq!(get(&cluster, "data").await["status"]["phase"], "Bound");
    assert_eq!(get_volume(&cluster, "v").await["status"]["phase"], "Bound");
    cluster
        .api::<Pod>("default")
        .delete("p", &params)
        .await
        .unwrap();
    cluster.wait("the claim to go", is_gone("data")).await;
    let is_gone = || async { get_volume(&cluster, "v").await.is_null() };
    cluster.wait("the volume to go", is_gone).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_is_given_the_default_class_also_afterwards() {
    let cluster = Cluster::start().await;
    let object = |name: &str| {
        json!({"metadata": {"name": name}, "spec": {"accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}}}})
    };
    let create_claim =
        |name: &'static str| cluster.create::<PersistentVolumeClaim>("default", object(name));
    create_claim("before").await;
    let class = json!({"metadata": {"name": "disks",
        "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}, "provisioner": "example.com/disk"});
    create::<StorageClass>(&cluster, class).await;
    let made = create_claim("after").await;
    assert_eq!(json!(made)["spec"]["storageClassName"], "disks");
    let is_given = || async {
        let claim = get(&cluster, "before").await;
        claim["spec"]["storageClassName"] == "disks"
            && claim["metadata"]["annotations"]["volume.kubernetes.io/storage-provisioner"]
                == "example.com/disk"
    };
    cluster
        .wait("the class and the provisioner", is_given)
        .await;
    let why = "either by the external provisioner 'example.com/disk' or manually";
    let is_said = || async { is_told(&cluster, "before", "ExternalProvisioning", why).await };
    cluster.wait("the event", is_said).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_grows_if_it_is_bound_and_its_class_allows_it() {
    let cluster = Cluster::start().await;
    volume(&cluster, "v", "Retain").await;
    claim(&cluster, "data").await;
    wait_for_phase(&cluster, "data", "Bound").await;
    let claims = cluster.api::<PersistentVolumeClaim>("default");
    let more = json!({"spec": {"resources": {"requests": {"storage": "2Gi"}}}});
    let (params, more) = (PatchParams::default(), Patch::Merge(more));
    let refused = claims.patch("data", &params, &more).await.unwrap_err();
    let why = "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize";
    assert!(refused.to_string().contains(why), "{refused}");
    let class = json!({"metadata": {"name": "grows"}, "provisioner": "example.com/disk", "allowVolumeExpansion": true});
    create::<StorageClass>(&cluster, class).await;
    let of_class = json!({"metadata": {"name": "w"}, "spec": {"capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"], "storageClassName": "grows", "hostPath": {"path": "/data"}}});
    create::<PersistentVolume>(&cluster, of_class).await;
    let object = json!({"metadata": {"name": "grown"}, "spec": {"storageClassName": "grows", "volumeName": "w",
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    cluster
        .create::<PersistentVolumeClaim>("default", object)
        .await;
    wait_for_phase(&cluster, "grown", "Bound").await;
    claims.patch("grown", &params, &more).await.unwrap();
    let why = "waiting for an external controller to expand this PVC";
    let is_said = || async { is_told(&cluster, "grown", "ExternalExpanding", why).await };
    cluster.wait("the event", is_said).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_volume_that_lives_with_its_pod_has_a_claim_of_the_pods() {
    let cluster = Cluster::start().await;
    claim(&cluster, "taken-scratch").await;
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"storageClassName": "",
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    for name in ["p", "taken"] {
        let pod = json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}],
            "volumes": [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}]}});
        cluster.create::<Pod>("default", pod).await;
    }
    let is_made = || async { !get(&cluster, "p-scratch").await.is_null() };
    cluster.wait("the claim", is_made).await;
    let made = get(&cluster, "p-scratch").await;
    assert_eq!(made["metadata"]["labels"], json!({"a": "b"}));
    assert_eq!(made["metadata"]["ownerReferences"][0]["name"], "p");
    let why = "ephemeral volume scratch: PVC default/taken-scratch was not created for pod default/taken (pod is not owner)";
    let is_said = || async { is_told(&cluster, "taken", "FailedBinding", why).await };
    cluster.wait("the event", is_said).await;
    let params = DeleteParams::default().grace_period(0);
    cluster
        .api::<Pod>("default")
        .delete("p", &params)
        .await
        .unwrap();
    let is_gone = || async { get(&cluster, "p-scratch").await.is_null() };
    cluster.wait("the claim to go with its pod", is_gone).await;
}

/// A client of which writes after the first `writes` never come to the server, nor an answer back:
/// as if its process had ended. Counts those that were to be made.
fn ends_after(client: Client, writes: usize, asked: Arc<AtomicUsize>) -> Client {
    let service = tower::service_fn(move |request: Request<Body>| {
        let (client, asked) = (client.clone(), asked.clone());
        async move {
            let is_write = request.method() != Method::GET;
            if is_write && asked.fetch_add(1, Ordering::Relaxed) >= writes {
                std::future::pending::<()>().await;
            }
            client.send(request).await
        }
    });
    Client::new(service, "default")
}

/// A binding is four writes, and there are two of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_binder_that_ends_between_two_writes_leaves_nothing_that_the_next_cannot_finish() {
    for writes in 0..8 {
        let (mut cluster, authorities) = Cluster::without_controllers().await;
        for name in ["v", "w"] {
            volume(&cluster, name, "Retain").await;
        }
        for name in ["a", "b", "c"] {
            claim(&cluster, name).await;
        }
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = asked.clone();
        let wrap = move |account: &str, client: Client| match account {
            "persistent-volume-binder" => ends_after(client, writes, counted.clone()),
            _ => client,
        };
        cluster
            .run_controllers(authorities.clone(), |_| {}, wrap)
            .await;
        let has_ended = || async { asked.load(Ordering::Relaxed) > writes };
        cluster.wait("the binder to end", has_ended).await;
        cluster.shutdown.cancel();
        cluster.shutdown = CancellationToken::new();
        cluster
            .run_controllers(authorities, |_| {}, |_, client| client)
            .await;
        let are_bound = || async { bindings(&cluster).await.len() == 2 };
        cluster.wait("two claims to be bound", are_bound).await;
        for name in ["v", "w"] {
            wait_for_volume(&cluster, name, "Bound").await;
        }
        let mut names: Vec<_> = bindings(&cluster)
            .await
            .into_iter()
            .map(|(_, to)| to)
            .collect();
        names.sort();
        assert_eq!(names, ["v", "w"], "after {writes} writes");
    }
}
