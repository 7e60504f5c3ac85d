//! A control plane without nodes: the real API server over a memory store, the real controllers,
//! and a fake agent that binds pods, reports them ready and lets them go.

use std::{
    collections::HashSet,
    fmt::Debug,
    future::Future,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU8, Ordering},
    },
    time::{Duration, Instant},
};

use coracle_apiserver::{
    ApiServer, ApiServerConfig, UserInfo,
    pki::{KeyPair, Pki, ServerNames},
};
use coracle_client::reflector::{Event, Reflector, Selection};
use coracle_controllers::{CertificateAuthority, Clients, ControllersConfig, RunError};
use coracle_store::memory::MemoryBackend;
use k8s_openapi::api::{
    apps::v1::StatefulSet,
    coordination::v1::Lease,
    core::v1::{Node, Pod},
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// How long anything may take before a test gives up.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct Cluster {
    pub(crate) client: Client,
    pub(crate) server: Arc<ApiServer>,
    pub(crate) ca_pem: String,
    pub(crate) kubelet_ca_pem: String,
    pub(crate) shutdown: CancellationToken,
    pub(crate) agent: Arc<Agent>,
}

/// What the fake agent does with pods.
#[derive(Default)]
pub(crate) struct Agent {
    /// Pods stay unready while set.
    pub(crate) hold: AtomicBool,
    next: AtomicU8,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}

impl Cluster {
    pub(crate) async fn start() -> Self {
        Self::start_with(|_| {}).await
    }

    pub(crate) async fn start_with(adjust: impl FnOnce(&mut ControllersConfig)) -> Self {
        let (cluster, authorities) = Self::without_controllers().await;
        cluster
            .run_controllers(authorities, adjust, |_, client| client)
            .await;
        cluster
    }

    /// The API server alone, and its authorities for [`Cluster::run_controllers`].
    pub(crate) async fn without_controllers() -> (Self, [CertificateAuthority; 2]) {
        drop(
            tracing_subscriber::fmt()
                .with_test_writer()
                .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
                .try_init(),
        );
        let pki = Pki::ephemeral(&ServerNames {
            dns: Vec::new(),
            addresses: Vec::new(),
        })
        .unwrap();
        let (ca_pem, kubelet_ca_pem) = (pki.ca.cert_pem.clone(), pki.kubelet_ca.cert_pem.clone());
        let authority = |pair: &KeyPair| CertificateAuthority {
            certificate_pem: pair.cert_pem.clone(),
            key_pem: pair.key_pem.clone(),
        };
        let authorities = [authority(&pki.ca), authority(&pki.kubelet_ca)];
        let advertise: SocketAddr = "192.0.2.1:6443".parse().unwrap();
        let config =
            ApiServerConfig::new(Arc::new(pki), "10.43.0.0/16".parse().unwrap(), advertise);
        let server = ApiServer::new(config, Arc::new(MemoryBackend::new()))
            .await
            .unwrap();
        let client = server.client(UserInfo::master("admin"));
        let agent = Arc::new(Agent::default());
        (
            Self {
                client,
                server,
                ca_pem,
                kubelet_ca_pem,
                shutdown: CancellationToken::new(),
                agent,
            },
            authorities,
        )
    }

    /// Starts all controllers. `wrap` may put something between the controller of an account and
    /// the server; the account of what they share, informers and Events, is
    /// `kube-controller-manager`.
    pub(crate) async fn run_controllers(
        &self,
        authorities: [CertificateAuthority; 2],
        adjust: impl FnOnce(&mut ControllersConfig),
        wrap: impl Fn(&str, Client) -> Client + Send + Sync + 'static,
    ) {
        drop(self.spawn_controllers(authorities, adjust, wrap, self.shutdown.clone()));
        self.wait("default service account", || async {
            self.get_opt::<k8s_openapi::api::core::v1::ServiceAccount>("default", "default")
                .await
                .is_some()
        })
        .await;
    }

    /// The same until `stop`, without waiting for anything.
    pub(crate) fn spawn_controllers(
        &self,
        authorities: [CertificateAuthority; 2],
        adjust: impl FnOnce(&mut ControllersConfig),
        wrap: impl Fn(&str, Client) -> Client + Send + Sync + 'static,
        stop: CancellationToken,
    ) -> JoinHandle<Result<(), RunError>> {
        let shared = self
            .server
            .client(UserInfo::new("system:kube-controller-manager", &[]));
        let accounts = Arc::downgrade(&self.server);
        let clients = Clients::new(wrap("kube-controller-manager", shared), move |account| {
            let server = accounts
                .upgrade()
                .expect("the server outlives the start of its controllers");
            wrap(
                account,
                server.client(UserInfo::service_account("kube-system", account)),
            )
        });
        let [ca, kubelet_ca] = authorities;
        let mut config = ControllersConfig::new("10.42.0.0/16".parse().unwrap(), ca, kubelet_ca);
        adjust(&mut config);
        coracle_telemetry::spawn(
            "task of a test",
            coracle_controllers::run(clients, config, stop),
        )
    }

    /// Starts the fake agent over all pods.
    pub(crate) fn run_agent(&self) {
        let (client, agent, shutdown) = (
            self.client.clone(),
            self.agent.clone(),
            self.shutdown.clone(),
        );
        coracle_telemetry::spawn("task of a test", async move {
            tokio::select! {
                () = shutdown.cancelled() => {}
                () = agent.run(client) => {}
            }
        });
    }

