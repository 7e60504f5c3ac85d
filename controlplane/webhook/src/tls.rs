//! Whom to believe: the authorities of the webhook's configuration, or those of the machine.

use std::{io, sync::Arc};

use hyper_rustls::ConfigBuilderExt as _;
use jiff::Timestamp;
use rustls::{
    CertificateError, ClientConfig, Error, InvalidMessage, RootCertStore,
    client::WebPkiServerVerifier, crypto::CryptoProvider,
};
use rustls_pki_types::{CertificateDer, UnixTime, pem::PemObject};

use crate::{
    error::{SetupError, spoken as io_spoken},
    own_authority::OwnAuthority,
};

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

/// A handshake that failed, in Go's words.
pub(crate) fn spoken(error: &io::Error) -> String {
    let of_tls = error.get_ref().and_then(|inner| inner.downcast_ref());
    match of_tls {
        Some(Error::InvalidCertificate(why)) => {
            format!(
                "tls: failed to verify certificate: x509: {}",
                certificate(why)
            )
        }
        Some(Error::InvalidMessage(InvalidMessage::InvalidContentType)) => {
            "http: server gave HTTP response to HTTPS client".to_owned()
        }
        Some(Error::AlertReceived(alert)) => format!("remote error: tls: {alert:?}"),
        Some(other) => format!("tls: {other}"),
        None => io_spoken(error),
    }
}

fn certificate(why: &CertificateError) -> String {
    const TIMES: &str = "certificate has expired or is not yet valid";
    match why {
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "certificate signed by unknown authority".to_owned()
        }
        CertificateError::ExpiredContext { time, not_after } => {
            format!(
                "{TIMES}: current time {} is after {}",
                at(*time),
                at(*not_after)
            )
        }
        CertificateError::NotValidYetContext { time, not_before } => {
            format!(
                "{TIMES}: current time {} is before {}",
                at(*time),
                at(*not_before)
            )
        }
        CertificateError::Expired | CertificateError::NotValidYet => TIMES.to_owned(),
        CertificateError::NotValidForNameContext {
            expected,
            presented,
        } => {
            let names: Vec<&str> = presented.iter().map(|name| dns(name)).collect();
            let names = names.join(", ");
            let expected = expected.to_str();
            if names.is_empty() {
                format!("certificate is not valid for any names, but wanted to match {expected}")
            } else {
                format!("certificate is valid for {names}, not {expected}")
            }
        }
        CertificateError::NotValidForName => "certificate is valid for other names".to_owned(),
        other => other.to_string(),
    }
}

/// `DnsName("a.b")`, as it is presented, without what stands around it.
fn dns(presented: &str) -> &str {
    let inner = presented
        .split_once("(\"")
        .and_then(|(_, rest)| rest.strip_suffix("\")"));
    inner.unwrap_or(presented)
}

fn at(time: UnixTime) -> String {
    let secs = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    Timestamp::from_second(secs).map_or_else(|_| secs.to_string(), |time| time.to_string())
}
