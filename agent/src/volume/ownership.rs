//! `fsGroup`: gives a volume's files to a group.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, lchown},
    path::Path,
};

use super::KindError;

const DIR_BITS: u32 = 0o2770;
const RW_BITS: u32 = 0o660;
const RO_BITS: u32 = 0o440;

/// Changes group and modes of everything below `root`; symlinks are not followed.
pub(super) fn set_group(root: &Path, group: i64, readonly: bool) -> Result<(), KindError> {
    let Ok(group) = u32::try_from(group) else { return Ok(()) };
    let mut pending = vec![root.to_owned()];
    while let Some(path) = pending.pop() {
        let metadata = fs::symlink_metadata(&path).map_err(KindError::io("look at", &path))?;
        lchown(&path, None, Some(group)).map_err(KindError::io("change the group of", &path))?;
        if metadata.is_symlink() {
            continue;
        }
        let file_bits = if readonly { RO_BITS } else { RW_BITS };
        let bits = match (metadata.is_dir(), readonly) {
            (true, true) => 0o2550,
            (true, false) => DIR_BITS,
            (false, _) => file_bits,
        };
        let mode = metadata.permissions().mode() | bits;
        fs::set_permissions(&path, fs::Permissions::from_mode(mode))
            .map_err(KindError::io("set the mode of", &path))?;
        if metadata.is_dir() {
            for entry in fs::read_dir(&path).map_err(KindError::io("read", &path))? {
                pending.push(entry.map_err(KindError::io("read", &path))?.path());
            }
        }
    }
    Ok(())
}
