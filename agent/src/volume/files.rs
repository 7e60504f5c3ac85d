//! Volumes that are a set of files: exchanged as a whole, on disk or in memory.

use std::{path::PathBuf, sync::Arc, time::Duration};

use async_trait::async_trait;
use coracle_telemetry::ErrorChain;
use k8s_openapi::api::core::v1::{Pod, Volume};

use super::{
    atomic_writer,
    error::VolumePluginError,
    make_dir,
    mounter::{Mounter, Tmpfs},
    payload::Payload,
    plugin::{SetUp, Source, VolumePlugin},
};
use crate::{blocking::blocking, runtime::types::PodUid};

/// The largest that a kernel has.
const PAGE: u64 = 64 * 1024;

/// Where a kind's files come from.
#[async_trait]
pub(super) trait FileSource: Send + Sync {
    /// See [`VolumePlugin::name`].
    fn name(&self) -> &'static str;

    /// Whether its files may touch no disk.
    fn in_memory(&self) -> bool;

    /// See [`VolumePlugin::supports`].
    fn supports(&self, volume: &Volume) -> bool;

    /// The files of a volume that it supports, of objects no older than `max_age`.
    async fn collect(
        &self,
        pod: &Pod,
        volume: &Volume,
        max_age: Duration,
    ) -> Result<Payload, VolumePluginError>;

    /// See [`VolumePlugin::forget`].
    fn forget(&self, _pod: &PodUid) {}
}

/// The plugin of such a kind.
pub(super) struct FileVolumes<S> {
    source: S,
    mounter: Arc<dyn Mounter>,
}

impl<S: FileSource> FileVolumes<S> {
    pub(super) fn new(source: S, mounter: &Arc<dyn Mounter>) -> Self {
        Self {
            source,
            mounter: Arc::clone(mounter),
        }
    }
}

/// What the files take at most, each in pages of its own. These volumes are the node's to pay for,
/// no pod's.
fn room(payload: &Payload) -> u64 {
    let pages = |bytes: usize| {
        u64::try_from(bytes).map_or(u64::MAX, |bytes| (bytes / PAGE + 1).saturating_mul(PAGE))
    };
    payload
        .values()
        .map(|file| pages(file.data.len()))
        .fold(PAGE, u64::saturating_add)
}

#[async_trait]
impl<S: FileSource> VolumePlugin for FileVolumes<S> {
    fn name(&self) -> &'static str {
        self.source.name()
    }

    fn supports(&self, source: Source<'_>) -> bool {
        matches!(source, Source::Inline(volume) if self.source.supports(volume))
    }

    async fn set_up(&self, wanted: &SetUp<'_>) -> Result<PathBuf, VolumePluginError> {
        let dir = wanted.dir.to_owned();
        let volume = wanted.inline().ok_or(VolumePluginError::Unsupported)?;
        let payload = match self
            .source
            .collect(wanted.pod, volume, wanted.max_age)
            .await
        {
            Ok(payload) => payload,
            // Without the control plane what is there already is good enough to restart a
            // container.
            Err(error) if error.is_about_the_api() && atomic_writer::has_content(&dir) => {
                tracing::debug!(volume = volume.name, error = %ErrorChain(&error), "keep the volume as it is");
                return Ok(dir);
            }
            Err(error) => return Err(error),
        };
        let (in_memory, fs_group, mounter) = (
            self.source.in_memory(),
            wanted.fs_group(),
            Arc::clone(&self.mounter),
        );
        blocking(move || {
            make_dir(&dir)?;
            let room = room(&payload);
            if in_memory && !mounter.is_mount_point(&dir) {
                let tmpfs = Tmpfs {
                    size_bytes: Some(room),
                    ..Tmpfs::default()
                };
                mounter
                    .mount_tmpfs(&dir, &tmpfs)
                    .map_err(VolumePluginError::io("mount tmpfs on", &dir))?;
            } else if in_memory {
                // The old files are there until the new ones are.
                mounter
                    .set_room(&dir, room)
                    .map_err(VolumePluginError::io("resize", &dir))?;
            }
            atomic_writer::write(&dir, &payload, fs_group)?;
            Ok(dir)
        })
        .await
    }

    fn forget(&self, pod: &PodUid) {
        self.source.forget(pod);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::volume::payload::FileProjection;

    #[test]
    fn a_volume_in_memory_has_room_for_its_files_alone() {
        let payload = |sizes: &[usize]| {
            let files = sizes.iter().enumerate();
            files
                .map(|(at, size)| (at.to_string(), FileProjection::new(vec![0; *size], 0o644)))
                .collect()
        };
        assert_eq!(room(&payload(&[])), PAGE);
        assert_eq!(room(&payload(&[1, 0])), 3 * PAGE);
        assert_eq!(room(&payload(&[1 << 20])), (1 << 20) + 2 * PAGE);
    }
}
