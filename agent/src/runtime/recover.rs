//! After a restart: finds what the last agent made, takes living shims over, finishes what it was
//! in the middle of.
//!
//! What another boot left is ended and kept as records ([`super::past`]): it must be known that it
//! ran. What runs without a record is ended ([`super::lost_pods`]). Also what happens when a shim
//! dies while the agent lives. Nothing here trusts a PID without its start time.

use std::{path::PathBuf, sync::Arc, time::Duration};

use coracle_shim_protocol::{ContainerRecord, Phase, Reply, Request, State, layout};
use coracle_telemetry::ErrorChain;
use futures::future::join_all;
use nix::sys::signal::Signal;
use parking_lot::Mutex;
use tokio::sync::watch;

use super::{
    ContainerId, ContainerState, OwnPods, PodUid, SandboxId, SandboxState, checkpoint,
    entries::{Container, Sandbox},
    erase, held_layers,
    local::Inner,
    lost_pods, past, sandbox_stop,
    shim_client::ShimClient,
};
use crate::blocking::blocking;

const STATE_LIMIT: Duration = Duration::from_secs(10);

/// Longest a helper of the last agent may still be at work.
const CREATING_LIMIT: Duration = Duration::from_secs(65);
const CREATING_PAUSE: Duration = Duration::from_millis(100);

/// Rescans the run directory. Failures are logged and left for the next start. Which of the node's
/// `own` pods ran without a record, and were ended.
pub(super) async fn recover(inner: &Arc<Inner>, own: OwnPods) -> Vec<PodUid> {
    let found = checkpoint::subdirectories(&inner.run_dir.join("sandboxes"));
    join_all(
        found
            .into_iter()
            .map(|(name, directory)| recover_sandbox(inner, SandboxId(name), directory)),
    )
    .await;
    // Before what they wrote is touched.
    let lost = lost_pods::end(inner, own).await;
    let recalling = Arc::clone(inner);
    blocking(move || past::recall(&recalling)).await;
    // Writable layers of containers that no record names.
    for (name, path) in checkpoint::subdirectories(&held_layers::holders(&inner.root_dir)) {
        if inner.container(&ContainerId(name)).is_err() {
            clean(&path).await;
            // If it cannot be removed, it is to keep no layers.
            held_layers::note_none(&path);
        }
    }
    lost
}

async fn clean(path: &std::path::Path) {
    if let Err(error) = erase::remove_tree(path).await {
        tracing::warn!(
            error = %ErrorChain(&error),
            "cannot clean up after the last agent"
        );
    }
}

async fn recover_sandbox(inner: &Arc<Inner>, id: SandboxId, directory: PathBuf) {
    let Some(checkpoint) = checkpoint::read_sandbox(&directory) else {
        // The checkpoint comes first: without it nothing else was made, or somebody has removed it
        // under a pod that runs, and could not remove what is mounted.
        if let Err((path, error)) = sandbox_stop::unpin(&directory) {
            tracing::warn!(path = %path.display(), %error, "cannot unmount what a lost sandbox has pinned");
        }
        return clean(&directory).await;
    };
    let other_boot = checkpoint.boot_id != inner.boot_id;
    let unwanted = !checkpoint.complete;
    let mut checkpoint = checkpoint;
    if other_boot {
        checkpoint.shim = None;
    }
    let sandbox = Arc::new(Sandbox {
        id: id.clone(),
        directory,
        checkpoint: Mutex::new(checkpoint),
        client: Mutex::new(None),
        ending: tokio::sync::Mutex::new(()),
    });
    inner.insert_sandbox(Arc::clone(&sandbox));
    if other_boot {
        return retire(inner, &sandbox).await;
    }
    let state = reconnect(inner, &sandbox).await;
    if unwanted {
        tracing::info!(sandbox = %id, "removing a sandbox that was not finished");
        return sandbox_stop::destroy(inner, &sandbox).await;
    }
    let records = state
        .as_ref()
        .map(|state| state.containers.clone())
        .unwrap_or_default();
    for (name, path) in checkpoint::subdirectories(&sandbox.directory.join(layout::CONTAINERS)) {
        let record = records.iter().find(|record| record.container == name);
        recover_container(
            inner,
            &sandbox,
            ContainerId(name),
            path,
            record,
            state.is_some(),
        )
        .await;
    }
    if state.is_none() {
        shim_lost(inner, &sandbox).await;
    }
}

/// Ends what another boot left, but for the records of what ran in it.
async fn retire(inner: &Arc<Inner>, sandbox: &Arc<Sandbox>) {
    for (name, directory) in checkpoint::subdirectories(&sandbox.directory.join(layout::CONTAINERS))
    {
        let Some(exit) = checkpoint::read_exit(&directory) else {
            continue;
        };
        let (writable, syncs) = (inner.writable_dir(&ContainerId(name)), inner.syncs.clone());
        blocking(move || {
            if past::note_end(&writable, checkpoint::exited(&exit)) {
                syncs.soon(writable);
            }
        })
        .await;
    }
    // What fails is logged there; the directory then stays for the next start.
    if sandbox_stop::end(inner, sandbox).await.is_ok() {
        clean(&sandbox.directory).await;
    }
    inner.forget_sandbox(&sandbox.id);
}

