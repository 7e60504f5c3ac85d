//! Puts the parts of a node together and keeps them running.

mod api;
mod network;
mod parts;

pub(crate) use self::parts::{Parts, real_parts};

use std::{path::PathBuf, sync::Arc, time::Duration};

use coracle_client::pulse::Pulse;
use coracle_telemetry::{ExponentialBackoff, Health, Tasks};
use tokio::{sync::mpsc, time::Instant};
use tokio_util::sync::CancellationToken;

use self::api::Api;
use crate::{
    AgentConfig, AgentError, ApiAccess,
    context::NodeContext,
    events::EventRecorder,
    eviction,
    gc::{self, Collector},
    informers::{Informers, Nodes},
    local_volumes::LocalVolumes,
    node::{self, NodeManager, NodeView, OwnNode, facts::Machine},
    node_lock::NodeLock,
    objects::Objects,
    pod_manager::{PodsView, checkpoint::Checkpoints},
    server,
    service_index::ServiceIndex,
    status_manager::StatusManager,
    sync_loop::SyncLoop,
    volume::{VolumeManager, VolumeParts},
};

const RESTART: ExponentialBackoff =
    ExponentialBackoff::new(Duration::from_secs(1), Duration::from_secs(60));
const REPAIR_INTERVAL: Duration = Duration::from_secs(30);

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
    let own = ["pods", "checkpoints", "images", "containers"];
    let own = own.map(|name| config.agent_dir().join(name));
    for dir in own.into_iter().chain([config.local_volumes_dir()]) {
        make_private_dir(dir)?;
    }
    // The directories in there are open to everybody. One that somebody has chosen is his.
    if config.local_storage_dir.is_none() {
        make_private_dir(config.storage_dir())?;
    }
    config.check_storage()?;
    let _lock = NodeLock::acquire_soon(&config.run_dir).await?;
    Machine::read(&config).check()?;
    let mut groups = Groups::new(shutdown.clone());
    let (api, client_ca) = Api::open(&mut groups, &config, access).await?;
    let mut parts = real_parts(&config, client_ca).await?;
    let pulse = Pulse::default();
    let nodes = if config.cni_conf_dir.is_none() {
        Nodes::All
    } else {
        Nodes::Own
    };
    let client = api.client.clone();
    let mut informers = Informers::new(&client, &config.node_name, nodes, &pulse);
    api.keep(&mut groups.tasks, &config, &mut informers);
    let (events, event_writer) = EventRecorder::new(client.clone(), &config.node_name);
    groups
        .late
        .add("write events", event_writer.run(groups.late.stop()));
    network::spawn(
        &mut groups,
        &config,
        &mut parts,
        (&mut informers, client.clone()),
        events.clone(),
    );
    spawn_node(
        &mut groups,
        config.clone(),
        client,
        parts,
        (informers, pulse, events),
    );
    groups.finish(config.stop_timeout).await
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

