//! Whom to believe: the authorities of the webhook's configuration, or those of the machine.

use std::sync::Arc;

use hyper_rustls::ConfigBuilderExt as _;
use rustls::{ClientConfig, RootCertStore, client::WebPkiServerVerifier, crypto::CryptoProvider};
use rustls_pki_types::{CertificateDer, pem::PemObject};

use crate::{error::SetupError, own_authority::OwnAuthority};

const HTTP_1: &[u8] = b"http/1.1";

/// How to speak to who has a certificate of one of these authorities; of the machine's if there is
/// none. Reads files for the latter: not for async code.
pub(crate) fn config(ca_bundle: &[u8]) -> Result<ClientConfig, SetupError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(SetupError::Tls)?;
    let mut config = if ca_bundle.is_empty() {
        let believing = builder.with_native_roots();
        believing
            .map_err(SetupError::SystemRoots)?
            .with_no_client_auth()
    } else {
        let verifier = verifier(ca_bundle, provider)?;
        let believing = builder.dangerous();
        believing
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_no_client_auth()
    };
    // As upstream: with HTTP/2 all calls would go to one of several backends.
    config.alpn_protocols = vec![HTTP_1.to_vec()];
    Ok(config)
}

fn verifier(ca_bundle: &[u8], provider: Arc<CryptoProvider>) -> Result<OwnAuthority, SetupError> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(ca_bundle).collect();
    let all = all.map_err(|_| SetupError::CaBundle)?;
    let mut roots = RootCertStore::empty();
    let (read, _) = roots.add_parsable_certificates(all.iter().cloned());
    if read == 0 {
        return Err(SetupError::CaBundle);
    }
    let of_authorities = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider);
    let of_authorities = of_authorities.build().map_err(|_| SetupError::CaBundle)?;
    Ok(OwnAuthority::new(of_authorities, all))
}
