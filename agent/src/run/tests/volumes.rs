//! Persistent volumes: what the node asks of the API for them as what it is, and how they go.

use std::path::PathBuf;

use k8s_openapi::api::core::v1::{Event, PersistentVolume, PersistentVolumeClaim};
use kube::{
    Api,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use super::harness::{Cluster, is_ready, pod};

const NODE: &str = "local-path.coracle.dev/node";
const FINALIZER: &str = "local-path.coracle.dev/directory";

fn volumes(cluster: &Cluster) -> Api<PersistentVolume> {
    Api::all(cluster.client.clone())
}

/// A claim, bound to a volume that is yet to come; its UID.
async fn claim(cluster: &Cluster, name: &str, volume: &str) -> String {
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(cluster.client.clone(), "default");
    let claim = json!({"metadata": {"name": name}, "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "",
        "volumeName": volume, "resources": {"requests": {"storage": "1Gi"}}}});
    let claim = serde_json::from_value(claim).expect("claim");
    let made = claims
        .create(&PostParams::default(), &claim)
        .await
        .expect("create the claim");
    let bound = json!({"status": {"phase": "Bound"}});
    let (params, bound) = (PatchParams::default(), Patch::Merge(&bound));
    claims
        .patch_status(name, &params, &bound)
        .await
        .expect("bind the claim");
    made.metadata.uid.expect("uid")
}

async fn volume(
    cluster: &Cluster,
    name: &str,
    metadata: Value,
    path: &PathBuf,
    claim: (&str, &str),
) {
    let here = json!([{"key": "kubernetes.io/hostname", "operator": "In", "values": ["n1"]}]);
    let mut volume = json!({"metadata": metadata, "spec": {
        "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "",
        "persistentVolumeReclaimPolicy": "Delete", "local": {"path": path},
        "claimRef": {"kind": "PersistentVolumeClaim", "namespace": "default", "name": claim.0, "uid": claim.1},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": here}]}},
    }});
    volume["metadata"]["name"] = name.into();
    let volume = serde_json::from_value(volume).expect("volume");
    let made = volumes(cluster)
        .create(&PostParams::default(), &volume)
        .await;
    made.expect("create the volume");
}

/// As the cluster's provisioner makes it.
fn provisioned() -> Value {
    json!({"labels": {NODE: "n1"}, "finalizers": [FINALIZER],
        "annotations": {"pv.kubernetes.io/provisioned-by": "coracle.dev/local-path"}})
}

fn user_of(claim: &str) -> Value {
    let container = json!({"name": "main", "image": "nginx:1", "imagePullPolicy": "IfNotPresent",
        "volumeMounts": [{"name": "d", "mountPath": "/d"}]});
    json!({"containers": [container],
        "volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": claim}}]})
}

async fn delete_volume(cluster: &Cluster, name: &str) {
    let deleted = volumes(cluster)
        .delete(name, &DeleteParams::default())
        .await;
    deleted.expect("delete the volume");
    let found = volumes(cluster).get_opt(name).await.expect("get");
    let mut finalizers = found
        .and_then(|volume| volume.metadata.finalizers)
        .unwrap_or_default();
    let before = finalizers.len();
    finalizers.retain(|one| one != "kubernetes.io/pv-protection");
    if finalizers.len() < before {
        // Nobody in this cluster takes it off.
        let patch = json!({"metadata": {"finalizers": finalizers}});
        let (params, patch) = (PatchParams::default(), Patch::Merge(&patch));
        let patched = volumes(cluster).patch(name, &params, &patch).await;
        patched.expect("end its protection");
    }
}

