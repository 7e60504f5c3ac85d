//! Opens what keeps the objects, and the certificates beside it.

use std::{
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

/// Opens the store and the certificates. SQLite comes first, because it locks the directory; etcd
/// comes after them, because they say whose data it has to be.
pub(crate) async fn open(
    config: &ServerConfig,
    server_dir: PathBuf,
) -> Result<(Arc<dyn Backend>, Pki), OpenError> {
    let names = config.server_names();
    match config.store.clone() {
        StoreEngine::Sqlite => {
            blocking(move || {
                let backend = SqliteBackend::open(&server_dir)?;
                Ok((
                    Arc::new(backend) as Arc<dyn Backend>,
                    pki(&server_dir, &names)?,
                ))
            })
            .await
        }
        StoreEngine::Memory => {
            let pki = blocking(move || pki(&server_dir, &names)).await?;
            Ok((Arc::new(MemoryBackend::new()), pki))
        }
        #[cfg(feature = "etcd")]
        StoreEngine::Etcd(etcd) => {
            let pki = blocking(move || pki(&server_dir, &names)).await?;
            let owner = pki.ca_hash()?;
            let opening = coracle_store_etcd::EtcdBackend::open(&etcd, &owner);
            let backend = Box::pin(opening).await?;
            Ok((Arc::new(backend), pki))
        }
    }
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
