//! Takes pods down, one after the other, while the node is short of something that they use.
//!
//! A full disk is met with images that nobody uses and with containers of finished pods first. Who
//! goes is decided in [`super::ranking`]; the pod's worker stops it and reports it as Failed, and
//! its object stays for people to look at. Thresholds are hard ones: nobody is waited for.
//!
//! Source: `pkg/kubelet/eviction/eviction_manager.go` at v1.37.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use k8s_openapi::api::core::v1::{Container, Pod};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{
    Pressure, Shortage,
    ranking::{self, Candidate, EVICTED, Resource, Share},
    signals,
    usage::Usage,
};
use crate::{
    blocking::blocking,
    container_config::resources,
    context::NodeContext,
    events::EventType,
    gc::{self, Collector},
    pod::{PodExt, is_final},
    runtime::types::{ContainerStatus, PodUid},
    status_reason::StatusReason,
};

/// In a pod's directory: where parts of volumes are mounted.
const SUB_PATHS: &str = "volume-subpaths";
/// An evicted pod has this long to end before the next one is looked for.
const END_LIMIT: Duration = Duration::from_secs(30);
const END_PAUSE: Duration = Duration::from_millis(100);

/// A pod that has to go.
pub(crate) struct Eviction {
    pub(crate) uid: PodUid,
    pub(crate) why: StatusReason,
}

/// Looks until `shutdown`; `evictions` leads to the pods' workers.
pub(crate) async fn run(
    ctx: Arc<NodeContext>,
    collector: Collector,
    evictions: mpsc::Sender<Eviction>,
    shutdown: CancellationToken,
) {
    let manager = Manager {
        ctx,
        collector,
        evictions,
    };
    let work = async {
        loop {
            match manager.relieve().await {
                Some(evicted) => manager.wait_for_end(&evicted).await,
                None => tokio::time::sleep(manager.ctx.config.eviction_interval).await,
            }
        }
    };
    let _ = shutdown.run_until_cancelled(work).await;
}

struct Manager {
    ctx: Arc<NodeContext>,
    collector: Collector,
    evictions: mpsc::Sender<Eviction>,
}

impl Manager {
    /// One step; the pod that was evicted, if that was the step.
    async fn relieve(&self) -> Option<PodUid> {
        let mut shortage = self.shortages().await.into_iter().next()?;
        if shortage.supply.signal.pressure() == Pressure::Disk {
            let ctx = &self.ctx;
            let pods = ctx.pods.read().clone();
            let (finished, others): (Vec<_>, Vec<_>) =
                pods.into_iter().partition(|pod| ctx.has_finished(pod));
            gc::reclaim(&self.collector, &finished, &others).await;
            let same = |one: &Shortage| one.supply.signal == shortage.supply.signal;
            shortage = self.shortages().await.into_iter().find(same)?;
        }
        let resource = Resource::of(shortage.supply.signal);
        let mut candidates = self.candidates(resource).await;
        ranking::rank(resource, &mut candidates);
        let Some(victim) = candidates
            .into_iter()
            .find(|one| !ranking::is_critical(&one.pod))
        else {
            tracing::warn!(%resource, "the node is short of it, and there is no pod to evict");
            return None;
        };
        let message = ranking::message(&shortage, &victim);
        tracing::warn!(pod = %victim.pod.display(), message, "evict a pod");
        self.ctx.events.pod(
            &victim.pod,
            None,
            EventType::Warning,
            EVICTED,
            message.clone(),
        );
        let why = StatusReason::new(EVICTED, message);
        let uid = victim.pod.uid();
        // The receiver only goes away when the agent stops.
        self.evictions
            .send(Eviction {
                uid: uid.clone(),
                why,
            })
            .await
            .ok()
            .map(|()| uid)
    }

    /// Memory first, as it runs out fastest.
    async fn shortages(&self) -> Vec<Shortage> {
        let thresholds = self.ctx.config.eviction_hard.clone();
        let dir = self.ctx.config.agent_dir();
        let look =
            move || thresholds.met(&signals::observe(&dir.join("pods"), &dir.join("images")));
        let mut found = blocking(look).await;
        found.sort_by_key(|shortage| shortage.supply.signal);
        found
    }

