//! Quotas: what is counted, what is given back, and what a full one refuses.

use std::sync::atomic::{AtomicUsize, Ordering};

use futures::future::join_all;
use http::Request;
use k8s_openapi::api::{
    core::v1::{ConfigMap, PersistentVolumeClaim, Pod, ResourceQuota, Service},
    resource::v1::ResourceClaim,
};
use kube::{
    Client,
    api::{DeleteParams, Patch, PatchParams, PostParams},
    client::Body,
};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::cluster::Cluster;

async fn limit(cluster: &Cluster, hard: Value) {
    limit_in_scope(cluster, hard, json!([])).await;
}

async fn limit_in_scope(cluster: &Cluster, hard: Value, scopes: Value) {
    cluster
        .create::<ResourceQuota>(
            "default",
            json!({"metadata": {"name": "q"}, "spec": {"hard": hard, "scopes": scopes}}),
        )
        .await;
}

/// Waits until the quota says so.
async fn used(cluster: &Cluster, expect: Value) {
    cluster
        .wait(&format!("use of {expect}"), || async {
            let quota: Option<ResourceQuota> = cluster.get_opt("default", "q").await;
            let used = quota
                .and_then(|quota| quota.status)
                .and_then(|status| status.used);
            serde_json::to_value(used).unwrap() == expect
        })
        .await;
}

