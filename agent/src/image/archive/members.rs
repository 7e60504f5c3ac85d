//! An archive's members, to be read in any order.
//!
//! The archive is scanned once for where its members lie, then read in place: manifests may come
//! after the layers they name. A compressed archive is decompressed into the staging directory
//! first.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    path::{Path, PathBuf},
};

use super::{
    super::{
        allowance::Allowance,
        blob::Decompressed,
        capacity::Claim,
        config::DOCUMENT_MAX,
        index::{Layout, store_error},
        unpack::HEADERS_MAX,
    },
    ImportError, malformed,
};

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
pub(super) struct Archive {
    file: File,
    pub(super) members: BTreeMap<String, (u64, u64)>,
    /// Removed when the import ends.
    temporary: Option<PathBuf>,
}

impl Archive {
    pub(super) fn open(layout: &Layout, path: &Path) -> Result<Self, ImportError> {
        let file = File::open(path).map_err(ImportError::Read)?;
        let mut archive = Self {
            file,
            members: BTreeMap::new(),
            temporary: None,
        };
        let mut decompressed = Decompressed::new(
            archive.file.try_clone().map_err(ImportError::Read)?,
            Claim::alone(),
        )
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

    pub(super) fn member(&mut self, name: &str) -> Result<impl Read, ImportError> {
        let (offset, size) = *self
            .members
            .get(&normalize(Path::new(name)))
            .ok_or_else(|| malformed(format!("{name} is not in it")))?;
        let mut file = self.file.try_clone().map_err(ImportError::Read)?;
        file.seek(SeekFrom::Start(offset))
            .map_err(ImportError::Read)?;
        Ok(file.take(size))
    }

    pub(super) fn bytes(&mut self, name: &str) -> Result<Vec<u8>, ImportError> {
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

    pub(super) fn json<T: serde::de::DeserializeOwned>(
        &mut self,
        name: &str,
    ) -> Result<T, ImportError> {
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
