//! Keeps the cgroups of the QoS classes: how much of the processors a class gets while all want
//! some, and how much of the memory all pods together may take.
//!
//! What each is to have is decided in `container_config::resources` (pure); here it is written,
//! whenever the pods of this node change, when the machine does, and now and then in case somebody
//! else wrote there. Pods do not wait for it: until the next write a new pod has the weight of its
//! own cgroup within that of its class.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use coracle_telemetry::ErrorChain;
use k8s_openapi::api::core::v1::Pod;
use tokio_util::sync::CancellationToken;

use crate::{
    allocation,
    container_config::resources,
    context::NodeContext,
    pod::PodExt,
    runtime::{Resources, RuntimeError},
};

/// How often the machine and the pods' ends are looked at without a change of the pods wanted.
const PAUSE: Duration = Duration::from_secs(10);
/// How often all is written though nothing has changed.
const REWRITE: Duration = Duration::from_secs(60);
/// For one cgroup.
const LIMIT: Duration = Duration::from_secs(5);

/// Reconciles until `shutdown`.
pub(crate) async fn run(ctx: Arc<NodeContext>, shutdown: CancellationToken) {
    let work = async {
        let mut written = Written::default();
        loop {
            written.reconcile(&ctx).await;
            // A change that comes while this is written wakes the next turn.
            let _ = tokio::time::timeout(PAUSE, ctx.pods_changed.notified()).await;
        }
    };
    let _ = shutdown.run_until_cancelled(work).await;
}

/// What has been written, and when all of it was.
#[derive(Default)]
struct Written {
    classes: BTreeMap<String, Resources>,
    at: Option<tokio::time::Instant>,
}

impl Written {
    async fn reconcile(&mut self, ctx: &NodeContext) {
        if self.at.is_none_or(|at| at.elapsed() >= REWRITE) {
            self.classes.clear();
            self.at = Some(tokio::time::Instant::now());
        }
        let wanted = wanted(ctx);
        for (path, resources) in wanted {
            if self.classes.get(&path) == Some(&resources) {
                continue;
            }
            match write(ctx, &path, &resources).await {
                Ok(()) => drop(self.classes.insert(path, resources)),
                Err(error) => {
                    tracing::warn!(cgroup = path, error = %ErrorChain(&error), "cannot write the limits of a class of pods");
                }
            }
        }
    }
}

fn wanted(ctx: &NodeContext) -> [(String, Resources); 3] {
    let pods = ctx.pods.read().clone();
    let held: Vec<Arc<Pod>> = pods
        .into_iter()
        .filter(|pod| !ctx.has_finished(pod))
        .map(|pod| {
            let known = ctx.status.get(&pod.uid());
            let known = known.as_ref().unwrap_or_else(|| pod.status_or_default());
            allocation::held(&pod, known).map_or_else(|| Arc::clone(&pod), Arc::new)
        })
        .collect();
    resources::of_classes(
        &ctx.config.cgroup_root,
        ctx.machine.pods_share(),
        held.iter().map(Arc::as_ref),
    )
}

async fn write(ctx: &NodeContext, path: &str, resources: &Resources) -> Result<(), RuntimeError> {
    match tokio::time::timeout(LIMIT, ctx.runtime.update_class_cgroup(path, resources)).await {
        Ok(result) => result,
        Err(_) => Err(RuntimeError::Timeout {
            operation: format!("write the limits of cgroup {path}"),
            limit: LIMIT,
        }),
    }
}
