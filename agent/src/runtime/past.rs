//! What a reboot leaves of the containers that ran here: one record each, on the disk beside its
//! writable layer.
//!
//! ```text
//! ROOT/containers/<id>/record.json    written before the container is started, and once more at its end
//! ```
//! While the machine is up the run directory and the shims are the truth, and nobody reads these.
//! After a reboot the run directory is empty, and without a record a pod that must run once would
//! run twice. Records say nothing of what ran, only that it did: environment, arguments and mounts
//! may hold Secrets, which are not to outlive the boot.
//!
//! Records are synced together, shortly after they were written: syncing each before its start
//! would make the starts of other pods wait for the disk. A power cut in between loses some, and
//! then the status in the API is what tells.

use std::{
    collections::HashMap,
    fs::{self, File, OpenOptions},
    io::{self, Write},
    net::IpAddr,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use coracle_telemetry::ErrorChain;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::{
    ContainerConfig, ContainerId, ContainerState, RuntimeError, SandboxConfig, SandboxId,
    SandboxState,
    checkpoint::{self, ContainerCheckpoint, SandboxCheckpoint},
    entries::{Container, Sandbox},
    held_layers,
    local::Inner,
};

const FILE: &str = "record.json";
/// For company: what a burst of starts wrote costs the disk one effort.
const SYNC_DELAY: Duration = Duration::from_millis(500);

/// Records that are to be put on the disk. Clones are one.
#[derive(Debug, Clone, Default)]
pub(super) struct Syncs(Arc<Mutex<Vec<PathBuf>>>);

impl Syncs {
    /// Puts the record in this directory on the disk before long.
    pub(super) fn soon(&self, directory: PathBuf) {
        let first = {
            let mut pending = self.0.lock();
            pending.push(directory);
            pending.len() == 1
        };
        if !first {
            return;
        }
        let syncs = self.clone();
        drop(coracle_telemetry::spawn("sync directories", async move {
            tokio::time::sleep(SYNC_DELAY).await;
            // The process ends: the kernel has what was written.
            let _ = tokio::task::spawn_blocking(move || syncs.now()).await;
        }));
    }

    fn now(&self) {
        let pending = std::mem::take(&mut *self.0.lock());
        pending.iter().for_each(|directory| sync(directory));
    }
}

/// A container that was started, and its sandbox.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Record {
    sandbox: SandboxId,
    sandbox_config: SandboxConfig,
    sandbox_created_at: SystemTime,
    ips: Vec<IpAddr>,
    container: ContainerCheckpoint,
    /// Asked for then.
    started_at: SystemTime,
    /// Once it has ended, if somebody saw it.
    end: Option<ContainerState>,
}

impl Record {
    fn of(container: &Container) -> Self {
        let sandbox = container.sandbox.checkpoint.lock();
        Self {
            sandbox: container.sandbox.id.clone(),
            sandbox_config: SandboxConfig {
                annotations: Default::default(),
                ..sandbox.config.clone()
            },
            sandbox_created_at: sandbox.created_at,
            ips: sandbox.ips.clone(),
            container: ContainerCheckpoint {
                config: ContainerConfig {
                    command: Vec::new(),
                    args: Vec::new(),
                    env: Vec::new(),
                    mounts: Vec::new(),
                    ..container.checkpoint.config.clone()
                },
                ..container.checkpoint.clone()
            },
            started_at: SystemTime::now(),
            end: None,
        }
    }

    fn read(directory: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(directory.join(FILE)).ok()?).ok()
    }

    /// Not on the disk yet when this returns.
    fn write(&self, directory: &Path) -> Result<(), RuntimeError> {
        let path = directory.join(FILE);
        let attempt = || -> io::Result<()> {
            let temporary = path.with_extension("tmp");
            let mut file = OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .open(&temporary)?;
            file.write_all(&serde_json::to_vec(self)?)?;
            fs::rename(&temporary, &path)
        };
        attempt().map_err(|source| RuntimeError::State {
            operation: "write",
            path: path.clone(),
            source,
        })
    }
}

/// Notes that the container is about to start. Blocks.
pub(super) fn note_start(container: &Container) -> Result<(), RuntimeError> {
    Record::of(container).write(&container.writable)
}

