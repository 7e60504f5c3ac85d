//! Volumes that are a set of files: exchanged as a whole, on disk or in memory.

use std::{path::PathBuf, sync::Arc, time::Duration};

use async_trait::async_trait;
use coracle_telemetry::Chain;
use k8s_openapi::api::core::v1::{Pod, Volume};

use super::{
    atomic_writer, blocking,
    error::KindError,
    make_dir,
    mounter::{Mounter, Tmpfs},
    payload::Payload,
    plugin::{SetUp, VolumePlugin},
};
use crate::runtime::types::PodUid;

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
    async fn collect(&self, pod: &Pod, volume: &Volume, max_age: Duration) -> Result<Payload, KindError>;

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
        Self { source, mounter: Arc::clone(mounter) }
    }
}

#[async_trait]
impl<S: FileSource> VolumePlugin for FileVolumes<S> {
    fn name(&self) -> &'static str {
        self.source.name()
    }

    fn supports(&self, volume: &Volume) -> bool {
        self.source.supports(volume)
    }

    async fn set_up(&self, wanted: &SetUp<'_>) -> Result<PathBuf, KindError> {
        let dir = wanted.dir.to_owned();
        let payload = match self.source.collect(wanted.pod, wanted.volume, wanted.max_age).await {
            Ok(payload) => payload,
            // Without the control plane what is there already is good enough to restart a container.
            Err(error) if error.is_about_the_api() && atomic_writer::has_content(&dir) => {
                tracing::debug!(volume = wanted.volume.name, error = %Chain(&error), "keep the volume as it is");
                return Ok(dir);
            }
            Err(error) => return Err(error),
        };
        let (in_memory, fs_group, mounter) = (self.source.in_memory(), wanted.fs_group(), Arc::clone(&self.mounter));
        blocking(move || {
            make_dir(&dir)?;
            if in_memory && !mounter.is_mount_point(&dir) {
                mounter.mount_tmpfs(&dir, &Tmpfs::default()).map_err(KindError::io("mount tmpfs on", &dir))?;
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
