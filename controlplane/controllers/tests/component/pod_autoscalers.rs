//! HorizontalPodAutoscalers: what they scale, and what they say of it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use coracle_controllers::ControllersConfig;
use coracle_telemetry::metrics::MetricsRegistry;
use http::{Request, Response};
use k8s_openapi::api::{
    apps::v1::{Deployment, StatefulSet},
    autoscaling::v2::HorizontalPodAutoscaler,
    core::v1::{Event, Pod, ReplicationController},
};
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, PatchParams},
    client::Body,
};
use serde_json::{Value, json};

use crate::cluster::Cluster;

const MIB: u64 = 1024 * 1024;

/// What each pod uses of memory, in MiB, as the metrics API tells the controller.
type Load = Arc<AtomicU64>;

/// A client whose metrics API tells this load of every pod.
fn measured(client: Client, load: Load) -> Client {
    let service = tower::service_fn(move |request: Request<Body>| {
        let (client, load) = (client.clone(), Arc::clone(&load));
        async move {
            if !request.uri().path().starts_with("/apis/metrics.k8s.io/") {
                return client.send(request).await;
            }
            let pods: Api<Pod> = Api::namespaced(client, "default");
            let pods = pods.list(&ListParams::default().labels("app=web")).await?;
            let bytes = load.load(Ordering::Relaxed) * MIB;
            let item = |pod: Pod| {
                json!({"metadata": {"name": pod.name_any()}, "timestamp": "2026-01-01T00:00:00Z", "window": "10s",
                    "containers": [{"name": "c", "usage": {"memory": bytes.to_string()}}]})
            };
            let items: Vec<Value> = pods.items.into_iter().map(item).collect();
            let body = json!({"kind": "PodMetricsList", "apiVersion": "metrics.k8s.io/v1beta1",
                "metadata": {}, "items": items});
            Ok::<_, kube::Error>(Response::new(Body::from(body.to_string().into_bytes())))
        }
    });
    Client::new(service, "default")
}

fn quick(config: &mut ControllersConfig) {
    config.pod_autoscaler.sync_period = Duration::from_millis(50);
    config.pod_autoscaler.downscale_stabilization = Duration::from_millis(200);
}

/// All controllers, and pods that use 10 MiB.
async fn under_load() -> (Cluster, Load, MetricsRegistry) {
    let (cluster, authorities) = Cluster::without_controllers().await;
    let (load, metrics) = (Load::new(AtomicU64::new(10)), MetricsRegistry::default());
    let (told, counted) = (Arc::clone(&load), metrics.clone());
    let wrap = move |account: &str, client: Client| match account {
        "horizontal-pod-autoscaler" => measured(client, Arc::clone(&told)),
        _ => client,
    };
    let adjust = |config: &mut ControllersConfig| {
        quick(config);
        config.metrics = counted;
    };
    cluster.run_controllers(authorities, adjust, wrap).await;
    cluster.run_agent();
    (cluster, load, metrics)
}

fn workload(replicas: i32) -> Value {
    json!({"metadata": {"name": "web"}, "spec": {"replicas": replicas, "serviceName": "web",
        "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [
            {"name": "c", "image": "i", "resources": {"requests": {"memory": "10Mi"}}}]}}}})
}

/// For all their memory, between these bounds.
async fn autoscaler(cluster: &Cluster, name: &str, kind: (&str, &str), bounds: (i32, i32)) {
    let (api_version, kind) = kind;
    let target = json!({"type": "Utilization", "averageUtilization": 100});
    let object = json!({"metadata": {"name": name}, "spec": {
        "scaleTargetRef": {"apiVersion": api_version, "kind": kind, "name": "web"},
        "minReplicas": bounds.0, "maxReplicas": bounds.1,
        "metrics": [{"type": "Resource", "resource": {"name": "memory", "target": target}}]}});
    cluster
        .create::<HorizontalPodAutoscaler>("default", object)
        .await;
}

const DEPLOYMENT: (&str, &str) = ("apps/v1", "Deployment");

/// Reason and message of a condition.
async fn condition(cluster: &Cluster, name: &str, kind: &str) -> Option<(String, String)> {
    let hpa: HorizontalPodAutoscaler = cluster.get_opt("default", name).await?;
    let conditions = hpa.status?.conditions?;
    let condition = conditions.into_iter().find(|one| one.type_ == kind)?;
    Some((condition.reason?, condition.message?))
}