/// Puts what was noted on the disk. Blocks.
fn sync(directory: &Path) {
    let synced = File::open(directory.join(FILE)).and_then(|file| file.sync_all());
    // Gone already, with its container: nothing to keep.
    if let Err(error) = synced.and_then(|()| File::open(directory)?.sync_all())
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(directory = %directory.display(), error = %ErrorChain(&error), "cannot put a container's record on the disk");
    }
}

/// Notes how the container ended, unless it was never started or that is known. Whether there is
/// something to be synced. Blocks.
pub(super) fn note_end(directory: &Path, end: ContainerState) -> bool {
    let Some(mut record) = Record::read(directory).filter(|record| record.end.is_none()) else {
        return false;
    };
    record.end = Some(end);
    match record.write(directory) {
        Ok(()) => return true,
        // Removed meanwhile.
        Err(RuntimeError::State { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
        Err(error) => tracing::warn!(
            error = %ErrorChain(&error),
            "cannot record how a container ended"
        ),
    }
    false
}

/// For a container that an agent without records started.
pub(super) fn ensure(container: &Container) {
    let started = matches!(&*container.state.borrow(), Some(state) if !matches!(state, ContainerState::Created));
    if started
        && !container.writable.join(FILE).exists()
        && let Err(error) = note_start(container)
    {
        tracing::warn!(
            error = %ErrorChain(&error),
            "cannot record a running container"
        );
    }
    let end = container
        .state
        .borrow()
        .clone()
        .filter(|state| matches!(state, ContainerState::Exited { .. }));
    if end.is_some_and(|end| note_end(&container.writable, end)) {
        container.syncs.soon(container.writable.clone());
    }
}

/// Takes in what the run directory no longer knows: all of it has ended. Blocks.
pub(super) fn recall(inner: &Arc<Inner>) {
    let mut sandboxes: HashMap<SandboxId, Arc<Sandbox>> = HashMap::new();
    for (name, directory) in checkpoint::subdirectories(&held_layers::holders(&inner.root_dir)) {
        let id = ContainerId(name);
        let Some(record) = Record::read(&directory) else {
            continue;
        };
        // Known, or about to be removed by what found it in the run directory.
        if inner.container(&id).is_ok()
            || inner
                .sandbox(&record.sandbox)
                .is_ok_and(|known| !is_past(&known))
        {
            continue;
        }
        let end = record
            .end
            .clone()
            .unwrap_or_else(|| checkpoint::unknown(record.started_at));
        if note_end(&directory, end.clone()) {
            inner.syncs.soon(directory.clone());
        }
        let sandbox = sandboxes
            .entry(record.sandbox.clone())
            .or_insert_with(|| sandbox(inner, &record));
        inner.insert_sandbox(Arc::clone(sandbox));
        tracing::info!(container = %id, pod = %record.sandbox_config.pod.name, "a container whose sandbox is gone, as after a boot");
        inner.insert_container(Arc::new(Container {
            directory: sandbox
                .directory
                .join(coracle_shim_protocol::layout::CONTAINERS)
                .join(&id.0),
            writable: directory,
            syncs: inner.syncs.clone(),
            id,
            sandbox: Arc::clone(sandbox),
            resources: Mutex::new(record.container.config.resources.clone()),
            checkpoint: record.container,
            state: watch::Sender::new(Some(end)),
        }));
    }
}

/// Whether this sandbox was made in another boot: it holds nothing but records.
pub(super) fn is_past(sandbox: &Sandbox) -> bool {
    sandbox.checkpoint.lock().boot_id.is_empty()
}

fn sandbox(inner: &Inner, record: &Record) -> Arc<Sandbox> {
    let checkpoint = SandboxCheckpoint {
        config: record.sandbox_config.clone(),
        created_at: record.sandbox_created_at,
        state: SandboxState::NotReady,
        complete: true,
        ips: record.ips.clone(),
        shim: None,
        released: true,
        boot_id: String::new(),
    };
    Arc::new(Sandbox {
        id: record.sandbox.clone(),
        directory: inner.sandbox_dir(&record.sandbox),
        checkpoint: Mutex::new(checkpoint),
        client: Mutex::new(None),
        ending: tokio::sync::Mutex::new(()),
    })
}
