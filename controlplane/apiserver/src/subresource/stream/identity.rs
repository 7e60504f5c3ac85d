//! How API server and node agents prove to each other who they are.
//!
//! A node's certificate must be of one of the cluster's two authorities, for the address that was
//! dialled, and say `system:node:NAME` of `system:nodes`: what answers at an address that a Node
//! claims is only spoken to if it is that very node. So neither another node nor the API server
//! itself is taken for one.
//!
//! Agents that joined before the nodes had an authority of their own (`pki`) know the cluster's
//! alone and have certificates of it. Which of the two an agent trusts it says in its handshake.

use std::sync::Arc;

use coracle_auth::user::{GROUP_NODES, UserInfo};
use rustls::{
    ClientConfig, RootCertStore, SignatureScheme, client::ResolvesClientCert,
    crypto::CryptoProvider, sign::CertifiedKey,
};
use rustls_pki_types::CertificateDer;
use x509_parser::{certificate::X509Certificate, prelude::FromDer as _};

use crate::pki::{KeyPair, Pki, PkiError};

/// How the API server shows itself to nodes, and whom it believes at first.
pub(crate) fn tls_config(pki: &Pki) -> Result<Arc<ClientConfig>, PkiError> {
    let mut roots = RootCertStore::empty();
    for (ca, what) in [(&pki.kubelet_ca, "kubelet-ca.crt"), (&pki.ca, "ca.crt")] {
        for certificate in ca.chain()? {
            roots
                .add(certificate)
                .map_err(|_| PkiError::Parse { what })?;
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let identities = [
        Identity::load(&pki.kubelet_client, "apiserver-kubelet-client", &provider)?,
        Identity::load(&pki.old_kubelet_client, "kubelet-client", &provider)?,
    ];
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|_| PkiError::Parse {
            what: "apiserver-kubelet-client",
        })?
        .with_root_certificates(roots)
        .with_client_cert_resolver(Arc::new(Identities(identities)));
    Ok(Arc::new(config))
}

/// A client certificate with its key.
#[derive(Debug)]
struct Identity {
    /// The issuer's name as it stands in the certificate.
    issuer: Vec<u8>,
    key: Arc<CertifiedKey>,
}

impl Identity {
    fn load(
        pair: &KeyPair,
        what: &'static str,
        provider: &CryptoProvider,
    ) -> Result<Self, PkiError> {
        let damaged = || PkiError::Parse { what };
        let chain = pair.chain()?;
        let leaf = chain.first().ok_or_else(damaged)?;
        let (_, parsed) = X509Certificate::from_der(leaf).map_err(|_| damaged())?;
        let issuer = parsed.issuer().as_raw().to_vec();
        let key = CertifiedKey::from_der(chain, pair.key()?, provider).map_err(|_| damaged())?;
        Ok(Self {
            issuer,
            key: Arc::new(key),
        })
    }
}

/// In the order of preference.
#[derive(Debug)]
struct Identities([Identity; 2]);

impl ResolvesClientCert for Identities {
    fn resolve(&self, authorities: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        let trusted = self
            .0
            .iter()
            .find(|identity| authorities.contains(&identity.issuer.as_slice()));
        // Who names no authority takes any.
        let found = trusted.or_else(|| self.0.first().filter(|_| authorities.is_empty()))?;
        Some(Arc::clone(&found.key))
    }

    fn has_certs(&self) -> bool {
        true
    }
}

/// Whether a verified certificate is that of the node `name`.
pub(super) fn is_node(certificate: Option<&CertificateDer<'_>>, name: &str) -> bool {
    let Some((_, certificate)) = certificate.and_then(|der| X509Certificate::from_der(der).ok())
    else {
        return false;
    };
    let subject = certificate.subject();
    let mut names = subject.iter_common_name().map(|name| name.as_str());
    let mut groups = subject.iter_organization().map(|group| group.as_str());
    names.next() == Some(Ok(UserInfo::node(name).name.as_str()))
        && groups.any(|group| group == Ok(GROUP_NODES))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pki::ServerNames;

    #[test]
    fn only_the_node_itself_is_taken_for_it() {
        let pki = Pki::ephemeral(&ServerNames::default()).unwrap();
        let node = |name| {
            pki.issue_node_serving(name, "192.0.2.1".parse().unwrap())
                .unwrap()
        };
        let check = |pair: &KeyPair, expect, who| {
            assert_eq!(
                is_node(pair.chain().unwrap().first(), "n1"),
                expect,
                "{who}"
            );
        };
        check(&node("n1"), true, "the node");
        check(&node("n2"), false, "another node");
        check(&pki.server, false, "the API server");
        check(
            &pki.issue_client("system:node:n1", "system:masters")
                .unwrap(),
            false,
            "of another group",
        );
        assert!(!is_node(None, "n1"));
    }

    #[test]
    fn an_agent_gets_the_identity_that_it_can_verify() {
        let pki = Pki::ephemeral(&ServerNames::default()).unwrap();
        let provider = rustls::crypto::ring::default_provider();
        let load = |pair: &KeyPair| Identity::load(pair, "a pair", &provider).unwrap();
        let identities = Identities([load(&pki.kubelet_client), load(&pki.old_kubelet_client)]);
        let [new, old] = &identities.0;
        let shown = |authorities: &[&[u8]]| {
            identities
                .resolve(authorities, &[])
                .map(|key| key.cert.clone())
        };
        assert_eq!(shown(&[&new.issuer]), Some(new.key.cert.clone()));
        assert_eq!(shown(&[&old.issuer]), Some(old.key.cert.clone()));
        assert_eq!(
            shown(&[&old.issuer, &new.issuer]),
            Some(new.key.cert.clone()),
            "the better of two"
        );
        assert_eq!(shown(&[]), Some(new.key.cert.clone()));
        assert_eq!(shown(&[b"another"]), None);
    }
}
