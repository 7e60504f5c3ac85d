//! Paths of the node, checked or made as their type says. Never removed, never chowned.

use std::{
    fs,
    io::ErrorKind,
    os::unix::fs::{FileTypeExt, PermissionsExt},
    path::{Path, PathBuf},
};

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Volume;

use super::{
    error::VolumePluginError,
    plugin::{SetUp, VolumePlugin},
};
use crate::blocking::blocking;

/// The plugin. Its volumes have no directory of their own, so there is nothing to take away.
pub(super) struct HostPath;

#[async_trait]
impl VolumePlugin for HostPath {
    fn name(&self) -> &'static str {
        "host-path"
    }

    fn supports(&self, volume: &Volume) -> bool {
        volume.host_path.is_some()
    }

    async fn set_up(&self, wanted: &SetUp<'_>) -> Result<PathBuf, VolumePluginError> {
        let source = wanted
            .volume
            .host_path
            .as_ref()
            .ok_or(VolumePluginError::Unsupported)?;
        let path = PathBuf::from(&source.path);
        let kind = source.type_.clone().unwrap_or_default();
        blocking(move || {
            check(&path, &kind)?;
            Ok(path)
        })
        .await
    }
}

pub(super) fn check(path: &Path, kind: &str) -> Result<(), VolumePluginError> {
    let wrong = |problem| {
        Err(VolumePluginError::HostPath {
            path: path.display().to_string(),
            problem,
        })
    };
    let found = match fs::metadata(path) {
        Ok(metadata) => Some(metadata.file_type()),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => return Err(VolumePluginError::io("look at", path)(error)),
    };
    match (kind, found) {
        // Without a type upstream's runtimes make a missing directory.
        ("" | "DirectoryOrCreate", None) => make_dir(path),
        ("FileOrCreate", None) => make_file(path),
        ("", Some(_)) => Ok(()),
        ("DirectoryOrCreate" | "Directory", Some(kind)) if kind.is_dir() => Ok(()),
        ("FileOrCreate" | "File", Some(kind)) if kind.is_file() => Ok(()),
        ("Socket", Some(kind)) if kind.is_socket() => Ok(()),
        ("CharDevice", Some(kind)) if kind.is_char_device() => Ok(()),
        ("BlockDevice", Some(kind)) if kind.is_block_device() => Ok(()),
        ("DirectoryOrCreate" | "Directory", _) => wrong("is not a directory"),
        ("FileOrCreate" | "File", _) => wrong("is not a file"),
        ("Socket", _) => wrong("is not a socket file"),
        ("CharDevice", _) => wrong("is not a character device"),
        ("BlockDevice", _) => wrong("is not a block device"),
        _ => wrong("has an unknown type"),
    }
}

fn make_dir(path: &Path) -> Result<(), VolumePluginError> {
    fs::create_dir_all(path).map_err(VolumePluginError::io("create", path))?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))
        .map_err(VolumePluginError::io("set the mode of", path))
}

fn make_file(path: &Path) -> Result<(), VolumePluginError> {
    fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .map_err(VolumePluginError::io("create", path))?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o644))
        .map_err(VolumePluginError::io("set the mode of", path))
}
