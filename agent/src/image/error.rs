//! Why an image is not there: what its registry, its documents, a layer or the node's own store had
//! against it.
//!
//! One file, which knows none of those that fail: [`crate::runtime`] hands these errors on. What is
//! to be done about one is asked of its variant, never of its text.

mod layer;
mod registry;

pub use self::{
    layer::{LayerError, TooLarge, UnpackError},
    registry::{RegistryError, Said},
};

use std::{error::Error, io, iter, path::PathBuf};

use coracle_telemetry::ErrorChain;

/// Why an image was not pulled: which step failed, and why.
///
/// Steps are worded as containerd has them: people look for these words.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PullError {
    /// The registry does not tell what the name stands for, or not to these credentials.
    #[error("failed to resolve reference {reference:?}")]
    Resolve {
        /// In full.
        reference: String,
        /// The cause.
        source: RegistryError,
    },
    /// The config did not come.
    #[error("failed to fetch config {digest}")]
    FetchConfig {
        /// Of the blob or the document.
        digest: String,
        /// The cause.
        source: RegistryError,
    },
    /// A layer did not come, or not whole.
    #[error("failed to fetch layer {digest}")]
    FetchLayer {
        /// Of the blob or the document.
        digest: String,
        /// The cause.
        source: RegistryError,
    },
    /// Other layers took all the places until the wait was over.
    #[error(
        "failed to fetch layer {digest}: waited {minutes} min for other layers that this node is pulling"
    )]
    Crowded {
        /// Of the blob or the document.
        digest: String,
        /// So long.
        minutes: u64,
    },
    /// Manifest and config are not of an image that can run here.
    #[error(transparent)]
    Document(#[from] DocumentError),
    /// A layer came and cannot be used.
    #[error(transparent)]
    Layer(#[from] LayerError),
    /// The unpacker panicked.
    #[error("unpack layer {digest}")]
    Unpacker {
        /// Of the blob or the document.
        digest: String,
        /// The cause.
        source: tokio::task::JoinError,
    },
    /// The local store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// None of several endpoints had it: each with what came of asking it, in the order asked.
    #[error("{}", joined(.0))]
    Endpoints(Vec<(String, PullError)>),
}

/// What each said. The whole chains: an error has but one source.
fn joined(answers: &[(String, PullError)]) -> String {
    let all: Vec<String> = answers
        .iter()
        .map(|(host, error)| format!("{host}: {}", ErrorChain(error)))
        .collect();
    all.join("; ")
}

impl PullError {
    /// Whether there was nobody to ask: no registry was reached, or it was not well.
    #[must_use]
    pub fn is_unavailable(&self) -> bool {
        match self {
            Self::Resolve { source, .. }
            | Self::FetchConfig { source, .. }
            | Self::FetchLayer { source, .. } => source.is_unavailable(),
            Self::Endpoints(answers) => answers.iter().all(|(_, error)| error.is_unavailable()),
            _ => false,
        }
    }
}

/// What is wrong with a manifest, an index or a config.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DocumentError {
    /// Neither a manifest nor an index, such as a manifest of Docker's first schema.
    #[error("manifest {digest} of media type {media_type:?} is not supported")]
    Manifest {
        /// Of the blob or the document.
        digest: String,
        /// As the registry calls it.
        media_type: String,
        /// The cause.
        source: serde_json::Error,
    },
    /// Not an image config.
    #[error("image config")]
    Config(#[source] serde_json::Error),
    /// A manifest names a config that is larger than any.
    #[error("config {digest} of {size} bytes is larger than this node accepts")]
    ConfigSize {
        /// Of the blob or the document.
        digest: String,
        /// As announced.
        size: i64,
    },
    /// A digest that is none, or of another kind.
    #[error("{of} {digest:?} is not a sha256 digest")]
    Digest {
        /// Such as `layer digest`.
        of: &'static str,
        /// As written.
        digest: String,
    },
    /// An index without a manifest for this machine.
    #[error("the image has no manifest for this machine's platform")]
    NoPlatform,
    /// Indexes in indexes.
    #[error("more than {0} indexes within each other")]
    Indexes(usize),
    /// An image for other machines.
    #[error("image is for {what} {found:?}, this node is {ours}")]
    Platform {
        /// `operating system`, `architecture`.
        what: &'static str,
        /// The image's.
        found: String,
        /// The node's.
        ours: &'static str,
    },
    /// Manifest and config are not of one image.
    #[error("manifest has {manifest} layers, config has {config}")]
    LayerCounts {
        /// In the manifest.
        manifest: usize,
        /// In the config.
        config: usize,
    },
    /// More layers than can be mounted over each other.
    #[error("image has {count} layers, at most {most} are possible")]
    TooManyLayers {
        /// In the image.
        count: usize,
        /// Possible.
        most: usize,
    },
    /// No size.
    #[error("layer {digest} has a size of {size} bytes")]
    LayerSize {
        /// Of the blob or the document.
        digest: String,
        /// As written.
        size: i64,
    },
}

/// The I/O errors among an error and what caused it.
fn io_errors<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a io::Error> {
    iter::successors(Some(error), |&error| error.source())
        .filter_map(|error| error.downcast_ref::<io::Error>())
}

/// The local store failed.
#[derive(Debug, thiserror::Error)]
#[error("image store: {operation} {path}")]
pub struct StoreError {
    /// Doing what.
    pub operation: &'static str,
    /// The file or directory.
    pub path: PathBuf,
    /// The cause.
    pub source: io::Error,
}

#[cfg(test)]
mod tests;
