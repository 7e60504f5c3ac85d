//! `coracle store copy`: all objects from SQLite to etcd or back, while no server runs.
//!
//! The old store is left as it is. Certificates are files beside it and stay where they are: they
//! say whose data it is.

use std::{
    io,
    path::{Path, PathBuf},
};

use coracle_apiserver::pki::{Pki, PkiError};
use coracle_store::{
    Backend as _, StoreError,
    copy::{self, Copied, CopyError},
    sqlite::{SqliteBackend, SqliteOptions},
};
use coracle_store_etcd::{EtcdBackend, EtcdConfig, OpenError, status::DataStatus};

use crate::{
    alive::{self, Found},
    config::StoreEngine,
};

/// Why nothing was copied.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CopyStoreError {
    /// Two engines between which nothing is copied.
    #[error("a copy goes from sqlite to etcd, or from etcd to sqlite")]
    Engines,
    /// There are no certificates.
    #[error("{} has no certificates: it is the data directory of no server", dir.display())]
    NoServer {
        /// The data directory.
        dir: PathBuf,
    },
    /// They cannot be read.
    #[error(transparent)]
    Pki(#[from] PkiError),
    /// There is nothing to copy.
    #[error("there is nothing to copy: {what}")]
    NoSource {
        /// What is not there.
        what: String,
    },
    /// There is something where the copy would go.
    #[error("{} is there already: move it away first", path.display())]
    Exists {
        /// What is there.
        path: PathBuf,
    },
    /// A server lives on the etcd.
    #[error(
        "{server} runs on {prefix} of this etcd: stop it, and every other server of that cluster, first"
    )]
    InUse {
        /// Its host name and its address.
        server: String,
        /// The prefix.
        prefix: String,
    },
    /// SQLite's store cannot be opened.
    #[error(transparent)]
    OpenSqlite(#[from] StoreError),
    /// Etcd's cannot.
    #[error(transparent)]
    OpenEtcd(#[from] OpenError),
    /// Copying failed.
    #[error(transparent)]
    Copy(#[from] CopyError),
    /// The copy cannot be put where it belongs.
    #[error("cannot put the copy at {}", path.display())]
    Place {
        /// Where it belongs.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// Copies all objects of the server whose data is in `data_dir`.
///
/// # Errors
/// What is in the way. The old store is as it was; what is there of the new one is taken by no
/// server.
pub async fn copy_store(
    data_dir: &Path,
    from: &StoreEngine,
    to: &StoreEngine,
) -> Result<Copied, CopyStoreError> {
    let dir = data_dir.join("server");
    let owner = Pki::ca_hash_in(&dir.join("pki"))?.ok_or_else(|| CopyStoreError::NoServer {
        dir: data_dir.to_owned(),
    })?;
    match (from, to) {
        (StoreEngine::Sqlite, StoreEngine::Etcd(etcd)) => {
            Box::pin(to_etcd(&dir, &owner, etcd)).await
        }
        (StoreEngine::Etcd(etcd), StoreEngine::Sqlite) => {
            Box::pin(to_sqlite(&dir, &owner, etcd)).await
        }
        _ => Err(CopyStoreError::Engines),
    }
}

async fn to_etcd(dir: &Path, owner: &str, etcd: &EtcdConfig) -> Result<Copied, CopyStoreError> {
    let file = dir.join("store.db");
    if !file.exists() {
        let what = format!("{} does not exist", file.display());
        return Err(CopyStoreError::NoSource { what });
    }
    // Its lock says that no server runs.
    let from = SqliteBackend::open(dir)?;
    let past = from.current_revision().await?;
    // What is there is not taken for something that may be deleted.
    refuse_while_used(&Box::pin(EtcdBackend::reading(etcd)).await?, etcd).await?;
    let to = EtcdBackend::begin_copy(etcd, owner, past).await?;
    let copied = copy::copy(&from, &to).await?;
    to.finish_copy().await?;
    Ok(copied)
}

async fn to_sqlite(dir: &Path, owner: &str, etcd: &EtcdConfig) -> Result<Copied, CopyStoreError> {
    // Also against a server of this directory whose store is elsewhere.
    let _lock = SqliteBackend::keep_off(dir)?;
    let file = dir.join("store.db");
    if file.exists() {
        return Err(CopyStoreError::Exists { path: file });
    }
    let found = coracle_store_etcd::status::status(etcd).await?;
    if matches!(found.data, Ok(DataStatus::Empty)) {
        let what = format!("{} in etcd is empty", etcd.prefix);
        return Err(CopyStoreError::NoSource { what });
    }
    let from = EtcdBackend::open(etcd, owner).await?;
    refuse_while_used(&from, etcd).await?;
    let killed = alive::find(&from).await?;
    let begin_after = from.current_revision().await?;
    let staging = dir.join("store.copy");
    let place = |source| CopyStoreError::Place {
        path: file.clone(),
        source,
    };
    match std::fs::remove_dir_all(&staging) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(place(error)),
        _ => {}
    }
    let options = SqliteOptions {
        begin_after,
        ..SqliteOptions::default()
    };
    let to = SqliteBackend::open_with(&staging, options)?;
    let copied = copy::copy(&from, &to).await?;
    // One that has come meanwhile may have written what is not in the copy.
    let came = alive::find(&from).await?;
    if let Some(server) = came.into_iter().find(|server| !killed.contains(server)) {
        return Err(in_use(&server, etcd));
    }
    // All of it is in the one file once the store is closed.
    drop(to);
    // A log that was left behind belongs to another file.
    let log = dir.join("store.db-wal");
    match std::fs::rename(&log, dir.join("store.db-wal.old")) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(place(error)),
        _ => {}
    }
    std::fs::rename(staging.join("store.db"), &file).map_err(place)?;
    std::fs::File::open(dir)
        .and_then(|dir| dir.sync_all())
        .map_err(place)?;
    std::fs::remove_dir_all(&staging).map_err(place)?;
    Ok(copied)
}

async fn refuse_while_used(backend: &EtcdBackend, etcd: &EtcdConfig) -> Result<(), CopyStoreError> {
    match alive::running(backend).await? {
        Some(server) => Err(in_use(&server, etcd)),
        None => Ok(()),
    }
}

fn in_use(server: &Found, etcd: &EtcdConfig) -> CopyStoreError {
    let Found { host, address, .. } = server;
    CopyStoreError::InUse {
        server: match address {
            Some(address) => format!("the server {host} ({address})"),
            None => format!("the server {host}"),
        },
        prefix: etcd.prefix.clone(),
    }
}
