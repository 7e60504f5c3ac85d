//! Learns the cluster's CA from the server itself: it must be in the server's chain and have the
//! hash that the token names, and the server must be an API server of it. Nothing is asked of the
//! server before that.

use std::{io, sync::Arc, time::Duration};

use coracle_trust::{CaHash, Mismatch, PinnedAuthority};
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::net::TcpStream;

use crate::balancer::{SERVER_NAME, ServerAddress};

const LIMIT: Duration = Duration::from_secs(10);

/// Why the CA is not known.
#[derive(Debug, thiserror::Error)]
pub(super) enum TrustError {
    #[error("the chain has no CA with the token's hash")]
    WrongCa,
    #[error("{server} shows a certificate of this cluster that is no API server's")]
    NotApiServer { server: ServerAddress },
    #[error("connect to {server}")]
    Connect {
        server: ServerAddress,
        #[source]
        source: io::Error,
    },
    #[error("TLS handshake with {server}")]
    Handshake {
        server: ServerAddress,
        #[source]
        source: io::Error,
    },
    #[error("timed out")]
    Timeout,
    #[error("set up TLS")]
    Tls(#[from] rustls::Error),
}

/// Connects and returns the CA's certificate.
pub(super) async fn fetch_ca(
    server: &ServerAddress,
    hash: CaHash,
) -> Result<CertificateDer<'static>, TrustError> {
    let authority = PinnedAuthority::new(hash);
    let config = authority.client()?;
    // Not the name that it was reached by: a stable address need not be in each certificate.
    let name = ServerName::IpAddress(SERVER_NAME.into());
    let connect = async {
        let stream = TcpStream::connect(server.as_str())
            .await
            .map_err(|source| TrustError::Connect {
                server: server.clone(),
                source,
            })?;
        let tls = tokio_rustls::TlsConnector::from(Arc::new(config))
            .connect(name, stream)
            .await;
        tls.map_err(|source| TrustError::Handshake {
            server: server.clone(),
            source,
        })
    };
    let connected = tokio::time::timeout(LIMIT, connect)
        .await
        .map_err(|_| TrustError::Timeout)?;
    match authority.mismatch() {
        Some(Mismatch::Authority) => return Err(TrustError::WrongCa),
        Some(Mismatch::Name | Mismatch::NotApiServer) => {
            let server = server.clone();
            return Err(TrustError::NotApiServer { server });
        }
        None => {}
    }
    connected?;
    authority.authority().ok_or(TrustError::WrongCa)
}