async fn says(cluster: &Cluster, name: &str, kind: &str, expect: (&str, &str)) {
    let what = format!("{name} to say {expect:?}");
    let holds = || async {
        let told = condition(cluster, name, kind).await;
        told.is_some_and(|(reason, message)| (reason.as_str(), message.as_str()) == expect)
    };
    cluster.wait(&what, holds).await;
}

async fn told(cluster: &Cluster, reason: &str, message: &str) {
    let what = format!("the event {reason}: {message}");
    let is_there = || async {
        let events = cluster.list::<Event>("default").await;
        events.iter().any(|event| {
            event.reason.as_deref() == Some(reason)
                && event.message.as_deref() == Some(message)
                && event.reporting_component.as_deref() == Some("horizontal-pod-autoscaler")
        })
    };
    cluster.wait(&what, is_there).await;
}

/// Waits until the Deployment shall have so many, and has.
async fn has(cluster: &Cluster, replicas: i32) {
    let has = || async {
        let web: Deployment = cluster.get_opt("default", "web").await.unwrap();
        let status = web.status.unwrap_or_default();
        web.spec.replicas == Some(replicas) && status.ready_replicas.unwrap_or(0) == replicas
    };
    cluster.wait(&format!("{replicas} replicas"), has).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deployment_grows_and_shrinks_with_its_load() {
    let (cluster, load, _) = under_load().await;
    cluster.create::<Deployment>("default", workload(1)).await;
    has(&cluster, 1).await;
    autoscaler(&cluster, "h", DEPLOYMENT, (1, 5)).await;
    says(
        &cluster,
        "h",
        "ScalingLimited",
        (
            "DesiredWithinRange",
            "the desired count is within the acceptable range",
        ),
    )
    .await;
    load.store(30, Ordering::Relaxed);
    // Each of the new ones tells the same: up to the bound.
    has(&cluster, 5).await;
    let above = "memory resource utilization (percentage of request) above target";
    told(
        &cluster,
        "SuccessfulRescale",
        &format!("New size: 3; reason: {above}"),
    )
    .await;
    says(
        &cluster,
        "h",
        "ScalingLimited",
        (
            "TooManyReplicas",
            "the desired replica count is more than the maximum replica count",
        ),
    )
    .await;
    load.store(1, Ordering::Relaxed);
    has(&cluster, 1).await;
    told(
        &cluster,
        "SuccessfulRescale",
        "New size: 1; reason: All metrics below target",
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_autoscaler_with_nothing_to_do_writes_nothing() {
    let (cluster, _, metrics) = under_load().await;
    cluster.create::<Deployment>("default", workload(2)).await;
    has(&cluster, 2).await;
    autoscaler(&cluster, "h", DEPLOYMENT, (1, 5)).await;
    let able = "recommended size matches current size";
    says(&cluster, "h", "AbleToScale", ("ReadyForNewScale", able)).await;
    let versions = || async {
        let hpa: HorizontalPodAutoscaler = cluster.get_opt("default", "h").await.unwrap();
        let web: Deployment = cluster.get_opt("default", "web").await.unwrap();
        (hpa.resource_version(), web.resource_version())
    };
    let rounds = || {
        let start = "workqueue_work_duration_seconds_count{name=\"horizontalpodautoscaler\"} ";
        let text = metrics.text();
        let found = text.lines().find_map(|line| line.strip_prefix(start));
        found.map_or(0, |number| number.parse::<u64>().unwrap())
    };
    let (before, after) = (versions().await, rounds() + 10);
    let is_over = || async { rounds() >= after };
    cluster.wait("ten rounds", is_over).await;
    assert_eq!(versions().await, before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_has_a_scale_is_brought_within_its_bounds() {
    let cluster = Cluster::start_with(quick).await;
    cluster.create::<StatefulSet>("default", workload(1)).await;
    autoscaler(&cluster, "h", ("apps/v1", "StatefulSet"), (2, 5)).await;
    let below = "Current number of replicas below Spec.MinReplicas";
    told(
        &cluster,
        "SuccessfulRescale",
        &format!("New size: 2; reason: {below}"),
    )
    .await;
    let mut rc = workload(9);
    rc["spec"]["selector"] = json!({"app": "web"});
    cluster.create::<ReplicationController>("default", rc).await;
    autoscaler(&cluster, "r", ("v1", "ReplicationController"), (2, 5)).await;
    let is_less = || async {
        let rc: ReplicationController = cluster.get_opt("default", "web").await.unwrap();
        rc.spec.unwrap().replicas == Some(5)
    };
    cluster.wait("the upper bound", is_less).await;
    let above = "Current number of replicas above Spec.MaxReplicas";
    told(
        &cluster,
        "SuccessfulRescale",
        &format!("New size: 5; reason: {above}"),
    )
    .await;
    // Who sets it to none wants none.
    let none = json!({"spec": {"replicas": 0}});
    cluster.merge::<StatefulSet>("default", "web", none).await;
    says(
        &cluster,
        "h",
        "ScalingActive",
        (
            "ScalingDisabled",
            "scaling is disabled since the replica count of the target is zero",
        ),
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_autoscaler_that_cannot_scale_says_why() {
    let cluster = Cluster::start_with(quick).await;
    cluster.run_agent();
    autoscaler(&cluster, "nothing", DEPLOYMENT, (1, 5)).await;
    let failed = "the HPA controller was unable to get the target's current scale: ";
    let why = "deployments.apps \"web\" not found";
    let message = format!("{failed}{why}");
    let expect = ("FailedGetScale", message.as_str());
    says(&cluster, "nothing", "AbleToScale", expect).await;
    told(&cluster, "FailedGetScale", why).await;
    autoscaler(&cluster, "strange", ("apps/v1", "Nonsense"), (1, 5)).await;
    let message = format!("{failed}no matches for kind \"Nonsense\" in group \"apps\"");
    let expect = ("FailedGetScale", message.as_str());
    says(&cluster, "strange", "AbleToScale", expect).await;
    // The real metrics API, of nodes that nobody runs.
    cluster.create::<Deployment>("default", workload(2)).await;
    let why = "failed to get memory utilization: unable to get metrics for resource memory: no metrics returned from resource metrics API";
    let message = format!("the HPA was unable to compute the replica count: {why}");
    let expect = ("FailedGetResourceMetric", message.as_str());
    says(&cluster, "nothing", "ScalingActive", expect).await;
    told(&cluster, "FailedGetResourceMetric", why).await;
    let all = format!(
        "invalid metrics (1 invalid out of 1), first error is: failed to get memory resource metric value: {why}"
    );
    told(&cluster, "FailedComputeMetricsReplicas", &all).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_autoscalers_of_the_same_pods_leave_them_alone() {
    let (cluster, load, _) = under_load().await;
    cluster.create::<Deployment>("default", workload(2)).await;
    has(&cluster, 2).await;
    autoscaler(&cluster, "one", DEPLOYMENT, (1, 5)).await;
    autoscaler(&cluster, "two", DEPLOYMENT, (1, 5)).await;
    let why =
        "pods by selector app=web are controlled by multiple HPAs: [{one default} {two default}]";
    for name in ["one", "two"] {
        says(&cluster, name, "ScalingActive", ("AmbiguousSelector", why)).await;
    }
    told(&cluster, "AmbiguousSelector", why).await;
    load.store(30, Ordering::Relaxed);
    // With one of them gone the other is free.
    cluster
        .api::<HorizontalPodAutoscaler>("default")
        .delete("one", &Default::default())
        .await
        .unwrap();
    has(&cluster, 5).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn behaviours_slow_an_autoscaler_down() {
    let (cluster, load, _) = under_load().await;
    cluster.create::<Deployment>("default", workload(1)).await;
    has(&cluster, 1).await;
    autoscaler(&cluster, "h", DEPLOYMENT, (1, 9)).await;
    let one_an_hour = json!([{"type": "Pods", "value": 1, "periodSeconds": 1800}]);
    let behavior = json!({"spec": {"behavior": {"scaleUp": {"policies": one_an_hour}}}});
    cluster
        .api::<HorizontalPodAutoscaler>("default")
        .patch(
            "h",
            &PatchParams::default(),
            &kube::api::Patch::Merge(behavior),
        )
        .await
        .unwrap();
    load.store(30, Ordering::Relaxed);
    let limit = "the desired replica count is increasing faster than the maximum scale rate";
    let has_grown = || async {
        let hpa: HorizontalPodAutoscaler = cluster.get_opt("default", "h").await.unwrap();
        let status = hpa.status.unwrap_or_default();
        // A round after the one that made the second.
        status.current_replicas == Some(2) && status.desired_replicas == 2
    };
    cluster.wait("the second replica", has_grown).await;
    says(&cluster, "h", "ScalingLimited", ("ScaleUpLimit", limit)).await;
    has(&cluster, 2).await;
}
