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

/// The API server's name in its client certificate. As upstream's, it is in no group that may do
/// anything.
const API_SERVER: &str = "kube-apiserver-kubelet-client";

/// Who calls, by certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Caller {
    name: String,
}

/// TLS that verifies client certificates where there are any.
///
/// Callers are believed that have a certificate of the authority that came with the serving
/// certificate: it is there for API server and agents alone. An API server that has none of the
/// kind gives none; then it is the cluster's.
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
    pub(super) fn new(
        identity: Arc<Identity>,
        cluster_ca: CertificateDer<'static>,
    ) -> Result<Self, AcceptorError> {
        let authority = identity.authority().unwrap_or_else(|| cluster_ca.clone());
        let acceptor = acceptor(Arc::clone(&identity), &authority)?;
        Ok(Self {
            identity,
            cluster_ca,
            current: Mutex::new((authority, acceptor)),
        })
    }

    /// For the next connection: the authority may be another since the certificate was renewed.
    pub(super) fn current(&self) -> Result<TlsAcceptor, AcceptorError> {
        let authority = self
            .identity
            .authority()
            .unwrap_or_else(|| self.cluster_ca.clone());
        let mut current = self.current.lock();
        if current.0 != authority {
            *current = (
                authority.clone(),
                acceptor(Arc::clone(&self.identity), &authority)?,
            );
        }
        Ok(current.1.clone())
    }
}

fn acceptor(
    identity: Arc<Identity>,
    authority: &CertificateDer<'static>,
) -> Result<TlsAcceptor, AcceptorError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(authority.clone())?;
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
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
    let name = subject
        .iter_common_name()
        .next()
        .and_then(|name| name.as_str().ok())
        .unwrap_or_default()
        .to_owned();
    Some(Caller { name })
}

/// Lets the API server in, and nobody else.
pub(super) fn admit(caller: &Option<Caller>) -> Result<(), ReplyError> {
    match caller {
        None => Err(ReplyError::new(StatusCode::UNAUTHORIZED, "Unauthorized")),
        Some(caller) if caller.name == API_SERVER => Ok(()),
        Some(caller) => Err(ReplyError::new(
            StatusCode::FORBIDDEN,
            format!(
                "Forbidden (user={}, verb=get, resource=nodes, subresource=proxy)",
                caller.name
            ),
        )),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use rustls_pki_types::pem::PemObject as _;

    use super::*;
    use crate::join::{Stored, csr};

    /// An authority called so.
    pub(in crate::server) fn authority(
        name: &str,
    ) -> (rcgen::Issuer<'static, rcgen::KeyPair>, rcgen::Certificate) {
        let key = rcgen::KeyPair::generate().expect("key");
        let mut params = rcgen::CertificateParams::new(Vec::new()).expect("params");
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params
            .distinguished_name
            .push(rcgen::DnType::CommonName, name);
        let certificate = params.self_signed(&key).expect("authority");
        (rcgen::Issuer::new(params, key), certificate)
    }

    /// A certificate of `issuer` and its key, both PEM.
    pub(in crate::server) fn issue(
        issuer: &rcgen::Issuer<'_, rcgen::KeyPair>,
        name: &str,
    ) -> csr::Pair {
        let key = rcgen::KeyPair::generate().expect("key");
        let mut params =
            rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("params");
        params
            .distinguished_name
            .push(rcgen::DnType::CommonName, name);
        let certificate = params.signed_by(&key, issuer).expect("certificate").pem();
        csr::Pair {
            certificate,
            key: key.serialize_pem(),
        }
    }

    /// A client that believes `roots`, with a certificate or without.
    pub(in crate::server) fn connector(
        roots: &[&rcgen::Certificate],
        pair: Option<&csr::Pair>,
    ) -> tokio_rustls::TlsConnector {
        let mut store = RootCertStore::empty();
        for root in roots {
            store.add(root.der().clone()).expect("root");
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(store);
        let config = match pair {
            Some(pair) => {
                let chain = CertificateDer::pem_slice_iter(pair.certificate.as_bytes())
                    .collect::<Result<_, _>>();
                let key = rustls_pki_types::PrivateKeyDer::from_pem_slice(pair.key.as_bytes())
                    .expect("key");
                config
                    .with_client_auth_cert(chain.expect("chain"), key)
                    .expect("client")
            }
            None => config.with_no_client_auth(),
        };
        tokio_rustls::TlsConnector::from(Arc::new(config))
    }

    /// Whether somebody with `pair` comes through the handshake.
    async fn comes_in(
        acceptor: &Acceptor,
        roots: &[&rcgen::Certificate],
        pair: &csr::Pair,
    ) -> bool {
        let connector = connector(roots, Some(pair));
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        let name = rustls_pki_types::ServerName::try_from("127.0.0.1").expect("name");
        let acceptor = acceptor.current().expect("acceptor");
        // The client believes to be through before the server has looked at its certificate.
        let (accepted, _client) =
            tokio::join!(acceptor.accept(ours), connector.connect(name, theirs));
        accepted.is_ok_and(|stream| admit(&caller(stream.get_ref().1)).is_ok())
    }

    #[tokio::test]
    async fn who_may_call_is_for_the_authority_of_the_serving_certificate_to_say() {
        let ((cluster, cluster_ca), (kubelet, kubelet_ca)) =
            (authority("ca"), authority("kubelet-ca"));
        let (old, new) = (issue(&cluster, API_SERVER), issue(&kubelet, API_SERVER));
        let acceptor = |pair| {
            let identity = Identity::new(Stored::from_pair(pair).expect("pair"));
            Acceptor::new(Arc::new(identity), cluster_ca.der().clone()).expect("acceptor")
        };
        let roots = [&cluster_ca, &kubelet_ca];
        let before = acceptor(issue(&cluster, "system:node:n1"));
        assert!(comes_in(&before, &roots, &old).await);
        assert!(!comes_in(&before, &roots, &new).await);
        let mut serving = issue(&kubelet, "system:node:n1");
        serving.certificate.push_str(&kubelet_ca.pem());
        let since = acceptor(serving);
        assert!(comes_in(&since, &roots, &new).await);
        assert!(
            !comes_in(&since, &roots, &old).await,
            "of the cluster's authority"
        );
        assert!(
            !comes_in(&since, &roots, &issue(&kubelet, "system:node:n2")).await,
            "another node"
        );
    }

    #[test]
    fn only_the_api_server_is_admitted() {
        let caller = |name: &str| {
            Some(Caller {
                name: name.to_owned(),
            })
        };
        let cases = [
            (None, Some(StatusCode::UNAUTHORIZED)),
            (caller("system:node:n2"), Some(StatusCode::FORBIDDEN)),
            (caller("kubernetes-admin"), Some(StatusCode::FORBIDDEN)),
            (caller(API_SERVER), None),
        ];
        for (caller, expected) in cases {
            assert_eq!(
                admit(&caller)
                    .err()
                    .map(|error| error.into_response().status()),
                expected
            );
        }
    }
}
