//! ReplicationControllers, as upstream's conformance asks of them.

use k8s_openapi::api::{
    autoscaling::v1::Scale,
    core::v1::{Pod, ReplicationController, ResourceQuota},
};
use kube::{
    ResourceExt,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::cluster::Cluster;

fn controller(name: &str, replicas: i32) -> Value {
    json!({"metadata": {"name": name}, "spec": {
        "replicas": replicas,
        "selector": {"app": name},
        "template": {
            "metadata": {"labels": {"app": name}},
            "spec": {"containers": [{"name": "web", "image": "nginx:1"}]},
        },
    }})
}

async fn has_ready(cluster: &Cluster, name: &str, replicas: i32) {
    cluster
        .wait(&format!("{name} to have {replicas} replicas"), || async {
            let rc: ReplicationController = cluster.get_opt("default", name).await.unwrap();
            let status = rc.status.unwrap_or_default();
            status.observed_generation == rc.metadata.generation
                && status.replicas == replicas
                && status.ready_replicas.unwrap_or(0) == replicas
                && status.available_replicas.unwrap_or(0) == replicas
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn its_pods_come_scale_and_go() {
    let cluster = Cluster::start().await;
    cluster.run_agent();
    let rc: ReplicationController = cluster.create("default", controller("web", 2)).await;
    has_ready(&cluster, "web", 2).await;
    for pod in cluster.list::<Pod>("default").await {
        let owner = &pod.owner_references()[0];
        assert_eq!(
            (&*owner.api_version, &*owner.kind, &*owner.name, &*owner.uid),
            ("v1", "ReplicationController", "web", &*rc.uid().unwrap())
        );
    }
    let api = cluster.api::<ReplicationController>("default");
    let scale = json!({"spec": {"replicas": 3}});
    let scaled: Scale = api
        .patch_scale("web", &PatchParams::default(), &Patch::Merge(scale))
        .await
        .unwrap();
    assert_eq!(scaled.status.unwrap().selector.as_deref(), Some("app=web"));
    has_ready(&cluster, "web", 3).await;
    cluster
        .merge::<ReplicationController>("default", "web", json!({"spec": {"replicas": 0}}))
        .await;
    has_ready(&cluster, "web", 0).await;
    assert!(cluster.list::<Pod>("default").await.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_adopts_what_matches_and_releases_what_does_not() {
    let cluster = Cluster::start().await;
    cluster.run_agent();
    let template = controller("web", 1)["spec"]["template"].take();
    let labels = &template["metadata"]["labels"];
    let pod = json!({"metadata": {"name": "orphan", "labels": labels}, "spec": template["spec"]});
    cluster.create::<Pod>("default", pod).await;
    let rc: ReplicationController = cluster.create("default", controller("web", 1)).await;
    let owner = || async {
        let pod: Pod = cluster.get_opt("default", "orphan").await.unwrap();
        pod.owner_references()
            .first()
            .map(|owner| owner.uid.clone())
    };
    cluster
        .wait("adoption", || async { owner().await == rc.uid() })
        .await;
    cluster
        .merge::<Pod>(
            "default",
            "orphan",
            json!({"metadata": {"labels": {"app": "other"}}}),
        )
        .await;
    cluster
        .wait("release, and another pod", || async {
            owner().await.is_none() && cluster.list::<Pod>("default").await.len() == 2
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_quota_refuses_is_its_condition_until_it_asks_for_less() {
    let cluster = Cluster::start().await;
    cluster.run_agent();
    cluster
        .create::<ResourceQuota>(
            "default",
            json!({"metadata": {"name": "two"}, "spec": {"hard": {"pods": "2"}}}),
        )
        .await;
    cluster
        .wait("the quota to be counted", || async {
            let quota: Option<ResourceQuota> = cluster.get_opt("default", "two").await;
            quota.is_some_and(|quota| quota.status.is_some_and(|status| status.hard.is_some()))
        })
        .await;
    cluster
        .create::<ReplicationController>("default", controller("web", 3))
        .await;
    let failure = || async {
        let rc: ReplicationController = cluster.get_opt("default", "web").await.unwrap();
        let conditions = rc.status.unwrap_or_default().conditions.unwrap_or_default();
        conditions
            .into_iter()
            .find(|condition| condition.type_ == "ReplicaFailure")
    };
    cluster
        .wait("its condition", || async {
            failure().await.is_some_and(|failure| {
                failure.reason.as_deref() == Some("FailedCreate")
                    && failure
                        .message
                        .is_some_and(|message| message.contains("exceeded quota: two"))
            })
        })
        .await;
    cluster
        .merge::<ReplicationController>("default", "web", json!({"spec": {"replicas": 2}}))
        .await;
    cluster
        .wait("the condition to go", || async {
            failure().await.is_none()
        })
        .await;
    has_ready(&cluster, "web", 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn its_pods_are_let_go_or_collected_as_the_delete_says() {
    let cluster = Cluster::start().await;
    cluster.run_agent();
    let api = cluster.api::<ReplicationController>("default");
    for (name, how) in [
        ("let-go", DeleteParams::orphan()),
        ("collected", DeleteParams::background()),
    ] {
        cluster
            .create::<ReplicationController>("default", controller(name, 2))
            .await;
        has_ready(&cluster, name, 2).await;
        api.delete(name, &how).await.unwrap();
    }
    cluster
        .wait("pods of the one, and none of the other", || async {
            let pods = cluster.list::<Pod>("default").await;
            pods.len() == 2
                && pods
                    .iter()
                    .all(|pod| pod.labels()["app"] == "let-go" && pod.owner_references().is_empty())
        })
        .await;
}
