//! `RemoveContainer`: mounts, cgroup and state by the shim, then writable layer and records. Its
//! log stays.

use std::{sync::Arc, time::Duration};

use coracle_shim_protocol::Request;

use super::{ContainerId, RuntimeError, container_stop, erase, local::Inner, oci_spec};
use crate::blocking::blocking;

const LIMIT: Duration = Duration::from_secs(10);

pub(super) async fn remove(inner: &Arc<Inner>, id: &ContainerId) -> Result<(), RuntimeError> {
    let Ok(container) = inner.container(id) else {
        return Ok(());
    };
    // CRI: a running container is removed by force.
    container_stop::stop(inner, id, Duration::ZERO).await?;
    let client = container.sandbox.client.lock().clone();
    match client {
        Some(client) => {
            let answer = client
                .call(
                    Request::Delete {
                        container: id.0.clone(),
                    },
                    &[],
                    LIMIT,
                )
                .await;
            answer.map_err(|error| {
                client.error("remove container", &container.checkpoint.config.name, error)
            })?;
        }
        // Without a shim there are no mounts; its cgroup is left if the shim was killed.
        None => {
            let path = oci_spec::cgroup_path(&container.sandbox.checkpoint.lock().config, &id.0);
            let inner = Arc::clone(inner);
            blocking(move || inner.destroy_cgroup(&path)).await?;
        }
    }
    erase::erase_container(inner, id, &container.directory).await?;
    inner.forget_container(id);
    inner.tell(&container.sandbox.pod().uid);
    Ok(())
}
