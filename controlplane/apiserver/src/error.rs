//! Why a server cannot start.

use coracle_registry::watch_cache::WatchCacheError;

use crate::pki::PkiError;

/// Why an [`ApiServer`](crate::ApiServer) could not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ApiServerError {
    /// The store could not be read.
    #[error("the store cannot be read")]
    ReadStore(#[source] WatchCacheError),
    /// TLS could not be set up from the certificates.
    #[error("TLS cannot be set up from the certificates in the pki directory")]
    SetUpTls(#[source] rustls::Error),
    /// Client certificates could not be verified: nobody would log in with one, and nobody be told
    /// why.
    #[error("client certificates cannot be verified with ca.crt in the pki directory")]
    VerifyClients(#[source] rustls::server::VerifierBuilderError),
    /// A certificate or key could not be read.
    #[error(transparent)]
    ReadPki(#[from] PkiError),
    /// Something that every cluster starts with could not be written.
    #[error("cannot write {what}: {message}")]
    Bootstrap {
        /// Which object.
        what: String,
        /// Why, as the API said it.
        message: String,
    },
}
