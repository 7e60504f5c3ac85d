//! `StopPodSandbox`: containers and shim end, network and pins go, records stay. Every step is
//! tried, whatever the others do.

use std::{path::Path, sync::Arc, time::Duration};

use coracle_shim_protocol::{Request, layout};
use coracle_telemetry::ErrorChain;
use nix::{
    errno::Errno,
    mount::{MntFlags, umount2},
};

use super::{
    RuntimeError, SandboxId, SandboxState,
    checkpoint::{self, Process},
    entries::{Sandbox, joined},
    local::Inner,
    oci_spec,
};
use crate::blocking::blocking;

/// The shim gives its containers 10 s to die of SIGKILL.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(15);

const NETWORK_LIMIT: Duration = Duration::from_secs(60);

/// A killed process ends at once unless the kernel holds it.
const DEATH_LIMIT: Duration = Duration::from_secs(5);
/// Until then everything that a dead shim had started has ended, too.
const SWEEP_DELAY: Duration = Duration::from_secs(1);

pub(super) async fn stop(inner: &Arc<Inner>, id: &SandboxId) -> Result<(), RuntimeError> {
    let Ok(sandbox) = inner.sandbox(id) else {
        return Ok(());
    };
    let _one_at_a_time = sandbox.ending.lock().await;
    if sandbox.checkpoint.lock().released {
        return Ok(());
    }
    let outcome = end(inner, &sandbox).await;
    if outcome.is_ok() {
        note_released(&sandbox);
    }
    inner.tell(&sandbox.pod().uid);
    outcome
}

/// Unwritten, the next agent stops it once more.
fn note_released(sandbox: &Sandbox) {
    sandbox.checkpoint.lock().released = true;
    if sandbox.directory.exists()
        && let Err(error) = sandbox.update(|_| ())
    {
        tracing::warn!(sandbox = %sandbox.id, error = &error as &dyn std::error::Error, "record that the sandbox was stopped");
    }
}

/// Ends a sandbox; the caller holds its lock or is the only one who knows it. Idempotent.
pub(super) async fn end(inner: &Arc<Inner>, sandbox: &Arc<Sandbox>) -> Result<(), RuntimeError> {
    let mut first: Option<RuntimeError> = None;
    let mut note = |outcome: Result<(), RuntimeError>| {
        if let Err(error) = outcome {
            tracing::warn!(sandbox = %sandbox.id, error = %ErrorChain(&error), "cannot stop the sandbox");
            first.get_or_insert(error);
        }
    };
    // No new containers from here on. Unwritten (the disk is full), the next agent finds the shim
    // gone and knows as much: no reason to keep what takes the room.
    if sandbox.directory.exists()
        && let Err(error) = sandbox.update(|checkpoint| checkpoint.state = SandboxState::NotReady)
    {
        tracing::warn!(sandbox = %sandbox.id, error = %ErrorChain(&error), "cannot record that the sandbox stops");
    }
    let orderly = end_shim(sandbox).await;
    let host_network = sandbox.checkpoint.lock().config.host_network;
    let cgroups_gone = coracle_telemetry::spawn(
        "remove cgroups",
        remove_cgroups(Arc::clone(inner), Arc::clone(sandbox)),
    );
    if !host_network {
        let request = sandbox.network_request();
        note(
            match tokio::time::timeout(NETWORK_LIMIT, inner.network.teardown(&request)).await {
                Ok(Ok(())) => Ok(()),
                Ok(Err(error)) => Err(RuntimeError::Network {
                    id: sandbox.id.clone(),
                    source: Box::new(error),
                }),
                Err(_) => Err(RuntimeError::Timeout {
                    operation: "tear the pod network down".to_owned(),
                    limit: NETWORK_LIMIT,
                }),
            },
        );
    }
    note(joined(cgroups_gone.await).and_then(|outcome| outcome));
    if !orderly {
        drop(coracle_telemetry::spawn(
            "sweep a sandbox",
            sweep(Arc::clone(inner), Arc::clone(sandbox)),
        ));
    }
    inner.end_containers(&sandbox.id);
    // The pinned network namespace is needed until the network is torn down; then the kernel frees
    // it in the background.
    let unpinned = unpin(&sandbox.directory);
    note(unpinned.map_err(|(path, error)| RuntimeError::State {
        operation: "unmount",
        path,
        source: error.into(),
    }));
    first.map_or(Ok(()), Err)
}

