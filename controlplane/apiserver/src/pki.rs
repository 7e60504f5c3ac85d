//! The cluster's certificates and keys: made once, loaded on every later start, renewed when near expiry.
//!
//! Layout under the directory (mode 0700, every file 0600): `ca.{crt,key}`, `server.{crt,key}` (leaf and CA),
//! `admin.{crt,key}`, `kubelet-client.{crt,key}`, `sa.key`. Keys are ECDSA P-256 in PKCS#8.
//!
//! Nothing here signs a node's request: that is the certificate controller, which gets the CA from here.
//!
//! Source: RFC 5280; what strict clients check is named beside each extension.

use std::{
    fmt,
    net::IpAddr,
    path::{Path, PathBuf},
};

use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};

mod file;
mod issue;
mod kubeconfig;

pub use file::write_private;
use issue::{Authority, Profile};

use crate::user::GROUP_MASTERS;

/// CN of the client certificate that the API server shows to the nodes' port 10250.
pub const KUBELET_CLIENT_NAME: &str = "kube-apiserver-kubelet-client";
/// CN of the administrator's client certificate.
pub const ADMIN_NAME: &str = "kubernetes-admin";

/// A certificate chain and its key, both PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyPair {
    /// Leaf first.
    pub cert_pem: String,
    /// PKCS#8.
    pub key_pem: String,
}

impl fmt::Debug for KeyPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyPair").field("cert_pem", &self.cert_pem).finish_non_exhaustive()
    }
}

impl KeyPair {
    /// The chain as DER, leaf first.
    ///
    /// # Errors
    /// [`PkiError::Parse`] if the PEM is damaged.
    pub fn chain(&self) -> Result<Vec<CertificateDer<'static>>, PkiError> {
        CertificateDer::pem_slice_iter(self.cert_pem.as_bytes())
            .collect::<Result<_, _>>()
            .map_err(|_| PkiError::Parse { what: "a certificate" })
    }

    /// The private key as DER.
    ///
    /// # Errors
    /// [`PkiError::Parse`] if the PEM is damaged.
    pub fn key(&self) -> Result<PrivateKeyDer<'static>, PkiError> {
        PrivateKeyDer::from_pem_slice(self.key_pem.as_bytes()).map_err(|_| PkiError::Parse { what: "a private key" })
    }
}

/// Why certificates could not be made, read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PkiError {
    /// A file could not be read.
    #[error("cannot read {path}")]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A file could not be written.
    #[error("cannot write {path}")]
    Write {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A file holds something else.
    #[error("{what} in the pki directory is damaged: restore it, or move the directory away to start a new cluster")]
    Parse {
        /// What it should be.
        what: &'static str,
    },
    /// A certificate could not be made.
    #[error("cannot issue the certificate of {name}")]
    Issue {
        /// Its subject.
        name: String,
        /// Why.
        #[source]
        source: rcgen::Error,
    },
}

/// The names that the server answers to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerNames {
    /// DNS names beside `kubernetes...` and `localhost`.
    pub dns: Vec<String>,
    /// Addresses beside 127.0.0.1 and `::1`: bind, advertised and first service address.
    pub addresses: Vec<IpAddr>,
}

/// Everything the control plane holds in certificates and keys.
#[derive(Debug, Clone)]
pub struct Pki {
    /// The cluster's authority.
    pub ca: KeyPair,
    /// What the server shows: leaf and CA.
    pub server: KeyPair,
    /// The administrator's identity (`system:masters`).
    pub admin: KeyPair,
    /// The API server's identity towards nodes.
    pub kubelet_client: KeyPair,
    /// Signs service-account tokens: PKCS#8 PEM, P-256.
    pub service_account_key_pem: String,
}

impl Pki {
    /// Loads `dir`, making and renewing what is missing, near expiry or for other names.
    ///
    /// # Errors
    /// The directory cannot be read or written, or holds damaged files: permanent.
    pub fn open(dir: &Path, names: &ServerNames) -> Result<Self, PkiError> {
        file::ensure_private_dir(dir)?;
        let ca = match file::read_pair(dir, "ca")? {
            Some(pair) => pair,
            None => file::write_pair(dir, "ca", Authority::create()?)?,
        };
        let authority = Authority::load(&ca)?;
        let ensure = |name: &str, profile: Profile| match file::read_pair(dir, name)? {
            Some(pair) if issue::is_current(&pair, &ca, &profile) => Ok(pair),
            _ => file::write_pair(dir, name, authority.issue(&profile)?),
        };
        let server = ensure("server", server_profile(names))?;
        let admin = ensure("admin", Profile::client(ADMIN_NAME, GROUP_MASTERS))?;
        let kubelet_client = ensure("kubelet-client", Profile::client(KUBELET_CLIENT_NAME, GROUP_MASTERS))?;
        let key_path = dir.join("sa.key");
        let service_account_key_pem = match file::read_optional(&key_path)? {
            Some(pem) => pem,
            None => {
                let pem = issue::new_key("the service-account signer")?.serialize_pem();
                write_private(&key_path, pem.as_bytes())?;
                pem
            }
        };
        Ok(Self { ca, server, admin, kubelet_client, service_account_key_pem })
    }

    /// The same in memory only, for tests.
    ///
    /// # Errors
    /// As [`Pki::open`].
    pub fn ephemeral(names: &ServerNames) -> Result<Self, PkiError> {
        let ca = Authority::create()?;
        let authority = Authority::load(&ca)?;
        Ok(Self {
            server: authority.issue(&server_profile(names))?,
            admin: authority.issue(&Profile::client(ADMIN_NAME, GROUP_MASTERS))?,
            kubelet_client: authority.issue(&Profile::client(KUBELET_CLIENT_NAME, GROUP_MASTERS))?,
            service_account_key_pem: issue::new_key("the service-account signer")?.serialize_pem(),
            ca,
        })
    }

    /// A client certificate of this cluster's CA: for tests and tools.
    ///
    /// # Errors
    /// [`PkiError::Issue`].
    pub fn issue_client(&self, name: &str, group: &str) -> Result<KeyPair, PkiError> {
        Authority::load(&self.ca)?.issue(&Profile::client(name, group))
    }

    /// Lower-case hex SHA-256 of the CA certificate's DER, as it stands in a join token.
    ///
    /// # Errors
    /// [`PkiError::Parse`].
    pub fn ca_hash(&self) -> Result<String, PkiError> {
        use sha2::Digest as _;
        let chain = self.ca.chain()?;
        let der = chain.first().ok_or(PkiError::Parse { what: "the CA certificate" })?;
        Ok(hex::encode(sha2::Sha256::digest(der.as_ref())))
    }

    /// The administrator's kubeconfig for the server at `url`, everything inline.
    pub fn admin_kubeconfig(&self, url: &str) -> String {
        kubeconfig::render(url, &self.ca.cert_pem, ADMIN_NAME, &self.admin)
    }
}

fn server_profile(names: &ServerNames) -> Profile {
    let mut dns: Vec<String> = [
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
        "localhost",
    ]
    .map(str::to_owned)
    .to_vec();
    dns.extend(names.dns.iter().cloned());
    let mut addresses = vec![IpAddr::from([127, 0, 0, 1]), IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1u16])];
    addresses.extend(names.addresses.iter().copied().filter(|address| !address.is_unspecified()));
    dns.sort();
    dns.dedup();
    addresses.sort();
    addresses.dedup();
    Profile::server("kube-apiserver", dns, addresses)
}

#[cfg(test)]
mod tests;
