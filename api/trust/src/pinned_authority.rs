//! TLS to a server of which nothing is known but the hash of its certificate authority.
//!
//! ```text
//! the authority with that hash is in the server's chain      else: another cluster
//!   > the certificate is of it, for servers, and for the name that is asked for
//!   > it is an API server's: nobody else's names [`API_SERVER_NAME`]
//! ```
//! Nothing is said to anybody else. Which name is asked for is the caller's choice: the host, or
//! [`API_SERVER_NAME`] where it does not matter by which address a server is reached
//! (`docs/adr/0021-a-node-balances-between-servers.md`).

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

use crate::{API_SERVER_NAME, CaHash};

/// What is wrong with a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mismatch {
    /// It has another authority.
    Authority,
    /// Its certificate is for other names.
    Name,
    /// Its certificate is of the authority, and not an API server's.
    NotApiServer,
}

/// What was found out about the server.
#[derive(Debug)]
enum Found {
    Wrong(Mismatch),
    Authority(CertificateDer<'static>),
}

/// Verifies one server by the hash of its authority.
#[derive(Debug)]
pub struct PinnedAuthority {
    hash: CaHash,
    provider: Arc<CryptoProvider>,
    found: Mutex<Option<Found>>,
}

impl PinnedAuthority {
    /// For one connection.
    #[must_use]
    pub fn new(hash: CaHash) -> Arc<Self> {
        Arc::new(Self {
            hash,
            provider: Arc::new(rustls::crypto::ring::default_provider()),
            found: Mutex::default(),
        })
    }

    /// What the connection is made with.
    ///
    /// # Errors
    /// TLS cannot be set up.
    pub fn client(self: &Arc<Self>) -> Result<ClientConfig, Error> {
        Ok(
            ClientConfig::builder_with_provider(Arc::clone(&self.provider))
                .with_safe_default_protocol_versions()?
                .dangerous()
                .with_custom_certificate_verifier(Arc::clone(self) as Arc<dyn ServerCertVerifier>)
                .with_no_client_auth(),
        )
    }

    /// Why the server was not believed, if it was this.
    pub fn mismatch(&self) -> Option<Mismatch> {
        match *self.found.lock() {
            Some(Found::Wrong(mismatch)) => Some(mismatch),
            _ => None,
        }
    }

    /// The authority, if the server was believed.
    pub fn authority(&self) -> Option<CertificateDer<'static>> {
        match &*self.found.lock() {
            Some(Found::Authority(authority)) => Some(authority.clone()),
            _ => None,
        }
    }

    fn wrong(&self, mismatch: Mismatch, error: Error) -> Error {
        *self.found.lock() = Some(Found::Wrong(mismatch));
        error
    }