fn pod(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"containers": [
        {"name": "c", "image": "i", "resources": {"requests": {"cpu": "300m"}}}]}})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quota_counts_what_is_there_and_gives_back_what_goes() {
    let cluster = Cluster::start().await;
    cluster.create::<Pod>("default", pod("old")).await;
    limit(
        &cluster,
        json!({"pods": "2", "requests.cpu": "1", "count/pods": "9", "count/deployments.apps": "1"}),
    )
    .await;
    used(&cluster, json!({"pods": "1", "requests.cpu": "300m", "count/pods": "1", "count/deployments.apps": "0"}))
        .await;
    cluster.create::<Pod>("default", pod("new")).await;
    let third: Pod = serde_json::from_value(pod("third")).unwrap();
    let refused = cluster
        .api::<Pod>("default")
        .create(&PostParams::default(), &third)
        .await
        .unwrap_err()
        .to_string();
    assert!(
        refused.contains(
            "pods \"third\" is forbidden: exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2"
        ),
        "{refused}"
    );
    cluster
        .api::<Pod>("default")
        .delete("old", &DeleteParams::default().grace_period(0))
        .await
        .unwrap();
    used(&cluster, json!({"pods": "1", "requests.cpu": "300m", "count/pods": "1", "count/deployments.apps": "0"}))
        .await;
    // A finished pod is still there, but takes nothing.
    let finished = Patch::Merge(json!({"status": {"phase": "Succeeded"}}));
    cluster
        .api::<Pod>("default")
        .patch_status("new", &PatchParams::default(), &finished)
        .await
        .unwrap();
    used(
        &cluster,
        json!({"pods": "0", "requests.cpu": "0", "count/pods": "1", "count/deployments.apps": "0"}),
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kinds_that_nothing_else_watches_are_counted_too() {
    let cluster = Cluster::start().await;
    // The root CA is one already.
    limit(&cluster, json!({"configmaps": "3", "services": "5", "services.nodeports": "2", "resourcequotas": "1"}))
        .await;
    let ca = json!({"configmaps": "1", "services": "1", "services.nodeports": "0", "resourcequotas": "1"});
    used(&cluster, ca.clone()).await;
    cluster
        .create::<ConfigMap>("default", json!({"metadata": {"name": "a"}}))
        .await;
    let service =
        json!({"metadata": {"name": "s"}, "spec": {"type": "NodePort", "ports": [{"port": 80}]}});
    cluster.create::<Service>("default", service).await;
    used(&cluster, json!({"configmaps": "2", "services": "2", "services.nodeports": "1", "resourcequotas": "1"})).await;
    cluster
        .api::<ConfigMap>("default")
        .delete("a", &DeleteParams::default())
        .await
        .unwrap();
    let inside = Patch::Merge(
        json!({"spec": {"type": "ClusterIP", "ports": [{"port": 80, "nodePort": null}]}}),
    );
    cluster
        .api::<Service>("default")
        .patch("s", &PatchParams::default(), &inside)
        .await
        .unwrap();
    used(&cluster, json!({"configmaps": "1", "services": "2", "services.nodeports": "0", "resourcequotas": "1"})).await;
    cluster
        .api::<Service>("default")
        .delete("s", &DeleteParams::default())
        .await
        .unwrap();
    used(&cluster, ca).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_resized_pod_has_given_back_is_given_back() {
    let cluster = Cluster::start().await;
    cluster.create::<Pod>("default", pod("p")).await;
    limit(&cluster, json!({"requests.cpu": "2"})).await;
    used(&cluster, json!({"requests.cpu": "300m"})).await;
    for cpu in ["1", "300m"] {
        let has = Patch::Merge(json!({"status": {"containerStatuses": [{
            "name": "c", "image": "i", "imageID": "", "ready": true, "restartCount": 0,
            "allocatedResources": {"cpu": cpu}, "resources": {"requests": {"cpu": cpu}}}]}}));
        let pods = cluster.api::<Pod>("default");
        let told = pods.patch_status("p", &PatchParams::default(), &has).await;
        told.unwrap();
        used(&cluster, json!({"requests.cpu": cpu})).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_with_a_deadline_leaves_the_quota_of_those_without() {
    let cluster = Cluster::start().await;
    cluster.create::<Pod>("default", pod("p")).await;
    limit_in_scope(&cluster, json!({"pods": "2"}), json!(["NotTerminating"])).await;
    used(&cluster, json!({"pods": "1"})).await;
    let deadline = Patch::Merge(json!({"spec": {"activeDeadlineSeconds": 3600}}));
    let pods = cluster.api::<Pod>("default");
    pods.patch("p", &PatchParams::default(), &deadline)
        .await
        .unwrap();
    used(&cluster, json!({"pods": "0"})).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn storage_that_a_claim_has_given_back_is_given_back() {
    let cluster = Cluster::start().await;
    let claim = json!({"metadata": {"name": "c"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    let api = cluster.api::<PersistentVolumeClaim>("default");
    cluster
        .create::<PersistentVolumeClaim>("default", claim)
        .await;
    limit(&cluster, json!({"requests.storage": "5Gi"})).await;
    used(&cluster, json!({"requests.storage": "1Gi"})).await;
    for size in ["3Gi", "1Gi"] {
        let status = Patch::Merge(json!({"status": {"allocatedResources": {"storage": size}}}));
        api.patch_status("c", &PatchParams::default(), &status)
            .await
            .unwrap();
        used(&cluster, json!({"requests.storage": size})).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn devices_of_a_class_are_counted() {
    const DEVICES: &str = "gpu.deviceclass.resource.k8s.io/devices";
    let cluster = Cluster::start().await;
    let claim = |name: &str, count: i64| {
        json!({"metadata": {"name": name}, "spec": {"devices": {"requests": [
            {"name": "r", "exactly": {"deviceClassName": "gpu", "count": count}}]}}})
    };
    cluster
        .create::<ResourceClaim>("default", claim("old", 1))
        .await;
    limit(&cluster, json!({DEVICES: "4"})).await;
    used(&cluster, json!({DEVICES: "1"})).await;
    cluster
        .create::<ResourceClaim>("default", claim("new", 3))
        .await;
    let third: ResourceClaim = serde_json::from_value(claim("third", 1)).unwrap();
    let api = cluster.api::<ResourceClaim>("default");
    let refused = api.create(&PostParams::default(), &third).await;
    let refused = refused.unwrap_err().to_string();
    let expect = format!(
        "exceeded quota: q, requested: {DEVICES}=1, used: {DEVICES}=4, limited: {DEVICES}=4"
    );
    assert!(refused.contains(&expect), "{refused}");
    api.delete("new", &DeleteParams::default()).await.unwrap();
    used(&cluster, json!({DEVICES: "1"})).await;
}

/// A client that asks for ConfigMaps only once the gate is open.
fn held_back(client: Client, gate: watch::Receiver<bool>) -> Client {
    let service = tower::service_fn(move |request: Request<Body>| {
        let (client, mut gate) = (client.clone(), gate.clone());
        async move {
            if request.uri().path().ends_with("/configmaps") {
                let _ = gate.wait_for(|is_open| *is_open).await;
            }
            client.send(request).await
        }
    });
    Client::new(service, "default")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_came_and_went_unseen_is_given_back() {
    let (cluster, authorities) = Cluster::without_controllers().await;
    let gate = watch::Sender::new(false);
    let receiver = gate.subscribe();
    let wrap = move |account: &str, client: Client| match account {
        "generic-garbage-collector" => held_back(client, receiver.clone()),
        _ => client,
    };
    cluster.run_controllers(authorities, |_| {}, wrap).await;
    limit(&cluster, json!({"configmaps": "3"})).await;
    used(&cluster, json!({"configmaps": "1"})).await;
    let map = json!({"metadata": {"name": "short-lived"}});
    cluster.create::<ConfigMap>("default", map).await;
    let api = cluster.api::<ConfigMap>("default");
    let charged = json!({"configmaps": "2"});
    used(&cluster, charged).await;
    api.delete("short-lived", &DeleteParams::default())
        .await
        .unwrap();
    // Only now does the watch begin that tells of what goes.
    gate.send_replace(true);
    used(&cluster, json!({"configmaps": "1"})).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counting_anew_never_lets_more_in() {
    const ROUNDS: usize = 25;
    let cluster = Cluster::start().await;
    // The root CA is one already: two are left.
    limit(&cluster, json!({"configmaps": "3"})).await;
    used(&cluster, json!({"configmaps": "1"})).await;
    let (present, made) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let workers = (0..6).map(|worker| {
        let (cluster, present, made) = (&cluster, &present, &made);
        async move {
            let api = cluster.api::<ConfigMap>("default");
            let name = format!("c{worker}");
            let map: ConfigMap =
                serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
            for _ in 0..ROUNDS {
                if api.create(&PostParams::default(), &map).await.is_ok() {
                    made.fetch_add(1, Ordering::SeqCst);
                    // Counted after it is there and before it goes: never more than there are.
                    let now = present.fetch_add(1, Ordering::SeqCst) + 1;
                    assert!(now <= 2, "{now} beside the root CA");
                    tokio::task::yield_now().await;
                    present.fetch_sub(1, Ordering::SeqCst);
                    api.delete(&name, &DeleteParams::default()).await.unwrap();
                }
            }
        }
    });
    join_all(workers).await;
    assert!(made.load(Ordering::SeqCst) >= 2);
    used(&cluster, json!({"configmaps": "1"})).await;
}
