//! Whom an extender's address is believed to be, and as whom the scheduler speaks to it.
//!
//! Source: `makeTransport` in `pkg/scheduler/extender.go`, `TLSConfigFor` in
//! `k8s.io/client-go/transport/transport.go` at v1.37.

use std::{path::Path, sync::Arc};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hyper_rustls::ConfigBuilderExt as _;
use rustls::{
    ClientConfig, ConfigBuilder, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    WantsVerifier,
    client::{
        WantsClientCert,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{self, CryptoProvider},
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject};

use super::{super::ConfigError, ReadFile};

/// What is said about TLS, read.
pub(super) struct Material {
    pub(super) insecure: bool,
    /// In PEM, as the other two.
    pub(super) authority: Option<Vec<u8>>,
    pub(super) certificate: Option<Vec<u8>>,
    pub(super) key: Option<Vec<u8>>,
    /// Whether any certificate is taken where no authority is named.
    pub(super) believes_all: bool,
    /// Whether TLS is spoken at all.
    pub(super) is_needed: bool,
}

/// What a pair of fields, such as `caData` and `caFile`, says: the data goes before the file.
pub(super) fn data_or_file(
    (place, field): (&str, &str),
    data: &str,
    path: &Path,
    read: ReadFile<'_>,
) -> Result<Option<Vec<u8>>, ConfigError> {
    if !data.is_empty() {
        // Go skips the ends of lines, too.
        let data: String = data.chars().filter(|c| !matches!(c, '\r' | '\n')).collect();
        let read = STANDARD.decode(data);
        let read = read.map_err(|error| ConfigError::at(format!("{place}.{field}Data"), error))?;
        return Ok(Some(read));
    }
    if path.as_os_str().is_empty() {
        return Ok(None);
    }
    let read = read(path).map_err(|error| {
        let why = format!("{}: {error}", path.display());
        ConfigError::at(format!("{place}.{field}File"), why)
    })?;
    Ok(Some(read))
}

impl Material {
    pub(super) fn config(&self, place: &str) -> Result<ClientConfig, ConfigError> {
        if self.insecure && self.authority.is_some() {
            let why = "specifying a root certificates file with the insecure flag is not allowed";
            return Err(ConfigError::at(place, why));
        }
        let provider = Arc::new(crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| ConfigError::at(place, error))?;
        let believing = self.believing(builder, provider, place)?;
        // One of the two alone says nothing, as upstream has it.
        let (Some(certificate), Some(key)) = (&self.certificate, &self.key) else {
            return Ok(believing.with_no_client_auth());
        };
        let chain = certificates(certificate, &format!("{place}.cert"))?;
        let key = PrivateKeyDer::from_pem_slice(key)
            .map_err(|error| ConfigError::at(format!("{place}.key"), error))?;
        believing
            .with_client_auth_cert(chain, key)
            .map_err(|error| ConfigError::at(place, error))
    }

    fn believing(
        &self,
        builder: ConfigBuilder<ClientConfig, WantsVerifier>,
        provider: Arc<CryptoProvider>,
        place: &str,
    ) -> Result<ConfigBuilder<ClientConfig, WantsClientCert>, ConfigError> {
        let mut roots = RootCertStore::empty();
        if let Some(authority) = &self.authority {
            let place = format!("{place}.ca");
            for certificate in certificates(authority, &place)? {
                roots
                    .add(certificate)
                    .map_err(|error| ConfigError::at(&place, error))?;
            }
        } else if self.insecure || self.believes_all {
            let any = Arc::new(AnyCertificate(provider));
            return Ok(builder.dangerous().with_custom_certificate_verifier(any));
        } else if self.is_needed {
            return builder.with_native_roots().map_err(|error| {
                let why = format!("no authority is named, and the machine has none: {error}");
                ConfigError::at(place, why)
            });
        }
        Ok(builder.with_root_certificates(roots))
    }
}

fn certificates(pem: &[u8], place: &str) -> Result<Vec<CertificateDer<'static>>, ConfigError> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let all = all.map_err(|error| ConfigError::at(place, error))?;
    if all.is_empty() {
        return Err(ConfigError::at(place, "there is no certificate in it"));
    }
    Ok(all)
}

/// Believes everybody who has the key to the certificate that he shows.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.0.signature_verification_algorithms;
        crypto::verify_tls12_signature(message, certificate, signed, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.0.signature_verification_algorithms;
        crypto::verify_tls13_signature(message, certificate, signed, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
