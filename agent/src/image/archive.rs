//! Importing images from a file: `docker save` archives and OCI image layouts, plain or compressed.
//!
//! Every document of an OCI layout has to be what its digest says. What `docker save` writes names
//! no digests; layers are held against their diff IDs in both.

mod members;

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::{Path, PathBuf},
};

use serde::Deserialize;

use self::members::Archive;
use super::{
    access::Key,
    capacity::Claim,
    config::{self, oci_architecture},
    distribution::INDEXES_MAX,
    error::{DocumentError, LayerError, StoreError},
    index::{Layout, Record},
    layer::{self, is_sha256},
    reference,
};
use crate::runtime::ImageError;

/// Why an archive cannot be imported.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The file cannot be read.
    #[error("read it")]
    Read(#[source] io::Error),
    /// It is no image archive, or a broken one.
    #[error("not a usable image archive: {why}")]
    Malformed {
        /// What is wrong.
        why: String,
    },
    /// The config of an image in it cannot be used.
    #[error("not a usable image archive")]
    Document(#[from] DocumentError),
    /// A layer is broken.
    #[error(transparent)]
    Layer(#[from] LayerError),
    /// A name in the archive is bad.
    #[error(transparent)]
    Name(#[from] ImageError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

fn malformed(why: impl Into<String>) -> ImportError {
    ImportError::Malformed { why: why.into() }
}

/// A member of `docker save`'s `manifest.json`.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct DockerManifest {
    config: String,
    #[serde(default)]
    repo_tags: Option<Vec<String>>,
    layers: Vec<String>,
}

/// What of an OCI descriptor matters here.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Descriptor {
    digest: String,
    #[serde(default)]
    platform: Option<Platform>,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct Platform {
    #[serde(default)]
    architecture: String,
    #[serde(default)]
    os: String,
}

/// An OCI index or manifest: whichever members are there tell.
#[derive(Deserialize)]
struct OciDocument {
    #[serde(default)]
    manifests: Vec<Descriptor>,
    #[serde(default)]
    config: Option<Descriptor>,
    #[serde(default)]
    layers: Vec<Descriptor>,
}

/// Unpacks every image of the archive at `path` that this machine can run. The caller records them.
/// Blocking.
///
/// # Errors
/// See [`ImportError`].
pub(crate) fn import(layout: &Layout, path: &Path) -> Result<Vec<Record>, ImportError> {
    let mut archive = Archive::open(layout, path)?;
    let records = if archive.members.contains_key("manifest.json") {
        import_docker(layout, &mut archive)?
    } else if archive.members.contains_key("index.json") {
        import_oci(layout, &mut archive)?
    } else {
        return Err(malformed(
            "neither manifest.json (docker save) nor index.json (OCI layout) is in it",
        ));
    };
    if records.is_empty() {
        return Err(malformed(format!(
            "it holds no image for linux/{}",
            oci_architecture()
        )));
    }
    Ok(records)
}

fn import_docker(layout: &Layout, archive: &mut Archive) -> Result<Vec<Record>, ImportError> {
    let manifests: Vec<DockerManifest> = archive.json("manifest.json")?;
    let mut records = Vec::new();
    for manifest in manifests {
        let tags = manifest.repo_tags.unwrap_or_default();
        records.push(import_image(
            layout,
            archive,
            &manifest.config,
            &manifest.layers,
            &tags,
        )?);
    }
    Ok(records)
}

fn import_oci(layout: &Layout, archive: &mut Archive) -> Result<Vec<Record>, ImportError> {
    let index: OciDocument = archive.json("index.json")?;
    let mut records = Vec::new();
    for descriptor in index.manifests {
        let name = [
            "io.containerd.image.name",
            "org.opencontainers.image.ref.name",
        ]
        .iter()
        .find_map(|key| descriptor.annotations.get(*key))
        .cloned();
        let Some(document) = find_manifest(archive, &descriptor.digest)? else {
            continue;
        };
        let config = document
            .config
            .ok_or_else(|| malformed("a manifest names no config"))?;
        verified(archive, &config.digest)?;
        let layers = document
            .layers
            .iter()
            .map(|layer| blob_name(&layer.digest))
            .collect::<Result<Vec<_>, _>>()?;
        let tags: Vec<String> = name.into_iter().collect();
        records.push(import_image(
            layout,
            archive,
            &blob_name(&config.digest)?,
            &layers,
            &tags,
        )?);
    }
    Ok(records)
}

/// The manifest for this machine behind `digest`: that itself, or what indexes lead to.
fn find_manifest(archive: &mut Archive, digest: &str) -> Result<Option<OciDocument>, ImportError> {
    let mut digest = digest.to_owned();
    for _ in 0..=INDEXES_MAX {
        let document: OciDocument = serde_json::from_slice(&verified(archive, &digest)?)
            .map_err(|error| malformed(format!("manifest {digest}: {error}")))?;
        if document.config.is_some() {
            return Ok(Some(document));
        }
        let Some(ours) = document.manifests.into_iter().find(fits) else {
            return Ok(None);
        };
        digest = ours.digest;
    }
    Err(malformed(format!(
        "more than {INDEXES_MAX} indexes within each other"
    )))
}

/// A document that is what its digest says.
fn verified(archive: &mut Archive, digest: &str) -> Result<Vec<u8>, ImportError> {
    let bytes = archive.bytes(&blob_name(digest)?)?;
    let actual = sha256(&bytes);
    if actual == digest {
        Ok(bytes)
    } else {
        Err(malformed(format!("{digest} has the digest {actual}")))
    }
}

fn sha256(bytes: &[u8]) -> String {
    format!(
        "sha256:{}",
        hex::encode(<sha2::Sha256 as sha2::Digest>::digest(bytes))
    )
}

fn fits(manifest: &Descriptor) -> bool {
    manifest
        .platform
        .as_ref()
        .is_none_or(|p| p.os == "linux" && p.architecture == oci_architecture())
}

fn blob_name(digest: &str) -> Result<String, ImportError> {
    if !is_sha256(digest) {
        return Err(malformed(format!(
            "digest {digest:?} is not a sha256 digest"
        )));
    }
    Ok(digest.replacen("sha256:", "blobs/sha256/", 1))
}

fn import_image(
    layout: &Layout,
    archive: &mut Archive,
    config_name: &str,
    layer_names: &[String],
    tags: &[String],
) -> Result<Record, ImportError> {
    let config_bytes = archive.bytes(config_name)?;
    let (config, diff_ids) = config::parse(&config_bytes)?;
    if diff_ids.len() != layer_names.len() {
        return Err(malformed(format!(
            "{} layers, but {} diff IDs",
            layer_names.len(),
            diff_ids.len()
        )));
    }
    let mut repo_tags = BTreeSet::new();
    for tag in tags {
        repo_tags.extend(reference::tag_name(&reference::parse(tag)?));
    }
    let mut size_bytes = 0;
    let mut below: Vec<PathBuf> = Vec::new();
    let specs = layer::specs(diff_ids.into_iter().map(|diff_id| (None, diff_id)));
    // Who imports a file gives it to everybody, also where it has been pulled with credentials.
    let anybody = [Key::anybody()];
    for (name, spec) in layer_names.iter().zip(&specs) {
        size_bytes += match spec.present(layout, &anybody) {
            Some(size) => size,
            None => {
                let staged = layer::stage(layout, spec, archive.member(name)?, Claim::alone())?;
                layer::adopt(layout, spec, &anybody, staged, &below)?
            }
        };
        below.insert(0, layout.layer_dir(&spec.chain_id).join("fs"));
    }
    let layers = specs.into_iter().map(|spec| spec.chain_id).collect();
    let access = repo_tags
        .iter()
        .map(|tag| (tag.clone(), anybody.iter().map(Key::line).collect()))
        .collect();
    Ok(Record {
        id: sha256(&config_bytes),
        layers,
        size_bytes,
        repo_tags,
        repo_digests: BTreeSet::new(),
        config,
        access,
    })
}

#[cfg(test)]
mod tests {
    use coracle_telemetry::ErrorChain;
    use serde_json::json;

    use super::*;

    /// An OCI layout of these documents, found from the first by their digests.
    fn import_layout(top: &str, blobs: &[(&str, &[u8])]) -> String {
        let mut tar = tar::Builder::new(Vec::new());
        let index = json!({ "manifests": [{ "digest": top }] }).to_string();
        let names = blobs
            .iter()
            .map(|(digest, bytes)| (blob_name(digest).expect("a digest"), *bytes));
        for (name, bytes) in names.chain([("index.json".to_owned(), index.as_bytes())]) {
            let mut header = tar::Header::new_gnu();
            header.set_mode(0o644);
            header.set_size(bytes.len() as u64);
            tar.append_data(&mut header, name, bytes).expect("append");
        }
        let dir = tempfile::tempdir().expect("directory");
        let layout = Layout::open(dir.path().join("images")).expect("store");
        let file = dir.path().join("archive");
        std::fs::write(&file, tar.into_inner().expect("tar")).expect("file");
        match import(&layout, &file) {
            Ok(records) => records.iter().map(|record| record.id.clone()).collect(),
            Err(error) => ErrorChain(&error).to_string(),
        }
    }

    fn config() -> Vec<u8> {
        json!({ "architecture": oci_architecture(), "os": "linux",
            "rootfs": { "type": "layers", "diff_ids": [] } })
        .to_string()
        .into_bytes()
    }

    fn manifest(config: &str) -> Vec<u8> {
        json!({ "config": { "digest": config }, "layers": [] })
            .to_string()
            .into_bytes()
    }

    #[test]
    fn documents_of_a_layout_are_what_their_digests_say() {
        let config = config();
        let config_digest = sha256(&config);
        let manifest = manifest(&config_digest);
        let digest = sha256(&manifest);
        let honest = import_layout(&digest, &[(&digest, &manifest), (&config_digest, &config)]);
        assert_eq!(honest, config_digest);
        let other = [&config[..], b" "].concat();
        let swapped = import_layout(&digest, &[(&digest, &manifest), (&config_digest, &other)]);
        let refusal = |promised: &str, found: &[u8]| {
            let found = sha256(found);
            format!("not a usable image archive: {promised} has the digest {found}")
        };
        assert_eq!(swapped, refusal(&config_digest, &other));
        let other = [&manifest[..], b" "].concat();
        let swapped = import_layout(&digest, &[(&digest, &other), (&config_digest, &config)]);
        assert_eq!(swapped, refusal(&digest, &other));
    }

    #[test]
    fn indexes_lead_to_the_manifest_and_not_for_ever() {
        let config = config();
        let config_digest = sha256(&config);
        for (depth, fits) in [
            (0, true),
            (1, true),
            (INDEXES_MAX, true),
            (INDEXES_MAX + 1, false),
        ] {
            let document = manifest(&config_digest);
            let mut blobs = vec![(config_digest.clone(), config.clone())];
            let mut top = sha256(&document);
            blobs.push((top.clone(), document));
            for _ in 0..depth {
                let index = json!({ "manifests": [{ "digest": top }] }).to_string();
                top = sha256(index.as_bytes());
                blobs.push((top.clone(), index.into_bytes()));
            }
            let blobs: Vec<(&str, &[u8])> = blobs
                .iter()
                .map(|(digest, bytes)| (&digest[..], &bytes[..]))
                .collect();
            let outcome = import_layout(&top, &blobs);
            assert_eq!(outcome == config_digest, fits, "{depth}: {outcome}");
        }
    }
}
