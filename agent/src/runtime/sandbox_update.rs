//! `UpdatePodSandboxResources`: other limits for all containers of a pod together.

use std::sync::Arc;

use super::{Resources, RuntimeError, SandboxId, local::Inner};
use crate::blocking::blocking;

pub(super) async fn update(
    inner: &Arc<Inner>,
    id: &SandboxId,
    resources: &Resources,
) -> Result<(), RuntimeError> {
    let sandbox = inner.sandbox(id)?;
    let (inner, resources) = (Arc::clone(inner), resources.clone());
    let work = move || {
        let path = sandbox.checkpoint.lock().config.cgroup_parent.clone();
        inner.hierarchies.update(&path, &resources)?;
        sandbox.update(|checkpoint| {
            let current = &mut checkpoint.config.resources;
            // It stays what it was when the sandbox was made.
            *current = Resources {
                pids_limit: current.pids_limit,
                ..resources
            };
        })
    };
    blocking(work).await
}
