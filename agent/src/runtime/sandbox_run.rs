//! `RunPodSandbox`: checkpoint, cgroup, shim with namespaces, network; undone in reverse when a
//! step fails.

use std::{
    fs,
    os::{
        fd::{AsFd, OwnedFd},
        unix::process::CommandExt,
    },
    path::Path,
    process::{Command, Stdio},
    sync::Arc,
    time::{Duration, SystemTime},
};

use coracle_shim_protocol::{Init, Reply, Request, layout};
use coracle_telemetry::span;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use parking_lot::Mutex;
use tracing::Instrument as _;

use super::{
    RuntimeError, SandboxConfig, SandboxId, SandboxState, SandboxStatus,
    checkpoint::{Process, SandboxCheckpoint},
    entries::{Sandbox, joined},
    local::{Inner, make_private},
    sandbox_stop,
    shim_client::ShimClient,
};
use crate::blocking::blocking;

/// Making namespaces takes a millisecond; a machine under pressure takes longer.
const INIT_LIMIT: Duration = Duration::from_secs(15);

/// For the shim's first process, which only forks.
const FORK_LIMIT: Duration = Duration::from_secs(15);

/// CNI plugins are foreign programs.
const NETWORK_LIMIT: Duration = Duration::from_secs(60);

/// The names under which RuntimeClasses know this runtime: its own, and that of the runtime whose
/// work it does.
const HANDLERS: [&str; 3] = ["", "coracle", "runc"];

/// Refuses what would otherwise be dropped without a word.
fn check(config: &SandboxConfig) -> Result<(), RuntimeError> {
    if config.user_namespace {
        let message = "runtime does not support user namespaces (hostUsers: false)".to_owned();
        return Err(RuntimeError::InvalidConfig { message });
    }
    let handler = config.runtime_handler.as_str();
    if !HANDLERS.contains(&handler) {
        let message =
            format!("failed to get sandbox runtime: no runtime for {handler:?} is configured");
        return Err(RuntimeError::InvalidConfig { message });
    }
    Ok(())
}

pub(super) async fn run(
    inner: &Arc<Inner>,
    config: SandboxConfig,
) -> Result<SandboxStatus, RuntimeError> {
    check(&config)?;
    let id = SandboxId(random_id());
    let directory = inner.sandbox_dir(&id);
    let checkpoint = SandboxCheckpoint {
        config,
        created_at: SystemTime::now(),
        state: SandboxState::NotReady,
        complete: false,
        ips: Vec::new(),
        shim: None,
        released: false,
        boot_id: inner.boot_id.clone(),
    };
    let sandbox = Arc::new(Sandbox {
        id,
        directory,
        checkpoint: Mutex::new(checkpoint),
        client: Mutex::new(None),
        ending: tokio::sync::Mutex::new(()),
    });
    match build(inner, &sandbox).await {
        Ok(()) => {
            inner.tell(&sandbox.pod().uid);
            Ok(sandbox.status())
        }
        Err(error) => {
            // What cannot be undone now is found by the next start: the checkpoint says incomplete.
            sandbox_stop::destroy(inner, &sandbox).await;
            Err(error)
        }
    }
}

async fn build(inner: &Arc<Inner>, sandbox: &Arc<Sandbox>) -> Result<(), RuntimeError> {
    let config = sandbox.checkpoint.lock().config.clone();
    let state = |operation, path: &Path| {
        let path = path.to_owned();
        move |source| RuntimeError::State {
            operation,
            path,
            source,
        }
    };
    let (owner, made) = (Arc::clone(inner), Arc::clone(sandbox));
    let logs = config.log_directory.clone();
    blocking(move || {
        // First of all: what follows is found by it if this process dies.
        make_private(&made.directory).map_err(state("make", &made.directory))?;
        made.update(|_| ())?;
        owner.insert_sandbox(made);
        fs::create_dir_all(&logs).map_err(state("make", &logs))
    })
    .await?;
    hasten_moves(inner);
    // Beside the shim, which does not need it yet: the kernel takes its time with both.
    let cgroup = {
        let (inner, config, around) = (Arc::clone(inner), config.clone(), tracing::Span::current());
        let make = move || {
            inner
                .hierarchies
                .create(&config.cgroup_parent, &config.resources)
        };
        tokio::task::spawn_blocking(move || around.in_scope(|| span!("cgroup").in_scope(make)))
    };
    let shim = launch(inner, sandbox, &config)
        .instrument(span!("shim"))
        .await;
    // Both are through before the error of one counts: what came into being after the cleaning up
    // would stay.
    joined(cgroup.await)??;
    shim?;

    if !config.host_network {
        let request = sandbox.network_request();
        let setup = tokio::time::timeout(NETWORK_LIMIT, inner.network.setup(&request));
        let ips = match setup.instrument(span!("network")).await {
            Ok(Ok(ips)) => ips,
            Ok(Err(error)) => {
                return Err(RuntimeError::Network {
                    id: sandbox.id.clone(),
                    source: Box::new(error),
                });
            }
            Err(_) => {
                return Err(RuntimeError::Timeout {
                    operation: "set up the pod network".to_owned(),
                    limit: NETWORK_LIMIT,
                });
            }
        };
        sandbox.checkpoint.lock().ips = ips;
    }
    let ready = Arc::clone(sandbox);
    blocking(move || {
        ready.update(|checkpoint| {
            checkpoint.state = SandboxState::Ready;
            checkpoint.complete = true;
        })
    })
    .await?;
    // The shim may have died since; its end was not news while the sandbox was not ready.
    sandbox.client("run the sandbox").map(drop)
}

