//! Learns the cluster's CA from the server itself: it must be in the server's chain and have the
//! hash that the token names, and the chain must verify against it. Nothing is asked of the server
//! before that.

use std::{io, sync::Arc, time::Duration};

use parking_lot::Mutex;
use rustls::{
    DigitallySignedStruct, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::CryptoProvider,
};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use sha2::{Digest, Sha256};
use tokio::net::TcpStream;

use crate::balancer::{SERVER_NAME, ServerAddress};

const LIMIT: Duration = Duration::from_secs(10);

/// Why the CA is not known.
#[derive(Debug, thiserror::Error)]
pub(super) enum TrustError {
    #[error("the chain has no CA with the token's hash")]
    WrongCa,
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
    hash: &[u8; 32],
) -> Result<CertificateDer<'static>, TrustError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = Arc::new(PinnedCa {
        hash: *hash,
        provider: Arc::clone(&provider),
        found: Mutex::new(None),
        mismatch: Mutex::new(false),
    });
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::clone(&verifier) as Arc<dyn ServerCertVerifier>)
        .with_no_client_auth();
    // Not the name that it was reached by: a stable address need not be in each certificate, and
    // nobody but an API server has one of this authority for servers.
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
    let result = tokio::time::timeout(LIMIT, connect)
        .await
        .map_err(|_| TrustError::Timeout)?;
    if *verifier.mismatch.lock() {
        return Err(TrustError::WrongCa);
    }
    result?;
    let found = verifier.found.lock().take();
    found.ok_or(TrustError::WrongCa)
}

#[derive(Debug)]
struct PinnedCa {
    hash: [u8; 32],
    provider: Arc<CryptoProvider>,
    found: Mutex<Option<CertificateDer<'static>>>,
    mismatch: Mutex<bool>,
}

impl ServerCertVerifier for PinnedCa {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let ca = intermediates
            .iter()
            .find(|certificate| Sha256::digest(certificate.as_ref()).as_slice() == self.hash);
        let Some(ca) = ca else {
            *self.mismatch.lock() = true;
            return Err(rustls::Error::InvalidCertificate(
                rustls::CertificateError::UnknownIssuer,
            ));
        };
        let ca = ca.clone().into_owned();
        let mut roots = RootCertStore::empty();
        roots.add(ca.clone())?;
        let verifier = WebPkiServerVerifier::builder_with_provider(
            Arc::new(roots),
            Arc::clone(&self.provider),
        )
        .build()
        .map_err(|error| rustls::Error::General(error.to_string()))?;
        let verified = verifier.verify_server_cert(end_entity, intermediates, name, ocsp, now)?;
        *self.found.lock() = Some(ca);
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(
            message,
            cert,
            dss,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(
            message,
            cert,
            dss,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}
