//! The cluster of the component tests.

use std::{path::PathBuf, sync::Arc, time::Duration};

use coracle_apiserver::{server::ApiServer, testing, user::UserInfo};
use coracle_client::pulse::Pulse;
use k8s_openapi::api::core::v1::{ContainerStatus, Namespace, Pod};
use kube::{
    Api,
    api::{DeleteParams, PostParams},
};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::super::{Groups, Parts, spawn_node};
use crate::{
    AgentError,
    config::AgentConfig,
    events::EventRecorder,
    eviction::Thresholds,
    informers::{Informers, Nodes},
    network::{NetworkError, PodNetwork, PodNetworkRequest},
    pod_status,
    runtime::{
        RuntimeService,
        fake::{FakeImages, FakeRuntime},
        types::{self, PodUid, SandboxStatus},
    },
    volume::NoMounts,
};

pub(super) const NODE_IP: &str = "198.18.0.2";
/// Longer than anything here takes.
pub(super) const LIMIT: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(5);

/// An API server and one node.
pub(super) struct Cluster {
    pub(super) client: kube::Client,
    pub(super) runtime: Arc<FakeRuntime>,
    pub(super) images: Arc<FakeImages>,
    server: Arc<ApiServer>,
    dir: tempfile::TempDir,
    eviction_hard: Thresholds,
    /// Taken over when an agent starts.
    pub(super) sync_interval: Duration,
    /// What the next agent's runtime has ended for want of a record.
    pub(super) lost_pods: Vec<String>,
    /// What the agents have asked of the API: `PATCH /api/v1/...`.
    requests: Arc<Mutex<Vec<String>>>,
    agent: Option<(
        CancellationToken,
        tokio::task::JoinHandle<Result<(), AgentError>>,
    )>,
}

impl Cluster {
    pub(super) async fn start() -> Self {
        // Whatever this machine is short of.
        Self::start_with("".parse().expect("no thresholds")).await
    }

    pub(super) async fn start_with(eviction_hard: Thresholds) -> Self {
        let server = testing::server().await;
        let client = server.client(UserInfo::master("test"));
        let namespaces: Api<Namespace> = Api::all(client.clone());
        for name in ["default", "kube-node-lease"] {
            let namespace =
                serde_json::from_value(json!({"metadata": {"name": name}})).expect("namespace");
            // The server may have made it by itself.
            let _ = namespaces.create(&PostParams::default(), &namespace).await;
        }
        let dir = tempfile::tempdir().expect("directory");
        let mut cluster = Self {
            client,
            runtime: Arc::new(FakeRuntime::new()),
            images: Arc::new(FakeImages::default()),
            server,
            dir,
            eviction_hard,
            sync_interval: Duration::from_secs(60),
            lost_pods: Vec::new(),
            requests: Arc::default(),
            agent: None,
        };
        cluster.start_agent();
        cluster
    }

    pub(super) fn start_agent(&mut self) {
        let mut config = AgentConfig::new("n1", NODE_IP.parse().expect("address"));
        config.data_dir = self.dir.path().join("data");
        config.run_dir = self.dir.path().join("run");
        config.eviction_hard = self.eviction_hard.clone();
        config.sync_interval = self.sync_interval;
        config.eviction_interval = Duration::from_millis(20);
        for dir in [
            config.pods_dir(),
            config.checkpoints_dir(),
            config.storage_dir(),
            config.local_volumes_dir(),
        ] {
            std::fs::create_dir_all(dir).expect("directory");
        }
        let parts = Parts {
            runtime: Arc::clone(&self.runtime) as Arc<dyn RuntimeService>,
            images: self.images.clone(),
            network: Arc::new(ReadyNetwork),
            cni: None,
            mounter: Arc::new(NoMounts),
            client_ca: None,
            rules: crate::proxy::health::RulesView::default(),
            guarded: None,
            places: crate::network::places::Places::default(),
            published: crate::network::published::PublishedPorts::default(),
            listeners: crate::admission::listening::Listeners::default(),
            lost_pods: std::mem::take(&mut self.lost_pods),
        };
        let shutdown = CancellationToken::new();
        let mut groups = Groups::new(shutdown.clone());
        let (client, pulse) = (self.agents_client(), Pulse::default());
        let informers = Informers::new(&client, "n1", Nodes::All, &pulse);
        let (events, event_writer) = EventRecorder::new(client.clone(), "n1");
        groups
            .late
            .add("write events", event_writer.run(groups.late.stop()));
        spawn_node(
            &mut groups,
            config,
            client,
            parts,
            (informers, pulse, events),
        );
        self.agent = Some((
            shutdown,
            coracle_telemetry::spawn("task of a test", groups.finish(LIMIT)),
        ));
    }

