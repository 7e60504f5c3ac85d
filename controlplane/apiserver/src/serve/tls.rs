//! TLS 1.2 and 1.3 as this server speaks it, with client certificates for those who have one.

use std::sync::Arc;

use rustls::{
    CipherSuite, RootCertStore, ServerConfig,
    crypto::CryptoProvider,
    server::{NoServerSessionStorage, WebPkiClientVerifier},
};

use crate::{error::ApiServerError, state::State};

pub(super) fn config(server: &State) -> Result<ServerConfig, ApiServerError> {
    let pki = &server.config.pki;
    let provider = Arc::new(provider());
    let mut roots = RootCertStore::empty();
    for certificate in pki.ca.chain()? {
        roots.add(certificate).map_err(ApiServerError::SetUpTls)?;
    }
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
            .allow_unauthenticated()
            .build()
            .map_err(ApiServerError::VerifyClients)?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(ApiServerError::SetUpTls)?
        .with_client_cert_verifier(verifier)
        .with_single_cert(pki.server.chain()?, pki.server.key()?)
        .map_err(ApiServerError::SetUpTls)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    config.ignore_client_order = true;
    // Clients keep their connections; a new process has no ticket. What would be kept for
    // resumption is memory.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}

/// The cipher suites in the order that Go's clients ask for: what is as strong for less work comes
/// first.
fn provider() -> CryptoProvider {
    let mut provider = rustls::crypto::ring::default_provider();
    provider.cipher_suites.sort_by_key(|suite| {
        let is_small = matches!(
            suite.suite(),
            CipherSuite::TLS13_AES_128_GCM_SHA256
                | CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256
                | CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256
        );
        (suite.tls13().is_none(), !is_small)
    });
    provider
}
