//! Scratch directories that live as long as their pod, on disk or in memory.
//!
//! A directory appears with its final mode and group: it is made beside its place and renamed, or
//! mounted so. The node does not touch it again, because its mode is its users' to change.

use std::{
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{EmptyDirVolumeSource, Pod};

use super::{
    error::VolumePluginError,
    make_dir,
    mounter::{Mounter, Tmpfs},
    ownership,
    plugin::{SetUp, Source, VolumePlugin},
    remove_tree,
};
use crate::{blocking::blocking, container_config::resources, node::facts::Machine, quantity};

/// What its volumes' directories are called after.
pub(super) const NAME: &str = "empty-dir";
/// Everyone may write: upstream's mode for emptyDir.
const MODE: u32 = 0o777;
/// The same with the group's bits.
const GROUP_MODE: u32 = 0o2777;

/// The plugin.
pub(super) struct EmptyDir {
    pub(super) mounter: Arc<dyn Mounter>,
    pub(super) machine: Arc<Machine>,
}

#[async_trait]
impl VolumePlugin for EmptyDir {
    fn name(&self) -> &'static str {
        NAME
    }

    fn supports(&self, source: Source<'_>) -> bool {
        matches!(source, Source::Inline(volume) if volume.empty_dir.is_some())
    }

    async fn set_up(&self, wanted: &SetUp<'_>) -> Result<PathBuf, VolumePluginError> {
        let source = wanted
            .inline()
            .and_then(|volume| volume.empty_dir.as_ref())
            .ok_or(VolumePluginError::Unsupported)?;
        let fs_group = wanted.fs_group();
        let group = fs_group.and_then(|group| u32::try_from(group).ok());
        let memory = match source.medium.as_deref() {
            None | Some("") => None,
            Some("Memory") => Some(memory_size(
                wanted.pod,
                source,
                self.machine.allocatable().memory_bytes,
            )),
            Some(other) => {
                return Err(VolumePluginError::Medium {
                    medium: other.to_owned(),
                });
            }
        };
        let (dir, mounter) = (wanted.dir.to_owned(), Arc::clone(&self.mounter));
        blocking(move || {
            match memory {
                None => make(&dir, fs_group)?,
                Some(size_bytes) => {
                    make_dir(&dir)?;
                    if !mounter.is_mount_point(&dir) {
                        let mode = if group.is_some() { GROUP_MODE } else { MODE };
                        let tmpfs = Tmpfs {
                            size_bytes: Some(size_bytes),
                            mode: Some(mode),
                            group,
                        };
                        mounter
                            .mount_tmpfs(&dir, &tmpfs)
                            .map_err(VolumePluginError::io("mount tmpfs on", &dir))?;
                    }
                }
            }
            Ok(dir)
        })
        .await
    }
}

/// Beside its place, then there.
fn make(dir: &Path, fs_group: Option<i64>) -> Result<(), VolumePluginError> {
    if dir.is_dir() {
        return Ok(());
    }
    let mut name = dir.file_name().unwrap_or_default().to_owned();
    // No volume is called so: names have no such character.
    name.push("~new");
    let fresh = dir.with_file_name(name);
    remove_tree(&fresh)?;
    make_dir(&fresh)?;
    std::fs::set_permissions(&fresh, std::fs::Permissions::from_mode(MODE))
        .map_err(VolumePluginError::io("set the mode of", &fresh))?;
    if let Some(group) = fs_group {
        ownership::set_group_of(&fresh, group, false)?;
    }
    std::fs::rename(&fresh, dir).map_err(VolumePluginError::io("rename", &fresh))
}

/// The least of what the volume may take, the pod and all pods: a container is charged for what it
/// writes there, and what outlives it must not fill the node.
fn memory_size(pod: &Pod, source: &EmptyDirVolumeSource, allocatable_bytes: i64) -> u64 {
    let limit = source
        .size_limit
        .as_ref()
        .map(|limit| quantity::value(&limit.0));
    let of_pod = resources::for_pod(pod).memory_limit_bytes;
    let bounds = [Some(allocatable_bytes), of_pod, limit];
    let least = bounds
        .into_iter()
        .flatten()
        .filter(|bytes| *bytes > 0)
        .min();
    least
        .and_then(|bytes| u64::try_from(bytes).ok())
        .unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn memory_is_bounded_by_volume_pod_and_node() {
        let gib = 1 << 30;
        let limited = json!({"limits": {"memory": "256Mi"}});
        let cases = [
            (json!({}), json!({"medium": "Memory"}), gib),
            (
                json!({}),
                json!({"medium": "Memory", "sizeLimit": "64Mi"}),
                64 << 20,
            ),
            (
                json!({}),
                json!({"medium": "Memory", "sizeLimit": "8Gi"}),
                gib,
            ),
            (limited.clone(), json!({"medium": "Memory"}), 256 << 20),
            (
                limited.clone(),
                json!({"medium": "Memory", "sizeLimit": "0"}),
                256 << 20,
            ),
            (
                limited,
                json!({"medium": "Memory", "sizeLimit": "512Mi"}),
                256 << 20,
            ),
        ];
        for (resources, source, expected) in cases {
            let pod = json!({"spec": {"containers": [{"name": "a", "resources": resources}]}, "metadata": {}});
            let pod: Pod = serde_json::from_value(pod).expect("pod");
            let volume: EmptyDirVolumeSource =
                serde_json::from_value(source.clone()).expect("volume");
            assert_eq!(
                memory_size(&pod, &volume, gib),
                u64::try_from(expected).expect("size"),
                "{resources} {source}"
            );
        }
    }

    #[test]
    fn a_directory_left_half_made_is_made_anew() {
        let root = tempfile::tempdir().expect("directory");
        let dir = root.path().join("scratch");
        std::fs::create_dir_all(root.path().join("scratch~new/x")).expect("left over");
        make(&dir, Some(7000)).expect("make");
        let found = std::fs::metadata(&dir).expect("made");
        assert_eq!(
            (
                found.permissions().mode() & 0o7777,
                std::os::unix::fs::MetadataExt::gid(&found)
            ),
            (0o2777, 7000)
        );
        assert_eq!(std::fs::read_dir(root.path()).expect("read").count(), 1);
        std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o700))
            .expect("its user's choice");
        make(&dir, Some(7000)).expect("again");
        assert_eq!(
            std::fs::metadata(&dir).expect("kept").permissions().mode() & 0o7777,
            0o700
        );
    }
}