    fn agents_client(&self) -> kube::Client {
        let requests = Arc::clone(&self.requests);
        let client = self.server.client(UserInfo::node("n1"));
        let noted = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let (method, path) = (request.method(), request.uri().path());
            requests.lock().push(format!("{method} {path}"));
            let client = client.clone();
            async move { client.send(request).await }
        });
        kube::Client::new(noted, "default")
    }

    /// What the agents have asked of the API so far.
    pub(super) fn requests(&self) -> Vec<String> {
        self.requests.lock().clone()
    }

    pub(super) async fn stop_agent(&mut self) {
        let (shutdown, agent) = self.agent.take().expect("an agent runs");
        shutdown.cancel();
        agent.await.expect("no panic").expect("an orderly stop");
    }

    pub(super) async fn restart_agent(&mut self) {
        self.stop_agent().await;
        self.start_agent();
    }

    pub(super) async fn stop(mut self) {
        self.stop_agent().await;
    }

    pub(super) fn agent_dir(&self) -> PathBuf {
        self.dir.path().join("data/agent")
    }

    /// Where the agent's copy of a pod is.
    pub(super) fn copy_of(&self, uid: &str) -> PathBuf {
        self.agent_dir()
            .join("checkpoints")
            .join(format!("{uid}.json"))
    }

    pub(super) fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), "default")
    }

    pub(super) async fn create(&self, pod: Pod) {
        self.pods()
            .create(&PostParams::default(), &pod)
            .await
            .expect("create the pod");
    }

    pub(super) async fn runtime_state(
        &self,
        uid: &str,
    ) -> (Vec<SandboxStatus>, Vec<types::ContainerStatus>) {
        self.runtime
            .pod_state(&PodUid(uid.to_owned()))
            .await
            .expect("state")
    }

    /// Ends the running container of a pod.
    pub(super) async fn crash(&self, name: &str, code: i32) {
        let uid = self
            .pods()
            .get(name)
            .await
            .expect("pod")
            .metadata
            .uid
            .expect("uid");
        let (_, containers) = self.runtime_state(&uid).await;
        let running = containers
            .iter()
            .find(|c| matches!(c.state, types::ContainerState::Running { .. }))
            .expect("a running container");
        self.runtime.exit(
            &running.id,
            code,
            if code == 0 { "Completed" } else { "Error" },
        );
    }

    pub(super) async fn wait_pod(&self, name: &str, wanted: impl Fn(&Pod) -> bool) -> Pod {
        let pods = self.pods();
        let mut last = None;
        let found = tokio::time::timeout(LIMIT, async {
            loop {
                let pod = pods.get(name).await.expect("get the pod");
                if wanted(&pod) {
                    return pod;
                }
                last = pod.status;
                tokio::time::sleep(POLL).await;
            }
        });
        match found.await {
            Ok(pod) => pod,
            Err(_) => panic!(
                "{name} is not as wanted: {}\ncalls: {:?}",
                serde_json::to_string_pretty(&last).unwrap_or_default(),
                self.runtime.calls()
            ),
        }
    }

    /// Deletes a pod, and waits until the node has let go of it.
    pub(super) async fn delete(&self, name: &str) {
        self.pods()
            .delete(name, &DeleteParams::default())
            .await
            .expect("delete");
        self.wait_gone(name).await;
    }

    pub(super) async fn wait_gone(&self, name: &str) {
        let pods = self.pods();
        self.wait_until("the pod is gone", async || {
            pods.get_opt(name).await.expect("get").is_none()
        })
        .await;
    }

    pub(super) async fn wait_until(&self, what: &str, condition: impl AsyncFn() -> bool) {
        let wait = async {
            while !condition().await {
                tokio::time::sleep(POLL).await;
            }
        };
        tokio::time::timeout(LIMIT, wait).await.unwrap_or_else(|_| {
            panic!(
                "not within {LIMIT:?}: {what}; calls: {:?}",
                self.runtime.calls()
            )
        });
    }
}

struct ReadyNetwork;

#[async_trait::async_trait]
impl PodNetwork for ReadyNetwork {
    async fn setup(&self, _: &PodNetworkRequest) -> Result<Vec<std::net::IpAddr>, NetworkError> {
        Ok(Vec::new())
    }

    async fn teardown(&self, _: &PodNetworkRequest) -> Result<(), NetworkError> {
        Ok(())
    }

    async fn check(&self, _: &PodNetworkRequest) -> Result<(), NetworkError> {
        Ok(())
    }

    fn ready(&self) -> Result<(), NetworkError> {
        Ok(())
    }
}

/// A pod bound to the node, with one container unless `spec` says otherwise.
pub(super) fn pod(name: &str, spec: Value) -> Pod {
    let mut full = json!({
        "nodeName": "n1",
        "automountServiceAccountToken": false,
        "containers": [{"name": "main", "image": "nginx:1", "imagePullPolicy": "IfNotPresent"}],
    });
    for (key, value) in spec.as_object().expect("an object") {
        full[key] = value.clone();
    }
    serde_json::from_value(
        json!({"metadata": {"name": name, "namespace": "default"}, "spec": full}),
    )
    .expect("pod")
}

pub(super) fn is_ready(pod: &Pod) -> bool {
    pod.status.as_ref().is_some_and(pod_status::is_ready)
}

pub(super) fn container_status(pod: &Pod) -> ContainerStatus {
    let statuses = pod
        .status
        .as_ref()
        .and_then(|status| status.container_statuses.clone())
        .unwrap_or_default();
    statuses.into_iter().next().unwrap_or_default()
}

pub(super) fn waiting_reason(pod: &Pod) -> Option<&str> {
    pod.status
        .as_ref()?
        .container_statuses
        .as_ref()?
        .first()?
        .state
        .as_ref()?
        .waiting
        .as_ref()?
        .reason
        .as_deref()
}
