//! An API server in memory with a scheduler whose requests can be counted, held up and made to
//! fail.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use coracle_apiserver::{ApiServer, UserInfo, testing};
use coracle_scheduler::SchedulerConfig;
use coracle_telemetry::metrics::MetricsRegistry;
use http::{Method, Request, Response};
use k8s_openapi::api::core::v1::{Event, Node, Pod, PodCondition};
use kube::{
    Api, Client,
    api::{ListParams, Patch, PatchParams, PostParams},
    client::Body,
};
use serde_json::{Value, json};
use tokio::sync::{RwLock, Semaphore};
use tokio_util::sync::{CancellationToken, DropGuard};

/// How long anything may take before a test gives up.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct Cluster {
    /// The administrator's.
    pub(crate) client: Client,
    server: Arc<ApiServer>,
    pub(crate) watched: Watched,
    metrics: MetricsRegistry,
    config: SchedulerConfig,
    scheduler: Option<DropGuard>,
}

/// What the server makes of many bindings in one request.
#[derive(Clone, Copy, Default)]
pub(crate) enum Batches {
    #[default]
    Served,
    /// It is one that has no such thing.
    Unknown,
    /// The next one is answered without a word about any pod.
    LostOnce,
}

/// What the scheduler's requests meet on their way.
#[derive(Clone)]
pub(crate) struct Watched {
    /// Its writes of pods' status.
    pub(crate) status_writes: Arc<AtomicUsize>,
    /// Each of these waits for one.
    pub(crate) permits: Arc<Semaphore>,
    /// The pod whose bindings fail.
    pub(crate) unbindable: Arc<Mutex<Option<String>>>,
    /// The pod whose next binding is answered so.
    pub(crate) answered_once: Arc<Mutex<Option<(String, u16)>>>,
    /// How often that has happened.
    pub(crate) failed_bindings: Arc<AtomicUsize>,
    /// What becomes of requests to bind many pods, and how many have come.
    pub(crate) batches: Arc<Mutex<Batches>>,
    pub(crate) batches_sent: Arc<AtomicUsize>,
    /// Its writes of claims and volumes wait while somebody else writes here.
    pub(crate) volume_writes: Arc<RwLock<()>>,
    /// How many of them have come.
    pub(crate) volume_writes_tried: Arc<AtomicUsize>,
}

impl Watched {
    fn new() -> Self {
        Self {
            status_writes: Arc::default(),
            permits: Arc::new(Semaphore::new(Semaphore::MAX_PERMITS)),
            unbindable: Arc::default(),
            answered_once: Arc::default(),
            failed_bindings: Arc::default(),
            batches: Arc::default(),
            batches_sent: Arc::default(),
            volume_writes: Arc::default(),
            volume_writes_tried: Arc::default(),
        }
    }

    async fn send(
        self,
        own: Client,
        request: Request<Body>,
    ) -> Result<Response<Body>, kube::Error> {
        let path = request.uri().path();
        if request.method() == Method::PATCH && path.ends_with("/status") {
            self.status_writes.fetch_add(1, SeqCst);
            self.permits.acquire().await.unwrap().forget();
        }
        if request.method() == Method::PATCH && path.contains("/persistentvolume") {
            self.volume_writes_tried.fetch_add(1, SeqCst);
            let _may_write = self.volume_writes.read().await;
        }
        let unbindable = self.unbindable.lock().unwrap().clone();
        if unbindable.is_some_and(|name| path.ends_with(&format!("/{name}/binding"))) {
            self.failed_bindings.fetch_add(1, SeqCst);
            return Ok(failure(500));
        }
        let of_it = |(name, _): &mut (String, u16)| path.ends_with(&format!("/{name}/binding"));
        let once = self.answered_once.lock().unwrap().take_if(of_it);
        if let Some((_, code)) = once {
            self.failed_bindings.fetch_add(1, SeqCst);
            return Ok(failure(code));
        }
        if path.ends_with("/bindingbatches") {
            self.batches_sent.fetch_add(1, SeqCst);
            let batches = std::mem::take(&mut *self.batches.lock().unwrap());
            match batches {
                Batches::Served => {}
                Batches::Unknown => {
                    *self.batches.lock().unwrap() = batches;
                    return Ok(failure(404));
                }
                Batches::LostOnce => {
                    let answer = json!({"outcomes": []}).to_string().into_bytes();
                    return Ok(Response::new(Body::from(answer)));
                }
            }
        }
        own.send(request).await
    }
}

fn failure(code: u16) -> Response<Body> {
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": "no"});
    Response::builder()
        .status(code)
        .body(Body::from(status.to_string().into_bytes()))
        .unwrap()
}

impl Cluster {
    pub(crate) async fn start() -> Self {
        Self::start_with(SchedulerConfig::default()).await
    }

    pub(crate) async fn start_with(config: SchedulerConfig) -> Self {
        let server = testing::server().await;
        let client = server.client(UserInfo::master("test"));
        let metrics = MetricsRegistry::default();
        let mut cluster = Self {
            client,
            server,
            watched: Watched::new(),
            metrics,
            config,
            scheduler: None,
        };
        cluster.restart_scheduler();
        cluster
    }

    /// Ends the scheduler.
    pub(crate) fn stop_scheduler(&mut self) {
        self.scheduler = None;
    }

    /// Ends the scheduler, if there is one, and starts another that counts anew.
    pub(crate) fn restart_scheduler(&mut self) {
        self.stop_scheduler();
        let own = self
            .server
            .client(UserInfo::new("system:kube-scheduler", &[]));
        let watched = self.watched.clone();
        let on_the_way =
            tower::service_fn(move |request| watched.clone().send(own.clone(), request));
        let (shutdown, mut config) = (CancellationToken::new(), self.config.clone());
        config.metrics = MetricsRegistry::default();
        self.metrics = config.metrics.clone();
        coracle_telemetry::spawn(
            "task of a test",
            coracle_scheduler::run(Client::new(on_the_way, "default"), config, shutdown.clone()),
        );
        self.scheduler = Some(shutdown.drop_guard());
    }

