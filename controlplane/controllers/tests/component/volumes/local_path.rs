//! Directories of nodes as volumes, from the claim to the end of the volume; the node's part is
//! played by the test.

use coracle_api::volume::local_path::{DIRECTORY, FINALIZER, PROVISIONER};
use k8s_openapi::api::{
    core::v1::{Node, PersistentVolume, PersistentVolumeClaim},
    storage::v1::StorageClass,
};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use super::{create, delete_claim, get, get_volume, is_told, volumes, wait_for_phase};
use crate::cluster::Cluster;

const SELECTED: &str = "volume.kubernetes.io/selected-node";

/// With the class, and a node that keeps volumes.
async fn started() -> Cluster {
    let cluster = Cluster::start().await;
    let class = json!({"metadata": {"name": "local-path"}, "provisioner": PROVISIONER, "reclaimPolicy": "Delete",
        "volumeBindingMode": "WaitForFirstConsumer"});
    create::<StorageClass>(&cluster, class).await;
    cluster.add_node("n1", "192.0.2.11").await;
    let said = json!({"metadata": {"annotations": {DIRECTORY: "/srv/volumes"}, "labels": {"kubernetes.io/hostname": "n1"}}});
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    nodes
        .patch("n1", &PatchParams::default(), &Patch::Merge(said))
        .await
        .unwrap();
    cluster
}

async fn claim(cluster: &Cluster, name: &str) {
    let object = json!({"metadata": {"name": name}, "spec": {"storageClassName": "local-path",
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    cluster
        .create::<PersistentVolumeClaim>("default", object)
        .await;
}

/// What the scheduler does.
async fn select(cluster: &Cluster, name: &str, node: &str) {
    let patch = json!({"metadata": {"annotations": {SELECTED: node}}});
    cluster
        .merge::<PersistentVolumeClaim>("default", name, patch)
        .await;
}

/// The name of the claim's volume, once it is bound.
async fn bound(cluster: &Cluster, claim: &str) -> String {
    wait_for_phase(cluster, claim, "Bound").await;
    let object = get(cluster, claim).await;
    object["spec"]["volumeName"].as_str().unwrap().to_owned()
}

async fn wait_for_end(cluster: &Cluster, volume: &str) -> Value {
    let waits_for_its_node = || async {
        let finalizers = &get_volume(cluster, volume).await["metadata"]["finalizers"];
        *finalizers == json!([FINALIZER])
    };
    cluster
        .wait("the volume to wait for its node", waits_for_its_node)
        .await;
    get_volume(cluster, volume).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_is_given_a_directory_of_its_node_which_removes_it_in_the_end() {
    let cluster = started().await;
    claim(&cluster, "data").await;
    let waits = || async { is_told(&cluster, "data", "WaitForFirstConsumer", "").await };
    cluster.wait("the claim to wait", waits).await;
    select(&cluster, "data", "n1").await;
    let name = bound(&cluster, "data").await;
    let volume = get_volume(&cluster, &name).await;
    let directory = format!("/srv/volumes/{name}_default_data");
    assert_eq!(volume["spec"]["local"]["path"], directory);
    let is_told = || async { is_told(&cluster, "data", "ProvisioningSucceeded", &name).await };
    cluster.wait("the event", is_told).await;
    delete_claim(&cluster, "data").await;
    let volume = wait_for_end(&cluster, &name).await;
    assert_eq!(volume["status"]["phase"], "Released");
    assert!(volume["metadata"]["deletionTimestamp"].is_string());
    // The node has removed the directory.
    let done = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    let api = volumes(&cluster);
    api.patch(&name, &PatchParams::default(), &done)
        .await
        .unwrap();
    let is_gone = || async { get_volume(&cluster, &name).await.is_null() };
    cluster.wait("the volume to go", is_gone).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_volume_that_is_to_be_retained_outlives_its_claim() {
    let cluster = started().await;
    claim(&cluster, "data").await;
    select(&cluster, "data", "n1").await;
    let name = bound(&cluster, "data").await;
    let retain = Patch::Merge(json!({"spec": {"persistentVolumeReclaimPolicy": "Retain"}}));
    let (api, params) = (volumes(&cluster), PatchParams::default());
    api.patch(&name, &params, &retain).await.unwrap();
    // What the controllers do next comes after that: another volume goes all its way meanwhile.
    claim(&cluster, "other").await;
    select(&cluster, "other", "n1").await;
    let other = bound(&cluster, "other").await;
    delete_claim(&cluster, "data").await;
    delete_claim(&cluster, "other").await;
    wait_for_end(&cluster, &other).await;
    let is_released =
        || async { get_volume(&cluster, &name).await["status"]["phase"] == "Released" };
    cluster.wait("the volume to be released", is_released).await;
    let volume = get_volume(&cluster, &name).await;
    assert_eq!(
        volume["metadata"]["deletionTimestamp"],
        Value::Null,
        "{volume}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_without_volumes_is_given_up_and_one_that_is_gone_holds_nothing_up() {
    let cluster = started().await;
    claim(&cluster, "data").await;
    cluster.add_node("bare", "192.0.2.12").await;
    select(&cluster, "data", "bare").await;
    let why = "failed to provision volume with StorageClass \"local-path\": node \"bare\" has no annotation \"local-path.coracle.dev/directory\"";
    let is_said = || async { is_told(&cluster, "data", "ProvisioningFailed", why).await };
    cluster.wait("the event", is_said).await;
    let is_free =
        || async { get(&cluster, "data").await["metadata"]["annotations"][SELECTED].is_null() };
    cluster.wait("another node to be asked for", is_free).await;
    select(&cluster, "data", "n1").await;
    let name = bound(&cluster, "data").await;
    delete_claim(&cluster, "data").await;
    wait_for_end(&cluster, &name).await;
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    nodes.delete("n1", &DeleteParams::default()).await.unwrap();
    let is_gone = || async { get_volume(&cluster, &name).await.is_null() };
    cluster.wait("the volume to go", is_gone).await;
    let is_said =
        || async { is_told(&cluster, &name, "VolumeFailedDelete", "node \"n1\" is gone").await };
    cluster.wait("the event", is_said).await;
    let left: Vec<PersistentVolume> = volumes(&cluster)
        .list(&Default::default())
        .await
        .unwrap()
        .items;
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_grows_has_more_at_once() {
    let cluster = started().await;
    let classes: Api<StorageClass> = Api::all(cluster.client.clone());
    let (params, grows) = (
        PatchParams::default(),
        Patch::Merge(json!({"allowVolumeExpansion": true})),
    );
    classes.patch("local-path", &params, &grows).await.unwrap();
    claim(&cluster, "data").await;
    select(&cluster, "data", "n1").await;
    let name = bound(&cluster, "data").await;
    let more = json!({"spec": {"resources": {"requests": {"storage": "3Gi"}}}});
    cluster
        .merge::<PersistentVolumeClaim>("default", "data", more)
        .await;
    let has_more =
        || async { get(&cluster, "data").await["status"]["capacity"]["storage"] == "3Gi" };
    cluster.wait("the claim to have more", has_more).await;
    let volume = get_volume(&cluster, &name).await;
    assert_eq!(volume["spec"]["capacity"]["storage"], "3Gi");
    let is_said = || async { is_told(&cluster, "data", "VolumeResizeSuccessful", "").await };
    cluster.wait("the event", is_said).await;
}
