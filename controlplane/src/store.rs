//! Opens what keeps the objects, and the certificates beside it.

use std::{
    fs::File,
    path::{Path, PathBuf},
    sync::Arc,
};

use coracle_apiserver::pki::{Pki, PkiError, ServerNames};
use coracle_store::{Backend, StoreError, memory::MemoryBackend, sqlite::SqliteBackend};

use crate::config::{ServerConfig, StoreEngine};

/// Why what keeps the objects, or the certificates, cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The data directory cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Etcd cannot be used.
    #[cfg(feature = "etcd")]
    #[error(transparent)]
    Etcd(#[from] coracle_store_etcd::OpenError),
    /// Certificates cannot be made or read.
    #[error(transparent)]
    Pki(#[from] PkiError),
    /// The thread that opens them has died.
    #[error("opening the store ended unexpectedly")]
    Died,
}

/// What was opened.
pub(crate) struct Opened {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) pki: Pki,
    /// Of the directory; a store that is in it has it itself.
    pub(crate) lock: Option<File>,
}

/// Opens the store and the certificates. The directory is locked first, whatever the store: SQLite
/// does so itself. Etcd comes after the certificates, because they say whose data it has to be.
pub(crate) async fn open(config: &ServerConfig, server_dir: PathBuf) -> Result<Opened, OpenError> {
    let names = config.server_names();
    match config.store.clone() {
        StoreEngine::Sqlite => {
            blocking(move || {
                let backend = Arc::new(SqliteBackend::open(&server_dir)?);
                let pki = pki(&server_dir, &names)?;
                Ok(Opened {
                    backend,
                    pki,
                    lock: None,
                })
            })
            .await
        }
        StoreEngine::Memory => {
            let (pki, lock) = blocking(move || locked(&server_dir, &names)).await?;
            Ok(Opened {
                backend: Arc::new(MemoryBackend::new()),
                pki,
                lock: Some(lock),
            })
        }
        #[cfg(feature = "etcd")]
        StoreEngine::Etcd(etcd) => {
            let (pki, lock) = blocking(move || locked(&server_dir, &names)).await?;
            let owner = pki.ca_hash()?;
            // Told by who serves from it: one that joins has opened it before, to try it.
            if etcd.is_in_clear() {
                tracing::warn!(
                    "etcd is spoken to in clear over a network: whoever listens reads every Secret, and may change all; use https"
                );
            }
            let opening = coracle_store_etcd::EtcdBackend::open(&etcd, &owner);
            Ok(Opened {
                backend: Arc::new(Box::pin(opening).await?),
                pki,
                lock: Some(lock),
            })
        }
    }
}

fn locked(server_dir: &Path, names: &ServerNames) -> Result<(Pki, File), OpenError> {
    let lock = SqliteBackend::take(server_dir)?;
    Ok((pki(server_dir, names)?, lock))
}

fn pki(server_dir: &Path, names: &ServerNames) -> Result<Pki, OpenError> {
    Ok(Pki::open(&server_dir.join("pki"), names)?)
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, OpenError> + Send + 'static,
) -> Result<T, OpenError> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|_| OpenError::Died)?
}