/// Not waited for: by the time a container's processes are moved into its cgroup, it is done.
pub(super) fn hasten_moves(inner: &Arc<Inner>) {
    let inner = Arc::clone(inner);
    drop(tokio::task::spawn_blocking(move || {
        inner.hierarchies.hasten_moves()
    }));
}

/// Starts the shim and waits until its namespaces are pinned.
async fn launch(
    inner: &Arc<Inner>,
    sandbox: &Arc<Sandbox>,
    config: &SandboxConfig,
) -> Result<(), RuntimeError> {
    let shim_error = |source| RuntimeError::Shim {
        id: sandbox.id.clone(),
        operation: "start",
        source,
    };
    let (ours, theirs) = socketpair(
        AddressFamily::Unix,
        SockType::SeqPacket,
        None,
        SockFlag::SOCK_CLOEXEC,
    )
    .map_err(|error| shim_error(error.into()))?;
    let program = inner.binaries.shim_path();
    let log = sandbox.directory.join(layout::SHIM_LOG);
    let name = format!("coracle-shim {}/{}", config.pod.namespace, config.pod.name);
    blocking(move || spawn(&program, &name, theirs, &log))
        .await
        .map_err(shim_error)?;

    let client =
        ShimClient::start(sandbox.id.clone(), ours, inner.listener()).map_err(shim_error)?;
    // Before anything is asked: should the shim die right after its answer, this is what notices.
    *sandbox.client.lock() = Some(Arc::clone(&client));
    let init = Init {
        sandbox_dir: sandbox.directory.clone(),
        hostname: (!config.host_network).then(|| config.hostname.clone()),
        host_network: config.host_network,
        host_ipc: config.host_ipc,
        share_process_namespace: config.share_process_namespace,
        sysctls: config.sysctls.clone(),
    };
    let answer = client
        .call(
            Request::Init(init),
            &[inner.binaries.helper.as_fd()],
            INIT_LIMIT,
        )
        .await
        .map_err(|error| client.error("make the sandbox", "", error))?;
    let started = Arc::clone(sandbox);
    blocking(move || {
        if let Reply::Ready { pid } = answer.reply {
            started.checkpoint.lock().shim = Process::current(pid);
        }
        // On disk before anything else is made: a successor must be able to find and end it.
        started.update(|_| ())
    })
    .await
}

/// The first process only forks the shim proper and ends; it is waited for here.
fn spawn(program: &Path, name: &str, socket: OwnedFd, log: &Path) -> std::io::Result<()> {
    let log = fs::File::options().create(true).append(true).open(log)?;
    let mut child = Command::new(program)
        .arg0(name)
        .env_clear()
        .stdin(Stdio::from(socket))
        .stdout(Stdio::null())
        .stderr(Stdio::from(log))
        .spawn()?;
    let first = i32::try_from(child.id()).ok().and_then(Process::current);
    if first.is_some_and(|first| !first.wait(FORK_LIMIT)) {
        child.kill()?;
        child.wait()?;
        return Err(std::io::ErrorKind::TimedOut.into());
    }
    let status = child.wait()?;
    if status.success() {
        Ok(())
    } else {
        Err(std::io::Error::other(format!(
            "the shim ended with {status}"
        )))
    }
}

/// 64 lower-case hex digits.
pub(super) fn random_id() -> String {
    hex::encode(rand::random::<[u8; 32]>())
}
