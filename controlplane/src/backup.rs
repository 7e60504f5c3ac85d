//! Backups: fetched from a running server, copied from a stopped one, and put in its place again.
//!
//! What a store's file looks like is [`coracle_store::sqlite`]'s. Not here: certificates and keys,
//! which are files of the data directory that never change by themselves.

use std::{
    io,
    path::{Path, PathBuf},
};

pub use coracle_store::sqlite::{
    check::Contents,
    pending::{Existing, PendingFile},
    restore::Restored,
};
use coracle_store::{
    StoreError,
    sqlite::{backup, check, restore},
};
use futures::{AsyncRead, AsyncReadExt as _};

/// Where the API server gives it away.
const PATH: &str = "/coracle/backup";
/// Taken from the connection at once.
const PIECE: usize = 128 * 1024;

/// Why there is no backup, or why it is not in place.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackupError {
    /// The files cannot be used.
    #[error(transparent)]
    Files(#[from] StoreError),
    /// The server has refused, or cannot be reached.
    #[error("cannot get a backup from the server")]
    Ask(#[source] kube::Error),
    /// The connection broke off.
    #[error("the server's answer broke off: try again")]
    Receive(#[source] io::Error),
}

/// How a stopped server's store was left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The file has been written from it.
    Stopped,
    /// A server works with it: that has to be asked.
    Running,
}

/// Whether there is a store in the data directory.
#[must_use]
pub fn has_store(data_dir: &Path) -> bool {
    server_dir(data_dir).join("store.db").exists()
}

/// Copies the store in `data_dir` into `file` if no server runs there.
///
/// # Errors
/// [`BackupError::Files`]. Blocks.
pub fn copy_stopped(data_dir: &Path, file: &PendingFile) -> Result<Source, BackupError> {
    match backup::of_stopped(&server_dir(data_dir), file) {
        Ok(()) => Ok(Source::Stopped),
        Err(StoreError::Locked { .. }) => Ok(Source::Running),
        Err(error) => Err(error.into()),
    }
}

/// Writes what a running server gives into `file`.
///
/// # Errors
/// [`BackupError`].
pub async fn fetch(client: &kube::Client, file: &mut PendingFile) -> Result<(), BackupError> {
    let request = hyper::Request::get(PATH)
        .body(Vec::new())
        .map_err(|error| BackupError::Ask(kube::Error::HttpError(error)))?;
    let body = client.request_stream(request).await;
    receive(body.map_err(BackupError::Ask)?, file).await
}

async fn receive(body: impl AsyncRead, file: &mut PendingFile) -> Result<(), BackupError> {
    let mut body = std::pin::pin!(body);
    let mut piece = vec![0; PIECE];
    loop {
        match body.read(&mut piece).await.map_err(BackupError::Receive)? {
            0 => return Ok(()),
            length => file.write(&piece[..length])?,
        }
    }
}

/// Looks at all of what is in `file`, and then gives it its name. Blocks.
///
/// # Errors
/// [`BackupError::Files`], and there is no such file.
pub fn finish(file: PendingFile) -> Result<Contents, BackupError> {
    let contents = check::verify(file.partial())?;
    file.finish()?;
    Ok(contents)
}

/// Puts the backup `from` in the place of what the stopped server in `data_dir` has. Blocks.
///
/// # Errors
/// [`BackupError::Files`], and what is there stays.
pub fn put_back(data_dir: &Path, from: &Path) -> Result<Restored, BackupError> {
    Ok(restore::restore(&server_dir(data_dir), from)?)
}

fn server_dir(data_dir: &Path) -> PathBuf {
    data_dir.join("server")
}
