//! The long-running commands: start the parts, tell systemd, stop on a signal.
//!
//! A first SIGTERM or SIGINT stops in order and leaves pods running; a second one ends the process
//! at once.

use std::{collections::BTreeSet, future::Future, pin::pin, time::Duration};

use anyhow::Context;
use coracle_agent::ApiAccess;
use coracle_controlplane::{Server, UserInfo};
use coracle_telemetry::{ErrorChain, spawn};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::{
    Failure,
    cli::{AgentArgs, ServerArgs, UpArgs},
    join, memory, settings,
};

/// How long blocking work may go on once everything else has stopped.
const RUNTIME_STOP_DEADLINE: Duration = Duration::from_secs(2);
/// How long a thread for blocking work waits for more. A burst of pods leaves some seventy, each
/// with its stack, and a little work now and then would keep them all.
const SPARE_THREAD_LIFE: Duration = Duration::from_secs(1);

/// `coracle up`.
pub(crate) fn up(args: &UpArgs, given: BTreeSet<&'static str>) -> Result<(), Failure> {
    let mut agent =
        settings::agent_config(&args.data, &args.cluster, &args.node).map_err(Failure::Usage)?;
    let mut server = settings::server_config(&args.data, &args.cluster, &args.control_plane)
        .map_err(Failure::Usage)?;
    server.own_node = Some(agent.node_name.clone());
    let joining = args.control_plane.join.clone();
    block_on(async move |shutdown| {
        let Some(server) = join::prepared(server, &joining, given, &shutdown).await? else {
            return Ok(());
        };
        agent.cluster_cidr = Some(server.cluster_cidr.into());
        agent.service_cidr = Some(server.service_cidr.into());
        let server = Server::start(server, shutdown.clone()).await?;
        let client = server.client(UserInfo::node(&agent.node_name));
        announce_ready();
        let node = coracle_agent::run(agent, ApiAccess::InProcess(client), shutdown.clone());
        let (mut node, mut control_plane) = (pin!(node), pin!(server.stopped()));
        // Whichever ends first takes the other along; both end when a signal comes.
        let (node, control_plane) = tokio::select! {
            ended = &mut node => {
                shutdown.cancel();
                (ended, control_plane.await)
            }
            ended = &mut control_plane => {
                shutdown.cancel();
                (node.await, ended)
            }
        };
        node.context("the node has failed")?;
        Ok(control_plane?)
    })
}

/// `coracle server`.
pub(crate) fn server(args: &ServerArgs, given: BTreeSet<&'static str>) -> Result<(), Failure> {
    let config = settings::server_config(&args.data, &args.cluster, &args.control_plane)
        .map_err(Failure::Usage)?;
    let joining = args.control_plane.join.clone();
    block_on(async move |shutdown| {
        let Some(config) = join::prepared(config, &joining, given, &shutdown).await? else {
            return Ok(());
        };
        let server = Server::start(config, shutdown).await?;
        announce_ready();
        Ok(server.stopped().await?)
    })
}

/// `coracle agent`.
pub(crate) fn agent(args: &AgentArgs) -> Result<(), Failure> {
    let config =
        settings::agent_config(&args.data, &args.cluster, &args.node).map_err(Failure::Usage)?;
    let access = ApiAccess::Join {
        servers: args.server.clone(),
        lb_server_port: args.lb_server_port,
        token: args.token.clone(),
    };
    block_on(async move |shutdown| {
        announce_ready();
        Ok(coracle_agent::run(config, access, shutdown).await?)
    })
}

/// Tells systemd, if it asked.
pub(crate) fn announce_ready() {
    if let Err(error) = sd_notify::notify(&[sd_notify::NotifyState::Ready]) {
        tracing::warn!(error = %ErrorChain(&error), "could not tell systemd that the service is ready");
    }
}

/// Runs `main` until it ends, or has done what it is told to when a signal comes.
pub(crate) fn block_on<F>(main: impl FnOnce(CancellationToken) -> F) -> Result<(), Failure>
where
    F: Future<Output = anyhow::Result<()>>,
{
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder
        .enable_all()
        .thread_keep_alive(SPARE_THREAD_LIFE)
        .build()
        .context("start the runtime")?;
    let shutdown = CancellationToken::new();
    let result = runtime.block_on(async {
        let signals = watch_signals(shutdown.clone())?;
        let housekeeping = spawn("give memory back", memory::give_back());
        let result = main(shutdown).await;
        signals.abort();
        housekeeping.abort();
        result
    });
    runtime.shutdown_timeout(RUNTIME_STOP_DEADLINE);
    Ok(result?)
}

fn watch_signals(shutdown: CancellationToken) -> anyhow::Result<tokio::task::JoinHandle<()>> {
    let mut terminate = signal(SignalKind::terminate()).context("listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("listen for SIGINT")?;
    Ok(spawn("listen for signals", async move {
        for first in [true, false] {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            if !first {
                tracing::warn!("second signal: ending at once");
                std::process::exit(1);
            }
            tracing::info!("stopping; pods keep running");
            shutdown.cancel();
        }
    }))
}