/// Kills what runs in the sandbox's cgroups and removes them. The pod's own goes unless a newer
/// sandbox of the pod uses it.
async fn remove_cgroups(inner: Arc<Inner>, sandbox: Arc<Sandbox>) -> Result<(), RuntimeError> {
    let paths = cgroups(&inner, &sandbox);
    let work = move || {
        paths
            .iter()
            .map(|path| inner.destroy_cgroup(path))
            .fold(Ok(()), Result::and)
    };
    blocking(work).await
}

/// What a killed shim's helper had in hand lives a moment longer, and may make the cgroup anew
/// after its removal.
async fn sweep(inner: Arc<Inner>, sandbox: Arc<Sandbox>) {
    tokio::time::sleep(SWEEP_DELAY).await;
    let path = sandbox.checkpoint.lock().config.cgroup_parent.clone();
    if inner.cgroup_in_use(&path, &sandbox.id) {
        return;
    }
    if let Err(error) = blocking(move || inner.destroy_cgroup(&path)).await {
        tracing::warn!(sandbox = %sandbox.id, error = %ErrorChain(&error), "cannot sweep after a killed shim");
    }
}

fn cgroups(inner: &Inner, sandbox: &Sandbox) -> Vec<String> {
    let config = sandbox.checkpoint.lock().config.clone();
    let containers = checkpoint::subdirectories(&sandbox.directory.join(layout::CONTAINERS));
    let mut paths: Vec<String> = containers
        .iter()
        .map(|(id, _)| oci_spec::cgroup_path(&config, id))
        .collect();
    if !inner.cgroup_in_use(&config.cgroup_parent, &sandbox.id) {
        paths.push(config.cgroup_parent);
    }
    paths
}

/// Kills every process in the sandbox's cgroups, without a shim.
pub(super) async fn kill_containers(inner: &Arc<Inner>, sandbox: &Arc<Sandbox>) {
    if let Err(error) = remove_cgroups(Arc::clone(inner), Arc::clone(sandbox)).await {
        tracing::warn!(sandbox = %sandbox.id, error = %ErrorChain(&error), "cannot kill the containers");
    }
}

/// Asks the shim to end with everything; kills it if it does not. Whether it did as asked.
async fn end_shim(sandbox: &Arc<Sandbox>) -> bool {
    let client = sandbox.client.lock().clone();
    let shim = sandbox.checkpoint.lock().shim;
    let asked = match &client {
        Some(client) => client
            .call(Request::Shutdown, &[], SHUTDOWN_LIMIT)
            .await
            .is_ok(),
        None => false,
    };
    // Only now: its news about ending containers were still wanted.
    *sandbox.client.lock() = None;
    let Some(shim) = shim else { return asked };
    if !asked {
        shim.kill();
    }
    wait_for_death(shim).await;
    asked
}

async fn wait_for_death(process: Process) {
    if !blocking(move || process.wait(DEATH_LIMIT)).await {
        process.kill();
    }
}

/// Unmounts the namespaces that are pinned in a sandbox's directory.
pub(super) fn unpin(directory: &Path) -> Result<(), (std::path::PathBuf, Errno)> {
    let mut outcome = Ok(());
    for name in ["net", "ipc", "uts"] {
        let path = directory.join(layout::NAMESPACES).join(name);
        // Once for each time it was mounted; then it is a plain file (EINVAL) or absent.
        loop {
            match umount2(&path, MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW) {
                Ok(()) => {}
                Err(Errno::EINVAL | Errno::ENOENT) => break,
                Err(error) => {
                    outcome = Err((path, error));
                    break;
                }
            }
        }
    }
    outcome
}

/// Ends a sandbox and removes every trace but the logs; errors are logged, leftovers are the next
/// start's.
pub(super) async fn destroy(inner: &Arc<Inner>, sandbox: &Arc<Sandbox>) {
    let _one_at_a_time = sandbox.ending.lock().await;
    if end(inner, sandbox).await.is_ok()
        && let Err(error) = super::erase::erase(inner, sandbox).await
    {
        tracing::warn!(sandbox = %sandbox.id, error = %ErrorChain(&error), "cannot remove the sandbox");
    }
}
