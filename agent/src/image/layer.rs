//! One layer: from a blob's bytes to its directory in the store, verified at every step.

use std::{
    fs,
    io::{self, Read, Write},
    path::PathBuf,
};

use coracle_telemetry::Chain;
use sha2::{Digest, Sha256};

use super::{
    blob::{Decompressed, Hashing},
    index::{Layout, store_error},
    unpack::{UnpackError, Unpacked, inherit, unpack},
};
use crate::runtime::ImageError;

/// In a layer's directory: [`LayerSpec::origins`].
const ORIGINS: &str = "origins";

/// Everybody on this node may use what came without credentials, with the node's own, or from a file.
pub(crate) const ANYBODY: &str = "node";

/// What a layer must turn out to be.
#[derive(Debug, Clone)]
pub(crate) struct LayerSpec {
    /// Digest and size of the blob as the manifest has them; `None` when the source is trusted local data.
    pub blob: Option<(String, u64)>,
    /// `sha256:<hex>` of the uncompressed tar, from the image's config.
    pub diff_id: String,
    /// Names the layer together with all below it, as they shape what it becomes.
    pub chain_id: String,
}

/// Specs of all layers of an image, lowest first.
pub(crate) fn specs(layers: impl IntoIterator<Item = (Option<(String, u64)>, String)>) -> Vec<LayerSpec> {
    let mut below: Option<String> = None;
    let spec = |(blob, diff_id): (Option<(String, u64)>, String)| {
        let chain_id = match &below {
            None => diff_id.clone(),
            Some(below) => format!("sha256:{}", hex::encode(Sha256::digest(format!("{below} {diff_id}")))),
        };
        below = Some(chain_id.clone());
        LayerSpec { blob, diff_id, chain_id }
    };
    layers.into_iter().map(spec).collect()
}

impl LayerSpec {
    /// Lines of the layer's file `origins`: the blob that it was unpacked from, and who could read that.
    fn origins(&self, access: &[String]) -> String {
        let blob = self.blob.as_ref().map_or("-", |(digest, _)| digest);
        access.iter().map(|key| format!("{blob} {key}\n")).collect()
    }

    /// The size of the layer if it is there and whoever has one of `access` may use it without fetching it: a config names
    /// a layer by a digest that is no secret, so knowing it proves nothing.
    pub(crate) fn present(&self, layout: &Layout, access: &[String]) -> Option<u64> {
        let size = layout.layer_size(&self.chain_id)?;
        let origins = fs::read_to_string(layout.layer_dir(&self.chain_id).join(ORIGINS)).ok()?;
        let own = self.origins(access);
        let open = |line: &str| {
            line.split_once(' ').is_some_and(|(_, who)| who == ANYBODY) || own.lines().any(|own| own == line)
        };
        origins.lines().any(open).then_some(size)
    }
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
            tracing::warn!(path = %path.display(), error = %Chain(&error), "could not remove a half-made layer");
        }
    }
}

/// A layer that is unpacked and verified, but not in its place yet. Goes away unless it is adopted.
pub(crate) struct StagedLayer {
    staging: Staging,
    unpacked: Unpacked,
}

/// Unpacks `blob` beside the layers. Blocking.
///
/// # Errors
/// Nothing of the layer is left when this fails.
pub(crate) fn stage(layout: &Layout, spec: &LayerSpec, blob: impl Read) -> Result<StagedLayer, LayerError> {
    let path = layout.staging_dir().join(uuid::Uuid::new_v4().simple().to_string());
    fs::create_dir_all(path.join("fs")).map_err(store_error("create", &path))?;
    let staging = Staging(Some(path.clone()));
    let unpacked = unpack_verified(spec, blob, &path)?;
    Ok(StagedLayer { staging, unpacked })
}

