//! TLS to a server of which nothing is known but the hash of its certificate authority.
//!
//! The authority must be in the server's chain and have that hash, and the chain must be good by it
//! for the host that was asked for. Nothing is said to anybody else.

use std::sync::Arc;

use parking_lot::Mutex;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature},
};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use sha2::{Digest as _, Sha256};

/// What is wrong with a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mismatch {
    /// It has another authority.
    Authority,
    /// Its certificate is for other names.
    Name,
}

/// Verifies by a hash, in lower-case hex.
#[derive(Debug)]
pub(super) struct PinnedAuthority {
    hash: String,
    provider: Arc<CryptoProvider>,
    mismatch: Mutex<Option<Mismatch>>,
}

impl PinnedAuthority {
    pub(super) fn new(hash: &str) -> Arc<Self> {
        Arc::new(Self {
            hash: hash.to_owned(),
            provider: Arc::new(rustls::crypto::ring::default_provider()),
            mismatch: Mutex::default(),
        })
    }

    /// For a connection.
    pub(super) fn client(self: &Arc<Self>) -> Result<ClientConfig, Error> {
        let mut config = ClientConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_safe_default_protocol_versions()?
            .dangerous()
            .with_custom_certificate_verifier(Arc::clone(self) as Arc<dyn ServerCertVerifier>)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(config)
    }

    /// Why the server was not believed, if it was this.
    pub(super) fn mismatch(&self) -> Option<Mismatch> {
        *self.mismatch.lock()
    }
}

impl ServerCertVerifier for PinnedAuthority {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let is_pinned = |certificate: &&CertificateDer<'_>| {
            hex::encode(Sha256::digest(certificate.as_ref())) == self.hash
        };
        let Some(authority) = intermediates.iter().find(is_pinned) else {
            *self.mismatch.lock() = Some(Mismatch::Authority);
            return Err(Error::InvalidCertificate(CertificateError::UnknownIssuer));
        };
        let mut roots = RootCertStore::empty();
        roots.add(authority.clone().into_owned())?;
        let verifier = WebPkiServerVerifier::builder_with_provider(
            Arc::new(roots),
            Arc::clone(&self.provider),
        )
        .build()
        .map_err(|error| Error::General(error.to_string()))?;
        let verified = verifier.verify_server_cert(end_entity, intermediates, name, ocsp, now);
        *self.mismatch.lock() = match &verified {
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Some(Mismatch::Name),
            // It shows the right authority, and was not made by it.
            Err(Error::InvalidCertificate(
                CertificateError::UnknownIssuer | CertificateError::BadSignature,
            )) => Some(Mismatch::Authority),
            _ => None,
        };
        verified
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, cert, dss, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}