async fn wait_for_no_volume(cluster: &Cluster, name: &str) {
    cluster
        .wait_until("the volume is gone", async || {
            volumes(cluster).get_opt(name).await.expect("get").is_none()
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_waits_for_its_claim_and_starts_with_it() {
    let mut cluster = Cluster::start().await;
    let disk = cluster.agent_dir().join("disk");
    std::fs::create_dir_all(&disk).expect("directory");
    cluster.create(pod("web", user_of("data"))).await;
    let events: Api<Event> = Api::namespaced(cluster.client.clone(), "default");
    let why = "error processing PVC default/data: failed to fetch PVC from API server: persistentvolumeclaims \"data\" \
               not found";
    cluster
        .wait_until("the event FailedMount", async || {
            let list = events.list(&ListParams::default()).await.expect("events");
            list.items.iter().any(|event| {
                let message = event.message.as_deref().unwrap_or_default();
                event.reason.as_deref() == Some("FailedMount") && message.ends_with(why)
            })
        })
        .await;
    let uid = claim(&cluster, "data", "v").await;
    volume(&cluster, "v", json!({}), &disk, ("data", &uid)).await;
    let web = cluster.wait_pod("web", is_ready).await;
    let uid = web.metadata.uid.expect("uid");
    let record = cluster.agent_dir().join(format!(
        "pods/{uid}/volumes/kubernetes.io~local-volume/v/vol_data.json"
    ));
    assert!(record.exists());
    cluster.restart_agent().await;
    cluster.delete("web").await;
    cluster
        .wait_until("nothing is on record", async || !record.exists())
        .await;
    assert!(disk.is_dir());
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_that_goes_takes_its_directory_along_once_no_pod_has_it() {
    let cluster = Cluster::start().await;
    let uid = claim(&cluster, "data", "pvc-1").await;
    let path = cluster.agent_dir().join("storage/pvc-1_default_data");
    volume(&cluster, "pvc-1", provisioned(), &path, ("data", &uid)).await;
    cluster.create(pod("web", user_of("data"))).await;
    cluster.wait_pod("web", is_ready).await;
    std::fs::write(path.join("f"), "x").expect("the pod's data");
    delete_volume(&cluster, "pvc-1").await;
    // Another volume that goes shows that the node has seen this one.
    let other = cluster.agent_dir().join("storage/pvc-2_default_other");
    volume(&cluster, "pvc-2", provisioned(), &other, ("other", "none")).await;
    delete_volume(&cluster, "pvc-2").await;
    wait_for_no_volume(&cluster, "pvc-2").await;
    assert!(path.join("f").exists(), "the pod has it");
    volumes(&cluster)
        .get("pvc-1")
        .await
        .expect("it waits for the node");
    cluster.delete("web").await;
    wait_for_no_volume(&cluster, "pvc-1").await;
    assert!(!path.exists());
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_that_went_while_the_agent_was_away_goes_when_it_is_back() {
    let mut cluster = Cluster::start().await;
    let uid = claim(&cluster, "data", "pvc-1").await;
    let path = cluster.agent_dir().join("storage/pvc-1_default_data");
    volume(&cluster, "pvc-1", provisioned(), &path, ("data", &uid)).await;
    cluster.create(pod("web", user_of("data"))).await;
    cluster.wait_pod("web", is_ready).await;
    cluster.delete("web").await;
    assert!(path.is_dir(), "it outlives its pods");
    cluster.stop_agent().await;
    delete_volume(&cluster, "pvc-1").await;
    assert!(path.is_dir());
    cluster.start_agent();
    wait_for_no_volume(&cluster, "pvc-1").await;
    assert!(!path.exists());
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_node_says_where_its_volumes_go() {
    let cluster = Cluster::start().await;
    let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(cluster.client.clone());
    let expect = cluster.agent_dir().join("storage").display().to_string();
    cluster
        .wait_until("the annotation", async || {
            let node = nodes.get_opt("n1").await.expect("get");
            let annotations = node.and_then(|node| node.metadata.annotations);
            annotations
                .is_some_and(|all| all.get("local-path.coracle.dev/directory") == Some(&expect))
        })
        .await;
    cluster.stop().await;
}