/// Everything but the network: what runs the same in tests.
pub(crate) fn spawn_node(
    groups: &mut Groups,
    config: AgentConfig,
    client: kube::Client,
    parts: Parts,
    (mut informers, pulse, events): (Informers, Pulse, EventRecorder),
) {
    parts.tell_of_lost_pods(&config, &events);
    let machine = Arc::new(Machine::read(&config));
    let objects = Arc::new(Objects::new(client.clone()));
    let (status, status_writer) = StatusManager::new(client.clone());
    let late = &mut groups.late;
    late.add("write statuses", status_writer.run(late.stop()));
    let node_view = NodeView::default();
    let volumes = VolumeManager::new(VolumeParts {
        config: config.clone(),
        client: client.clone(),
        objects: Arc::clone(&objects),
        mounter: parts.mounter,
        machine: Arc::clone(&machine),
        events: events.clone(),
        node: Arc::clone(&node_view),
    });
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
        listeners: parts.listeners,
        node: Arc::clone(&node_view),
        pods: PodsView::default(),
        pods_changed: tokio::sync::Notify::new(),
    });
    let manager = NodeManager {
        own: OwnNode::new(&mut informers, &config.node_name),
        config,
        client: client.clone(),
        machine,
        images: parts.images,
        network: parts.network,
        cni: parts.cni,
        events,
        view: node_view,
        clock: node::clock::ClockView::default(),
        pulse,
    };
    spawn_own_node(&mut groups.tasks, manager);
    spawn_pods(groups, &ctx, &client, &mut informers, collector);
    // Last: who follows something has said so by now.
    informers.spawn(&mut groups.tasks);
    if let Some(ca) = parts.client_ca {
        let server = server::ServerContext {
            ctx,
            client,
            ca,
            usage: Arc::default(),
            rules: parts.rules,
            health: groups.health.clone(),
            connections: server::connections(),
        };
        let serve = move |stop| server::run(server.clone(), stop);
        groups
            .tasks
            .keep("serve the node's API", RESTART, &groups.health, serve);
    }
}

/// What keeps the Node object and its Lease.
fn spawn_own_node(tasks: &mut Tasks, manager: NodeManager) {
    let shutdown = tasks.stop();
    let lease = node::lease::run(
        manager.client.clone(),
        manager.config.node_name.clone(),
        manager.config.lease_interval,
        Arc::clone(&manager.view),
        manager.pulse.clone(),
        shutdown.clone(),
    );
    tasks.add("keep the Lease", lease);
    let clock = Arc::clone(&manager.clock);
    tasks.add(
        "compare the clock",
        node::clock::run(manager.client.clone(), clock, shutdown.clone()),
    );
    tasks.add("keep the Node", manager.run(shutdown));
}

/// What runs the pods, and what holds them within what the machine has.
fn spawn_pods(
    groups: &mut Groups,
    ctx: &Arc<NodeContext>,
    client: &kube::Client,
    informers: &mut Informers,
    collector: Collector,
) {
    let Groups {
        tasks,
        late,
        health,
    } = groups;
    let (shutdown, stop_late) = (tasks.stop(), late.stop());
    let checkpoints = Checkpoints::default();
    late.add(
        "write checkpoints",
        checkpoints
            .clone()
            .write(ctx.config.checkpoints_dir(), stop_late),
    );
    let (evict, evictions) = mpsc::channel(1);
    let sync_loop = SyncLoop::new(
        Arc::clone(ctx),
        client.clone(),
        checkpoints,
        (&mut informers.pods, evictions),
        shutdown.clone(),
    );
    tasks.add("sync pods", sync_loop.run());
    let limits = eviction::local_storage::run(Arc::clone(ctx), evict.clone(), shutdown.clone());
    tasks.add("hold pods to their disk limits", limits);
    tasks.add(
        "evict pods",
        eviction::manager::run(Arc::clone(ctx), collector.clone(), evict, shutdown),
    );
    // These begin anew with what they find: no reason to end the rest with them.
    let node = Arc::clone(ctx);
    tasks.keep("weigh the QoS classes", RESTART, health, move |stop| {
        crate::qos_cgroups::run(Arc::clone(&node), stop)
    });
    let local = LocalVolumes::new(informers, client.clone(), &ctx.volumes);
    tasks.keep("let go of local volumes", RESTART, health, move |stop| {
        local.clone().run(stop)
    });
    let runtime = Arc::clone(&ctx.runtime);
    tasks.keep("rotate logs", RESTART, health, move |stop| {
        crate::logs::rotate::run(Arc::clone(&runtime), stop)
    });
    tasks.keep("collect garbage", RESTART, health, move |stop| {
        gc::run(collector.clone(), stop)
    });
}

/// The tasks of a node, and how they end: first those that follow `shutdown`, then those that write
/// for them.
pub(crate) struct Groups {
    tasks: Tasks,
    /// What writes for others stops only once they have come to rest.
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
