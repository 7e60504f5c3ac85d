//! Controllers whose informers lag behind what they have written, or that never hear what became of
//! it.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use coracle_telemetry::metrics::MetricsRegistry;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, StreamBody};
use k8s_openapi::api::{
    apps::v1::{ReplicaSet, StatefulSet},
    batch::v1::Job,
    core::v1::{Pod, Service},
    discovery::v1::EndpointSlice,
};
use kube::{Client, ResourceExt, api::DeleteParams, client::Body};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::{cluster::Cluster, stateful_sets::stateful_set};

/// A client whose watches of `plural` show nothing while the gate is closed.
fn gated(client: Client, plural: &'static str, gate: watch::Receiver<bool>) -> Client {
    let service = tower::service_fn(move |request: Request<Body>| {
        let (client, gate) = (client.clone(), gate.clone());
        let uri = request.uri();
        let is_gated = uri.path().ends_with(plural)
            && uri
                .query()
                .is_some_and(|query| query.contains("watch=true"));
        async move {
            let response = client.send(request).await?;
            if !is_gated {
                return Ok(response.map(BodyExt::boxed_unsync));
            }
            let (parts, body) = response.into_parts();
            let frames = futures::stream::unfold((body, gate), |(mut body, mut gate)| async move {
                let frame = body.frame().await?;
                gate.wait_for(|is_open| *is_open).await.ok()?;
                Some((frame, (body, gate)))
            });
            let body = StreamBody::new(Box::pin(frames)).boxed_unsync();
            Ok::<_, kube::Error>(Response::from_parts(parts, body))
        }
    });
    Client::new(service, "default")
}

/// A client whose first `lost` POSTs are carried out and answered with a failure.
pub(crate) fn deaf(client: Client, lost: usize) -> Client {
    let posts = Arc::new(AtomicUsize::new(0));
    let service = tower::service_fn(move |request: Request<Body>| {
        let (client, posts) = (client.clone(), posts.clone());
        async move {
            let is_post = request.method() == Method::POST;
            let response = client.send(request).await?;
            if !is_post || posts.fetch_add(1, Ordering::Relaxed) >= lost {
                return Ok::<_, kube::Error>(response);
            }
            Ok(Response::builder()
                .status(StatusCode::GATEWAY_TIMEOUT)
                .body(Body::empty())
                .unwrap())
        }
    });
    Client::new(service, "default")
}

/// How often a key of this queue has been worked on.
fn worked(metrics: &MetricsRegistry, queue: &str) -> u64 {
    let start = format!("workqueue_work_duration_seconds_count{{name=\"{queue}\"}} ");
    let text = metrics.text();
    text.lines()
        .find_map(|line| line.strip_prefix(&start))
        .map_or(0, |number| number.parse().unwrap())
}

/// All controllers, whose informer of `plural` shows nothing while the gate is closed.
async fn behind_gate(plural: &'static str) -> (Cluster, watch::Sender<bool>, MetricsRegistry) {
    let (cluster, authorities) = Cluster::without_controllers().await;
    let (gate, metrics) = (watch::Sender::new(true), MetricsRegistry::default());
    let (receiver, counted) = (gate.subscribe(), metrics.clone());
    let wrap = move |account: &str, client: Client| match account {
        "kube-controller-manager" => gated(client, plural, receiver.clone()),
        _ => client,
    };
    cluster
        .run_controllers(authorities, |config| config.metrics = counted, wrap)
        .await;
    // Closed before the first list it would keep the controllers from beginning.
    let mut first = replica_set(0);
    first["metadata"]["name"] = "first".into();
    cluster.create::<ReplicaSet>("default", first).await;
    let service = json!({"metadata": {"name": "first"}, "spec": {"selector": {"app": "first"}, "ports": [{"port": 80}]}});
    cluster.create::<Service>("default", service).await;
    let have_begun = || async {
        let rs: ReplicaSet = cluster.get_opt("default", "first").await.unwrap();
        let slices = cluster.list::<EndpointSlice>("default").await;
        rs.status
            .is_some_and(|status| status.observed_generation.is_some())
            && slices.iter().any(|slice| {
                slice
                    .labels()
                    .get("kubernetes.io/service-name")
                    .is_some_and(|name| name == "first")
            })
    };
    cluster.wait("the controllers to begin", have_begun).await;
    (cluster, gate, metrics)
}

fn replica_set(replicas: i32) -> Value {
    json!({"metadata": {"name": "web"}, "spec": {
        "replicas": replicas,
        "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
    }})
}

async fn pods(cluster: &Cluster) -> usize {
    cluster.list::<Pod>("default").await.len()
}

