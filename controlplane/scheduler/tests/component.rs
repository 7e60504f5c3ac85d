//! The scheduler against a real API server in memory: what it writes, and what it leaves alone.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use coracle_api::exposition::{Exposition, Registry};
use coracle_apiserver::{ApiServer, UserInfo, testing};
use coracle_scheduler::SchedulerConfig;
use http::{Method, Request};
use k8s_openapi::api::core::v1::{Event, Node, Pod, PodCondition};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    client::Body,
};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio_util::sync::{CancellationToken, DropGuard};

/// How long anything may take before a test gives up.
const PATIENCE: Duration = Duration::from_secs(30);

struct Cluster {
    /// The administrator's.
    client: Client,
    server: Arc<ApiServer>,
    /// Writes of a pod's status by the scheduler.
    status_writes: Arc<AtomicUsize>,
    /// The scheduler's writes of a pod's status wait for one each.
    permits: Arc<Semaphore>,
    metrics: Registry,
    _scheduler: DropGuard,
}

impl Cluster {
    async fn start() -> Self {
        let server = testing::server().await;
        let client = server.client(UserInfo::component("test"));
        let (status_writes, permits) =
            (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(Semaphore::MAX_PERMITS)));
        let own = server.client(UserInfo::new("system:kube-scheduler", &[]));
        let (writes, waits) = (Arc::clone(&status_writes), Arc::clone(&permits));
        let watched = tower::service_fn(move |request: Request<Body>| {
            let (own, writes, waits) = (own.clone(), Arc::clone(&writes), Arc::clone(&waits));
            async move {
                if request.method() == Method::PATCH && request.uri().path().ends_with("/status") {
                    writes.fetch_add(1, SeqCst);
                    waits.acquire().await.unwrap().forget();
                }
                own.send(request).await
            }
        });
        let shutdown = CancellationToken::new();
        let config = SchedulerConfig::default();
        let metrics = config.metrics.clone();
        coracle_telemetry::spawn(
            "task of a test",
            coracle_scheduler::run(Client::new(watched, "default"), config, shutdown.clone()),
        );
        Self { client, server, status_writes, permits, metrics, _scheduler: shutdown.drop_guard() }
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), "default")
    }

    async fn add_node(&self, name: &str, allocatable: Value) {
        let node: Node = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
        let nodes: Api<Node> = Api::all(self.client.clone());
        let node = nodes.create(&PostParams::default(), &node).await.unwrap();
        let status = Patch::Merge(json!({"status": {"allocatable": allocatable, "capacity": allocatable}}));
        nodes.patch_status(name, &PatchParams::default(), &status).await.unwrap();
        if node.spec.and_then(|spec| spec.taints).is_some() {
            let bare = Patch::Merge(json!({"spec": {"taints": null}}));
            nodes.patch(name, &PatchParams::default(), &bare).await.unwrap();
        }
    }

    async fn add_pod(&self, name: &str, requests: Value, more: Value) {
        let mut spec = json!({"containers": [{"name": "c", "image": "i", "resources": {"requests": requests}}]});
        for (key, value) in more.as_object().unwrap() {
            spec[key] = value.clone();
        }
        let pod = serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap();
        self.pods().create(&PostParams::default(), &pod).await.unwrap();
    }

    async fn scheduled(&self, name: &str) -> Option<PodCondition> {
        let status = self.pods().get(name).await.unwrap().status.unwrap_or_default();
        status.conditions.unwrap_or_default().into_iter().find(|condition| condition.type_ == "PodScheduled")
    }

    async fn placed(&self, name: &str) {
        wait(&format!("{name} to be placed"), || async {
            self.scheduled(name).await.is_some_and(|condition| condition.status == "True")
        })
        .await;
    }

    async fn refused(&self, name: &str) -> String {
        let told = || async { self.scheduled(name).await.filter(|condition| condition.status == "False") };
        wait(&format!("{name} to be refused"), || async { told().await.is_some() }).await;
        let condition = told().await.unwrap();
        assert_eq!(condition.reason.as_deref(), Some("Unschedulable"));
        condition.message.unwrap()
    }

    /// Attempts that found no node.
    fn attempts(&self) -> usize {
        let mut out = Exposition::default();
        self.metrics.write(&mut out);
        let text = out.finish();
        let line = text.lines().find(|line| {
            line.starts_with("scheduler_schedule_attempts_total") && line.contains("result=\"unschedulable\"")
        });
        line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or(0)
    }

    async fn failures(&self) -> Vec<Event> {
        let events: Api<Event> = Api::namespaced(self.client.clone(), "default");
        let all = events.list(&ListParams::default()).await.unwrap().items;
        all.into_iter().filter(|event| event.reason.as_deref() == Some("FailedScheduling")).collect()
    }
}

