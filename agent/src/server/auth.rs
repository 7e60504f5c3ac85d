//! Who may use the node's API.

use std::sync::Arc;

use http::StatusCode;
use rustls::{RootCertStore, ServerConfig, ServerConnection, server::WebPkiClientVerifier};
use rustls_pki_types::CertificateDer;
use tokio_rustls::TlsAcceptor;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::reply::ReplyError;
use crate::join::Identity;

const MASTERS: &str = "system:masters";
const API_SERVER: &str = "kube-apiserver-kubelet-client";

/// Who calls, by certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Caller {
    name: String,
    groups: Vec<String>,
}

/// TLS that verifies client certificates where there are any.
pub(super) fn acceptor(
    identity: Arc<Identity>,
    ca: &CertificateDer<'static>,
) -> Result<TlsAcceptor, Box<dyn std::error::Error + Send + Sync>> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(ca.clone())?;
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
    let groups = subject.iter_organization().filter_map(|group| group.as_str().ok()).map(str::to_owned).collect();
    Some(Caller { name, groups })
}

/// Lets the API server in, and nobody else.
pub(super) fn admit(caller: &Option<Caller>) -> Result<(), ReplyError> {
    match caller {
        None => Err(ReplyError::new(StatusCode::UNAUTHORIZED, "Unauthorized")),
        Some(caller) if caller.name == API_SERVER || caller.groups.iter().any(|group| group == MASTERS) => Ok(()),
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
        let caller = |name: &str, group: &str| Some(Caller { name: name.to_owned(), groups: vec![group.to_owned()] });
        let cases = [
            (None, Some(StatusCode::UNAUTHORIZED)),
            (caller("system:node:n2", "system:nodes"), Some(StatusCode::FORBIDDEN)),
            (caller("kubernetes-admin", MASTERS), None),
            (caller(API_SERVER, ""), None),
        ];
        for (caller, expected) in cases {
            assert_eq!(admit(&caller).err().map(|error| error.into_response().status()), expected);
        }
    }
}
