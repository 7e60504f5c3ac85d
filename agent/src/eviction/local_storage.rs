//! Takes down pods that use more of the node's disk than they said they would, whether the node is
//! short of it or not.
//!
//! Three limits, each by itself: `emptyDir.sizeLimit` of a volume, `limits.ephemeral-storage` of
//! the pod and of a container. Only pods that have one are measured, one after the other and apart
//! from the rest of eviction: counting files may take long, and must hold up nobody.
//!
//! Source: `localStorageEviction` in `pkg/kubelet/eviction/eviction_manager.go` at v1.37.

use std::{
    collections::{BTreeMap, HashSet},
    path::PathBuf,
    sync::Arc,
};

use coracle_api::quantity::Quantity;
use k8s_openapi::api::core::v1::Pod;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{
    manager::Eviction,
    ranking::{self, EVICTED},
    usage::Usage,
};
use crate::{
    container_config::resources, context::NodeContext, events::EventType, pod::PodExt,
    runtime::types::PodUid, status_reason::StatusReason,
};

/// So many times as long as the counting took nothing is counted.
const IDLE_SHARE: u32 = 10;

/// Looks until `shutdown`; `evictions` leads to the pods' workers.
pub(crate) async fn run(
    ctx: Arc<NodeContext>,
    evictions: mpsc::Sender<Eviction>,
    shutdown: CancellationToken,
) {
    let work = async {
        let mut told: HashSet<PodUid> = HashSet::new();
        loop {
            let began = tokio::time::Instant::now();
            let pods = ctx.pods.read().clone();
            told.retain(|uid| pods.iter().any(|pod| pod.uid() == *uid));
            for pod in pods
                .iter()
                .filter(|pod| has_limit(pod) && !pod.is_deleting() && !ctx.has_finished(pod))
            {
                if told.contains(&pod.uid()) || ranking::is_critical(pod) {
                    continue;
                }
                let Some(message) = exceeded(pod, &measure(&ctx, pod).await) else {
                    continue;
                };
                tracing::warn!(pod = %pod.display(), message, "evict a pod");
                ctx.events
                    .pod(pod, None, EventType::Warning, EVICTED, message.clone());
                let why = StatusReason::new(EVICTED, message);
                told.insert(pod.uid());
                // The receiver only goes away when the agent stops.
                if evictions
                    .send(Eviction {
                        uid: pod.uid(),
                        why,
                    })
                    .await
                    .is_err()
                {
                    return;
                }
            }
            // Many files take long to count: most of the time none are.
            tokio::time::sleep(
                ctx.config
                    .eviction_interval
                    .max(began.elapsed() * IDLE_SHARE),
            )
            .await;
        }
    };
    let _ = shutdown.run_until_cancelled(work).await;
}

/// Bytes on disk.
#[derive(Debug, Default)]
struct Measured {
    /// Of each `emptyDir`, by name.
    volumes: BTreeMap<String, u64>,
    /// Of each container: what it wrote over its image, and its log.
    containers: BTreeMap<String, u64>,
    /// Of all volumes on the disk, what is no emptyDir among them.
    shared: u64,
}

impl Measured {
    fn total(&self) -> u64 {
        self.containers
            .values()
            .fold(self.shared, |sum, used| sum.saturating_add(*used))
    }
}

fn has_limit(pod: &Pod) -> bool {
    let mut volumes = pod.spec_or_default().volumes.iter().flatten();
    let mut limits = pod
        .all_containers()
        .filter_map(|one| resources::limit(one, "ephemeral-storage"));
    volumes.any(|volume| {
        volume
            .empty_dir
            .as_ref()
            .is_some_and(|dir| dir.size_limit.is_some())
    }) || limits.next().is_some()
}

async fn measure(ctx: &NodeContext, pod: &Pod) -> Measured {
    let uid = pod.uid();
    let (_, statuses) = ctx.runtime.pod_state(&uid).await.unwrap_or_default();
    let mut containers: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    for status in &statuses {
        let directories = containers.entry(status.name.clone()).or_default();
        directories.extend(ctx.runtime.writable_layer(&status.id).await.ok());
        directories.extend(status.log_path.parent().map(PathBuf::from));
        // The logs of all instances are in one directory.
        directories.sort();
        directories.dedup();
    }
    let named = |volume: &k8s_openapi::api::core::v1::Volume| {
        volume.empty_dir.as_ref().map(|_| {
            (
                volume.name.clone(),
                ctx.volumes.empty_dir(&uid, &volume.name),
            )
        })
    };
    let volumes: Vec<(String, PathBuf)> = pod
        .spec_or_default()
        .volumes
        .iter()
        .flatten()
        .filter_map(named)
        .collect();
    let shared = ctx.volumes.pod_dir(&uid).join("volumes");
    let work = move || Measured {
        volumes: volumes
            .into_iter()
            .map(|(name, dir)| (name, Usage::of(&dir).bytes))
            .collect(),
        containers: containers
            .into_iter()
            .map(|(name, dirs)| (name, dirs.iter().map(|dir| Usage::of(dir).bytes).sum()))
            .collect(),
        shared: Usage::of(&shared).bytes,
    };
    tokio::task::spawn_blocking(work).await.unwrap_or_default()
}

