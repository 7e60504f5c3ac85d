//! The end of things: dependents of deleted owners, deletion policies, namespaces.

use k8s_openapi::api::{
    apps::v1::{Deployment, ReplicaSet},
    core::v1::{ConfigMap, Namespace, Pod, Secret, ServiceAccount},
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, PostParams},
};
use serde_json::json;

use crate::cluster::Cluster;

async fn with_deployment(cluster: &Cluster) {
    cluster.run_agent();
    let web = json!({"metadata": {"name": "web"}, "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    cluster.create::<Deployment>("default", web).await;
    cluster
        .wait("two replicas", || async {
            let web: Deployment = cluster.get_opt("default", "web").await.unwrap();
            web.status.unwrap_or_default().available_replicas == Some(2)
        })
        .await;
}

async fn counts(cluster: &Cluster) -> (usize, usize, usize) {
    (
        cluster.list::<Deployment>("default").await.len(),
        cluster.list::<ReplicaSet>("default").await.len(),
        cluster.list::<Pod>("default").await.len(),
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn background_deletion_takes_everything_below() {
    let cluster = Cluster::start().await;
    with_deployment(&cluster).await;
    cluster
        .api::<Deployment>("default")
        .delete("web", &DeleteParams::background())
        .await
        .unwrap();
    cluster
        .wait("nothing left", || async {
            counts(&cluster).await == (0, 0, 0)
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn foreground_deletion_removes_the_owner_last() {
    let cluster = Cluster::start().await;
    with_deployment(&cluster).await;
    cluster
        .api::<Deployment>("default")
        .delete("web", &DeleteParams::foreground())
        .await
        .unwrap();
    cluster
        .wait("nothing left", || async {
            let (deployments, replica_sets, pods) = counts(&cluster).await;
            assert!(
                deployments >= replica_sets.min(1) || pods == 0,
                "{deployments} {replica_sets} {pods}"
            );
            (deployments, replica_sets, pods) == (0, 0, 0)
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orphaned_dependents_stay() {
    let cluster = Cluster::start().await;
    with_deployment(&cluster).await;
    cluster
        .api::<Deployment>("default")
        .delete("web", &DeleteParams::orphan())
        .await
        .unwrap();
    cluster
        .wait("the Deployment to go", || async {
            counts(&cluster).await.0 == 0
        })
        .await;
    let left = cluster.list::<ReplicaSet>("default").await;
    assert_eq!(
        (left.len(), cluster.list::<Pod>("default").await.len()),
        (1, 2)
    );
    assert!(left[0].owner_references().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn namespace_takes_its_content_along() {
    let cluster = Cluster::start().await;
    cluster.run_agent();
    let namespaces: Api<Namespace> = Api::all(cluster.client.clone());
    let doomed: Namespace =
        serde_json::from_value(json!({"metadata": {"name": "doomed"}})).unwrap();
    namespaces
        .create(&PostParams::default(), &doomed)
        .await
        .unwrap();
    cluster
        .create::<ConfigMap>("doomed", json!({"metadata": {"name": "a"}}))
        .await;
    let pod =
        json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    cluster.create::<Pod>("doomed", pod).await;
    let held = json!({"metadata": {"name": "held", "finalizers": ["example.org/hold"]}});
    cluster.create::<ConfigMap>("doomed", held).await;
    namespaces
        .delete("doomed", &DeleteParams::default())
        .await
        .unwrap();
    cluster
        .wait("the finalizer to be told", || async {
            let doomed = namespaces.get("doomed").await.unwrap();
            let conditions = doomed
                .status
                .unwrap_or_default()
                .conditions
                .unwrap_or_default();
            conditions.iter().any(|c| {
                c.type_ == "NamespaceFinalizersRemaining"
                    && c.status == "True"
                    && c.message.as_deref().is_some_and(|message| {
                        message.contains("example.org/hold in 1 resource instances")
                    })
            })
        })
        .await;
    assert!(cluster.get_opt::<Pod>("doomed", "p").await.is_none());
    cluster
        .merge::<ConfigMap>("doomed", "held", json!({"metadata": {"finalizers": null}}))
        .await;
    cluster
        .wait("the namespace to go", || async {
            namespaces.get_opt("doomed").await.unwrap().is_none()
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_live_as_long_as_their_account() {
    let cluster = Cluster::start().await;
    let token = |name: &str, account: &str| {
        json!({"metadata": {"name": name, "annotations": {"kubernetes.io/service-account.name": account}},
            "type": "kubernetes.io/service-account-token"})
    };
    cluster
        .create::<ServiceAccount>("default", json!({"metadata": {"name": "robot"}}))
        .await;
    let filled: Secret = cluster.create("default", token("kept", "robot")).await;
    assert!(filled.data.unwrap().contains_key("token"));
    cluster
        .create::<Secret>("default", token("lost", "nobody"))
        .await;
    cluster
        .wait("the token of nobody to go", || async {
            cluster.get_opt::<Secret>("default", "lost").await.is_none()
        })
        .await;
    assert!(cluster.get_opt::<Secret>("default", "kept").await.is_some());
    cluster
        .api::<ServiceAccount>("default")
        .delete("robot", &DeleteParams::default())
        .await
        .unwrap();
    cluster
        .wait("the token of the account to go", || async {
            cluster.get_opt::<Secret>("default", "kept").await.is_none()
        })
        .await;
}
