//! Deployments, ReplicaSets and the endpoints of their pods.

use std::sync::atomic::Ordering;

use k8s_openapi::api::{
    apps::v1::{Deployment, ReplicaSet},
    core::v1::{Endpoints, Event, Pod, Service},
    discovery::v1::EndpointSlice,
};
use kube::{ResourceExt, api::DeleteParams};
use serde_json::{Value, json};

use crate::cluster::Cluster;

fn deployment(name: &str, replicas: i32, image: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {
        "replicas": replicas,
        "selector": {"matchLabels": {"app": name}},
        "template": {
            "metadata": {"labels": {"app": name}},
            "spec": {"containers": [{"name": "web", "image": image, "ports": [{"name": "http", "containerPort": 8080}]}]},
        },
    }})
}

fn service(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {
        "selector": {"app": name},
        "ports": [{"port": 80, "targetPort": "http"}],
    }})
}

async fn rolled_out(cluster: &Cluster, name: &str, replicas: i32) {
    cluster
        .wait(&format!("{name} to have {replicas} replicas"), || async {
            let deployment: Deployment = cluster.get_opt("default", name).await.unwrap();
            let status = deployment.status.clone().unwrap_or_default();
            status.observed_generation == deployment.metadata.generation
                && status.updated_replicas.unwrap_or(0) == replicas
                && status.replicas.unwrap_or(0) == replicas
                && status.available_replicas.unwrap_or(0) == replicas
        })
        .await;
}

async fn slices(cluster: &Cluster, service: &str) -> Vec<EndpointSlice> {
    let mut slices = cluster.list::<EndpointSlice>("default").await;
    slices.retain(|slice| {
        slice
            .labels()
            .get("kubernetes.io/service-name")
            .is_some_and(|name| name == service)
    });
    slices
}

async fn ready_endpoints(cluster: &Cluster, service: &str) -> usize {
    let slices = slices(cluster, service).await;
    let endpoints = slices
        .iter()
        .flat_map(|slice| slice.endpoints.iter().flatten());
    endpoints
        .filter(|endpoint| endpoint.conditions.as_ref().unwrap().ready == Some(true))
        .count()
}

