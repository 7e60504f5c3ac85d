//! A kind of volume: what the node knows how to make.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{Pod, Volume};

use super::{claim::record::Claimed, error::VolumePluginError};
use crate::{pod::PodExt, runtime::types::PodUid};

/// What a volume is.
#[derive(Debug, Clone, Copy)]
pub(super) enum Source<'a> {
    /// What the pod says.
    Inline(&'a Volume),
    /// What its claim is bound to.
    Persistent(&'a Claimed),
}

/// A volume that a pod wants.
#[derive(Debug, Clone, Copy)]
pub(super) struct SetUp<'a> {
    pub(super) pod: &'a Pod,
    pub(super) source: Source<'a>,
    /// As its claim is used by the pod.
    pub(super) read_only: bool,
    /// The volume's own directory; not made yet the first time, but that of a persistent volume,
    /// which has its record.
    pub(super) dir: &'a Path,
    /// How old what is asked of the API may be.
    pub(super) max_age: Duration,
}

impl SetUp<'_> {
    /// The group that the volume's files are to belong to.
    pub(super) fn fs_group(&self) -> Option<i64> {
        self.pod
            .spec_or_default()
            .security_context
            .as_ref()
            .and_then(|context| context.fs_group)
    }

    /// What the pod says, for the plugins of what it says itself.
    pub(super) fn inline(&self) -> Option<&Volume> {
        match self.source {
            Source::Inline(volume) => Some(volume),
            Source::Persistent(_) => None,
        }
    }
}

/// One kind of volume. One for the whole node, in [`super::VolumeManager`]'s list.
///
/// A volume's directory is its record: it is made before anything else that outlives the agent, a
/// mount say, and removed last. So the agent that takes a volume away, which may be another one
/// than made it, finds it by its directory alone; its Pod and all that it names may be gone by
/// then. Who does things elsewhere on the node puts into the directory, before it does them, what
/// it needs to undo them. What a persistent volume is stands there as well (`claim::record`).
#[async_trait]
pub(super) trait VolumePlugin: Send + Sync {
    /// What its volumes' directories are called after, as upstream: `kubernetes.io~<name>`. A later
    /// release must still know it.
    fn name(&self) -> &'static str;

    /// Whether a volume is of this kind.
    fn supports(&self, source: Source<'_>) -> bool;

    /// Makes the volume, or brings it up to date: idempotent, and what has not changed is not
    /// touched. Returns what containers mount.
    async fn set_up(&self, wanted: &SetUp<'_>) -> Result<PathBuf, VolumePluginError>;

    /// Undoes what was done outside of the volume's directory. What is mounted in there goes by
    /// itself, and so does the directory, afterwards. Idempotent; blocks.
    fn tear_down(&self, _dir: &Path) -> Result<(), VolumePluginError> {
        Ok(())
    }

    /// Drops what is in memory for a pod that goes.
    fn forget(&self, _pod: &PodUid) {}
}