/// Changes the object until its controller has looked at it again.
pub(crate) async fn poke<K>(
    cluster: &Cluster,
    name: &str,
    patch: Value,
    metrics: &MetricsRegistry,
    queue: &str,
) where
    K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + serde::de::DeserializeOwned
        + std::fmt::Debug,
{
    let before = worked(metrics, queue);
    cluster.merge::<K>("default", name, patch).await;
    cluster
        .wait("the controller to look again", || async {
            worked(metrics, queue) > before
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_pod_is_made_twice_while_the_informer_lags() {
    let (cluster, gate, metrics) = behind_gate("/pods").await;
    gate.send_replace(false);
    cluster
        .create::<ReplicaSet>("default", replica_set(5))
        .await;
    cluster
        .wait("pods", || async { pods(&cluster).await == 5 })
        .await;
    for round in 0..3 {
        let patch = json!({"metadata": {"annotations": {"round": round.to_string()}}});
        poke::<ReplicaSet>(&cluster, "web", patch, &metrics, "replicaset").await;
    }
    poke::<ReplicaSet>(
        &cluster,
        "web",
        json!({"spec": {"replicas": 7}}),
        &metrics,
        "replicaset",
    )
    .await;
    assert_eq!(
        pods(&cluster).await,
        5,
        "nothing is done before the first five show"
    );
    gate.send_replace(true);
    cluster
        .wait("the two others", || async { pods(&cluster).await == 7 })
        .await;
    let counts = async |replicas: i32| {
        let is_counted = || async {
            let rs: ReplicaSet = cluster.get_opt("default", "web").await.unwrap();
            rs.status.is_some_and(|status| status.replicas == replicas)
        };
        cluster.wait("the status", is_counted).await;
    };
    // The controller has seen them, too.
    counts(7).await;
    // None is deleted twice either.
    gate.send_replace(false);
    cluster
        .merge::<ReplicaSet>("default", "web", json!({"spec": {"replicas": 4}}))
        .await;
    cluster
        .wait("pods to go", || async { pods(&cluster).await == 4 })
        .await;
    let patch = json!({"metadata": {"annotations": {"round": "last"}}});
    poke::<ReplicaSet>(&cluster, "web", patch, &metrics, "replicaset").await;
    assert_eq!(pods(&cluster).await, 4);
    gate.send_replace(true);
    counts(4).await;
    assert_eq!(pods(&cluster).await, 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_counts_no_pod_twice_while_the_informer_lags() {
    let (cluster, gate, metrics) = behind_gate("/pods").await;
    gate.send_replace(false);
    let job = json!({"metadata": {"name": "web"}, "spec": {"parallelism": 3, "completions": 3, "template": {
        "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}});
    cluster.create::<Job>("default", job).await;
    cluster
        .wait("pods", || async { pods(&cluster).await == 3 })
        .await;
    let patch = json!({"metadata": {"annotations": {"round": "1"}}});
    poke::<Job>(&cluster, "web", patch, &metrics, "job").await;
    assert_eq!(pods(&cluster).await, 3);
    for pod in cluster.list::<Pod>("default").await {
        let status = json!({"status": {"phase": "Succeeded"}});
        let patch = kube::api::Patch::Merge(status);
        cluster
            .api::<Pod>("default")
            .patch_status(&pod.name_any(), &Default::default(), &patch)
            .await
            .unwrap();
    }
    gate.send_replace(true);
    let succeeded = || async {
        let job: Job = cluster.get_opt("default", "web").await.unwrap();
        let status = job.status.unwrap_or_default();
        status.completion_time.is_some() && status.succeeded == Some(3)
    };
    cluster.wait("the end of the Job", succeeded).await;
    assert_eq!(pods(&cluster).await, 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_slice_is_made_twice_while_the_informer_lags() {
    let (cluster, gate, metrics) = behind_gate("/endpointslices").await;
    gate.send_replace(false);
    let slices = async || {
        let mut slices = cluster.list::<EndpointSlice>("default").await;
        slices.retain(|slice| {
            slice
                .labels()
                .get("kubernetes.io/service-name")
                .is_some_and(|name| name == "web")
        });
        slices.len()
    };
    let service = json!({"metadata": {"name": "web"}, "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]}});
    cluster.create::<Service>("default", service).await;
    cluster.wait("a slice", async || slices().await == 1).await;
    let patch = json!({"metadata": {"labels": {"round": "1"}}});
    poke::<Service>(&cluster, "web", patch, &metrics, "endpoint_slice").await;
    assert_eq!(slices().await, 1);
    gate.send_replace(true);
    let is_relabelled = async || {
        let slices = cluster.list::<EndpointSlice>("default").await;
        slices
            .iter()
            .any(|slice| slice.labels().contains_key("round"))
    };
    cluster.wait("the label", is_relabelled).await;
    assert_eq!(slices().await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_set_rests_while_the_informer_lags() {
    let (cluster, gate, metrics) = behind_gate("/pods").await;
    gate.send_replace(false);
    let set = stateful_set(json!({"podManagementPolicy": "Parallel"}));
    cluster.create::<StatefulSet>("default", set).await;
    let has = |count: usize| {
        let cluster = &cluster;
        move || async move { pods(cluster).await == count }
    };
    cluster.wait("pods", has(3)).await;
    // One of them goes, and the next is not due before that shows.
    let api = cluster.api::<Pod>("default");
    let at_once = DeleteParams::default().grace_period(0);
    drop(api.delete("web-1", &at_once).await.unwrap());
    let more = json!({"spec": {"replicas": 5}});
    poke::<StatefulSet>(&cluster, "web", more, &metrics, "statefulset").await;
    assert_eq!(pods(&cluster).await, 2);
    gate.send_replace(true);
    cluster.wait("all", has(5)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_that_are_lost_make_no_pod_twice_and_hold_up_nobody() {
    let (cluster, authorities) = Cluster::without_controllers().await;
    let wrap = |account: &str, client: Client| match account {
        "replicaset-controller" => deaf(client, 4),
        _ => client,
    };
    cluster.run_controllers(authorities, |_| {}, wrap).await;
    cluster
        .create::<ReplicaSet>("default", replica_set(9))
        .await;
    let is_complete = || async {
        let count = pods(&cluster).await;
        assert!(count <= 9, "{count} pods");
        let rs: ReplicaSet = cluster.get_opt("default", "web").await.unwrap();
        count == 9 && rs.status.is_some_and(|status| status.replicas == 9)
    };
    cluster.wait("pods", is_complete).await;
}