async fn reconnect(inner: &Arc<Inner>, sandbox: &Arc<Sandbox>) -> Option<State> {
    let client =
        ShimClient::connect(sandbox.id.clone(), &sandbox.directory, inner.listener()).ok()?;
    // First: news from now on must find it.
    *sandbox.client.lock() = Some(Arc::clone(&client));
    match client
        .call(Request::State, &[], STATE_LIMIT)
        .await
        .map(|answer| answer.reply)
    {
        Ok(Reply::State(state)) => Some(state),
        _ => {
            *sandbox.client.lock() = None;
            None
        }
    }
}

async fn recover_container(
    inner: &Arc<Inner>,
    sandbox: &Arc<Sandbox>,
    id: ContainerId,
    directory: PathBuf,
    record: Option<&ContainerRecord>,
    shim_lives: bool,
) {
    let unfinished = match record.map(|record| &record.phase) {
        Some(Phase::Creating) => true,
        // The shim has forgotten it, or never heard of it: its removal or its making was under way.
        None => shim_lives,
        Some(_) => false,
    };
    let known = checkpoint::read_container(&directory);
    let (Some(checkpoint), false) = (known, unfinished) else {
        let (inner, sandbox) = (Arc::clone(inner), Arc::clone(sandbox));
        let under_way = record.is_some();
        coracle_telemetry::spawn("clean up after a container", async move {
            if under_way {
                abandon(&sandbox, &id).await;
            }
            clean(&inner.writable_dir(&id)).await;
            clean(&directory).await;
        });
        return;
    };
    let exit = checkpoint::read_exit(&directory);
    let state = match record.map(|record| &record.phase) {
        Some(Phase::Running { pid, started_at }) => ContainerState::Running {
            started_at: checkpoint::time(*started_at),
            pid: *pid,
        },
        Some(Phase::Exited(exit)) => checkpoint::exited(exit),
        Some(Phase::Created { .. } | Phase::Creating) => ContainerState::Created,
        None => exit.as_ref().map_or_else(
            || checkpoint::lost(checkpoint.created_at),
            checkpoint::exited,
        ),
    };
    let writable = inner.writable_dir(&id);
    let container = Container {
        id,
        sandbox: Arc::clone(sandbox),
        directory,
        writable,
        syncs: inner.syncs.clone(),
        resources: Mutex::new(checkpoint.config.resources.clone()),
        checkpoint,
        state: watch::Sender::new(Some(state)),
    };
    // What ended between the shim's answer and now was told to nobody.
    if let Some(exit) = exit {
        container.end(Some(&exit));
    }
    let container = Arc::new(container);
    inner.insert_container(Arc::clone(&container));
    blocking(move || past::ensure(&container)).await;
}

/// Ends a container whose making nobody waits for any more.
async fn abandon(sandbox: &Arc<Sandbox>, id: &ContainerId) {
    // Over and over: as long as its helper is at work there is no process to kill, and nothing that
    // has exited to delete.
    let attempt = async {
        loop {
            let Some(client) = sandbox.client.lock().clone() else {
                return;
            };
            let kill = Request::Signal {
                container: id.0.clone(),
                signal: Signal::SIGKILL as i32,
                all: true,
            };
            let _ = client.call(kill, &[], STATE_LIMIT).await;
            if client
                .call(
                    Request::Delete {
                        container: id.0.clone(),
                    },
                    &[],
                    STATE_LIMIT,
                )
                .await
                .is_ok()
            {
                return;
            }
            tokio::time::sleep(CREATING_PAUSE).await;
        }
    };
    let _ = tokio::time::timeout(CREATING_LIMIT, attempt).await;
}

/// The shim has died: its containers die with it (their parent-death signal, and here), the sandbox
/// is not ready. The network stays until the sandbox is stopped.
pub(super) async fn shim_lost(inner: &Arc<Inner>, sandbox: &Arc<Sandbox>) {
    let _one_at_a_time = sandbox.ending.lock().await;
    let complete = sandbox.checkpoint.lock().complete;
    if !complete || inner.sandbox(&sandbox.id).is_err() {
        return;
    }
    // A hung-up connection to a living shim is as bad as a dead one: nobody sees its containers
    // end.
    let shim = sandbox.checkpoint.lock().shim;
    if let Some(shim) = shim {
        shim.kill();
    }
    if let Err(error) = sandbox.update(|checkpoint| checkpoint.state = SandboxState::NotReady) {
        tracing::warn!(sandbox = %sandbox.id, error = %ErrorChain(&error), "cannot record that the shim has gone");
    }
    sandbox_stop::kill_containers(inner, sandbox).await;
    inner.end_containers(&sandbox.id);
    inner.tell(&sandbox.pod().uid);
}