async fn wait<F, Fut>(what: &str, condition: F)
where
    F: Fn() -> Fut,
    Fut: Future<Output = bool>,
{
    let start = Instant::now();
    while !condition().await {
        assert!(start.elapsed() < PATIENCE, "waited {PATIENCE:?} for {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn small() -> Value {
    json!({"cpu": "1", "memory": "1Gi", "pods": "200"})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_that_fit_nowhere_are_told_once_however_often_they_are_tried() {
    const WAITING: usize = 100;
    let cluster = Cluster::start().await;
    cluster.add_node("n", small()).await;
    for number in 0..WAITING {
        cluster.add_pod(&format!("large-{number}"), json!({"cpu": "64"}), json!({})).await;
    }
    for number in 0..WAITING {
        let message = cluster.refused(&format!("large-{number}")).await;
        assert_eq!(message, "0/1 nodes are available: 1 Insufficient cpu.");
    }
    wait("the events", || async { cluster.failures().await.len() == WAITING }).await;
    let told = cluster.status_writes.load(SeqCst);
    assert!((WAITING..WAITING + 10).contains(&told), "{told}: a pod may change while it is told of");
    // A pod that ends lets all of them be tried again.
    cluster.add_pod("small", json!({"cpu": "10m"}), json!({})).await;
    cluster.placed("small").await;
    let before = cluster.attempts();
    cluster.pods().delete("small", &DeleteParams::default().grace_period(0)).await.unwrap();
    wait("all of them to be tried again", || async { cluster.attempts() >= before + WAITING }).await;
    assert_eq!(cluster.status_writes.load(SeqCst), told);
    assert_eq!(cluster.failures().await.len(), WAITING);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_refusal_does_not_touch_a_pod_that_is_bound() {
    let cluster = Cluster::start().await;
    cluster.permits.forget_permits(Semaphore::MAX_PERMITS);
    cluster.add_node("n", small()).await;
    cluster.add_pod("p", json!({"cpu": "64"}), json!({})).await;
    wait("the refusal to be sent", || async { cluster.status_writes.load(SeqCst) == 1 }).await;
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "n"}});
    let params = PostParams::default();
    let _: Value = cluster.pods().create_subresource("binding", "p", &params, &binding).await.unwrap();
    cluster.permits.add_permits(100);
    // The event follows the condition.
    wait("the refusal to have arrived", || async { !cluster.failures().await.is_empty() }).await;
    assert_eq!(cluster.scheduled("p").await.unwrap().status, "True");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_scheduler_cannot_see_to_is_not_ignored() {
    let cluster = Cluster::start().await;
    cluster.add_node("n", json!({"cpu": "8", "memory": "8Gi", "pods": "110", "example.org/gpu": "1"})).await;
    let term = json!({"labelSelector": {"matchLabels": {"app": "db"}}, "topologyKey": "kubernetes.io/hostname"});
    let apart = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}});
    cluster.add_pod("apart", json!({}), json!({"affinity": apart})).await;
    let gpu = |count: &str| {
        let amount = json!({"example.org/gpu": count});
        json!({"containers": [{"name": "c", "image": "i", "resources": {"requests": amount, "limits": amount}}]})
    };
    cluster.add_pod("first", json!({}), gpu("1")).await;
    cluster.placed("first").await;
    cluster.add_pod("second", json!({}), gpu("1")).await;
    assert_eq!(
        cluster.refused("apart").await,
        "this scheduler does not support required pod anti-affinity yet; the pod waits instead of being placed as if it had \
         not asked"
    );
    assert_eq!(cluster.refused("second").await, "0/1 nodes are available: 1 Insufficient example.org/gpu.");
    cluster.pods().delete("first", &DeleteParams::default().grace_period(0)).await.unwrap();
    cluster.placed("second").await;
    let names: Vec<String> =
        cluster.pods().list(&ListParams::default()).await.unwrap().iter().map(|p| p.name_any()).collect();
    assert_eq!(names, ["apart", "second"]);
    drop(cluster.server);
}
