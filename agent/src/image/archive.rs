//! Importing images from a file: `docker save` archives and OCI image layouts, plain or compressed.
//!
//! The archive is scanned once for where its members lie, then read in place: manifests may come
//! after the layers they name. A compressed archive is decompressed into the staging directory
//! first.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    path::{Path, PathBuf},
};

use serde::Deserialize;

use super::{
    access::Key,
    allowance::Allowance,
    blob::Decompressed,
    config::{self, DOCUMENT_MAX, oci_architecture},
    index::{Layout, Record, store_error},
    layer::{self, LayerError, is_sha256},
    reference,
    unpack::HEADERS_MAX,
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
    /// A layer is broken.
    #[error(transparent)]
    Layer(#[from] LayerError),
    /// The store failed, or a name in the archive is bad.
    #[error(transparent)]
    Store(#[from] ImageError),
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
        let mut document: OciDocument = archive.json(&blob_name(&descriptor.digest)?)?;
        if document.config.is_none() {
            let Some(ours) = document.manifests.iter().find(|manifest| fits(manifest)) else {
                continue;
            };
            document = archive.json(&blob_name(&ours.digest)?)?;
        }
        let config = document
            .config
            .ok_or_else(|| malformed("a manifest names no config"))?;
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
    let (config, diff_ids) = config::parse(&config_bytes).map_err(malformed)?;
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
                let staged = layer::stage(layout, spec, archive.member(name)?)?;
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
    let id = format!(
        "sha256:{}",
        hex::encode(<sha2::Sha256 as sha2::Digest>::digest(&config_bytes))
    );
    Ok(Record {
        id,
        layers,
        size_bytes,
        repo_tags,
        repo_digests: BTreeSet::new(),
        config,
        access,
    })
}

/// In words of our own: the library's end with the bytes that it took for a header, which belong on
/// nobody's terminal.
fn broken_tar(error: io::Error) -> ImportError {
    malformed(match error.kind() {
        io::ErrorKind::Other => {
            "it is no tar archive, plain or compressed with gzip or zstd".to_owned()
        }
        kind => format!("its tar cannot be read: {kind}"),
    })
}

/// A seekable tar and where its members lie.
struct Archive {
    file: File,
    members: BTreeMap<String, (u64, u64)>,
    /// Removed when the import ends.
    temporary: Option<PathBuf>,
}

impl Archive {
    fn open(layout: &Layout, path: &Path) -> Result<Self, ImportError> {
        let file = File::open(path).map_err(ImportError::Read)?;
        let mut archive = Self {
            file,
            members: BTreeMap::new(),
            temporary: None,
        };
        let mut decompressed =
            Decompressed::new(archive.file.try_clone().map_err(ImportError::Read)?)
                .map_err(ImportError::Read)?;
        if !matches!(decompressed, Decompressed::Plain(_)) {
            let plain = layout
                .staging_dir()
                .join(uuid::Uuid::new_v4().simple().to_string());
            archive.temporary = Some(plain.clone());
            let mut out = File::create_new(&plain).map_err(store_error("create", &plain))?;
            io::copy(&mut decompressed, &mut out).map_err(ImportError::Read)?;
            archive.file = File::open(&plain).map_err(store_error("open", &plain))?;
        }
        archive.scan()?;
        Ok(archive)
    }

    fn scan(&mut self) -> Result<(), ImportError> {
        self.file.seek(SeekFrom::Start(0)).map_err(broken_tar)?;
        let mut links = Vec::new();
        let allowance = Allowance::new(HEADERS_MAX);
        let mut tar = tar::Archive::new(allowance.limit(io::BufReader::new(&self.file)));
        for entry in tar.entries_with_seek().map_err(broken_tar)? {
            let entry = entry.map_err(broken_tar)?;
            allowance.set(HEADERS_MAX);
            let name = normalize(&entry.path().map_err(broken_tar)?);
            match entry.header().entry_type() {
                tar::EntryType::Regular => {
                    self.members
                        .insert(name, (entry.raw_file_position(), entry.size()));
                }
                // `docker save` of old wrote a repeated layer as a link to the first.
                tar::EntryType::Symlink | tar::EntryType::Link => {
                    if let Some(target) = entry.link_name().map_err(broken_tar)? {
                        links.push((
                            name,
                            target.into_owned(),
                            entry.header().entry_type().is_symlink(),
                        ));
                    }
                }
                _ => {}
            }
        }
        drop(tar);
        for (name, target, relative) in links {
            let base = if relative {
                Path::new(&name).parent().unwrap_or(Path::new(""))
            } else {
                Path::new("")
            };
            if let Some(place) = self.members.get(&normalize(&base.join(target))).copied() {
                self.members.insert(name, place);
            }
        }
        Ok(())
    }

    fn member(&mut self, name: &str) -> Result<impl Read, ImportError> {
        let (offset, size) = *self
            .members
            .get(&normalize(Path::new(name)))
            .ok_or_else(|| malformed(format!("{name} is not in it")))?;
        let mut file = self.file.try_clone().map_err(ImportError::Read)?;
        file.seek(SeekFrom::Start(offset))
            .map_err(ImportError::Read)?;
        Ok(file.take(size))
    }

    fn bytes(&mut self, name: &str) -> Result<Vec<u8>, ImportError> {
        let mut bytes = Vec::new();
        self.member(name)?
            .take(DOCUMENT_MAX + 1)
            .read_to_end(&mut bytes)
            .map_err(ImportError::Read)?;
        if bytes.len() as u64 > DOCUMENT_MAX {
            return Err(malformed(format!(
                "{name} is larger than {DOCUMENT_MAX} bytes"
            )));
        }
        Ok(bytes)
    }

    fn json<T: serde::de::DeserializeOwned>(&mut self, name: &str) -> Result<T, ImportError> {
        serde_json::from_slice(&self.bytes(name)?)
            .map_err(|error| malformed(format!("{name}: {error}")))
    }
}

impl Drop for Archive {
    fn drop(&mut self) {
        if let Some(path) = self.temporary.take() {
            // Left behind it costs disk only; the next start of the agent removes it.
            let _absent_is_fine = std::fs::remove_file(path);
        }
    }
}

/// Members are named with and without `./`, links with `..`.
fn normalize(path: &Path) -> String {
    let mut parts: Vec<String> = Vec::new();
    for component in path.components() {
        match component {
            std::path::Component::Normal(part) => parts.push(part.to_string_lossy().into_owned()),
            std::path::Component::ParentDir => {
                parts.pop();
            }
            _ => {}
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_file_holds_is_not_quoted() {
        let text = "root:x:0:0:root:/root:/bin/bash\n".repeat(64);
        let error = tar::Archive::new(text.as_bytes())
            .entries()
            .unwrap()
            .next()
            .unwrap()
            .err()
            .unwrap();
        let shown = broken_tar(error).to_string();
        assert_eq!(
            shown,
            "not a usable image archive: it is no tar archive, plain or compressed with gzip or zstd"
        );
    }
}
