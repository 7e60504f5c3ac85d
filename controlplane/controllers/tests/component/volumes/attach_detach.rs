//! Volumes of CSI drivers on nodes; the driver's attacher and the node are played by the test.

use k8s_openapi::api::{
    core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod},
    storage::v1::{CSIDriver, VolumeAttachment},
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use super::{create, is_told, wait_for_phase};
use crate::cluster::Cluster;

const DRIVER: &str = "disk.example.com";
const NAME: &str = "kubernetes.io/csi/disk.example.com^handle-v";

fn attachments(cluster: &Cluster) -> Api<VolumeAttachment> {
    Api::all(cluster.client.clone())
}

fn nodes(cluster: &Cluster) -> Api<Node> {
    Api::all(cluster.client.clone())
}

/// With a claim of a driver's volume, and two nodes that leave attaching to the server.
async fn started() -> Cluster {
    let cluster = Cluster::start().await;
    for (name, address) in [("n1", "192.0.2.11"), ("n2", "192.0.2.12")] {
        cluster.add_node(name, address).await;
        let managed = json!({"metadata": {"annotations": {"volumes.kubernetes.io/controller-managed-attach-detach": "true"}}});
        let (params, managed) = (PatchParams::default(), Patch::Merge(managed));
        nodes(&cluster)
            .patch(name, &params, &managed)
            .await
            .unwrap();
    }
    let volume = json!({"metadata": {"name": "v"}, "spec": {"capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"], "storageClassName": "",
        "csi": {"driver": DRIVER, "volumeHandle": "handle-v"}}});
    create::<PersistentVolume>(&cluster, volume).await;
    let claim = json!({"metadata": {"name": "data"}, "spec": {"storageClassName": "", "volumeName": "v",
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    cluster
        .create::<PersistentVolumeClaim>("default", claim)
        .await;
    wait_for_phase(&cluster, "data", "Bound").await;
    cluster
}

/// On a node, as if the scheduler had chosen it.
async fn pod(cluster: &Cluster, name: &str, node: &str) {
    let pod = json!({"metadata": {"name": name}, "spec": {"nodeName": node,
        "containers": [{"name": "c", "image": "i"}],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}});
    cluster.create::<Pod>("default", pod).await;
}

async fn delete_pod(cluster: &Cluster, name: &str) {
    let params = DeleteParams::default().grace_period(0);
    let pods = cluster.api::<Pod>("default");
    pods.delete(name, &params).await.unwrap();
}

/// The only attachment, once it is one of this node.
async fn attachment_to(cluster: &Cluster, node: &str) -> VolumeAttachment {
    let api = attachments(cluster);
    let is_there = || async {
        let all = api.list(&Default::default()).await.unwrap().items;
        all.len() == 1 && all[0].spec.node_name == node
    };
    let what = format!("the volume to be asked for on {node}");
    cluster.wait(&what, is_there).await;
    api.list(&Default::default()).await.unwrap().items.remove(0)
}

/// What the driver's attacher says.
async fn say(cluster: &Cluster, attachment: &VolumeAttachment, status: Value) {
    let (params, status) = (
        PatchParams::default(),
        Patch::Merge(json!({"status": status})),
    );
    attachments(cluster)
        .patch_status(&attachment.name_any(), &params, &status)
        .await
        .unwrap();
}

/// What the node says that it has mounted.
async fn mounted(cluster: &Cluster, node: &str, names: &[&str]) {
    let (params, status) = (
        PatchParams::default(),
        Patch::Merge(json!({"status": {"volumesInUse": names}})),
    );
    nodes(cluster)
        .patch_status(node, &params, &status)
        .await
        .unwrap();
}

async fn wait_for_report(cluster: &Cluster, node: &str, expect: Value) {
    let is_told = || async {
        let node = json!(nodes(cluster).get(node).await.unwrap());
        let attached = &node["status"]["volumesAttached"];
        let names = attached.as_array().into_iter().flatten();
        names.map(|one| one["name"].clone()).collect::<Value>() == expect
    };
    let what = format!("{node} to be told of {expect}");
    cluster.wait(&what, is_told).await;
}

async fn wait_for_no_attachment(cluster: &Cluster) {
    let api = attachments(cluster);
    let is_gone = || async {
        let all = api.list(&Default::default()).await.unwrap().items;
        all.is_empty()
    };
    cluster.wait("the attachment to go", is_gone).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_volume_is_attached_where_its_pod_is_and_moves_with_it() {
    let cluster = started().await;
    pod(&cluster, "p", "n1").await;
    let first = attachment_to(&cluster, "n1").await;
    assert_eq!(first.spec.attacher, DRIVER);
    say(
        &cluster,
        &first,
        json!({"attached": false, "attachError": {"message": "the disk is busy"}}),
    )
    .await;
    let why = "AttachVolume.Attach failed for volume \"v\" : the disk is busy";
    let is_said = || async { is_told(&cluster, "p", "FailedAttachVolume", why).await };
    cluster.wait("the failure to be told", is_said).await;
    wait_for_report(&cluster, "n1", json!([])).await;
    say(
        &cluster,
        &first,
        json!({"attached": true, "attachError": null}),
    )
    .await;
    wait_for_report(&cluster, "n1", json!([NAME])).await;
    let why = "AttachVolume.Attach succeeded for volume \"v\"";
    let is_said = || async { is_told(&cluster, "p", "SuccessfulAttachVolume", why).await };
    cluster.wait("the success to be told", is_said).await;
    mounted(&cluster, "n1", &[NAME]).await;
    // Another node cannot have it meanwhile.
    pod(&cluster, "q", "n2").await;
    let why = "Multi-Attach error for volume \"v\" Volume is already used by pod(s) p";
    let is_said = || async { is_told(&cluster, "q", "FailedAttachVolume", why).await };
    cluster.wait("the refusal to be told", is_said).await;
    delete_pod(&cluster, "p").await;
    // The node has it mounted still; all that the controller does comes before this is told.
    let why = "Volume is already exclusively attached to one node";
    let is_said = || async { is_told(&cluster, "q", "FailedAttachVolume", why).await };
    cluster.wait("the other refusal to be told", is_said).await;
    wait_for_report(&cluster, "n1", json!([NAME])).await;
    attachment_to(&cluster, "n1").await;
    mounted(&cluster, "n1", &[]).await;
    wait_for_report(&cluster, "n1", json!([])).await;
    let second = attachment_to(&cluster, "n2").await;
    say(&cluster, &second, json!({"attached": true})).await;
    wait_for_report(&cluster, "n2", json!([NAME])).await;
    delete_pod(&cluster, "q").await;
    wait_for_no_attachment(&cluster).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_down_loses_its_volumes_when_somebody_says_so() {
    let cluster = started().await;
    pod(&cluster, "p", "n1").await;
    let first = attachment_to(&cluster, "n1").await;
    say(&cluster, &first, json!({"attached": true})).await;
    wait_for_report(&cluster, "n1", json!([NAME])).await;
    mounted(&cluster, "n1", &[NAME]).await;
    delete_pod(&cluster, "p").await;
    pod(&cluster, "q", "n2").await;
    let why = "Multi-Attach error for volume \"v\"";
    let is_said = || async { is_told(&cluster, "q", "FailedAttachVolume", why).await };
    cluster.wait("the refusal to be told", is_said).await;
    attachment_to(&cluster, "n1").await;
    let taint = json!({"spec": {"taints": [{"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}]}});
    let (params, taint) = (PatchParams::default(), Patch::Merge(taint));
    nodes(&cluster).patch("n1", &params, &taint).await.unwrap();
    attachment_to(&cluster, "n2").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_driver_that_attaches_nothing_is_asked_for_nothing() {
    let cluster = started().await;
    let driver = json!({"metadata": {"name": DRIVER}, "spec": {"attachRequired": false}});
    create::<CSIDriver>(&cluster, driver).await;
    // The controllers have seen the driver once they have seen what came after it.
    let marker = json!({"metadata": {"name": "m"}, "spec": {"capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"], "storageClassName": "",
        "csi": {"driver": "other.example.com", "volumeHandle": "m"}}});
    create::<PersistentVolume>(&cluster, marker).await;
    let claim = json!({"metadata": {"name": "other"}, "spec": {"storageClassName": "", "volumeName": "m",
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    cluster
        .create::<PersistentVolumeClaim>("default", claim)
        .await;
    wait_for_phase(&cluster, "other", "Bound").await;
    pod(&cluster, "p", "n1").await;
    let other = json!({"metadata": {"name": "o"}, "spec": {"nodeName": "n1",
        "containers": [{"name": "c", "image": "i"}],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "other"}}]}});
    cluster.create::<Pod>("default", other).await;
    let only = attachment_to(&cluster, "n1").await;
    assert_eq!(only.spec.attacher, "other.example.com");
}
