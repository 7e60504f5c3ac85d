//! Whom to believe: the authorities of the webhook's configuration, or those of the machine.

use std::sync::Arc;

use hyper_rustls::ConfigBuilderExt as _;
use rustls::{ClientConfig, RootCertStore, client::WebPkiServerVerifier, crypto::CryptoProvider};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};

use crate::{config::Credentials, error::SetupError, own_authority::OwnAuthority};

const HTTP_1: &[u8] = b"http/1.1";

/// How to speak to who has a certificate of one of these authorities; of the machine's if there is
/// none. Reads files for the latter: not for async code.
pub(crate) fn config(
    ca_bundle: &[u8],
    credentials: &Credentials,
) -> Result<ClientConfig, SetupError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(SetupError::Tls)?;
    let believing = if ca_bundle.is_empty() {
        let believing = builder.with_native_roots();
        believing.map_err(SetupError::SystemRoots)?
    } else {
        let verifier = verifier(ca_bundle, provider)?;
        let believing = builder.dangerous();
        believing.with_custom_certificate_verifier(Arc::new(verifier))
    };
    let mut config = match shown(credentials)? {
        Some((chain, key)) => believing
            .with_client_auth_cert(chain, key)
            .map_err(SetupError::Tls)?,
        None => believing.with_no_client_auth(),
    };
    // As upstream: with HTTP/2 all calls would go to one of several backends.
    config.alpn_protocols = vec![HTTP_1.to_vec()];
    Ok(config)
}

type Shown = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// The certificate that the caller has, if any.
fn shown(credentials: &Credentials) -> Result<Option<Shown>, SetupError> {
    if credentials.certificate.is_empty() {
        return Ok(None);
    }
    let wrong = |what| move |_| SetupError::Credentials { what };
    let chain: Result<Vec<_>, _> =
        CertificateDer::pem_slice_iter(&credentials.certificate).collect();
    let chain = chain.map_err(wrong("certificate"))?;
    let key = PrivateKeyDer::from_pem_slice(&credentials.key).map_err(wrong("key"))?;
    Ok(Some((chain, key)))
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
