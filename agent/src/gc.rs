//! Garbage collection: images by disk use, logs and directories of what is gone.
//!
//! Dead containers are kept one a name and removed by their pod's worker; here is what belongs to
//! no worker.

use std::{
    collections::{HashMap, HashSet},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use coracle_telemetry::ErrorChain;
use k8s_openapi::api::core::v1::Pod;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{
    blocking::blocking,
    pod::PodExt,
    removal,
    runtime::{
        Image, ImageError, ImageService, RuntimeError, RuntimeService,
        types::{ContainerId, ContainerState, ContainerStatus, PodUid},
    },
};

/// As often as upstream looks.
const INTERVAL: Duration = Duration::from_secs(300);
/// Collection begins above this use of the disk, in per cent...
const HIGH: u64 = 85;
/// ...and goes down to this.
const LOW: u64 = 80;
/// Images are kept at least this long after they were seen first.
const MIN_AGE: Duration = Duration::from_secs(120);

/// Collects what belongs to no pod's worker.
#[derive(Clone)]
pub(crate) struct Collector {
    images: Arc<dyn ImageService>,
    runtime: Arc<dyn RuntimeService>,
    /// On the disk that must not fill up.
    dir: PathBuf,
}

impl Collector {
    /// For the disk that `dir` is on.
    pub(crate) fn new(
        images: &Arc<dyn ImageService>,
        runtime: &Arc<dyn RuntimeService>,
        dir: PathBuf,
    ) -> Self {
        Self {
            images: Arc::clone(images),
            runtime: Arc::clone(runtime),
            dir,
        }
    }
}

/// Collects until `shutdown`.
pub(crate) async fn run(node: Collector, shutdown: CancellationToken) {
    let mut used: HashMap<String, LastUse> = HashMap::new();
    loop {
        if let Err(error) = collect_images(&node, &mut used).await {
            tracing::warn!(error = %ErrorChain(&error), "cannot collect unused images");
        }
        // What was under a container when its image went.
        if let Err(error) = node.images.prune().await {
            tracing::warn!(error = %ErrorChain(&error), "cannot remove layers that nobody needs");
        }
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = tokio::time::sleep(INTERVAL) => {}
        }
    }
}

/// Why something that nobody needs is still there.
#[derive(Debug, thiserror::Error)]
enum CollectError {
    #[error("list the images")]
    Images { source: ImageError },
    #[error("list the containers")]
    Containers { source: RuntimeError },
    #[error("list the containers of pod {}", .pod.0)]
    Pod { pod: PodUid, source: RuntimeError },
    #[error("remove container {}", .container.0)]
    Container {
        container: ContainerId,
        source: RuntimeError,
    },
    #[error("remove image {image}")]
    Image { image: String, source: ImageError },
}

/// What could not be removed. One of them keeps nothing else: the first is for the caller, all
/// others are logged as they come.
#[derive(Default)]
struct Failures(Option<CollectError>);

impl Failures {
    fn note(&mut self, error: CollectError) {
        if self.0.is_some() {
            tracing::warn!(error = %ErrorChain(&error), "cannot remove what nobody needs");
        } else {
            self.0 = Some(error);
        }
    }

    fn first(self) -> Result<(), CollectError> {
        self.0.map_or(Ok(()), Err)
    }
}

impl Collector {
    async fn list_images(&self) -> Result<Vec<Image>, CollectError> {
        let listed = self.images.list_images().await;
        listed.map_err(|source| CollectError::Images { source })
    }

    async fn list_containers(&self) -> Result<Vec<ContainerStatus>, CollectError> {
        let listed = self.runtime.list_containers().await;
        listed.map_err(|source| CollectError::Containers { source })
    }