    pub(crate) fn api<K>(&self, namespace: &str) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), namespace)
    }

    pub(crate) async fn create<K>(&self, namespace: &str, object: Value) -> K
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + DeserializeOwned
            + Serialize
            + Debug,
    {
        let object: K = serde_json::from_value(object).unwrap();
        self.api::<K>(namespace)
            .create(&PostParams::default(), &object)
            .await
            .unwrap()
    }

    pub(crate) async fn get_opt<K>(&self, namespace: &str, name: &str) -> Option<K>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + DeserializeOwned
            + Debug,
    {
        self.api::<K>(namespace).get_opt(name).await.unwrap()
    }

    pub(crate) async fn list<K>(&self, namespace: &str) -> Vec<K>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + DeserializeOwned
            + Debug,
    {
        self.api::<K>(namespace)
            .list(&Default::default())
            .await
            .unwrap()
            .items
    }

    pub(crate) async fn merge<K>(&self, namespace: &str, name: &str, patch: Value) -> K
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + DeserializeOwned
            + Debug,
    {
        self.api::<K>(namespace)
            .patch(name, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .unwrap()
    }

    /// A Node that says it is ready, with its first heartbeat.
    pub(crate) async fn add_node(&self, name: &str, address: &str) {
        let node: Node = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
        let nodes: Api<Node> = Api::all(self.client.clone());
        nodes.create(&PostParams::default(), &node).await.unwrap();
        let status = json!({"status": {
            "addresses": [{"type": "InternalIP", "address": address}, {"type": "Hostname", "address": name}],
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ok"}],
        }});
        nodes
            .patch_status(name, &PatchParams::default(), &Patch::Merge(status))
            .await
            .unwrap();
        let lease: Lease = serde_json::from_value(
            json!({"metadata": {"name": name}, "spec": {"holderIdentity": name}}),
        )
        .unwrap();
        self.api::<Lease>("kube-node-lease")
            .create(&PostParams::default(), &lease)
            .await
            .unwrap();
        self.renew(name).await;
    }

    /// One heartbeat.
    pub(crate) async fn renew(&self, node: &str) {
        let now = k8s_openapi::jiff::Timestamp::now()
            .strftime("%Y-%m-%dT%H:%M:%S.%6fZ")
            .to_string();
        self.merge::<Lease>("kube-node-lease", node, json!({"spec": {"renewTime": now}}))
            .await;
    }

    pub(crate) async fn node(&self, name: &str) -> Node {
        Api::<Node>::all(self.client.clone())
            .get(name)
            .await
            .unwrap()
    }

    /// Until the controller counts so many pods of a StatefulSet as ready: what it does next it
    /// does knowing that.
    pub(crate) async fn has_seen_ready(&self, set: &str, expect: i32) {
        let counted = || async {
            let set = self.get_opt::<StatefulSet>("default", set).await.unwrap();
            set.status.unwrap().ready_replicas.unwrap_or(0) == expect
        };
        self.wait("those that are ready to be counted", counted)
            .await;
    }

    /// Waits until `condition` holds.
    pub(crate) async fn wait<F, Fut>(&self, what: &str, condition: F)
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
}

impl Agent {
    async fn run(&self, client: Client) {
        let pods: Api<Pod> = Api::all(client.clone());
        let mut events = Reflector::new(pods, Selection::all());
        let mut bound = HashSet::new();
        loop {
            match events.next().await {
                Ok(Event::Apply(pod) | Event::InitApply(pod)) => {
                    self.care_for(&client, &pod, &mut bound).await;
                }
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!(%error, "fake agent");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }

    async fn care_for(&self, client: &Client, pod: &Pod, bound: &mut HashSet<String>) {
        let api: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace().unwrap());
        let name = pod.name_any();
        if pod.metadata.deletion_timestamp.is_some() {
            drop(
                api.delete(&name, &DeleteParams::default().grace_period(0))
                    .await,
            );
            return;
        }
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
        if node.is_none() {
            if bound.insert(pod.uid().unwrap()) {
                let node = named_node(pod).unwrap_or_else(|| "n1".to_owned());
                let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
                    "target": {"apiVersion": "v1", "kind": "Node", "name": node}});
                let done: Result<Value, _> = api
                    .create_subresource("binding", &name, &PostParams::default(), &binding)
                    .await;
                // One may go, or begin to, before it is bound.
                if let Err(error) = done
                    && !matches!(&error, kube::Error::Api(status) if matches!(status.code, 404 | 409))
                {
                    panic!("bind {name}: {error}");
                }
            }
            return;
        }
        let ready = pod
            .status
            .iter()
            .flat_map(|status| status.conditions.iter().flatten())
            .any(|c| c.type_ == "Ready");
        if ready || self.hold.load(Ordering::Relaxed) {
            return;
        }
        let ip = format!("10.42.0.{}", self.next.fetch_add(1, Ordering::Relaxed) + 2);
        let now = k8s_openapi::jiff::Timestamp::now()
            .strftime("%Y-%m-%dT%H:%M:%SZ")
            .to_string();
        let status = json!({"status": {
            "phase": "Running",
            "podIP": ip,
            "podIPs": [{"ip": ip}],
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": now}],
        }});
        drop(
            api.patch_status(&name, &PatchParams::default(), &Patch::Merge(status))
                .await,
        );
    }
}

/// The node that a DaemonSet's pod is for.
pub(crate) fn named_node(pod: &Pod) -> Option<String> {
    let terms = json!(pod.spec.as_ref()?.affinity)
        .pointer_mut(
            "/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms",
        )?
        .take();
    let name = &terms[0]["matchFields"][0]["values"][0];
    name.as_str().map(str::to_owned)
}
