//! One layer: from a blob's bytes to its directory in the store, verified at every step.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{self, Read},
    path::PathBuf,
};

use coracle_telemetry::ErrorChain;
use sha2::{Digest, Sha256};

use super::{
    access::{self, ANYBODY, Key},
    blob::{Decompressed, Hashing, Metered},
    capacity::Claim,
    error::{LayerError, StoreError},
    index::{Layout, store_error},
    unpack::{Unpacked, inherit, most, unpack},
};

/// In a layer's directory: lines of the blob that it was unpacked from and of who could read that,
/// as [`access`] has it.
const ORIGINS: &str = "origins";
/// Most bytes behind a tar's end: archivers fill their last record, of 10 KiB by default.
const TRAILER_MAX: u64 = 1 << 20;

/// What a layer must turn out to be.
#[derive(Debug, Clone)]
pub(crate) struct LayerSpec {
    /// Digest and size of the blob as the manifest has them; `None` when the source is trusted
    /// local data.
    pub blob: Option<(String, u64)>,
    /// `sha256:<hex>` of the uncompressed tar, from the image's config.
    pub diff_id: String,
    /// Names the layer together with all below it, as they shape what it becomes.
    pub chain_id: String,
}

/// Specs of all layers of an image, lowest first.
pub(crate) fn specs(
    layers: impl IntoIterator<Item = (Option<(String, u64)>, String)>,
) -> Vec<LayerSpec> {
    let mut below: Option<String> = None;
    let spec = |(blob, diff_id): (Option<(String, u64)>, String)| {
        let chain_id = match &below {
            None => diff_id.clone(),
            Some(below) => format!(
                "sha256:{}",
                hex::encode(Sha256::digest(format!("{below} {diff_id}")))
            ),
        };
        below = Some(chain_id.clone());
        LayerSpec {
            blob,
            diff_id,
            chain_id,
        }
    };
    layers.into_iter().map(spec).collect()
}

impl LayerSpec {
    fn origin(&self) -> &str {
        self.blob.as_ref().map_or("-", |(digest, _)| digest)
    }

    /// The size of the layer if it is there and whoever has one of `keys` may use it without
    /// fetching it: a config names a layer by a digest that is no secret, so knowing it proves
    /// nothing. Blocking.
    pub(crate) fn present(&self, layout: &Layout, keys: &[Key]) -> Option<u64> {
        let size = layout.layer_size(&self.chain_id)?;
        let origins = read_origins(layout, &self.chain_id).ok()?;
        if origins.values().any(|lines| lines.contains(ANYBODY)) {
            return Some(size);
        }
        let lines = origins.get(self.origin())?;
        let is_open = keys
            .iter()
            .any(|key| access::fit(lines.iter().map(String::as_str), key).is_some());
        is_open.then_some(size)
    }
}

/// By blob, who could read it.
type Origins = BTreeMap<String, BTreeSet<String>>;

fn read_origins(layout: &Layout, chain_id: &str) -> io::Result<Origins> {
    let mut origins = Origins::new();
    for line in fs::read_to_string(layout.layer_dir(chain_id).join(ORIGINS))?.lines() {
        if let Some((blob, who)) = line.split_once(' ') {
            origins
                .entry(blob.to_owned())
                .or_default()
                .insert(who.to_owned());
        }
    }
    Ok(origins)
}

fn text(origins: &Origins) -> String {
    let lines = origins
        .iter()
        .flat_map(|(blob, lines)| lines.iter().map(move |line| format!("{blob} {line}\n")));
    lines.collect()
}

