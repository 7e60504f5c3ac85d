//! Scratch directories that live as long as their pod, on disk or in memory.

use std::{os::unix::fs::PermissionsExt, path::PathBuf, sync::Arc};

use k8s_openapi::api::core::v1::EmptyDirVolumeSource;

use super::{KindError, Mounter, blocking, make_dir, ownership};
use crate::quantity;

/// Everyone may write: upstream's mode for emptyDir.
const MODE: u32 = 0o777;

pub(super) async fn ensure(
    dir: PathBuf,
    source: &EmptyDirVolumeSource,
    fs_group: Option<i64>,
    mounter: Arc<dyn Mounter>,
) -> Result<PathBuf, KindError> {
    let memory = source.medium.as_deref() == Some("Memory");
    let size = source
        .size_limit
        .as_ref()
        .and_then(|limit| u64::try_from(quantity::value(&limit.0)).ok())
        .filter(|&size| size > 0);
    blocking(move || {
        let fresh = !dir.is_dir();
        make_dir(&dir)?;
        let mount = memory && !mounter.is_mount_point(&dir);
        if mount {
            mounter.mount_tmpfs(&dir, size).map_err(KindError::io("mount tmpfs on", &dir))?;
        }
        if fresh || mount {
            std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(MODE))
                .map_err(KindError::io("set the mode of", &dir))?;
            if let Some(group) = fs_group {
                ownership::set_group(&dir, group, false)?;
            }
        }
        Ok(dir)
    })
    .await
}
