//! Pods with claims: which nodes they get, what is written for their volumes, and who is not held
//! up by it. The tests are the controller that binds claims, and who makes volumes.

use std::sync::atomic::Ordering::SeqCst;

use k8s_openapi::api::{
    core::v1::{PersistentVolume, PersistentVolumeClaim},
    storage::v1::StorageClass,
};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::cluster::{Cluster, small, wait};

const SELECTED: &str = "volume.kubernetes.io/selected-node";

impl Cluster {
    fn claims(&self) -> Api<PersistentVolumeClaim> {
        Api::namespaced(self.client.clone(), "default")
    }

    fn volumes(&self) -> Api<PersistentVolume> {
        Api::all(self.client.clone())
    }

    /// A node that is known to be one.
    async fn add_host(&self, name: &str, allocatable: Value) {
        self.add_node(name, allocatable).await;
        let labels = json!({"kubernetes.io/hostname": name});
        self.patch_node(name, json!({"metadata": {"labels": labels}}))
            .await;
    }

    /// A class whose claims wait for their first pod.
    async fn add_class(&self, name: &str, provisioner: &str) {
        let class = json!({
            "metadata": {"name": name},
            "provisioner": provisioner,
            "volumeBindingMode": "WaitForFirstConsumer",
        });
        let classes: Api<StorageClass> = Api::all(self.client.clone());
        let class = serde_json::from_value(class).unwrap();
        classes
            .create(&PostParams::default(), &class)
            .await
            .unwrap();
    }

    async fn add_claim(&self, name: &str, class: &str, mode: &str) {
        let claim = json!({"metadata": {"name": name}, "spec": {
            "storageClassName": class,
            "accessModes": [mode],
            "resources": {"requests": {"storage": "1Gi"}},
        }});
        let claim = serde_json::from_value(claim).unwrap();
        self.claims()
            .create(&PostParams::default(), &claim)
            .await
            .unwrap();
    }

