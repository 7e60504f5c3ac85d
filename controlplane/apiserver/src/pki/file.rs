//! Secret files: atomic, durable, for their owner alone.

use std::{
    fs,
    io::ErrorKind,
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _},
    path::Path,
};

use coracle_trust::private_file;

use super::{KeyPair, PkiError};

/// Writes `bytes` to `path` with mode 0600: all or nothing, also when the power goes.
///
/// # Errors
/// [`PkiError::Write`] names the path.
pub fn write_private(path: &Path, bytes: &[u8]) -> Result<(), PkiError> {
    private_file::write(path, bytes).map_err(|source| PkiError::Write {
        path: path.to_owned(),
        source,
    })
}

/// As [`write_private`], but leaves a file alone that is just so: on a full disk a server starts
/// again.
///
/// # Errors
/// As [`write_private`].
pub fn keep_private(path: &Path, bytes: &[u8]) -> Result<(), PkiError> {
    let is_so = || {
        let metadata = fs::symlink_metadata(path)?;
        Ok::<_, std::io::Error>(
            metadata.is_file() && metadata.mode() & 0o7777 == 0o600 && fs::read(path)? == bytes,
        )
    };
    if is_so().unwrap_or(false) {
        Ok(())
    } else {
        write_private(path, bytes)
    }
}

/// Makes `dir`, and what is missing above it, for its owner alone.
///
/// # Errors
/// [`PkiError::Write`] names it.
pub fn ensure_private_dir(dir: &Path) -> Result<(), PkiError> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .map_err(|source| PkiError::Write {
            path: dir.to_owned(),
            source,
        })
}

pub(super) fn read_optional(path: &Path) -> Result<Option<String>, PkiError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(source) => Err(PkiError::Read {
            path: path.to_owned(),
            source,
        }),
    }
}

pub(super) fn read_pair(dir: &Path, name: &str) -> Result<Option<KeyPair>, PkiError> {
    let cert = read_optional(&dir.join(format!("{name}.crt")))?;
    let key = read_optional(&dir.join(format!("{name}.key")))?;
    Ok(cert
        .zip(key)
        .map(|(cert_pem, key_pem)| KeyPair { cert_pem, key_pem }))
}

/// The key goes first: a certificate on disk always has its key beside it, or is made anew.
pub(super) fn write_pair(dir: &Path, name: &str, pair: KeyPair) -> Result<KeyPair, PkiError> {
    write_private(&dir.join(format!("{name}.key")), pair.key_pem.as_bytes())?;
    write_private(&dir.join(format!("{name}.crt")), pair.cert_pem.as_bytes())?;
    Ok(pair)
}