async fn replica_sets(cluster: &Cluster) -> Vec<(i32, String)> {
    let mut sizes: Vec<_> = cluster
        .list::<ReplicaSet>("default")
        .await
        .into_iter()
        .map(|rs| {
            (
                rs.spec.replicas.unwrap(),
                rs.annotations()["deployment.kubernetes.io/revision"].clone(),
            )
        })
        .collect();
    sizes.sort_by(|a, b| a.1.cmp(&b.1));
    sizes
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deployment_becomes_available_pods() {
    let cluster = Cluster::start().await;
    cluster.run_agent();
    cluster
        .create::<Deployment>("default", deployment("web", 3, "nginx:1"))
        .await;
    rolled_out(&cluster, "web", 3).await;
    let pods = cluster.list::<Pod>("default").await;
    assert_eq!(pods.len(), 3);
    assert!(
        pods.iter()
            .all(|pod| pod.labels().contains_key("pod-template-hash"))
    );
    assert_eq!(replica_sets(&cluster).await, [(3, "1".to_owned())]);
    let messages = || async {
        cluster
            .list::<Event>("default")
            .await
            .into_iter()
            .filter_map(|event| event.message)
            .collect::<Vec<_>>()
    };
    let rs = cluster.list::<ReplicaSet>("default").await[0].name_any();
    let scaled = format!("Scaled up replica set {rs} from 0 to 3");
    cluster
        .wait("the scaling event", || async {
            messages().await.contains(&scaled)
        })
        .await;
    let condition = |deployment: &Deployment, kind: &str| {
        let conditions = deployment
            .status
            .as_ref()
            .unwrap()
            .conditions
            .clone()
            .unwrap();
        let found = conditions
            .into_iter()
            .find(|condition| condition.type_.as_deref() == Some(kind))
            .unwrap();
        (found.status.unwrap(), found.reason.unwrap())
    };
    let web: Deployment = cluster.get_opt("default", "web").await.unwrap();
    assert_eq!(
        condition(&web, "Available"),
        ("True".into(), "MinimumReplicasAvailable".into())
    );
    assert_eq!(
        condition(&web, "Progressing"),
        ("True".into(), "NewReplicaSetAvailable".into())
    );
    assert_eq!(web.annotations()["deployment.kubernetes.io/revision"], "1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_template_rolls_out_and_an_old_one_rolls_back() {
    let cluster = Cluster::start().await;
    cluster.run_agent();
    cluster
        .create::<Deployment>("default", deployment("web", 4, "nginx:1"))
        .await;
    rolled_out(&cluster, "web", 4).await;
    let image = |image: &str| {
        json!({"spec": {"template": {"spec": {"containers": [
        {"name": "web", "image": image, "ports": [{"name": "http", "containerPort": 8080}]}]}}}})
    };
    cluster
        .merge::<Deployment>("default", "web", image("nginx:2"))
        .await;
    rolled_out(&cluster, "web", 4).await;
    assert_eq!(
        replica_sets(&cluster).await,
        [(0, "1".to_owned()), (4, "2".to_owned())]
    );
    cluster
        .merge::<Deployment>("default", "web", image("nginx:1"))
        .await;
    rolled_out(&cluster, "web", 4).await;
    assert_eq!(
        replica_sets(&cluster).await,
        [(0, "2".to_owned()), (4, "3".to_owned())]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recreate_never_mixes_revisions() {
    let cluster = Cluster::start().await;
    cluster.run_agent();
    let mut web = deployment("web", 2, "nginx:1");
    web["spec"]["strategy"] = json!({"type": "Recreate"});
    cluster.create::<Deployment>("default", web).await;
    rolled_out(&cluster, "web", 2).await;
    let image = json!({"spec": {"template": {"spec": {"containers": [{"name": "web", "image": "nginx:2"}]}}}});
    cluster.merge::<Deployment>("default", "web", image).await;
    rolled_out(&cluster, "web", 2).await;
    assert_eq!(
        replica_sets(&cluster).await,
        [(0, "1".to_owned()), (2, "2".to_owned())]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scaling_up_and_down_makes_no_duplicate() {
    let cluster = Cluster::start().await;
    cluster.run_agent();
    cluster
        .create::<Deployment>("default", deployment("web", 1, "nginx:1"))
        .await;
    for replicas in [30, 5, 0, 12] {
        cluster
            .merge::<Deployment>("default", "web", json!({"spec": {"replicas": replicas}}))
            .await;
        rolled_out(&cluster, "web", replicas).await;
        cluster
            .wait("surplus pods to go", || async {
                cluster.list::<Pod>("default").await.len() == usize::try_from(replicas).unwrap()
            })
            .await;
    }
    assert_eq!(cluster.list::<ReplicaSet>("default").await.len(), 1);
    let created = cluster
        .list::<Event>("default")
        .await
        .into_iter()
        .filter(|e| e.reason.as_deref() == Some("SuccessfulCreate"));
    assert!(created.count() <= 42, "1, 29 more, and 12 again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deleted_pod_is_replaced() {
    let cluster = Cluster::start().await;
    cluster.run_agent();
    cluster
        .create::<Deployment>("default", deployment("web", 2, "nginx:1"))
        .await;
    rolled_out(&cluster, "web", 2).await;
    let victim = cluster.list::<Pod>("default").await[0].clone();
    cluster
        .api::<Pod>("default")
        .delete(&victim.name_any(), &DeleteParams::default())
        .await
        .unwrap();
    cluster
        .wait("a replacement", || async {
            let pods = cluster.list::<Pod>("default").await;
            pods.len() == 2 && pods.iter().all(|pod| pod.uid() != victim.uid())
        })
        .await;
    rolled_out(&cluster, "web", 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endpoints_follow_pods() {
    let cluster = Cluster::start().await;
    cluster.run_agent();
    cluster.create::<Service>("default", service("web")).await;
    cluster
        .wait("an empty slice", || async {
            slices(&cluster, "web").await.len() == 1
        })
        .await;
    cluster
        .create::<Deployment>("default", deployment("web", 3, "nginx:1"))
        .await;
    cluster
        .wait("three ready endpoints", || async {
            ready_endpoints(&cluster, "web").await == 3
        })
        .await;
    let only = slices(&cluster, "web").await.remove(0);
    assert_eq!(only.ports.as_ref().unwrap()[0].port, Some(8080));
    assert_eq!(
        only.endpoints.as_ref().unwrap()[0].node_name.as_deref(),
        Some("n1")
    );
    cluster
        .wait("legacy endpoints", || async {
            let legacy: Option<Endpoints> = cluster.get_opt("default", "web").await;
            let subsets = legacy.and_then(|legacy| legacy.subsets).unwrap_or_default();
            subsets
                .iter()
                .flat_map(|subset| subset.addresses.iter().flatten())
                .count()
                == 3
        })
        .await;
    cluster
        .merge::<Deployment>("default", "web", json!({"spec": {"replicas": 0}}))
        .await;
    cluster
        .wait("no endpoint", || async {
            ready_endpoints(&cluster, "web").await == 0
        })
        .await;
    cluster
        .wait("the slice to stay", || async {
            slices(&cluster, "web").await.len() == 1
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rollout_that_cannot_progress_says_so() {
    let cluster = Cluster::start().await;
    cluster.run_agent();
    cluster.agent.hold.store(true, Ordering::Relaxed);
    let mut web = deployment("web", 2, "nginx:1");
    web["spec"]["progressDeadlineSeconds"] = json!(1);
    web["spec"]["minReadySeconds"] = json!(0);
    cluster.create::<Deployment>("default", web).await;
    cluster
        .wait("ProgressDeadlineExceeded", || async {
            let web: Deployment = cluster.get_opt("default", "web").await.unwrap();
            let conditions = web
                .status
                .unwrap_or_default()
                .conditions
                .unwrap_or_default();
            conditions
                .iter()
                .any(|condition| condition.reason.as_deref() == Some("ProgressDeadlineExceeded"))
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orphan_that_matches_is_adopted_as_long_as_it_does() {
    let cluster = Cluster::start().await;
    cluster.run_agent();
    let template = deployment("web", 1, "nginx:1")["spec"]["template"].take();
    let labels = &template["metadata"]["labels"];
    let pod = json!({"metadata": {"name": "orphan", "labels": labels}, "spec": template["spec"]});
    cluster.create::<Pod>("default", pod).await;
    // Its endpoint shows that the controllers have seen it: they share what they know of pods.
    cluster.create::<Service>("default", service("web")).await;
    cluster
        .wait("its endpoint", || async {
            ready_endpoints(&cluster, "web").await == 1
        })
        .await;
    let rs = json!({"metadata": {"name": "x"}, "spec": {"replicas": 1, "selector": {"matchLabels": labels},
        "template": template}});
    let owner: ReplicaSet = cluster.create("default", rs).await;
    cluster
        .wait("adoption", || async {
            let pod: Pod = cluster.get_opt("default", "orphan").await.unwrap();
            pod.owner_references()
                .iter()
                .any(|reference| Some(&reference.uid) == owner.metadata.uid.as_ref())
        })
        .await;
    assert_eq!(cluster.list::<Pod>("default").await.len(), 1);
    let other = json!({"metadata": {"labels": {"app": "other"}}});
    cluster.merge::<Pod>("default", "orphan", other).await;
    let replaced = || async {
        let pod: Pod = cluster.get_opt("default", "orphan").await.unwrap();
        pod.owner_references().is_empty() && cluster.list::<Pod>("default").await.len() == 2
    };
    cluster.wait("release, and another pod", replaced).await;
}

/// What the controllers take of a pod's time to Ready; printed, with a generous limit against
/// polling.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_come_without_waiting_for_any_timer() {
    let cluster = Cluster::start().await;
    cluster.run_agent();
    cluster.create::<Service>("default", service("web")).await;
    for (name, replicas) in [("web", 1), ("many", 50)] {
        let start = std::time::Instant::now();
        cluster
            .create::<Deployment>("default", deployment(name, replicas, "nginx:1"))
            .await;
        let selector = kube::api::ListParams::default().labels(&format!("app={name}"));
        let made = || async {
            cluster
                .api::<Pod>("default")
                .list(&selector)
                .await
                .unwrap()
                .items
                .len()
        };
        cluster
            .wait("pods", || async {
                made().await == usize::try_from(replicas).unwrap()
            })
            .await;
        let created = start.elapsed();
        rolled_out(&cluster, name, replicas).await;
        eprintln!(
            "{name}: {replicas} pods exist after {created:?}, rolled out after {:?}",
            start.elapsed()
        );
        assert!(start.elapsed() < std::time::Duration::from_secs(5));
    }
}
