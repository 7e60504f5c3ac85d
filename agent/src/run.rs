//! Puts the parts of a node together and keeps them running.

mod network;

use std::{future::Future, path::PathBuf, sync::Arc, time::Duration};

use coracle_telemetry::Chain;
use futures::future::BoxFuture;
use rustls_pki_types::CertificateDer;
use tokio::{sync::mpsc, task::JoinSet};
use tokio_util::sync::CancellationToken;

use crate::{
    AgentConfig, AgentError, ApiAccess,
    context::NodeContext,
    events::EventRecorder,
    eviction,
    image::{ImageStore, ImageStoreConfig, registries::Registries},
    join,
    network::{
        PodNetwork,
        cni::{CniConfig, CniNetwork},
    },
    node::{self, NodeManager, NodeView, facts::Machine},
    node_lock::NodeLock,
    objects::Objects,
    pod_manager::checkpoint::Checkpoints,
    pod_source,
    proxy::health::RulesView,
    runtime::{ImageService, LocalRuntime, RuntimeConfig, RuntimeService},
    server,
    service_index::ServiceIndex,
    status_manager::StatusManager,
    sync_loop::{PodsView, SyncLoop},
    volume::{Mounter, SystemMounter, VolumeManager},
    watch::Pulse,
};

/// Pods that a listing brings at once fit in; more make the watch wait.
const SOURCE_QUEUE: usize = 64;
const RESTART_MIN: Duration = Duration::from_secs(1);
const RESTART_MAX: Duration = Duration::from_secs(60);
const REPAIR_INTERVAL: Duration = Duration::from_secs(30);
/// Foreign plugins are called once for each vanished sandbox.
const NETWORK_GC_LIMIT: Duration = Duration::from_secs(60);

/// What differs between a real node and one in a test.
pub(crate) struct Parts {
    pub(crate) runtime: Arc<dyn RuntimeService>,
    pub(crate) images: Arc<dyn ImageService>,
    pub(crate) network: Arc<dyn PodNetwork>,
    pub(crate) cni: Option<CniNetwork>,
    pub(crate) mounter: Arc<dyn Mounter>,
    /// The CA whose clients may use the node's HTTPS API; without one there is no such API.
    pub(crate) client_ca: Option<CertificateDer<'static>>,
    /// Whether Service rules can be written.
    pub(crate) rules: RulesView,
}

/// A real node.
pub(crate) async fn run(config: AgentConfig, access: ApiAccess, shutdown: CancellationToken) -> Result<(), AgentError> {
    config.validate()?;
    for dir in [config.agent_dir(), config.run_dir.clone()] {
        make_dir(dir)?;
    }
    // Secrets, tokens, and programs of images that may be set-user-ID: nobody but root gets at them by way of the node.
    // Containers do not either; what they may see is mounted into them.
    for name in ["pods", "images", "containers"] {
        make_private_dir(config.agent_dir().join(name))?;
    }
    let _lock = NodeLock::acquire_soon(&config.run_dir).await?;
    Machine::read(&config).check()?;
    let mut tasks = Tasks::new(shutdown.clone());
    let (client, client_ca) = match access {
        ApiAccess::InProcess(client) => (client, read_ca(&config)?),
        ApiAccess::Join { server, token } => {
            let joined = join::join(&config, &server, &token, &shutdown).await?;
            let purpose = join::Purpose::client(&config.node_name);
            let renew = join::keep_renewed(
                joined.client.clone(),
                join::pki_dir(&config),
                purpose,
                (joined.identity, || None),
                shutdown.clone(),
            );
            tasks.spawn("renew the client certificate", renew);
            (joined.client, Some(joined.ca))
        }
    };
    let parts = real_parts(&config, client_ca).await?;
    let pulse = Pulse::default();
    network::spawn(&mut tasks, &config, &client, &parts, &pulse);
    spawn_node(&mut tasks, config.clone(), client, parts, pulse);
    tasks.finish(config.stop_timeout).await
}

/// What a real node is made of.
pub(crate) async fn real_parts(
    config: &AgentConfig,
    client_ca: Option<CertificateDer<'static>>,
) -> Result<Parts, AgentError> {
    let registries = match &config.registries {
        Some(path) => Registries::load(path).map_err(|source| AgentError::Registries { source: Box::new(source) })?,
        None => Registries::default(),
    };
    let images = ImageStore::open(ImageStoreConfig { root_dir: config.agent_dir().join("images"), registries })
        .map_err(|source| AgentError::Images { source })?;
    let cni = CniNetwork::new(CniConfig {
        conf_dir: config.cni_conf_dir.clone(),
        plugin_dirs: config.cni_bin_dirs.clone(),
        state_dir: config.agent_dir().join("cni"),
        cluster_cidrs: config.cluster_cidr.into_iter().collect(),
        bridge: config.bridge.clone(),
        mtu: None,
        node_ip: Some(config.node_ip),
    });
    let network: Arc<dyn PodNetwork> = Arc::new(cni.clone());
    let shim_path = match &config.shim_path {
        Some(path) => path.clone(),
        None => beside_own_executable("coracle-shim")?,
    };
    let runtime = LocalRuntime::start(RuntimeConfig {
        run_dir: config.run_dir.clone(),
        root_dir: config.agent_dir().join("containers"),
        shim_path,
        network: Arc::clone(&network),
        images: Arc::clone(&images) as Arc<dyn ImageService>,
    })
    .await
    .map_err(|source| AgentError::Runtime { source })?;
    release_vanished(&runtime, &cni).await;
    let (cni, mounter) = (Some(cni), Arc::new(SystemMounter));
    Ok(Parts { runtime, images, network, cni, mounter, client_ca, rules: RulesView::default() })
}

