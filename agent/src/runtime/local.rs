//! The real runtime: one shim a pod, state on disk under the run directory.
//!
//! This file holds the state in memory. It follows the shims' news; nobody else writes it.
//! `verbs` maps CRI's verbs to the modules that do them.

mod verbs;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    path::{Path, PathBuf},
    sync::{Arc, Weak},
};

use coracle_shim_protocol::Exit;
use parking_lot::Mutex;
use tokio::sync::broadcast;

use super::{
    binaries::Binaries,
    cgroup::Hierarchies,
    checkpoint,
    entries::{Container, Sandbox},
    held_layers,
    oci_spec::Node,
    shim_client::{Listener, ShimClient},
    *,
};
use crate::network::{PodNetwork, PodNetworkRequest};

/// News nobody has fetched: as many changes as 128 pods make at once; who lags relists.
const EVENTS: usize = 512;

/// What [`LocalRuntime::start`] needs.
pub struct RuntimeConfig {
    /// Sandboxes, sockets, pinned namespaces: lost at reboot, as the running containers are.
    pub run_dir: PathBuf,
    /// Writable layers of containers, and what must be known of them after a reboot.
    pub root_dir: PathBuf,
    /// The `coracle-shim` binary; its helper `coracle-oci` lies beside it.
    pub shim_path: PathBuf,
    /// Attaches sandboxes.
    pub network: Arc<dyn PodNetwork>,
    /// Knows the layers.
    pub images: Arc<dyn ImageService>,
    /// Pods that are ended if they run without a record.
    pub own_pods: OwnPods,
}

/// Runs pods on this machine.
pub struct LocalRuntime {
    inner: Arc<Inner>,
    lost_pods: Vec<String>,
}

/// What the verbs work on.
pub(super) struct Inner {
    pub(super) run_dir: PathBuf,
    pub(super) root_dir: PathBuf,
    pub(super) network: Arc<dyn PodNetwork>,
    pub(super) images: Arc<dyn ImageService>,
    pub(super) binaries: Binaries,
    pub(super) hierarchies: Hierarchies,
    pub(super) node: Node,
    pub(super) boot_id: String,
    pub(super) syncs: past::Syncs,
    state: Mutex<State>,
    /// cgroups above those of pods, which stay when they are empty: their weights are not the
    /// kernel's defaults.
    class_cgroups: Mutex<BTreeSet<String>>,
    events: broadcast::Sender<RuntimeEvent>,
    weak: Weak<Inner>,
}

#[derive(Default)]
struct State {
    sandboxes: BTreeMap<SandboxId, Arc<Sandbox>>,
    containers: BTreeMap<ContainerId, Arc<Container>>,
}

impl LocalRuntime {
    /// Seals the shim's binaries in memory, rescans the run directory, reconnects to living shims
    /// and removes what a killed predecessor left half made.
    ///
    /// # Errors
    /// [`RuntimeError::State`] when directories or binaries are unusable.
    pub async fn start(config: RuntimeConfig) -> Result<Arc<Self>, RuntimeError> {
        let state = |operation, path: &Path| {
            let path = path.to_owned();
            move |source| RuntimeError::State {
                operation,
                path,
                source,
            }
        };
        for directory in [
            &config.run_dir.join("sandboxes"),
            &held_layers::holders(&config.root_dir),
        ] {
            make_private(directory).map_err(state("make", directory))?;
        }
        let binaries = Binaries::seal(&config.shim_path)?;
        let hierarchies =
            Hierarchies::detect().map_err(state("read", Path::new("/proc/self/mountinfo")))?;
        let node = Node {
            cgroup_v2: hierarchies.is_v2(),
            min_oom_score_adj: min_oom_score_adj(),
        };
        let inner = Arc::new_cyclic(|weak| Inner {
            run_dir: config.run_dir,
            root_dir: config.root_dir,
            network: config.network,
            images: config.images,
            binaries,
            hierarchies,
            node,
            boot_id: checkpoint::boot_id(),
            syncs: past::Syncs::default(),
            state: Mutex::default(),
            class_cgroups: Mutex::default(),
            events: broadcast::channel(EVENTS).0,
            weak: Weak::clone(weak),
        });
        let lost = recover::recover(&inner, config.own_pods).await;
        let lost_pods = lost.iter().map(|uid| inner.name_of_pod(uid)).collect();
        let recovered: Vec<_> = inner.state.lock().containers.values().cloned().collect();
        // An older agent made no such note itself, and layers without one may be removed while they
        // are mounted.
        for container in recovered {
            held_layers::note(&container.directory, &container.writable);
            if past::is_past(&container.sandbox) {
                held_layers::note_none(&container.writable);
            }
        }
        Ok(Arc::new(Self { inner, lost_pods }))
    }

    /// Pods that ran without a record when this runtime started, and were ended: `namespace/name`,
    /// or the UID of one of which nothing else is known.
    #[must_use]
    pub fn lost_pods(&self) -> &[String] {
        &self.lost_pods
    }

    /// Every sandbox of this boot with records on this node, also those that have ended: they may
    /// hold a network attachment. Those of another boot hold nothing.
    #[must_use]
    pub fn known_sandboxes(&self) -> Vec<SandboxId> {
        let sandboxes = self.inner.sandboxes();
        sandboxes
            .iter()
            .filter(|sandbox| !past::is_past(sandbox))
            .map(|sandbox| sandbox.id.clone())
            .collect()
    }

    /// Whose places in the network those hold, and with which addresses.
    #[must_use]
    pub fn attached(&self) -> Vec<(PodNetworkRequest, Vec<IpAddr>)> {
        let sandboxes = self.inner.sandboxes();
        let attached = sandboxes
            .iter()
            .filter(|sandbox| !past::is_past(sandbox))
            .map(|sandbox| (sandbox.network_request(), sandbox.status().ips));
        attached.filter(|(_, ips)| !ips.is_empty()).collect()
    }
}