    /// Pods that run and have been reported, with what they use.
    async fn candidates(&self, resource: Resource) -> Vec<Candidate> {
        let pods = self.ctx.pods.read().clone();
        let mut candidates = Vec::new();
        let stays = |pod: &Arc<Pod>| !pod.is_deleting() && !self.ctx.has_finished(pod);
        for pod in pods
            .into_iter()
            .filter(|pod| stays(pod) && self.ctx.status.get(&pod.uid()).is_some())
        {
            let Ok((_, containers)) = self.ctx.runtime.pod_state(&pod.uid()).await else {
                continue;
            };
            let mut shares = Vec::with_capacity(containers.len());
            for status in &containers {
                let container = pod.container(&status.name);
                let (used, requested) = (
                    self.used(resource, status).await,
                    container.map_or(0, |one| asked(resource, one)),
                );
                shares.push(Share {
                    container: status.name.clone(),
                    used,
                    requested,
                });
            }
            let shared = self.shared(resource, &pod).await;
            candidates.push(Candidate {
                requested: asked_by(resource, &pod),
                pod,
                containers: shares,
                shared,
            });
        }
        candidates
    }

    async fn used(&self, resource: Resource, status: &ContainerStatus) -> u64 {
        match resource {
            Resource::Memory | Resource::Pids => {
                let stats = self
                    .ctx
                    .runtime
                    .container_stats(&status.id)
                    .await
                    .unwrap_or_default();
                if resource == Resource::Memory {
                    stats.memory_working_set_bytes
                } else {
                    stats.processes
                }
            }
            Resource::EphemeralStorage | Resource::Inodes => {
                let logs = status.log_path.parent().map(PathBuf::from);
                let layer = self.ctx.runtime.writable_layer(&status.id).await.ok();
                of_directories(resource, move || layer.into_iter().chain(logs).collect()).await
            }
        }
    }

    /// What its volumes on the disk take, and the files that the node makes for it, which its
    /// containers can write to.
    async fn shared(&self, resource: Resource, pod: &Pod) -> u64 {
        match resource {
            Resource::Memory | Resource::Pids => 0,
            Resource::EphemeralStorage | Resource::Inodes => {
                let dir = self.ctx.volumes.pod_dir(&pod.uid());
                of_directories(resource, move || of_pod(&dir)).await
            }
        }
    }

    /// Until its worker has told that nothing of it is left but its records.
    async fn wait_for_end(&self, uid: &PodUid) {
        let ended = async {
            while self
                .ctx
                .status
                .get(uid)
                .is_some_and(|status| !is_final(&status))
            {
                tokio::time::sleep(END_PAUSE).await;
            }
        };
        if tokio::time::timeout(END_LIMIT, ended).await.is_err() {
            tracing::warn!(%uid, "an evicted pod does not end");
        }
    }
}

/// All that a pod's directory holds but the places where parts of volumes are mounted: they are
/// counted with their volume, or are not the pod's.
fn of_pod(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_name() != SUB_PATHS)
        .map(|entry| entry.path())
        .collect()
}

fn asked(resource: Resource, container: &Container) -> u64 {
    match resource {
        Resource::Memory => resources::request(container, "memory"),
        Resource::EphemeralStorage => resources::request(container, "ephemeral-storage"),
        Resource::Inodes | Resource::Pids => 0,
    }
}

fn asked_by(resource: Resource, pod: &Pod) -> u64 {
    match resource {
        Resource::Memory => u64::try_from(resources::pod_amounts(pod).memory_request).unwrap_or(0),
        _ => pod
            .containers()
            .iter()
            .map(|container| asked(resource, container))
            .sum(),
    }
}

async fn of_directories(
    resource: Resource,
    directories: impl FnOnce() -> Vec<PathBuf> + Send + 'static,
) -> u64 {
    let work = move || {
        directories()
            .iter()
            .map(|directory| Usage::of(directory))
            .fold(Usage::default(), Usage::plus)
    };
    let usage = blocking(work).await;
    if resource == Resource::Inodes {
        usage.inodes
    } else {
        usage.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_containers_write_into_the_nodes_files_counts() {
        let dir = tempfile::tempdir().expect("directory");
        for part in ["volumes/v", "containers/c", "volume-subpaths/v"] {
            std::fs::create_dir_all(dir.path().join(part)).expect("directory");
            std::fs::write(dir.path().join(part).join("file"), vec![1; 4096]).expect("file");
        }
        std::fs::write(dir.path().join("etc-hosts"), vec![1; 1 << 20]).expect("file");
        let mut counted: Vec<_> = of_pod(dir.path())
            .iter()
            .map(|path| path.strip_prefix(dir.path()).expect("below").to_owned())
            .collect();
        counted.sort();
        assert_eq!(
            counted,
            ["containers", "etc-hosts", "volumes"].map(PathBuf::from)
        );
        let bytes = of_pod(dir.path())
            .iter()
            .map(|path| Usage::of(path))
            .fold(Usage::default(), Usage::plus)
            .bytes;
        assert!((1 << 20..2 << 20).contains(&bytes), "{bytes}");
    }
}