    pub(crate) fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), "default")
    }

    pub(crate) fn nodes(&self) -> Api<Node> {
        Api::all(self.client.clone())
    }

    pub(crate) async fn add_node(&self, name: &str, allocatable: Value) {
        self.add_node_with(name, json!({"taints": null}), allocatable)
            .await;
    }

    pub(crate) async fn add_node_with(&self, name: &str, spec: Value, allocatable: Value) {
        let node: Node = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
        self.nodes()
            .create(&PostParams::default(), &node)
            .await
            .unwrap();
        // What the API taints new nodes with goes.
        self.patch_node(name, json!({"spec": spec})).await;
        let status =
            Patch::Merge(json!({"status": {"allocatable": allocatable, "capacity": allocatable}}));
        self.nodes()
            .patch_status(name, &PatchParams::default(), &status)
            .await
            .unwrap();
    }

    pub(crate) async fn patch_node(&self, name: &str, patch: Value) {
        self.nodes()
            .patch(name, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .unwrap();
    }

    pub(crate) async fn patch_node_status(&self, name: &str, patch: Value) {
        self.nodes()
            .patch_status(name, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .unwrap();
    }

    pub(crate) async fn add_pod(&self, name: &str, requests: Value, more: Value) {
        let resources = json!({"requests": requests, "limits": requests});
        let mut spec = json!({"containers": [{"name": "c", "image": "i", "resources": resources}]});
        for (key, value) in more.as_object().unwrap() {
            spec[key] = value.clone();
        }
        self.create(json!({"metadata": {"name": name}, "spec": spec}))
            .await;
    }

    /// One that asks for no resources.
    pub(crate) async fn add_labelled_pod(&self, name: &str, labels: Value, more: Value) {
        let mut spec = json!({"containers": [{"name": "c", "image": "i"}]});
        for (key, value) in more.as_object().unwrap() {
            spec[key] = value.clone();
        }
        self.create(json!({"metadata": {"name": name, "labels": labels}, "spec": spec}))
            .await;
    }

    /// One that asks for nothing and is somebody's.
    pub(crate) async fn add_owned_pod(&self, name: &str, labels: Value, owners: Value) {
        let spec = json!({"containers": [{"name": "c", "image": "i"}]});
        self.create(json!({"metadata": {"name": name, "labels": labels, "ownerReferences": owners}, "spec": spec}))
            .await;
    }

    async fn create(&self, pod: Value) {
        let pod = serde_json::from_value(pod).unwrap();
        self.pods()
            .create(&PostParams::default(), &pod)
            .await
            .unwrap();
    }

    pub(crate) async fn scheduled(&self, name: &str) -> Option<PodCondition> {
        let status = self
            .pods()
            .get(name)
            .await
            .unwrap()
            .status
            .unwrap_or_default();
        status
            .conditions
            .unwrap_or_default()
            .into_iter()
            .find(|condition| condition.type_ == "PodScheduled")
    }

    /// Waits until the pod has a node, and says which.
    pub(crate) async fn placed(&self, name: &str) -> String {
        wait(&format!("{name} to be placed"), || async {
            self.scheduled(name)
                .await
                .is_some_and(|condition| condition.status == "True")
        })
        .await;
        self.pods()
            .get(name)
            .await
            .unwrap()
            .spec
            .unwrap()
            .node_name
            .unwrap()
    }

    /// Waits until the pod is known to fit nowhere, and says why.
    pub(crate) async fn refused(&self, name: &str) -> String {
        self.not_scheduled(name, "Unschedulable").await
    }

    /// Waits until the pod has no node for this reason, and says more.
    pub(crate) async fn not_scheduled(&self, name: &str, reason: &str) -> String {
        let told = || async {
            self.scheduled(name).await.filter(|condition| {
                condition.status == "False" && condition.reason.as_deref() == Some(reason)
            })
        };
        wait(&format!("{name} to be told {reason}"), || async {
            told().await.is_some()
        })
        .await;
        told().await.unwrap().message.unwrap()
    }

    /// Attempts that found no node.
    pub(crate) fn attempts(&self) -> usize {
        self.figure(
            "scheduler_schedule_attempts_total",
            "result=\"unschedulable\"",
        )
    }

    /// What `/metrics` says, under this name and with this label.
    pub(crate) fn figure(&self, name: &str, label: &str) -> usize {
        let text = self.metrics.text();
        let line = text
            .lines()
            .find(|line| line.starts_with(name) && line.contains(label));
        line.and_then(|line| line.rsplit(' ').next()?.parse().ok())
            .unwrap_or(0)
    }

    /// A sum of seconds, as `/metrics` says.
    pub(crate) fn seconds(&self, name: &str) -> f64 {
        let text = self.metrics.text();
        text.lines()
            .find_map(|line| line.strip_prefix(name)?.rsplit(' ').next()?.parse().ok())
            .unwrap_or(0.0)
    }

    /// The Events that say why pods were not placed.
    pub(crate) async fn failures(&self) -> Vec<Event> {
        let events: Api<Event> = Api::namespaced(self.client.clone(), "default");
        let all = events.list(&ListParams::default()).await.unwrap().items;
        all.into_iter()
            .filter(|event| event.reason.as_deref() == Some("FailedScheduling"))
            .collect()
    }
}

pub(crate) async fn wait<F, Fut>(what: &str, condition: F)
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

pub(crate) fn small() -> Value {
    json!({"cpu": "1", "memory": "1Gi", "pods": "200"})
}
