//! Removes what a sandbox or container that has ended left on the disk. In an order that a death in
//! between leaves to be found again.

use std::{path::Path, sync::Arc};

use coracle_shim_protocol::layout;

use super::{ContainerId, RuntimeError, checkpoint, entries::Sandbox, local::Inner};
use crate::{blocking::blocking, removal};

/// Removes directories and forgets; the sandbox has ended. Containers first, the checkpoint with
/// the directory last.
pub(super) async fn erase(inner: &Arc<Inner>, sandbox: &Arc<Sandbox>) -> Result<(), RuntimeError> {
    let containers = checkpoint::subdirectories(&sandbox.directory.join(layout::CONTAINERS));
    for (name, directory) in containers {
        let id = ContainerId(name);
        erase_container(inner, &id, &directory).await?;
        inner.forget_container(&id);
    }
    // Of another boot: their records are all there is.
    for container in inner.containers_of(&sandbox.id) {
        erase_container(inner, &container.id, &container.directory).await?;
        inner.forget_container(&container.id);
    }
    remove_tree(&sandbox.directory).await?;
    inner.forget_sandbox(&sandbox.id);
    Ok(())
}

/// Removes what a container wrote, and its record last: without it nobody would look for the rest.
pub(super) async fn erase_container(
    inner: &Inner,
    id: &ContainerId,
    directory: &Path,
) -> Result<(), RuntimeError> {
    remove_tree(&inner.writable_dir(id)).await?;
    remove_tree(directory).await
}

/// Removes a directory with everything in it; absent is fine.
pub(super) async fn remove_tree(path: &Path) -> Result<(), RuntimeError> {
    let owned = path.to_owned();
    let removed = blocking(move || removal::remove_tree(&owned)).await;
    removed.map_err(|source| RuntimeError::State {
        operation: "remove",
        path: path.to_owned(),
        source,
    })
}