/// Notes of a layer that is there that `keys` open it: what was unpacked from `blob`, or else what
/// they open already. Blocking.
///
/// # Errors
/// [`StoreError`] if the note cannot be read or written.
pub(crate) fn note(
    layout: &Layout,
    chain_id: &str,
    blob: Option<&str>,
    keys: &[Key],
) -> Result<(), StoreError> {
    let file = layout.layer_dir(chain_id).join(ORIGINS);
    let _lock = layout.lock()?;
    let mut origins = match read_origins(layout, chain_id) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Origins::new(),
        read => read.map_err(store_error("read", &file))?,
    };
    let before = origins.clone();
    for key in keys {
        for lines in origins.values_mut() {
            // A secret that was rotated keeps no line with what it had.
            if lines
                .iter()
                .any(|line| access::fit([line.as_str()], key) == Some(access::Fit::Secret))
            {
                access::note(lines, &key.line());
            }
        }
        if let Some(blob) = blob {
            access::note(origins.entry(blob.to_owned()).or_default(), &key.line());
        }
    }
    if origins == before {
        return Ok(());
    }
    let staged = file.with_extension("new");
    fs::write(&staged, text(&origins)).map_err(store_error("write", &staged))?;
    fs::rename(&staged, &file).map_err(store_error("rename", &staged))
}

/// A directory that goes away unless it is adopted.
struct Staging(Option<PathBuf>);

impl Drop for Staging {
    fn drop(&mut self) {
        if let Some(path) = self.0.take()
            && let Err(error) = fs::remove_dir_all(&path)
        {
            tracing::warn!(path = %path.display(), error = %ErrorChain(&error), "cannot remove a half-made layer");
        }
    }
}

/// A layer that is unpacked and verified, but not in its place yet. Goes away unless it is adopted.
pub(crate) struct StagedLayer {
    staging: Staging,
    unpacked: Unpacked,
}

/// Unpacks `blob` beside the layers, for as long as the `claim` is wanted. Blocking.
///
/// # Errors
/// Nothing of the layer is left when this fails.
pub(super) fn stage(
    layout: &Layout,
    spec: &LayerSpec,
    blob: impl Read,
    claim: Claim,
) -> Result<StagedLayer, LayerError> {
    let path = layout
        .staging_dir()
        .join(uuid::Uuid::new_v4().simple().to_string());
    fs::create_dir_all(path.join("fs")).map_err(store_error("create", &path))?;
    let staging = Staging(Some(path.clone()));
    let unpacked = unpack_verified(spec, blob, &path, claim)?;
    Ok(StagedLayer { staging, unpacked })
}

/// Puts a staged layer over those `below` it (uppermost first), which are in their places. Returns
/// its unpacked size. Blocking.
///
/// # Errors
/// Nothing of the layer is left when this fails.
pub(crate) fn adopt(
    layout: &Layout,
    spec: &LayerSpec,
    keys: &[Key],
    mut staged: StagedLayer,
    below: &[PathBuf],
) -> Result<u64, LayerError> {
    let Some(path) = staged.staging.0.clone() else {
        return Ok(staged.unpacked.bytes);
    };
    inherit(&path.join("fs"), &staged.unpacked.implied, below)
        .map_err(|source| LayerError::unpack(spec.diff_id.clone(), source))?;
    let bytes = staged.unpacked.bytes;
    fs::write(path.join("size"), bytes.to_string()).map_err(store_error("write", &path))?;
    let lines = keys.iter().map(Key::line).collect();
    let origins = Origins::from([(spec.origin().to_owned(), lines)]);
    fs::write(path.join(ORIGINS), text(&origins)).map_err(store_error("write", &path))?;
    sync(&path)?;
    let is_new = layout.adopt_layer(&path, &spec.chain_id)?;
    staged.staging.0 = None;
    if !is_new {
        note(layout, &spec.chain_id, Some(spec.origin()), keys)?;
    }
    Ok(bytes)
}