/// Gives back what the last agent's sandboxes left in the network: addresses, links, published ports. Once, before the
/// first pod starts: what is attached later must not look vanished. A failure costs addresses only; the next start tries again.
async fn release_vanished(runtime: &LocalRuntime, cni: &CniNetwork) {
    let known = runtime.known_sandboxes();
    match tokio::time::timeout(NETWORK_GC_LIMIT, cni.gc(&known)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!(error = %Chain(&error), "release what vanished sandboxes held of the network"),
        Err(_) => tracing::warn!("releasing what vanished sandboxes held of the network takes too long"),
    }
}

fn beside_own_executable(name: &str) -> Result<PathBuf, AgentError> {
    let own = std::env::current_exe()
        .map_err(|source| AgentError::Directory { path: PathBuf::from("/proc/self/exe"), source })?;
    Ok(own.with_file_name(name))
}

fn make_dir(path: PathBuf) -> Result<(), AgentError> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o711)
        .create(&path)
        .map_err(|source| AgentError::Directory { path, source })
}

/// Makes a directory that is root's alone, or closes the one that is there: an older agent may have been more generous.
fn make_private_dir(path: PathBuf) -> Result<(), AgentError> {
    use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&path);
    made.and_then(|()| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)))
        .map_err(|source| AgentError::Directory { path, source })
}

/// In one process with the server its CA is a file in the same data directory.
fn read_ca(config: &AgentConfig) -> Result<Option<CertificateDer<'static>>, AgentError> {
    use rustls_pki_types::pem::PemObject;
    let path = config.client_ca.clone().unwrap_or_else(|| config.data_dir.join("server/pki/ca.crt"));
    match std::fs::read(&path) {
        Ok(text) => Ok(CertificateDer::pem_slice_iter(&text).next().and_then(Result::ok)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            tracing::warn!(path = %path.display(), "no CA of API clients: logs and exec will not work");
            Ok(None)
        }
        Err(source) => Err(AgentError::Directory { path, source }),
    }
}

type AnyError = Box<dyn std::error::Error + Send + Sync>;

fn boxed<E: std::error::Error + Send + Sync + 'static>(error: E) -> AnyError {
    Box::new(error)
}

