//! One layer: from a blob's bytes to its directory in the store, verified at every step.

use std::{
    fs,
    io::{self, Read},
    path::PathBuf,
};

use super::{
    blob::{Decompressed, Hashing},
    index::{Layout, store_error},
    unpack::{UnpackError, unpack},
};
use crate::runtime::ImageError;

/// What a layer must turn out to be.
#[derive(Debug, Clone)]
pub(crate) struct LayerSpec {
    /// Digest and size of the blob as the manifest has them; `None` when the source is trusted local data.
    pub blob: Option<(String, u64)>,
    /// `sha256:<hex>` of the uncompressed tar, from the image's config.
    pub diff_id: String,
}

/// Why a layer did not make it into the store.
#[derive(Debug, thiserror::Error)]
pub enum LayerError {
    /// Not what the manifest or the config promised.
    #[error("layer {layer} is not what was promised: {what} is {actual}, expected {expected}")]
    Mismatch {
        /// Which layer.
        layer: String,
        /// `digest`, `size`, `diff ID`.
        what: &'static str,
        /// Found.
        actual: String,
        /// Promised.
        expected: String,
    },
    /// The bytes did not come or do not decompress.
    #[error("read layer {layer}")]
    Read {
        /// Which layer.
        layer: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The archive cannot be unpacked.
    #[error("unpack layer {layer}")]
    Unpack {
        /// Which layer.
        layer: String,
        /// Why.
        #[source]
        source: UnpackError,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] ImageError),
}

/// A directory that goes away unless it is adopted.
struct Staging(Option<PathBuf>);

impl Drop for Staging {
    fn drop(&mut self) {
        if let Some(path) = self.0.take()
            && let Err(error) = fs::remove_dir_all(&path)
        {
            tracing::warn!(path = %path.display(), %error, "could not remove a half-made layer");
        }
    }
}

/// Unpacks `blob` unless the layer is there already. Returns its unpacked size. Blocking.
///
/// # Errors
/// Nothing of the layer is left when this fails.
pub(crate) fn ensure_layer(layout: &Layout, spec: &LayerSpec, blob: impl Read) -> Result<u64, LayerError> {
    if let Some(size) = layout.layer_size(&spec.diff_id) {
        return Ok(size);
    }
    let path = layout.staging_dir().join(uuid::Uuid::new_v4().simple().to_string());
    fs::create_dir_all(path.join("fs")).map_err(store_error("create", &path))?;
    let mut staging = Staging(Some(path.clone()));

    let size = unpack_verified(spec, blob, &path)?;
    fs::write(path.join("size"), size.to_string()).map_err(store_error("write", &path))?;
    sync(&path)?;
    layout.adopt_layer(&path, &spec.diff_id)?;
    staging.0 = None;
    Ok(size)
}

fn unpack_verified(spec: &LayerSpec, blob: impl Read, path: &std::path::Path) -> Result<u64, LayerError> {
    let layer = || spec.blob.as_ref().map_or(&spec.diff_id, |(digest, _)| digest).clone();
    let read_error = |source| LayerError::Read { layer: layer(), source };
    let mismatch =
        |what, actual: String, expected: String| LayerError::Mismatch { layer: layer(), what, actual, expected };

    let limit = spec.blob.as_ref().map_or(u64::MAX, |(_, size)| *size);
    let decompressed = Decompressed::new(Hashing::new(blob, limit)).map_err(read_error)?;
    let mut tar = Hashing::new(decompressed, u64::MAX);
    let size = match unpack(&mut tar, &path.join("fs")) {
        Ok(size) => size,
        Err(UnpackError::Archive(source)) => return Err(read_error(source)),
        Err(source) => return Err(LayerError::Unpack { layer: layer(), source }),
    };
    let (diff_id, decompressed) = tar.finish_with_inner().map_err(read_error)?;
    let (digest, count) = decompressed.into_inner().finish().map_err(read_error)?;
    if let Some((expected, expected_size)) = &spec.blob {
        if &digest != expected {
            return Err(mismatch("digest", digest, expected.clone()));
        }
        if count != *expected_size {
            return Err(mismatch("size", count.to_string(), expected_size.to_string()));
        }
    }
    if diff_id != spec.diff_id {
        return Err(mismatch("diff ID", diff_id, spec.diff_id.clone()));
    }
    Ok(size)
}

/// Everything of the layer is on disk before its directory gets its name.
fn sync(path: &std::path::Path) -> Result<(), LayerError> {
    let dir = fs::File::open(path).map_err(store_error("open", path))?;
    Ok(rustix::fs::syncfs(&dir).map_err(|errno| store_error("sync", path)(errno.into()))?)
}

/// Whether `digest` is `sha256:<64 lower-case hex digits>`: the only algorithm of images in the wild.
pub(crate) fn is_sha256(digest: &str) -> bool {
    digest.starts_with("sha256:") && super::reference::as_id(digest).is_some()
}