fn unpack_verified(
    spec: &LayerSpec,
    blob: impl Read,
    path: &std::path::Path,
    claim: Claim,
) -> Result<Unpacked, LayerError> {
    let layer = || {
        spec.blob
            .as_ref()
            .map_or(&spec.diff_id, |(digest, _)| digest)
            .clone()
    };
    let read_error = |source| LayerError::read(layer(), source);
    let mismatch = |what, actual: String, expected: String| LayerError::Mismatch {
        layer: layer(),
        what,
        actual,
        expected,
    };

    let blob_bytes = spec.blob.as_ref().map(|(_, size)| *size);
    let given_up = claim.given_up();
    let blob = Hashing::new(blob, blob_bytes.unwrap_or(u64::MAX));
    let decompressed = Decompressed::new(blob, claim).map_err(read_error)?;
    let metered = Metered::new(decompressed, most(blob_bytes), given_up);
    let mut tar = Hashing::new(metered, u64::MAX);
    let unpacked = unpack(&mut tar, &path.join("fs"), blob_bytes)
        .map_err(|source| LayerError::unpack(layer(), source))?;
    tar.inner_mut().end_within(TRAILER_MAX);
    let (diff_id, metered) = tar.finish_with_inner().map_err(read_error)?;
    let blob = metered.into_inner().into_inner();
    let (digest, count) = blob.finish().map_err(read_error)?;
    if let Some((expected, expected_size)) = &spec.blob {
        if &digest != expected {
            return Err(mismatch("digest", digest, expected.clone()));
        }
        if count != *expected_size {
            return Err(mismatch(
                "size",
                count.to_string(),
                expected_size.to_string(),
            ));
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

/// Whether `digest` is `sha256:<64 lower-case hex digits>`: the only algorithm of images in the
/// wild.
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
        let (one, two) = (
            ids(&["sha256:a", "sha256:b", "sha256:b"]),
            ids(&["sha256:c", "sha256:b"]),
        );
        assert_eq!(one[0], "sha256:a");
        assert_eq!(
            one[1],
            format!(
                "sha256:{}",
                hex::encode(Sha256::digest("sha256:a sha256:b"))
            )
        );
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
        let who = |key: &str| {
            [Key {
                fingerprint: key.to_owned(),
                secret: None,
            }]
        };
        let place = layout.layer_dir(&id);
        fs::create_dir_all(&place).expect("directory");
        fs::write(place.join("size"), "7").expect("size");
        assert_eq!(
            spec(Some("b1")).present(&layout, &who(ANYBODY)),
            None,
            "of an origin that nobody knows"
        );
        note(&layout, &id, Some("b1"), &who("alice")).expect("origins");
        for (blob, access, found) in [
            ("b1", "alice", true),
            ("b2", "alice", false),
            ("b1", "mallory", false),
            ("b1", ANYBODY, false),
        ] {
            assert_eq!(
                spec(Some(blob)).present(&layout, &who(access)).is_some(),
                found,
                "{blob} {access}"
            );
        }
        note(&layout, &id, Some(spec(None).origin()), &who(ANYBODY)).expect("origins");
        assert_eq!(
            spec(Some("b1")).present(&layout, &who("mallory")),
            Some(7),
            "it was imported"
        );
    }

    /// Why a layer of these bytes is not staged, and that nothing is left of it.
    fn refusal(blob: impl Read, given_up: &tokio_util::sync::CancellationToken) -> String {
        let dir = tempfile::tempdir().expect("directory");
        let layout = Layout::open(dir.path().join("images")).expect("store");
        let id = format!("sha256:{}", "a".repeat(64));
        let spec = LayerSpec {
            blob: None,
            diff_id: id.clone(),
            chain_id: id,
        };
        let claim = Claim::new(
            super::super::capacity::Capacity::default(),
            given_up.clone(),
        );
        let error = stage(&layout, &spec, blob, claim).err().expect("refused");
        let left = fs::read_dir(layout.staging_dir()).expect("list").count();
        assert_eq!(left, 0);
        ErrorChain(&error).to_string()
    }

    #[test]
    fn little_comes_behind_an_archives_end() {
        let wanted = tokio_util::sync::CancellationToken::new();
        // Two blocks of zeros are the end.
        let error = refusal(io::repeat(0), &wanted);
        assert!(error.contains("too much comes behind"), "{error}");
        let error = refusal(io::repeat(0).take(TRAILER_MAX), &wanted);
        assert!(error.contains("diff ID"), "{error}");
    }

    #[test]
    fn a_layer_that_nobody_wants_is_not_unpacked() {
        let wanted = tokio_util::sync::CancellationToken::new();
        wanted.cancel();
        let error = refusal(io::repeat(0), &wanted);
        assert!(error.contains("the pull was given up"), "{error}");
    }
}