    /// Removes images until so many bytes are free or none is left. How many bytes that were.
    async fn remove_images(
        &self,
        unused: &[&Image],
        goal: u64,
        why: &'static str,
        failures: &mut Failures,
    ) -> u64 {
        let mut freed = 0;
        for Image { id, size_bytes, .. } in unused {
            if freed >= goal {
                break;
            }
            tracing::info!(
                image = id,
                bytes = size_bytes,
                why,
                "remove an unused image"
            );
            match self.images.remove_image(id).await {
                Ok(()) => freed += size_bytes,
                Err(source) => failures.note(CollectError::Image {
                    image: id.clone(),
                    source,
                }),
            }
        }
        freed
    }
}

struct LastUse {
    first_seen: Instant,
    last_used: Option<Instant>,
}

async fn collect_images(
    node: &Collector,
    used: &mut HashMap<String, LastUse>,
) -> Result<(), CollectError> {
    let images = node.list_images().await?;
    let containers = node.list_containers().await?;
    let now = Instant::now();
    used.retain(|id, _| images.iter().any(|image| image.id == *id));
    for image in &images {
        let entry = used.entry(image.id.clone()).or_insert(LastUse {
            first_seen: now,
            last_used: None,
        });
        if is_used(image, &containers) {
            entry.last_used = Some(now);
        }
    }
    let dir = node.dir.clone();
    let Some((total, free)) = blocking(move || disk(&dir)).await else {
        return Ok(());
    };
    let goal = bytes_to_free(total, free);
    if goal == 0 {
        return Ok(());
    }
    // A young one may have been pulled for a container that is still to come.
    let mut candidates: Vec<&Image> = images
        .iter()
        .filter(|image| {
            !is_used(image, &containers)
                && used
                    .get(&image.id)
                    .is_some_and(|entry| entry.first_seen.elapsed() >= MIN_AGE)
        })
        .collect();
    // As upstream: the least recently used first; of those that never were, the oldest.
    candidates.sort_by_key(|image| {
        used.get(&image.id)
            .map(|entry| (entry.last_used, entry.first_seen))
    });
    let mut failures = Failures::default();
    let freed = node
        .remove_images(&candidates, goal, "the disk is nearly full", &mut failures)
        .await;
    if freed < goal {
        tracing::warn!(
            goal,
            freed,
            "the disk is nearly full, and too few images are unused"
        );
    }
    failures.first()
}

fn is_used(image: &Image, containers: &[ContainerStatus]) -> bool {
    containers
        .iter()
        .any(|container| container.image_id == image.id)
}

/// Frees what it can of the disk without touching a pod that runs: containers of `finished` pods,
/// then all images that none of the `others` needs. Failures are logged: the next look tries again.
pub(crate) async fn reclaim(node: &Collector, finished: &[Arc<Pod>], others: &[Arc<Pod>]) {
    if let Err(error) = try_reclaim(node, finished, others).await {
        tracing::warn!(error = %ErrorChain(&error), "cannot free the disk of what is not needed");
    }
}

async fn try_reclaim(
    node: &Collector,
    finished: &[Arc<Pod>],
    others: &[Arc<Pod>],
) -> Result<(), CollectError> {
    let mut failures = Failures::default();
    for pod in finished {
        remove_ended(node, pod, &mut failures).await;
    }
    let containers = node.list_containers().await?;
    let awaited = awaited(node.images.as_ref(), others).await;
    let unused = |image: &&Image| !is_used(image, &containers) && !awaited.contains(&image.id);
    let images = node.list_images().await?;
    let unused: Vec<&Image> = images.iter().filter(unused).collect();
    let _freed = node
        .remove_images(
            &unused,
            u64::MAX,
            "the node is short of disk",
            &mut failures,
        )
        .await;
    failures.first()
}

/// The containers of a finished pod.
async fn remove_ended(node: &Collector, pod: &Pod, failures: &mut Failures) {
    let containers = match node.runtime.pod_state(&pod.uid()).await {
        Ok((_, containers)) => containers,
        Err(source) => {
            let pod = pod.uid();
            return failures.note(CollectError::Pod { pod, source });
        }
    };
    for ContainerStatus { id, state, .. } in containers {
        if matches!(state, ContainerState::Exited { .. })
            && let Err(source) = node.runtime.remove_container(&id).await
        {
            let container = id;
            failures.note(CollectError::Container { container, source });
        }
    }
}

