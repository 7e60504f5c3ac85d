//! Puts the parts of a node together and keeps them running.

mod network;

use std::{path::PathBuf, sync::Arc, time::Duration};

use coracle_client::pulse::Pulse;
use coracle_telemetry::{ErrorChain, ExponentialBackoff, Health, Tasks};
use rustls_pki_types::CertificateDer;
use tokio::{sync::mpsc, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::{
    AgentConfig, AgentError, ApiAccess,
    context::NodeContext,
    events::EventRecorder,
    eviction,
    gc::{self, Collector},
    image::{ImageStore, ImageStoreConfig, registries::Registries},
    informers::{Informers, Nodes},
    join,
    network::{
        PodNetwork,
        cni::{CniConfig, CniNetwork},
    },
    node::{self, NodeManager, NodeView, OwnNode, facts::Machine},
    node_lock::NodeLock,
    objects::Objects,
    pod_manager::{PodsView, checkpoint::Checkpoints},
    proxy::health::RulesView,
    runtime::{ImageService, LocalRuntime, RuntimeConfig, RuntimeService, runtime_root},
    server,
    service_index::ServiceIndex,
    status_manager::StatusManager,
    sync_loop::SyncLoop,
    volume::{Mounter, SystemMounter, VolumeManager},
};

const RESTART: ExponentialBackoff =
    ExponentialBackoff::new(Duration::from_secs(1), Duration::from_secs(60));
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
pub(crate) async fn run(
    config: AgentConfig,
    access: ApiAccess,
    shutdown: CancellationToken,
) -> Result<(), AgentError> {
    config.validate()?;
    for dir in [config.agent_dir(), config.run_dir.clone()] {
        make_dir(dir)?;
    }
    // Secrets, tokens, and programs of images that may be set-user-ID: nobody but root gets at them
    // by way of the node. Containers do not either; what they may see is mounted into them.
    for name in ["pods", "images", "containers"] {
        make_private_dir(config.agent_dir().join(name))?;
    }
    let _lock = NodeLock::acquire_soon(&config.run_dir).await?;
    Machine::read(&config).check()?;
    let mut groups = Groups::new(shutdown.clone());
    let (client, client_ca) = match access {
        ApiAccess::InProcess(client) => (client, read_ca(&config)?),
        ApiAccess::Join { server, token } => {
            let joined = join::join(&config, &server, &token, &shutdown).await?;
            let renewal = join::Renewal {
                client: joined.client.clone(),
                pki: join::pki_dir(&config),
                purpose: join::Purpose::client(&config.node_name),
                identity: joined.identity,
                announced_ca: || None,
            };
            groups.tasks.add(
                "renew the client certificate",
                join::keep_renewed(renewal, shutdown.clone()),
            );
            (joined.client, Some(joined.ca))
        }
    };
    let parts = real_parts(&config, client_ca).await?;
    let pulse = Pulse::default();
    let nodes = if config.cni_conf_dir.is_none() {
        Nodes::All
    } else {
        Nodes::Own
    };
    let mut informers = Informers::new(&client, &config.node_name, nodes, &pulse);
    let (events, event_writer) = EventRecorder::new(client.clone(), &config.node_name);
    groups
        .late
        .add("write events", event_writer.run(groups.late.stop()));
    network::spawn(&mut groups, &config, &parts, &mut informers, events.clone());
    spawn_node(
        &mut groups,
        config.clone(),
        client,
        parts,
        (informers, pulse, events),
    );
    groups.finish(config.stop_timeout).await
}

/// What a real node is made of.
pub(crate) async fn real_parts(
    config: &AgentConfig,
    client_ca: Option<CertificateDer<'static>>,
) -> Result<Parts, AgentError> {
    let registries = match &config.registries {
        Some(path) => Registries::load(path).map_err(|source| AgentError::Registries {
            source: Box::new(source),
        })?,
        None => Registries::default(),
    };
    let images = ImageStore::open(ImageStoreConfig {
        root_dir: config.agent_dir().join("images"),
        registries,
    })
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
        root_dir: runtime_root(&config.agent_dir()),
        shim_path,
        network: Arc::clone(&network),
        images: Arc::clone(&images) as Arc<dyn ImageService>,
    })
    .await
    .map_err(|source| AgentError::Runtime { source })?;
    release_vanished(&runtime, &cni).await;
    let (cni, mounter) = (Some(cni), Arc::new(SystemMounter));
    Ok(Parts {
        runtime,
        images,
        network,
        cni,
        mounter,
        client_ca,
        rules: RulesView::default(),
    })
}

/// Gives back what the last agent's sandboxes left in the network: addresses, links, published
/// ports. Once, before the first pod starts: what is attached later must not look vanished. A
/// failure costs addresses only; the next start tries again.
async fn release_vanished(runtime: &LocalRuntime, cni: &CniNetwork) {
    let known = runtime.known_sandboxes();
    match tokio::time::timeout(NETWORK_GC_LIMIT, cni.gc(&known)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            tracing::warn!(error = %ErrorChain(&error), "release what vanished sandboxes held of the network")
        }
        Err(_) => {
            tracing::warn!("releasing what vanished sandboxes held of the network takes too long")
        }
    }
}

fn beside_own_executable(name: &str) -> Result<PathBuf, AgentError> {
    let own = std::env::current_exe().map_err(|source| AgentError::Directory {
        path: PathBuf::from("/proc/self/exe"),
        source,
    })?;
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

/// Makes a directory that is root's alone, or closes the one that is there: an older agent may have
/// been more generous.
fn make_private_dir(path: PathBuf) -> Result<(), AgentError> {
    use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
    let made = std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&path);
    made.and_then(|()| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)))
        .map_err(|source| AgentError::Directory { path, source })
}

