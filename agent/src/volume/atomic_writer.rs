//! Puts a set of files into a volume so that readers see all of the old or all of the new.
//!
//! ```text
//! <volume>/..2026_11_21_10_30_00.123456789/key   the files
//! <volume>/..data -> ..2026_11_21_...            exchanged by rename
//! <volume>/key -> ..data/key
//! ```
//! Source: upstream `pkg/volume/util/atomic_writer.go`.

use std::{
    collections::BTreeSet,
    fs,
    io::Write,
    os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown, symlink},
    path::Path,
};

use super::{
    error::VolumePluginError,
    make_dir, ownership,
    payload::{FileProjection, Payload},
    remove_tree,
};

const DATA: &str = "..data";
const NEW_DATA: &str = "..data_tmp";

/// Writes the payload; returns whether anything changed. With a group the volume is the group's to
/// read before anybody sees the new files. Whatever an earlier writer left half done, because it
/// died, is made good.
pub(super) fn write(
    dir: &Path,
    payload: &Payload,
    group: Option<i64>,
) -> Result<bool, VolumePluginError> {
    let data = dir.join(DATA);
    let old = fs::read_link(&data).ok();
    let current = old.as_ref().map(|target| dir.join(target));
    if let (Some(stamp), Some(true)) = (
        &old,
        current.map(|current| is_current(&current, payload, group)),
    ) {
        link_and_sweep(dir, payload, stamp)?;
        return Ok(false);
    }
    refuse_files_within_files(payload)?;
    // Of a writer that died.
    sweep(dir, |name| old.as_deref() != Some(Path::new(name)))?;
    let stamp = format!(
        "..{}",
        k8s_openapi::jiff::Timestamp::now().strftime("%Y_%m_%d_%H_%M_%S.%N")
    );
    let fresh = dir.join(&stamp);
    if let Err(error) = fill(dir, &stamp, payload, group) {
        // Each further try would leave a copy beside it, perhaps in memory. What cannot be removed
        // is swept by the next.
        let _ = remove_tree(&fresh);
        return Err(error);
    }
    link_and_sweep(dir, payload, Path::new(&stamp))?;
    Ok(true)
}

/// Writes all files and has readers see them.
fn fill(
    dir: &Path,
    stamp: &str,
    payload: &Payload,
    group: Option<i64>,
) -> Result<(), VolumePluginError> {
    let fresh = dir.join(stamp);
    make_dir(&fresh)?;
    for (path, file) in payload {
        write_file(&fresh.join(path), file)?;
    }
    if let Some(group) = group {
        ownership::set_group(&fresh, group, true)?;
        ownership::set_group_of(dir, group, true)?;
    }
    let temporary = dir.join(NEW_DATA);
    let _ = fs::remove_file(&temporary);
    symlink(stamp, &temporary).map_err(VolumePluginError::io("link", &temporary))?;
    fs::rename(&temporary, dir.join(DATA)).map_err(VolumePluginError::io("rename", &temporary))
}

/// A name is a file's or a directory's.
fn refuse_files_within_files(payload: &Payload) -> Result<(), VolumePluginError> {
    let is_file = |path: &str| payload.contains_key(path);
    for path in payload.keys() {
        let mut above = path.as_str();
        while let Some((parent, _)) = above.rsplit_once('/') {
            if is_file(parent) {
                return Err(VolumePluginError::FileWithinFile {
                    path: path.clone(),
                    file: parent.to_owned(),
                });
            }
            above = parent;
        }
    }
    Ok(())
}

/// Removes what is neither a file's link nor in use.
fn sweep(dir: &Path, is_unused: impl Fn(&str) -> bool) -> Result<(), VolumePluginError> {
    for entry in fs::read_dir(dir)
        .map_err(VolumePluginError::io("read", dir))?
        .flatten()
    {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with("..") && name != DATA && is_unused(&name) {
            remove_tree(&entry.path())?;
        }
    }
    Ok(())
}

/// A link for each name at the top, and nothing else beside the files in use.
fn link_and_sweep(dir: &Path, payload: &Payload, stamp: &Path) -> Result<(), VolumePluginError> {
    let tops: BTreeSet<&str> = payload
        .keys()
        .map(|path| path.split('/').next().unwrap_or(path))
        .collect();
    for top in &tops {
        let link = dir.join(top);
        if fs::symlink_metadata(&link).is_err() {
            symlink(Path::new(DATA).join(top), &link)
                .map_err(VolumePluginError::io("link", &link))?;
        }
    }
    for entry in fs::read_dir(dir)
        .map_err(VolumePluginError::io("read", dir))?
        .flatten()
    {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if !name.starts_with("..") && !tops.contains(name.as_ref()) {
            fs::remove_file(entry.path())
                .map_err(VolumePluginError::io("remove", &entry.path()))?;
        }
    }
    sweep(dir, |name| Path::new(name) != stamp)
}

/// Whether something has been written there.
pub(super) fn has_content(dir: &Path) -> bool {
    dir.join(DATA).is_dir()
}

fn write_file(path: &Path, file: &FileProjection) -> Result<(), VolumePluginError> {
    if let Some(parent) = path.parent() {
        make_dir(parent)?;
    }
    let mut out = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(file.mode)
        .open(path)
        .map_err(VolumePluginError::io("create", path))?;
    out.write_all(&file.data)
        .map_err(VolumePluginError::io("write", path))?;
    // The umask must not decide.
    out.set_permissions(fs::Permissions::from_mode(file.mode))
        .map_err(VolumePluginError::io("set the mode of", path))?;
    match file.owner {
        Some(owner) => fchown(&out, Some(owner), None)
            .map_err(VolumePluginError::io("change the owner of", path)),
        None => Ok(()),
    }
}

/// Whether all files are as they should be, and the group's.
fn is_current(old: &Path, payload: &Payload, group: Option<i64>) -> bool {
    let group = group.and_then(|group| u32::try_from(group).ok());
    if group.is_some_and(|group| fs::metadata(old).is_ok_and(|found| found.gid() != group)) {
        return false;
    }
    let mut found = 0;
    let mut pending = vec![old.to_owned()];
    while let Some(dir) = pending.pop() {
        let Ok(entries) = fs::read_dir(&dir) else {
            return false;
        };
        for entry in entries.flatten() {
            let path = entry.path();
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                pending.push(path);
                continue;
            }
            let Some(file) = path
                .strip_prefix(old)
                .ok()
                .and_then(Path::to_str)
                .and_then(|name| payload.get(name))
            else {
                return false;
            };
            let owned = file
                .owner
                .is_none_or(|owner| fs::metadata(&path).is_ok_and(|found| found.uid() == owner));
            if !owned || fs::read(&path).ok().as_deref() != Some(&file.data) {
                return false;
            }
            found += 1;
        }
    }
    found == payload.len()
}
