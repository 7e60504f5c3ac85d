//! The files of a volume: what is in them, whose they are, and what of a ConfigMap or Secret
//! becomes one.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::KeyToPath;

use super::error::VolumePluginError;

/// A file inside a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileProjection {
    pub(crate) data: Vec<u8>,
    pub(crate) mode: u32,
    /// Root's when absent.
    pub(crate) owner: Option<u32>,
}

impl FileProjection {
    pub(super) fn new(data: Vec<u8>, mode: u32) -> Self {
        Self {
            data,
            mode,
            owner: None,
        }
    }
}

/// Relative path to file.
pub(crate) type Payload = BTreeMap<String, FileProjection>;

/// What a volume takes of a ConfigMap or Secret, whichever part of a Pod says so.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Selection<'a> {
    /// The object's.
    pub(super) name: &'a str,
    /// All keys, if empty or absent.
    pub(super) items: Option<&'a [KeyToPath]>,
    pub(super) default_mode: Option<i32>,
    /// The object or a key may be missing.
    pub(super) optional: bool,
}

/// How messages call a kind of object, and its keys.
#[derive(Debug, Clone, Copy)]
pub(super) struct Words {
    pub(super) object: &'static str,
    pub(super) key: &'static str,
}

impl Selection<'_> {
    /// The files, of the object's data; of `None` if there is no such object.
    pub(super) fn project(
        &self,
        words: Words,
        data: Option<BTreeMap<String, Vec<u8>>>,
    ) -> Result<Payload, VolumePluginError> {
        let Some(data) = data else {
            let missing = || VolumePluginError::NotFound {
                kind: words.object,
                name: self.name.to_owned(),
            };
            return if self.optional {
                Ok(Payload::new())
            } else {
                Err(missing())
            };
        };
        let default_mode = mode(self.default_mode, 0o644);
        let Some(items) = self.items.filter(|items| !items.is_empty()) else {
            let file = |(key, value)| (key, FileProjection::new(value, default_mode));
            return Ok(data.into_iter().map(file).collect());
        };
        let mut payload = Payload::new();
        for item in items {
            // One key may become several files.
            match data.get(&item.key) {
                Some(value) => {
                    let mode = item
                        .mode
                        .map_or(default_mode, |own| mode(Some(own), default_mode));
                    payload.insert(
                        checked(&item.path)?,
                        FileProjection::new(value.clone(), mode),
                    );
                }
                None if self.optional => {}
                None => {
                    return Err(VolumePluginError::NoKey {
                        kind: words.key,
                        key: item.key.clone(),
                    });
                }
            }
        }
        Ok(payload)
    }
}

pub(super) fn mode(mode: Option<i32>, default: u32) -> u32 {
    mode.and_then(|mode| u32::try_from(mode).ok())
        .map_or(default, |mode| mode & 0o777)
}

/// A relative path without `..`, in its shortest form: `./a//b` is `a/b`. Names that begin with
/// `..` at the top are the writer's own.
///
/// Source: `validatePayload` in `pkg/volume/util/atomic_writer.go` at v1.37.
pub(super) fn checked(path: &str) -> Result<String, VolumePluginError> {
    let parts: Vec<&str> = path
        .split('/')
        .filter(|part| !matches!(*part, "" | "."))
        .collect();
    let is_ours = parts.first().is_none_or(|first| first.starts_with(".."));
    if path.starts_with('/') || is_ours || parts.contains(&"..") {
        return Err(VolumePluginError::BadPath {
            path: path.to_owned(),
        });
    }
    Ok(parts.join("/"))
}