    fn trusting(
        &self,
        authority: CertificateDer<'static>,
    ) -> Result<Arc<WebPkiServerVerifier>, Error> {
        let mut roots = RootCertStore::empty();
        roots.add(authority)?;
        let provider = Arc::clone(&self.provider);
        WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .map_err(|error| Error::General(error.to_string()))
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
        *self.found.lock() = None;
        let is_pinned = |certificate: &&CertificateDer<'_>| CaHash::of(certificate) == self.hash;
        let Some(authority) = intermediates.iter().find(is_pinned) else {
            let unknown = Error::InvalidCertificate(CertificateError::UnknownIssuer);
            return Err(self.wrong(Mismatch::Authority, unknown));
        };
        let authority = authority.clone().into_owned();
        let verifier = self.trusting(authority.clone())?;
        let verify = |name| verifier.verify_server_cert(end_entity, intermediates, name, ocsp, now);
        let verified = verify(name).map_err(|error| match mismatch(&error) {
            Some(mismatch) => self.wrong(mismatch, error),
            None => error,
        })?;
        // The authority signs for nodes and clients, too.
        verify(&ServerName::IpAddress(API_SERVER_NAME.into()))
            .map_err(|error| self.wrong(Mismatch::NotApiServer, error))?;
        *self.found.lock() = Some(Found::Authority(authority));
        Ok(verified)
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

/// What an error says of the server; `None` for what may be otherwise tomorrow, such as a
/// certificate that is not valid yet.
fn mismatch(error: &Error) -> Option<Mismatch> {
    let Error::InvalidCertificate(error) = error else {
        return None;
    };
    match error {
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            Some(Mismatch::Name)
        }
        // It shows the right authority, and was not made by it.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            Some(Mismatch::Authority)
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            Some(Mismatch::NotApiServer)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rcgen::{
        BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose,
        IsCa, KeyPair,
    };

    use super::*;

    type Issuer = CertifiedIssuer<'static, KeyPair>;

    fn authority() -> Issuer {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        let name = &mut params.distinguished_name;
        name.push(DnType::CommonName, "authority of a test");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Issuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
    }

    fn certificate(
        issuer: &Issuer,
        names: &[&str],
        purpose: ExtendedKeyUsagePurpose,
    ) -> CertificateDer<'static> {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.extended_key_usages = vec![purpose];
        let key = KeyPair::generate().unwrap();
        params.signed_by(&key, issuer).unwrap().der().clone()
    }

    /// How `server`, which shows `shown` as well, is judged by the hash of `pinned`.
    fn judged(
        pinned: &Issuer,
        server: &CertificateDer<'_>,
        shown: &Issuer,
        host: &str,
    ) -> (bool, Option<Mismatch>) {
        let verifier = PinnedAuthority::new(CaHash::of(pinned.der()));
        let (name, now) = (ServerName::try_from(host).unwrap(), UnixTime::now());
        let shown = [shown.der().clone()];
        let verified = verifier.verify_server_cert(server, &shown, &name, &[], now);
        assert_eq!(verified.is_ok(), verifier.authority().is_some());
        (verified.is_ok(), verifier.mismatch())
    }

    #[test]
    fn only_an_api_server_of_the_cluster_is_believed() {
        use ExtendedKeyUsagePurpose::{ClientAuth, ServerAuth};
        let (ours, theirs) = (authority(), authority());
        let of = |issuer: &Issuer, names: &[&str], purpose| certificate(issuer, names, purpose);
        let host = "198.18.0.7";
        for (what, server, shown, expected) in [
            (
                "an API server",
                of(&ours, &[host, "127.0.0.1"], ServerAuth),
                &ours,
                None,
            ),
            (
                "an API server elsewhere",
                of(&ours, &["198.18.0.8", "127.0.0.1"], ServerAuth),
                &ours,
                Some(Mismatch::Name),
            ),
            (
                "a node at this address",
                of(&ours, &[host, "node"], ServerAuth),
                &ours,
                Some(Mismatch::NotApiServer),
            ),
            (
                "a client that names this address",
                of(&ours, &[host, "127.0.0.1"], ClientAuth),
                &ours,
                Some(Mismatch::NotApiServer),
            ),
            (
                "another cluster's",
                of(&theirs, &[host, "127.0.0.1"], ServerAuth),
                &theirs,
                Some(Mismatch::Authority),
            ),
            (
                "another cluster's that shows our authority",
                of(&theirs, &[host, "127.0.0.1"], ServerAuth),
                &ours,
                Some(Mismatch::Authority),
            ),
        ] {
            let found = judged(&ours, &server, shown, host);
            assert_eq!(found, (expected.is_none(), expected), "{what}");
        }
    }

    #[test]
    fn a_certificate_that_is_not_valid_any_more_is_nobodys_mistake() {
        let ours = authority();
        let purpose = ExtendedKeyUsagePurpose::ServerAuth;
        let server = certificate(&ours, &["127.0.0.1"], purpose);
        let verifier = PinnedAuthority::new(CaHash::of(ours.der()));
        let name = ServerName::IpAddress(API_SERVER_NAME.into());
        // Year 5138: after all that rcgen makes.
        let later = UnixTime::since_unix_epoch(Duration::from_secs(100_000_000_000));
        let shown = [ours.der().clone()];
        let verified = verifier.verify_server_cert(&server, &shown, &name, &[], later);
        verified.unwrap_err();
        assert_eq!(verifier.mismatch(), None);
        assert_eq!(verifier.authority(), None);
    }
}