/// What this process may not lower the score below: everything, without CAP_SYS_RESOURCE.
fn min_oom_score_adj() -> i32 {
    const CAP_SYS_RESOURCE: u32 = 24;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status
        .lines()
        .find_map(|line| u64::from_str_radix(line.strip_prefix("CapEff:")?.trim(), 16).ok());
    if mask.is_some_and(|mask| mask >> CAP_SYS_RESOURCE & 1 == 1) {
        return -1000;
    }
    std::fs::read_to_string("/proc/self/oom_score_adj")
        .unwrap_or_default()
        .trim()
        .parse()
        .unwrap_or(0)
}

pub(super) fn make_private(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
}

impl Inner {
    /// As what the shim's client takes.
    pub(super) fn listener(&self) -> Weak<dyn Listener> {
        Weak::clone(&self.weak) as Weak<dyn Listener>
    }

    pub(super) fn sandbox_dir(&self, id: &SandboxId) -> PathBuf {
        self.run_dir.join("sandboxes").join(&id.0)
    }

    /// Removes a pod's or a container's cgroup. Blocking.
    pub(super) fn destroy_cgroup(&self, path: &str) -> Result<(), RuntimeError> {
        let kept = self.class_cgroups.lock().clone();
        self.hierarchies.destroy(path, &kept)
    }

    /// Writable layer of a container.
    pub(super) fn writable_dir(&self, id: &ContainerId) -> PathBuf {
        held_layers::holders(&self.root_dir).join(&id.0)
    }

    pub(super) fn sandbox(&self, id: &SandboxId) -> Result<Arc<Sandbox>, RuntimeError> {
        let found = self.state.lock().sandboxes.get(id).cloned();
        found.ok_or_else(|| RuntimeError::NotFound {
            kind: "sandbox",
            id: id.0.clone(),
        })
    }

    pub(super) fn sandboxes(&self) -> Vec<Arc<Sandbox>> {
        self.state.lock().sandboxes.values().cloned().collect()
    }

    /// For people.
    fn name_of_pod(&self, uid: &PodUid) -> String {
        let pods = self.sandboxes().into_iter().map(|sandbox| sandbox.pod());
        let named = pods.into_iter().find(|pod| pod.uid == *uid);
        named.map_or_else(|| uid.to_string(), |pod| pod.to_string())
    }

    pub(super) fn container(&self, id: &ContainerId) -> Result<Arc<Container>, RuntimeError> {
        let found = self.state.lock().containers.get(id).cloned();
        found.ok_or_else(|| RuntimeError::NotFound {
            kind: "container",
            id: id.0.clone(),
        })
    }

    pub(super) fn containers_of(&self, sandbox: &SandboxId) -> Vec<Arc<Container>> {
        self.state
            .lock()
            .containers
            .values()
            .filter(|container| &container.sandbox.id == sandbox)
            .cloned()
            .collect()
    }

    /// Whether another sandbox that has not been stopped has its containers there.
    pub(super) fn cgroup_in_use(&self, path: &str, except: &SandboxId) -> bool {
        self.sandboxes().iter().any(|other| {
            let checkpoint = other.checkpoint.lock();
            &other.id != except
                && checkpoint.config.cgroup_parent == path
                && (checkpoint.state == SandboxState::Ready || !checkpoint.complete)
        })
    }

    pub(super) fn insert_sandbox(&self, sandbox: Arc<Sandbox>) {
        self.state
            .lock()
            .sandboxes
            .insert(sandbox.id.clone(), sandbox);
    }

    pub(super) fn insert_container(&self, container: Arc<Container>) {
        self.state
            .lock()
            .containers
            .insert(container.id.clone(), container);
    }

    pub(super) fn forget_container(&self, id: &ContainerId) {
        self.state.lock().containers.remove(id);
    }

    pub(super) fn forget_sandbox(&self, id: &SandboxId) {
        self.state.lock().sandboxes.remove(id);
    }

    pub(super) fn tell(&self, pod_uid: &PodUid) {
        // Nobody listening is fine.
        let _ = self.events.send(RuntimeEvent {
            pod_uid: pod_uid.clone(),
        });
    }

    /// Marks every container of the sandbox that has not ended: its record if there is one, else
    /// unknown.
    pub(super) fn end_containers(&self, sandbox: &SandboxId) {
        for container in self.containers_of(sandbox) {
            container.end(checkpoint::read_exit(&container.directory).as_ref());
        }
    }
}

impl Listener for Inner {
    fn container_exited(&self, sandbox: &SandboxId, container: &str, exit: &Exit) {
        let Ok(container) = self.container(&ContainerId(container.to_owned())) else {
            return;
        };
        if &container.sandbox.id == sandbox {
            container.end(Some(exit));
            self.tell(&container.sandbox.pod().uid);
        }
    }

    fn shim_closed(&self, sandbox: &SandboxId, client: &Arc<ShimClient>) {
        let Ok(sandbox) = self.sandbox(sandbox) else {
            return;
        };
        {
            let mut current = sandbox.client.lock();
            // A newer connection speaks for the shim.
            if !current
                .as_ref()
                .is_some_and(|current| Arc::ptr_eq(current, client))
            {
                return;
            }
            *current = None;
        }
        let Some(inner) = self.weak.upgrade() else {
            return;
        };
        coracle_telemetry::spawn("take note of a lost shim", async move {
            recover::shim_lost(&inner, &sandbox).await
        });
    }
}
