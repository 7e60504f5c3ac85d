//! `UpdateContainerResources`: other limits for a container that runs.

use std::sync::Arc;

use super::{
    ContainerConfig, ContainerId, Resources, RuntimeError, checkpoint, local::Inner, oci_spec,
};
use crate::blocking::blocking;

pub(super) async fn update(
    inner: &Arc<Inner>,
    id: &ContainerId,
    resources: &Resources,
) -> Result<(), RuntimeError> {
    let container = inner.container(id)?;
    if container.has_exited() {
        return Ok(());
    }
    let (inner, resources) = (Arc::clone(inner), resources.clone());
    let work = move || {
        let path =
            oci_spec::cgroup_path(&container.sandbox.checkpoint.lock().config, &container.id.0);
        inner.hierarchies.update(&path, &resources)?;
        let mut current = container.resources.lock();
        // These stay what they were when it was made.
        let (pids_limit, oom_score_adj) = (current.pids_limit, current.oom_score_adj);
        *current = Resources {
            pids_limit,
            oom_score_adj,
            ..resources
        };
        let mut checkpoint = container.checkpoint.clone();
        checkpoint.config = ContainerConfig {
            resources: current.clone(),
            ..checkpoint.config
        };
        checkpoint::write_container(&container.directory, &checkpoint)
    };
    blocking(work).await
}
