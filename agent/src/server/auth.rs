//! Who may use the node's API.

use std::sync::Arc;

use http::StatusCode;
use parking_lot::Mutex;
use rustls::{RootCertStore, ServerConfig, ServerConnection, server::WebPkiClientVerifier};
use rustls_pki_types::CertificateDer;
use tokio_rustls::TlsAcceptor;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::reply::ReplyError;
use crate::join::Identity;

/// The API server's name in its client certificate. As upstream's, it is in no group that may do anything.
const API_SERVER: &str = "kube-apiserver-kubelet-client";

/// Who calls, by certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Caller {
    name: String,
}

/// TLS that verifies client certificates where there are any.
///
/// Callers are believed that have a certificate of the authority that came with the serving certificate: it is there
/// for API server and agents alone. An API server that has none of the kind gives none; then it is the cluster's.
pub(super) struct Acceptor {
    identity: Arc<Identity>,
    cluster_ca: CertificateDer<'static>,
    /// Made for the authority beside it. Held for as long as it takes to compare.
    current: Mutex<(CertificateDer<'static>, TlsAcceptor)>,
}

/// Why TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
pub(super) enum AcceptorError {
    /// The certificates or the library's defaults do not do.
    #[error("use the certificates of API server and node")]
    Tls(#[from] rustls::Error),
    /// Nobody's certificate could be verified.
    #[error("verify client certificates")]
    Verifier(#[from] rustls::server::VerifierBuilderError),
}

impl Acceptor {
    pub(super) fn new(identity: Arc<Identity>, cluster_ca: CertificateDer<'static>) -> Result<Self, AcceptorError> {
        let authority = identity.authority().unwrap_or_else(|| cluster_ca.clone());
        let acceptor = acceptor(Arc::clone(&identity), &authority)?;
        Ok(Self { identity, cluster_ca, current: Mutex::new((authority, acceptor)) })
    }

    /// For the next connection: the authority may be another since the certificate was renewed.
    pub(super) fn current(&self) -> Result<TlsAcceptor, AcceptorError> {
        let authority = self.identity.authority().unwrap_or_else(|| self.cluster_ca.clone());
        let mut current = self.current.lock();
        if current.0 != authority {
            *current = (authority.clone(), acceptor(Arc::clone(&self.identity), &authority)?);
        }
        Ok(current.1.clone())
    }
}

fn acceptor(identity: Arc<Identity>, authority: &CertificateDer<'static>) -> Result<TlsAcceptor, AcceptorError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(authority.clone())?;
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
        .allow_unauthenticated()
        .build()?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(identity);
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// The verified caller of a connection.
pub(super) fn caller(connection: &ServerConnection) -> Option<Caller> {
    let leaf = connection.peer_certificates()?.first()?;
    let (_, certificate) = X509Certificate::from_der(leaf).ok()?;
    let subject = certificate.subject();
    let name = subject.iter_common_name().next().and_then(|name| name.as_str().ok()).unwrap_or_default().to_owned();
    Some(Caller { name })
}

/// Lets the API server in, and nobody else.
pub(super) fn admit(caller: &Option<Caller>) -> Result<(), ReplyError> {
    match caller {
        None => Err(ReplyError::new(StatusCode::UNAUTHORIZED, "Unauthorized")),
        Some(caller) if caller.name == API_SERVER => Ok(()),
        Some(caller) => Err(ReplyError::new(
            StatusCode::FORBIDDEN,
            format!("Forbidden (user={}, verb=get, resource=nodes, subresource=proxy)", caller.name),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_api_server_is_admitted() {
        let caller = |name: &str| Some(Caller { name: name.to_owned() });
        let cases = [
            (None, Some(StatusCode::UNAUTHORIZED)),
            (caller("system:node:n2"), Some(StatusCode::FORBIDDEN)),
            (caller("kubernetes-admin"), Some(StatusCode::FORBIDDEN)),
            (caller(API_SERVER), None),
        ];
        for (caller, expected) in cases {
            assert_eq!(admit(&caller).err().map(|error| error.into_response().status()), expected);
        }
    }
}