/// Everything but the network: what runs the same in tests.
pub(crate) fn spawn_node(tasks: &mut Tasks, config: AgentConfig, client: kube::Client, parts: Parts, pulse: Pulse) {
    let shutdown = tasks.shutdown.clone();
    let pods_dir = config.agent_dir().join("pods");
    let machine = Arc::new(Machine::read(&config));
    let (events, event_writer) = EventRecorder::new(client.clone(), &config.node_name);
    let (status, status_writer) = StatusManager::new(client.clone());
    let objects = Arc::new(Objects::new(client.clone()));
    let services = ServiceIndex::new();
    let (dir, known) = (pods_dir.clone(), Arc::clone(&objects));
    let volumes = VolumeManager::new(dir, client.clone(), known, parts.mounter, Arc::clone(&machine), config.node_ip);
    let (node_view, clock) = (NodeView::default(), node::clock::ClockView::default());
    let ctx = Arc::new(NodeContext {
        config: config.clone(),
        runtime: parts.runtime,
        images: Arc::clone(&parts.images),
        events: events.clone(),
        status,
        objects,
        services: Arc::clone(&services),
        volumes,
        machine: Arc::clone(&machine),
        node: Arc::clone(&node_view),
        pods: PodsView::default(),
        pods_changed: tokio::sync::Notify::new(),
    });
    let manager = NodeManager {
        config: config.clone(),
        client: client.clone(),
        machine,
        images: parts.images,
        network: parts.network,
        cni: parts.cni,
        events,
        view: Arc::clone(&node_view),
        clock: Arc::clone(&clock),
        pulse: pulse.clone(),
    };
    let (checkpoints, checkpoint_writer) = Checkpoints::new(pods_dir.clone());
    let (source, pods) = mpsc::channel(SOURCE_QUEUE);
    let (evict, evictions) = mpsc::channel(1);
    // What writes for others stops only once they have come to rest.
    let late = tasks.late.clone();
    let sync_loop =
        SyncLoop::new(Arc::clone(&ctx), client.clone(), checkpoints, pods_dir, (pods, evictions), shutdown.clone());
    let name = config.node_name.clone();
    let interval = config.lease_interval;
    let lease = node::lease::run(client.clone(), name.clone(), interval, node_view, pulse.clone(), shutdown.clone());
    tasks.spawn_late("write statuses", status_writer.run(late.clone()));
    tasks.spawn_late("write events", event_writer.run(late.clone()));
    tasks.spawn_late("write checkpoints", async move {
        let _ = late.run_until_cancelled(checkpoint_writer).await;
    });
    tasks.spawn("keep the Lease", lease);
    tasks.spawn("compare the clock", node::clock::run(client.clone(), clock, shutdown.clone()));
    tasks.spawn("watch Services", Arc::clone(&services).run(client.clone(), pulse.clone(), shutdown.clone()));
    tasks.spawn("watch pods", pod_source::apiserver::run(client.clone(), name, source, pulse, shutdown.clone()));
    tasks.spawn("keep the Node", manager.run(shutdown.clone()));
    tasks.spawn("sync pods", sync_loop.run());
    tasks.spawn("weigh the QoS classes", crate::qos_cgroups::run(Arc::clone(&ctx), shutdown.clone()));
    let limits = eviction::local_storage::run(Arc::clone(&ctx), evict.clone(), shutdown.clone());
    tasks.spawn("hold pods to their disk limits", limits);
    tasks.spawn("evict pods", eviction::manager::run(Arc::clone(&ctx), evict, shutdown.clone()));
    tasks.spawn("rotate logs", crate::logs::rotate::run(Arc::clone(&ctx), shutdown.clone()));
    tasks.spawn("collect garbage", crate::gc::run(Arc::clone(&ctx), shutdown.clone()));
    if let Some(ca) = parts.client_ca {
        let usage = Arc::default();
        let server = server::ServerContext { ctx, client, ca, usage, rules: parts.rules };
        tasks.spawn("serve the node's API", server::run(server, shutdown));
    }
}

/// The tasks of a node, and how they end: first those that follow `shutdown`, then those that write for them.
pub(crate) struct Tasks {
    shutdown: CancellationToken,
    late: CancellationToken,
    set: JoinSet<&'static str>,
    late_set: JoinSet<&'static str>,
}

impl Tasks {
    pub(crate) fn new(shutdown: CancellationToken) -> Self {
        Self { shutdown, late: CancellationToken::new(), set: JoinSet::new(), late_set: JoinSet::new() }
    }

    /// A task that runs until shutdown; its early end ends the agent.
    fn spawn(&mut self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        self.set.spawn(async move {
            task.await;
            name
        });
    }

    fn spawn_late(&mut self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        self.late_set.spawn(async move {
            task.await;
            name
        });
    }

    /// A task that is started again when it fails.
    fn supervise(
        &mut self,
        name: &'static str,
        start: impl Fn() -> BoxFuture<'static, Result<(), AnyError>> + Send + 'static,
    ) {
        let shutdown = self.shutdown.clone();
        self.spawn(name, async move {
            let mut pause = RESTART_MIN;
            while !shutdown.is_cancelled() {
                match start().await {
                    Ok(()) if shutdown.is_cancelled() => return,
                    Ok(()) => tracing::warn!(task = name, "ended early: start it again"),
                    Err(error) => tracing::warn!(task = name, error = %Chain(&*error), "failed: start it again"),
                }
                tokio::select! {
                    () = shutdown.cancelled() => return,
                    () = tokio::time::sleep(pause) => {}
                }
                pause = (pause * 2).min(RESTART_MAX);
            }
        });
    }

    /// Waits for the shutdown and for the tasks to come to rest, but not longer than `limit`.
    pub(crate) async fn finish(mut self, limit: Duration) -> Result<(), AgentError> {
        let early = tokio::select! {
            biased;
            () = self.shutdown.cancelled() => None,
            ended = next_end(&mut self.set) => Some(ended),
            ended = next_end(&mut self.late_set) => Some(ended),
        };
        self.shutdown.cancel();
        let rest = async {
            while self.set.join_next().await.is_some() {}
            self.late.cancel();
            while self.late_set.join_next().await.is_some() {}
        };
        if tokio::time::timeout(limit, rest).await.is_err() {
            tracing::warn!("some tasks did not stop in time");
        }
        match early {
            // Shutdown and the end of a task that follows it may come in any order.
            None => Ok(()),
            Some(task) => Err(AgentError::TaskEnded { task }),
        }
    }
}

async fn next_end(set: &mut JoinSet<&'static str>) -> &'static str {
    match set.join_next().await {
        Some(Ok(name)) => name,
        Some(Err(error)) => {
            tracing::error!(error = %Chain(&error), "a task of the agent failed");
            "a task that panicked"
        }
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