/// In one process with the server its CA is a file in the same data directory.
fn read_ca(config: &AgentConfig) -> Result<Option<CertificateDer<'static>>, AgentError> {
    use rustls_pki_types::pem::PemObject;
    let path = config
        .client_ca
        .clone()
        .unwrap_or_else(|| config.data_dir.join("server/pki/ca.crt"));
    match std::fs::read(&path) {
        Ok(text) => Ok(CertificateDer::pem_slice_iter(&text)
            .next()
            .and_then(Result::ok)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            tracing::warn!(path = %path.display(), "no CA of API clients: logs and exec will not work");
            Ok(None)
        }
        Err(source) => Err(AgentError::Directory { path, source }),
    }
}

/// Everything but the network: what runs the same in tests.
pub(crate) fn spawn_node(
    groups: &mut Groups,
    config: AgentConfig,
    client: kube::Client,
    parts: Parts,
    (mut informers, pulse, events): (Informers, Pulse, EventRecorder),
) {
    let Groups {
        tasks,
        late,
        health,
    } = groups;
    let (shutdown, stop_late) = (tasks.stop(), late.stop());
    let pods_dir = config.agent_dir().join("pods");
    let machine = Arc::new(Machine::read(&config));
    let (status, status_writer) = StatusManager::new(client.clone());
    let objects = Arc::new(Objects::new(client.clone()));
    let volumes = VolumeManager::new(
        &pods_dir,
        client.clone(),
        &objects,
        parts.mounter,
        &machine,
        config.node_ip,
    );
    let (node_view, clock) = (NodeView::default(), node::clock::ClockView::default());
    let collector = Collector::new(&parts.images, &parts.runtime, config.agent_dir());
    let ctx = Arc::new(NodeContext {
        config: config.clone(),
        runtime: parts.runtime,
        images: Arc::clone(&parts.images),
        events: events.clone(),
        status,
        objects,
        services: ServiceIndex::new(&informers),
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
        own: OwnNode::new(&mut informers, &config.node_name),
        view: Arc::clone(&node_view),
        clock: Arc::clone(&clock),
        pulse: pulse.clone(),
    };
    let (checkpoints, checkpoint_writer) = Checkpoints::new(pods_dir.clone());
    let (evict, evictions) = mpsc::channel(1);
    let pods = (&mut informers.pods, evictions);
    let sync_loop = SyncLoop::new(
        Arc::clone(&ctx),
        client.clone(),
        checkpoints,
        pods_dir,
        pods,
        shutdown.clone(),
    );
    let name = config.node_name.clone();
    let interval = config.lease_interval;
    let lease = node::lease::run(
        client.clone(),
        name,
        interval,
        node_view,
        pulse,
        shutdown.clone(),
    );
    // What writes for others stops only once they have come to rest.
    late.add("write statuses", status_writer.run(stop_late.clone()));
    late.add("write checkpoints", async move {
        let _ = stop_late.run_until_cancelled(checkpoint_writer).await;
    });
    tasks.add("keep the Lease", lease);
    tasks.add(
        "compare the clock",
        node::clock::run(client.clone(), clock, shutdown.clone()),
    );
    informers.spawn(tasks);
    tasks.add("keep the Node", manager.run(shutdown.clone()));
    tasks.add("sync pods", sync_loop.run());
    tasks.add(
        "weigh the QoS classes",
        crate::qos_cgroups::run(Arc::clone(&ctx), shutdown.clone()),
    );
    let limits = eviction::local_storage::run(Arc::clone(&ctx), evict.clone(), shutdown.clone());
    tasks.add("hold pods to their disk limits", limits);
    tasks.add(
        "evict pods",
        eviction::manager::run(Arc::clone(&ctx), collector.clone(), evict, shutdown.clone()),
    );
    tasks.add(
        "rotate logs",
        crate::logs::rotate::run(Arc::clone(&ctx.runtime), shutdown.clone()),
    );
    tasks.add("collect garbage", gc::run(collector, shutdown.clone()));
    if let Some(ca) = parts.client_ca {
        let usage = Arc::default();
        let (health, connections) = (health.clone(), server::connections());
        let server = server::ServerContext {
            ctx,
            client,
            ca,
            usage,
            rules: parts.rules,
            health,
            connections,
        };
        tasks.add("serve the node's API", server::run(server, shutdown));
    }
}

/// The tasks of a node, and how they end: first those that follow `shutdown`, then those that write
/// for them.
pub(crate) struct Groups {
    tasks: Tasks,
    late: Tasks,
    health: Health,
}

impl Groups {
    pub(crate) fn new(shutdown: CancellationToken) -> Self {
        Self {
            tasks: Tasks::new(shutdown),
            late: Tasks::new(CancellationToken::new()),
            health: Health::default(),
        }
    }

    /// Waits for the shutdown and for the tasks to come to rest, but not longer than `limit`.
    pub(crate) async fn finish(mut self, limit: Duration) -> Result<(), AgentError> {
        let early = tokio::select! {
            biased;
            ended = self.tasks.watch() => ended,
            // The others of these write on until the pods have come to rest.
            ended = self.late.first_end() => ended,
        };
        let end = Instant::now() + limit;
        self.tasks.finish(limit).await;
        self.late
            .finish(end.saturating_duration_since(Instant::now()))
            .await;
        early.map_err(|ended| AgentError::TaskEnded { task: ended.task() })
    }
}

#[cfg(test)]
mod tests;
