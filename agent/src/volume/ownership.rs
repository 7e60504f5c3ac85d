//! `fsGroup`: gives a volume's files to a group.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, lchown},
    path::Path,
};

use super::error::VolumePluginError;

const DIR_BITS: u32 = 0o2770;
const RO_DIR_BITS: u32 = 0o2550;
const RW_BITS: u32 = 0o660;
const RO_BITS: u32 = 0o440;

/// Changes group and modes of everything below `root`, and of `root` last: what has them has been
/// done as a whole. Symlinks are not followed.
pub(super) fn set_group(root: &Path, group: i64, readonly: bool) -> Result<(), VolumePluginError> {
    let mut found = vec![root.to_owned()];
    let mut next = 0;
    while let Some(path) = found.get(next).cloned() {
        next += 1;
        if fs::symlink_metadata(&path)
            .map_err(VolumePluginError::io("look at", &path))?
            .is_dir()
        {
            for entry in fs::read_dir(&path).map_err(VolumePluginError::io("read", &path))? {
                found.push(entry.map_err(VolumePluginError::io("read", &path))?.path());
            }
        }
    }
    found
        .iter()
        .rev()
        .try_for_each(|path| set_group_of(path, group, readonly))
}

/// Changes group and mode of one file or directory.
pub(super) fn set_group_of(
    path: &Path,
    group: i64,
    readonly: bool,
) -> Result<(), VolumePluginError> {
    let Ok(group) = u32::try_from(group) else {
        return Ok(());
    };
    let metadata = fs::symlink_metadata(path).map_err(VolumePluginError::io("look at", path))?;
    lchown(path, None, Some(group)).map_err(VolumePluginError::io("change the group of", path))?;
    if metadata.is_symlink() {
        return Ok(());
    }
    let bits = match (metadata.is_dir(), readonly) {
        (true, true) => RO_DIR_BITS,
        (true, false) => DIR_BITS,
        (false, true) => RO_BITS,
        (false, false) => RW_BITS,
    };
    let mode = metadata.permissions().mode() | bits;
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
        .map_err(VolumePluginError::io("set the mode of", path))
}