/// IDs of the images that pods on this node name: their containers may be about to start, and would
/// only pull them again.
async fn awaited(images: &dyn ImageService, pods: &[Arc<Pod>]) -> HashSet<String> {
    let mut found = HashSet::new();
    for pod in pods.iter().filter(|pod| !pod.is_deleting()) {
        for reference in pod
            .all_containers()
            .filter_map(|container| container.image.as_deref())
        {
            if let Ok(Some(image)) = images.image_status(reference).await {
                found.insert(image.id);
            }
        }
    }
    found
}

/// How much must go, if the disk is too full.
fn bytes_to_free(total: u64, free: u64) -> u64 {
    let used = total.saturating_sub(free);
    if total == 0 || used < total / 100 * HIGH {
        return 0;
    }
    used.saturating_sub(total / 100 * LOW)
}

/// Size and free bytes of the disk.
fn disk(dir: &Path) -> Option<(u64, u64)> {
    let stat = nix::sys::statvfs::statvfs(dir).ok()?;
    Some((
        stat.blocks() * stat.fragment_size(),
        stat.blocks_available() * stat.fragment_size(),
    ))
}

/// Removes directory trees; failures are logged, never fatal.
pub(crate) async fn remove_dirs(dirs: impl IntoIterator<Item = PathBuf> + Send + 'static) {
    let work = move || {
        for dir in dirs {
            if let Err(error) = removal::remove_tree(&dir) {
                tracing::warn!(dir = %dir.display(), error = %ErrorChain(&error), "cannot remove a pod's directory");
            }
        }
    };
    // A panic in there has been printed; nothing depends on the result.
    let _ = tokio::task::spawn_blocking(work).await;
}

/// Removes the log of one container instance, rotated parts included.
pub(crate) async fn remove_container_logs(log: &Path) {
    let log = log.to_owned();
    let work = move || {
        let Some((dir, name)) = log
            .parent()
            .zip(log.file_name().and_then(|name| name.to_str()))
        else {
            return;
        };
        let Ok(entries) = std::fs::read_dir(dir) else {
            return;
        };
        for entry in entries.flatten() {
            if entry
                .file_name()
                .to_str()
                .is_some_and(|found| found == name || found.starts_with(&format!("{name}.")))
            {
                let _ = std::fs::remove_file(entry.path());
            }
        }
    };
    let _ = tokio::task::spawn_blocking(work).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::fake::{FakeImages, FakeRuntime};

    #[tokio::test]
    async fn an_image_that_cannot_be_removed_keeps_no_other() {
        let images = Arc::new(FakeImages::default());
        for name in ["broken:1", "good:1", "broken:2", "good:2"] {
            images.store(name);
        }
        images.keep("sha256:broken:1");
        images.keep("sha256:broken:2");
        let (service, runtime): (Arc<dyn ImageService>, Arc<dyn RuntimeService>) =
            (images.clone(), Arc::new(FakeRuntime::new()));
        let node = Collector::new(&service, &runtime, PathBuf::new());
        let error = try_reclaim(&node, &[], &[]).await.expect_err("two stay");
        assert_eq!(error.to_string(), "remove image sha256:broken:1");
        let left = service.list_images().await.expect("images");
        let left: Vec<&str> = left.iter().map(|image| image.id.as_str()).collect();
        assert_eq!(left, ["sha256:broken:1", "sha256:broken:2"]);
    }

    #[test]
    fn collection_goes_from_the_high_to_the_low_mark() {
        let cases = [
            ((0, 0), 0),
            ((1000, 500), 0),
            ((1000, 151), 0),
            ((1000, 150), 50),
            ((1000, 0), 200),
        ];
        for ((total, free), expected) in cases {
            assert_eq!(bytes_to_free(total, free), expected, "{total} {free}");
        }
    }
}