/// What the pod is told when it uses more than it may, in upstream's words.
fn exceeded(pod: &Pod, measured: &Measured) -> Option<String> {
    let above = |used: u64, limit: Quantity| {
        !limit.is_negative() && !limit.is_zero() && i128::from(used) > i128::from(limit.value())
    };
    for volume in pod.spec_or_default().volumes.iter().flatten() {
        let limit = volume
            .empty_dir
            .as_ref()
            .and_then(|dir| dir.size_limit.as_ref());
        let Some(limit) = limit.and_then(|limit| Quantity::parse(&limit.0).ok()) else {
            continue;
        };
        if above(
            measured.volumes.get(&volume.name).copied().unwrap_or(0),
            limit,
        ) {
            return Some(format!(
                "Usage of EmptyDir volume {:?} exceeds the limit \"{limit}\". ",
                volume.name
            ));
        }
    }
    if let Some(limit) = resources::pod_limit(pod, "ephemeral-storage")
        && above(measured.total(), limit)
    {
        return Some(format!(
            "Pod ephemeral local storage usage exceeds the total limit of containers {limit}. "
        ));
    }
    pod.all_containers().find_map(|container| {
        let limit = resources::limit(container, "ephemeral-storage")?;
        let used = measured
            .containers
            .get(&container.name)
            .copied()
            .unwrap_or(0);
        let name = &container.name;
        above(used, limit).then(|| {
            format!("Container {name} exceeded its local ephemeral storage limit \"{limit}\". ")
        })
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const MIB: u64 = 1 << 20;

    fn pod(spec: Value) -> Pod {
        serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": spec})).expect("pod")
    }

    fn measured(volume: u64, container: u64) -> Measured {
        Measured {
            volumes: [("v".to_owned(), volume)].into(),
            containers: [("a".to_owned(), container)].into(),
            shared: volume,
        }
    }

    #[test]
    fn each_limit_is_held_by_itself() {
        let limits = |limit: &str| json!({"limits": {"ephemeral-storage": limit}});
        let two = json!([{"name": "a", "resources": limits("1Mi")}, {"name": "b", "resources": limits("3Mi")}]);
        let volume = json!([{"name": "v", "emptyDir": {"sizeLimit": "1Mi"}}]);
        let plain = json!([{"name": "v", "emptyDir": {}}]);
        let one = json!([{"name": "a", "resources": limits("2Mi")}]);
        let cases = [
            (
                json!({"containers": [{"name": "a"}], "volumes": volume}),
                (MIB, 9 * MIB),
                None,
            ),
            (
                json!({"containers": [{"name": "a"}], "volumes": volume}),
                (MIB + 1, 0),
                Some("Usage of EmptyDir volume \"v\" exceeds the limit \"1Mi\". "),
            ),
            (
                json!({"containers": two, "volumes": plain}),
                (3 * MIB, MIB),
                None,
            ),
            (
                json!({"containers": two, "volumes": plain}),
                (4 * MIB, 1),
                Some(
                    "Pod ephemeral local storage usage exceeds the total limit of containers 4Mi. ",
                ),
            ),
            (
                json!({"containers": two, "volumes": plain}),
                (MIB, 2 * MIB),
                Some("Container a exceeded its local ephemeral storage limit \"1Mi\". "),
            ),
            (
                json!({"containers": one, "volumes": plain}),
                (MIB, MIB + 1),
                Some(
                    "Pod ephemeral local storage usage exceeds the total limit of containers 2Mi. ",
                ),
            ),
        ];
        for (spec, (volume, container), expected) in cases {
            let pod = pod(spec.clone());
            assert!(has_limit(&pod));
            assert_eq!(
                exceeded(&pod, &measured(volume, container)).as_deref(),
                expected,
                "{spec}"
            );
        }
        assert!(!has_limit(&pod(
            json!({"containers": [{"name": "a"}], "volumes": plain})
        )));
    }
}
