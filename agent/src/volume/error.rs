//! Why a volume is not there, in upstream's words.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use super::storage::StorageError;
use crate::{container_config::fields::FieldError, objects::FetchError};

/// Why a volume is not there: the event `FailedMount`.
#[derive(Debug, thiserror::Error)]
pub(crate) enum VolumeError {
    // Ends with a blank as upstream's, before what follows from the cause.
    #[error("MountVolume.{} failed for volume \"{volume}\" ", source.step())]
    SetUp {
        volume: String,
        source: VolumePluginError,
    },
    /// Claims that stand for nothing yet; why of each.
    #[error(
        "Unable to attach or mount volumes: unmounted volumes=[{unmounted}], unattached volumes=[], failed to process \
         volumes=[{failed}]: {why}"
    )]
    Process {
        unmounted: String,
        failed: String,
        why: String,
    },
}

/// What went wrong with one volume.
#[derive(Debug, thiserror::Error)]
pub(crate) enum VolumePluginError {
    #[error("{kind} \"{name}\" not found")]
    NotFound { kind: &'static str, name: String },
    #[error("references non-existent {kind} key: {key}")]
    NoKey { kind: &'static str, key: String },
    #[error("invalid path {path:?}: must be relative and without `..`")]
    BadPath { path: String },
    #[error("invalid path {path:?}: {file:?} is a file")]
    FileWithinFile { path: String, file: String },
    #[error("hostPath type check failed: {path} {problem}")]
    HostPath { path: String, problem: &'static str },
    #[error("hostPath type check failed: {path} does not answer")]
    HostPathHangs { path: String },
    #[error("path {path:?} does not exist")]
    NoLocalPath { path: String },
    #[error("only directory and block device are supported")]
    LocalKind,
    #[error("this node mounts no block device: only a directory can be a local volume")]
    LocalDevice,
    /// The cluster has to know before the directory is made.
    #[error("cannot say in the volume that its directory is made, so it is not made yet")]
    Unsaid(#[source] Option<Box<kube::Error>>),
    #[error("path {path:?} does not answer")]
    LocalHangs { path: String },
    #[error("invalid path: {path} must not contain '..'")]
    Backsteps { path: String },
    #[error("mount options are not supported for this volume type")]
    MountOptions,
    #[error("no matching NodeSelectorTerms")]
    Elsewhere,
    #[error("volume uses the ReadWriteOncePod access mode and is already in use by another pod")]
    InUse,
    #[error(transparent)]
    Storage(#[from] StorageError),
    #[error("timed out after {} s", .0.as_secs())]
    Late(Duration),
    #[error("this node knows no volume plugin for it")]
    Unsupported,
    #[error("this node has no storage medium {medium:?}")]
    Medium { medium: String },
    #[error(transparent)]
    Fetch(#[from] FetchError),
    #[error(transparent)]
    Field(#[from] FieldError),
    #[error("failed to fetch token")]
    Token { source: Box<kube::Error> },
    #[error("failed to fetch token: timed out waiting for the API server")]
    TokenTimeout,
    #[error("failed to fetch token: the API server's answer has none")]
    NoToken,
    #[error("{operation} {path}")]
    Io {
        operation: &'static str,
        path: PathBuf,
        source: std::io::Error,
    },
}

impl VolumePluginError {
    /// What upstream calls the step that failed.
    fn step(&self) -> &'static str {
        match self {
            Self::Elsewhere => "NodeAffinity check",
            Self::MountOptions => "MountOptionSupport check",
            Self::NoLocalPath { .. } | Self::LocalKind | Self::LocalDevice => {
                "NewMounter initialization"
            }
            _ => "SetUp",
        }
    }

    /// The API server did not answer as it should, which says nothing about the volume.
    pub(super) fn is_about_the_api(&self) -> bool {
        matches!(
            self,
            Self::Fetch(_) | Self::Token { .. } | Self::TokenTimeout | Self::NoToken
        )
    }

    pub(super) fn io(operation: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = without_stamp(path);
        move |source| Self::Io {
            operation,
            path,
            source,
        }
    }
}

/// Without the directory that the atomic writer names by the time, anew with each try: the message
/// is to be the same each time, so that its events count as one.
fn without_stamp(path: &Path) -> PathBuf {
    let is_stamp = |name: &[u8]| {
        let after = name.strip_prefix(b"..").and_then(<[u8]>::first);
        after.is_some_and(u8::is_ascii_digit)
    };
    path.components()
        .filter(|part| !is_stamp(part.as_os_str().as_encoded_bytes()))
        .collect()
}