/// Puts a staged layer over those `below` it (uppermost first), which are in their places. Returns its unpacked size.
/// Blocking.
///
/// # Errors
/// Nothing of the layer is left when this fails.
pub(crate) fn adopt(
    layout: &Layout,
    spec: &LayerSpec,
    access: &[String],
    mut staged: StagedLayer,
    below: &[PathBuf],
) -> Result<u64, LayerError> {
    let Some(path) = staged.staging.0.clone() else { return Ok(staged.unpacked.bytes) };
    inherit(&path.join("fs"), &staged.unpacked.implied, below)
        .map_err(|source| LayerError::Unpack { layer: spec.diff_id.clone(), source })?;
    let bytes = staged.unpacked.bytes;
    fs::write(path.join("size"), bytes.to_string()).map_err(store_error("write", &path))?;
    fs::write(path.join(ORIGINS), spec.origins(access)).map_err(store_error("write", &path))?;
    sync(&path)?;
    let is_new = layout.adopt_layer(&path, &spec.chain_id)?;
    staged.staging.0 = None;
    if !is_new {
        let file = layout.layer_dir(&spec.chain_id).join(ORIGINS);
        let append = || -> io::Result<()> {
            let mut file = fs::File::options().append(true).create(true).open(&file)?;
            file.write_all(spec.origins(access).as_bytes())
        };
        append().map_err(store_error("write", &file))?;
    }
    Ok(bytes)
}

fn unpack_verified(spec: &LayerSpec, blob: impl Read, path: &std::path::Path) -> Result<Unpacked, LayerError> {
    let layer = || spec.blob.as_ref().map_or(&spec.diff_id, |(digest, _)| digest).clone();
    let read_error = |source| LayerError::Read { layer: layer(), source };
    let mismatch =
        |what, actual: String, expected: String| LayerError::Mismatch { layer: layer(), what, actual, expected };

    let limit = spec.blob.as_ref().map_or(u64::MAX, |(_, size)| *size);
    let decompressed = Decompressed::new(Hashing::new(blob, limit)).map_err(read_error)?;
    let mut tar = Hashing::new(decompressed, u64::MAX);
    let unpacked = match unpack(&mut tar, &path.join("fs"), spec.blob.as_ref().map(|(_, size)| *size)) {
        Ok(unpacked) => unpacked,
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
    Ok(unpacked)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layer_is_named_with_all_below_it() {
        let ids = |list: &[&str]| {
            specs(list.iter().map(|id| (None, (*id).to_owned())))
                .into_iter()
                .map(|spec| spec.chain_id)
                .collect::<Vec<_>>()
        };
        let (one, two) = (ids(&["sha256:a", "sha256:b", "sha256:b"]), ids(&["sha256:c", "sha256:b"]));
        assert_eq!(one[0], "sha256:a");
        assert_eq!(one[1], format!("sha256:{}", hex::encode(Sha256::digest("sha256:a sha256:b"))));
        assert!(one[1] != one[2] && one[1] != two[1]);
    }

    #[test]
    fn who_could_not_read_a_blob_does_not_get_its_layer() {
        let dir = tempfile::tempdir().expect("directory");
        let layout = Layout::open(dir.path().join("images")).expect("store");
        let id = format!("sha256:{}", "a".repeat(64));
        let spec = |blob: Option<&str>| LayerSpec {
            blob: blob.map(|digest| (digest.to_owned(), 1)),
            diff_id: id.clone(),
            chain_id: id.clone(),
        };
        let who = |key: &str| [key.to_owned()];
        let place = layout.layer_dir(&id);
        fs::create_dir_all(&place).expect("directory");
        fs::write(place.join("size"), "7").expect("size");
        assert_eq!(spec(Some("b1")).present(&layout, &who(ANYBODY)), None, "of an origin that nobody knows");
        fs::write(place.join(ORIGINS), spec(Some("b1")).origins(&who("alice"))).expect("origins");
        for (blob, access, found) in
            [("b1", "alice", true), ("b2", "alice", false), ("b1", "mallory", false), ("b1", ANYBODY, false)]
        {
            assert_eq!(spec(Some(blob)).present(&layout, &who(access)).is_some(), found, "{blob} {access}");
        }
        fs::write(place.join(ORIGINS), spec(None).origins(&who(ANYBODY))).expect("origins");
        assert_eq!(spec(Some("b1")).present(&layout, &who("mallory")), Some(7), "it was imported");
    }
}