    /// A volume on a node, for a claim or for any.
    async fn add_volume(&self, name: &str, class: &str, node: &str, claim: Option<&str>) {
        let on_node = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": [node]});
        let mut volume = json!({"metadata": {"name": name}, "spec": {
            "storageClassName": class,
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "1Gi"},
            "hostPath": {"path": "/tmp/v"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [on_node]}]}},
        }});
        if let Some(claim) = claim {
            let uid = self.claims().get(claim).await.unwrap().metadata.uid;
            volume["spec"]["claimRef"] = json!({"kind": "PersistentVolumeClaim", "apiVersion": "v1",
                "namespace": "default", "name": claim, "uid": uid});
        }
        let phase = if claim.is_some() {
            "Bound"
        } else {
            "Available"
        };
        let volume = serde_json::from_value(volume).unwrap();
        self.volumes()
            .create(&PostParams::default(), &volume)
            .await
            .unwrap();
        let status = Patch::Merge(json!({"status": {"phase": phase}}));
        self.volumes()
            .patch_status(name, &PatchParams::default(), &status)
            .await
            .unwrap();
    }

    async fn add_claiming_pod(&self, name: &str, requests: Value, claim: &str) {
        let volume = json!({"name": "v", "persistentVolumeClaim": {"claimName": claim}});
        self.add_pod(name, requests, json!({"volumes": [volume]}))
            .await;
    }

    async fn patch_claim(&self, name: &str, patch: Value) {
        self.claims()
            .patch(name, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .unwrap();
    }

    /// What the controller does with a claim that a volume refers to.
    async fn bind_claim(&self, claim: &str, volume: &str) {
        self.patch_claim(
            claim,
            json!({
                "metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
                "spec": {"volumeName": volume},
            }),
        )
        .await;
        let status = Patch::Merge(json!({"status": {"phase": "Bound"}}));
        self.claims()
            .patch_status(claim, &PatchParams::default(), &status)
            .await
            .unwrap();
    }

    async fn selected_node(&self, claim: &str) -> Option<String> {
        let claim = self.claims().get(claim).await.unwrap();
        claim.metadata.annotations?.get(SELECTED).cloned()
    }

    /// Waits until a volume is to be made for the claim, and says where.
    async fn selected(&self, claim: &str) -> String {
        wait(&format!("a node for {claim}"), || async {
            self.selected_node(claim).await.is_some()
        })
        .await;
        self.selected_node(claim).await.unwrap()
    }

    async fn claim_of(&self, volume: &str) -> Option<String> {
        let volume = self.volumes().get(volume).await.unwrap();
        volume.spec?.claim_ref?.name
    }

    /// Waits until the volume is given to a claim, and says to which.
    async fn given(&self, volume: &str) -> String {
        wait(&format!("{volume} to be given to a claim"), || async {
            self.claim_of(volume).await.is_some()
        })
        .await;
        self.claim_of(volume).await.unwrap()
    }

    async fn node_of(&self, pod: &str) -> Option<String> {
        self.pods().get(pod).await.unwrap().spec?.node_name
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_volume_is_made_for_the_node_that_the_pod_gets() {
    let cluster = Cluster::start().await;
    cluster.add_host("n", small()).await;
    cluster.add_class("dynamic", "example.org/p").await;
    cluster.add_claiming_pod("p", json!({}), "c").await;
    assert_eq!(
        cluster.refused("p").await,
        "0/1 nodes are available: persistentvolumeclaim \"c\" not found. \
             preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
    );
    cluster.add_claim("c", "dynamic", "ReadWriteOnce").await;
    assert_eq!(cluster.selected("c").await, "n");
    // Nobody else is held up by it.
    cluster.add_pod("modest", json!({}), json!({})).await;
    assert_eq!(cluster.placed("modest").await, "n");
    assert_eq!(cluster.node_of("p").await, None);
    cluster.add_volume("made", "dynamic", "n", Some("c")).await;
    cluster.bind_claim("c", "made").await;
    assert_eq!(cluster.placed("p").await, "n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_pods_that_want_the_one_volume_one_waits() {
    let cluster = Cluster::start().await;
    cluster.add_host("a", small()).await;
    cluster.add_host("b", small()).await;
    cluster
        .add_class("static", "kubernetes.io/no-provisioner")
        .await;
    cluster.add_volume("v", "static", "b", None).await;
    // Both are looked at before anything is written.
    let held = cluster.watched.volume_writes.clone().write_owned().await;
    for name in ["first", "second"] {
        cluster.add_claim(name, "static", "ReadWriteOnce").await;
    }
    cluster.add_claiming_pod("first", json!({}), "first").await;
    cluster
        .add_claiming_pod("second", json!({}), "second")
        .await;
    wait("both to be looked at", || async {
        cluster.watched.volume_writes_tried.load(SeqCst) == 1 && cluster.attempts() > 0
    })
    .await;
    drop(held);
    let winner = cluster.given("v").await;
    let loser = match &*winner {
        "first" => "second",
        _ => "first",
    };
    assert_eq!(
        cluster.refused(loser).await,
        "0/2 nodes are available: 2 node(s) didn't find available persistent volumes to bind. \
             preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."
    );
    cluster.bind_claim(&winner, "v").await;
    assert_eq!(cluster.placed(&winner).await, "b");
    cluster.add_volume("w", "static", "a", None).await;
    assert_eq!(cluster.given("w").await, loser);
    cluster.bind_claim(loser, "w").await;
    assert_eq!(cluster.placed(loser).await, "a");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_volume_that_cannot_be_made_is_asked_for_anew() {
    let cluster = Cluster::start().await;
    cluster.add_host("n", small()).await;
    cluster.add_class("dynamic", "example.org/p").await;
    cluster.add_claim("c", "dynamic", "ReadWriteOnce").await;
    cluster.add_claiming_pod("p", json!({}), "c").await;
    assert_eq!(cluster.selected("c").await, "n");
    cluster
        .patch_claim("c", json!({"metadata": {"annotations": {SELECTED: null}}}))
        .await;
    assert_eq!(
        cluster.not_scheduled("p", "SchedulerError").await,
        "running PreBind plugin \"VolumeBinding\": binding volumes: provisioning failed for PVC \"c\""
    );
    assert_eq!(cluster.selected("c").await, "n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scheduler_that_ends_before_it_has_written_leaves_the_rest_to_the_next() {
    let mut cluster = Cluster::start().await;
    cluster.add_host("n", small()).await;
    cluster
        .add_class("static", "kubernetes.io/no-provisioner")
        .await;
    cluster.add_volume("v", "static", "n", None).await;
    cluster.add_claim("c", "static", "ReadWriteOnce").await;
    let held = cluster.watched.volume_writes.clone().write_owned().await;
    cluster.add_claiming_pod("p", json!({}), "c").await;
    let tried = cluster.watched.volume_writes_tried.clone();
    wait("the volume to be assumed", || async {
        tried.load(SeqCst) == 1
    })
    .await;
    cluster.restart_scheduler();
    wait("the next to try", || async { tried.load(SeqCst) == 2 }).await;
    assert_eq!(cluster.claim_of("v").await, None);
    drop(held);
    assert_eq!(cluster.given("v").await, "c");
    // And one that ends before the claim is bound.
    cluster.restart_scheduler();
    cluster.bind_claim("c", "v").await;
    assert_eq!(cluster.placed("p").await, "n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_that_goes_while_it_waits_for_its_volume_leaves_its_room() {
    let cluster = Cluster::start().await;
    cluster.add_host("n", small()).await;
    cluster.add_class("dynamic", "example.org/p").await;
    cluster.add_claim("c", "dynamic", "ReadWriteOnce").await;
    cluster
        .add_claiming_pod("p", json!({"cpu": "1"}), "c")
        .await;
    cluster.selected("c").await;
    cluster.add_pod("q", json!({"cpu": "1"}), json!({})).await;
    assert_eq!(
        cluster.refused("q").await,
        "0/1 nodes are available: 1 Insufficient cpu. \
             preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."
    );
    let now = DeleteParams::default().grace_period(0);
    cluster.pods().delete("p", &now).await.unwrap();
    assert_eq!(cluster.placed("q").await, "n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_for_one_pod_is_used_by_one_at_a_time() {
    let cluster = Cluster::start().await;
    cluster.add_host("a", small()).await;
    cluster.add_host("b", small()).await;
    cluster
        .add_class("static", "kubernetes.io/no-provisioner")
        .await;
    cluster.add_claim("c", "static", "ReadWriteOncePod").await;
    cluster.add_volume("v", "static", "a", Some("c")).await;
    cluster.bind_claim("c", "v").await;
    cluster.add_claiming_pod("first", json!({}), "c").await;
    assert_eq!(cluster.placed("first").await, "a");
    cluster.add_claiming_pod("second", json!({}), "c").await;
    assert_eq!(
        cluster.refused("second").await,
        "0/2 nodes are available: 2 node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already \
         in-use by another pod. preemption: 0/2 nodes are available: 2 No preemption victims found for incoming pod."
    );
    let now = DeleteParams::default().grace_period(0);
    cluster.pods().delete("first", &now).await.unwrap();
    assert_eq!(cluster.placed("second").await, "a");
}
