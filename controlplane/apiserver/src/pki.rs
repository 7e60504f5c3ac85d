//! The cluster's certificates and keys: made once, loaded on every later start, renewed when near
//! expiry.
//!
//! Layout under the directory (mode 0700, every file 0600), keys ECDSA P-256 in PKCS#8:
//!
//! ```text
//! ca                         trusted by clients of the API, and by the API server for its clients
//!   server                   what the API server shows (leaf and CA)
//!   admin                    the administrator, system:masters
//!   kubelet-client           the API server's to agents that know `ca` alone: they joined before `kubelet-ca` was
//! kubelet-ca                 trusted between API server and the nodes' port 10250, and nowhere else
//!   apiserver-kubelet-client the API server's to agents
//! sa.key                     signs service-account tokens
//! ```
//! So a node's serving certificate is good for nothing with the API's clients, whatever names it
//! has, and what the API server shows to a node is nobody who may do anything with the API.
//!
//! Nothing here signs a node's request: that is the certificate controller, which gets both CAs
//! from here.
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

use coracle_auth::user::{GROUP_MASTERS, GROUP_NODES};
pub use file::{ensure_private_dir, keep_private, write_private};
use issue::{Authority, AuthorityName, CA, KUBELET_CA, Profile};

/// CN of the client certificate that the API server shows to the nodes' port 10250. Agents admit it
/// by this name.
pub const KUBELET_CLIENT_NAME: &str = "kube-apiserver-kubelet-client";
/// Its group, which no role is given to: the certificate opens nothing of the API.
const GROUP_KUBELET_CLIENTS: &str = "system:kubelet-clients";
/// The file with the key that signs service-account tokens.
const SERVICE_ACCOUNT_KEY: &str = "sa.key";
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
        f.debug_struct("KeyPair")
            .field("cert_pem", &self.cert_pem)
            .finish_non_exhaustive()
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
            .map_err(|_| PkiError::Parse {
                what: "a certificate",
            })
    }

    /// The private key as DER.
    ///
    /// # Errors
    /// [`PkiError::Parse`] if the PEM is damaged.
    pub fn key(&self) -> Result<PrivateKeyDer<'static>, PkiError> {
        PrivateKeyDer::from_pem_slice(self.key_pem.as_bytes()).map_err(|_| PkiError::Parse {
            what: "a private key",
        })
    }
}

/// Why certificates could not be made, read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PkiError {
    /// A file could not be read.
    #[error("cannot read {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// A file could not be written.
    #[error("cannot write {path}")]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// A file holds something else.
    #[error(
        "{what} in the pki directory is damaged: restore it, or move the directory away to start a new cluster"
    )]
    Parse {
        /// What it should be.
        what: &'static str,
    },
    /// A certificate could not be made.
    #[error("cannot issue the certificate of {name}")]
    Issue {
        /// Its subject.
        name: String,
        /// What the library said.
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
    /// The authority of the nodes' port 10250: of their serving certificates, and of who may ask
    /// there.
    pub kubelet_ca: KeyPair,
    /// The API server's identity towards nodes.
    pub kubelet_client: KeyPair,
    /// The same for agents that know the cluster's authority alone.
    pub old_kubelet_client: KeyPair,
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
        let (ca, authority) = ensure_authority(dir, &CA)?;
        let (kubelet_ca, kubelet_authority) = ensure_authority(dir, &KUBELET_CA)?;
        let ensure = |name: &str, ca: &KeyPair, authority: &Authority, profile: Profile| {
            match file::read_pair(dir, name)? {
                Some(pair) if issue::is_current(&pair, ca, &profile) => Ok(pair),
                _ => file::write_pair(dir, name, authority.issue(&profile)?),
            }
        };
        let server = ensure("server", &ca, &authority, server_profile(names))?;
        let admin = ensure("admin", &ca, &authority, admin_profile())?;
        let old_kubelet_client =
            ensure("kubelet-client", &ca, &authority, kubelet_client_profile())?;
        let kubelet_client = ensure(
            "apiserver-kubelet-client",
            &kubelet_ca,
            &kubelet_authority,
            kubelet_client_profile(),
        )?;
        let key_path = dir.join(SERVICE_ACCOUNT_KEY);
        let service_account_key_pem = match file::read_optional(&key_path)? {
            Some(pem) => pem,
            None => {
                let pem = issue::new_key("the service-account signer")?.serialize_pem();
                write_private(&key_path, pem.as_bytes())?;
                pem
            }
        };
        Ok(Self {
            ca,
            server,
            admin,
            kubelet_ca,
            kubelet_client,
            old_kubelet_client,
            service_account_key_pem,
        })
    }

    /// The same in memory only, for tests.
    ///
    /// # Errors
    /// As [`Pki::open`].
    pub fn ephemeral(names: &ServerNames) -> Result<Self, PkiError> {
        let (ca, kubelet_ca) = (Authority::create(&CA)?, Authority::create(&KUBELET_CA)?);
        let authority = Authority::load(&ca, &CA)?;
        Ok(Self {
            server: authority.issue(&server_profile(names))?,
            admin: authority.issue(&admin_profile())?,
            kubelet_client: Authority::load(&kubelet_ca, &KUBELET_CA)?
                .issue(&kubelet_client_profile())?,
            old_kubelet_client: authority.issue(&kubelet_client_profile())?,
            service_account_key_pem: issue::new_key("the service-account signer")?.serialize_pem(),
            ca,
            kubelet_ca,
        })
    }

    /// A client certificate of this cluster's CA: for tests and tools.
    ///
    /// # Errors
    /// [`PkiError::Issue`].
    pub fn issue_client(&self, name: &str, group: &str) -> Result<KeyPair, PkiError> {
        Authority::load(&self.ca, &CA)?.issue(&Profile::client(name, group))
    }

    /// A serving certificate of the node `name` at `address`, as the certificate controller issues
    /// them: for tests.
    ///
    /// # Errors
    /// [`PkiError::Issue`].
    pub fn issue_node_serving(&self, name: &str, address: IpAddr) -> Result<KeyPair, PkiError> {
        let mut profile = Profile::server(
            &format!("system:node:{name}"),
            vec![name.to_owned()],
            vec![address],
        );
        profile.group = GROUP_NODES.to_owned();
        Authority::load(&self.kubelet_ca, &KUBELET_CA)?.issue(&profile)
    }

    /// Lower-case hex SHA-256 of the CA certificate's DER, as it stands in a join token.
    ///
    /// # Errors
    /// [`PkiError::Parse`].
    pub fn ca_hash(&self) -> Result<String, PkiError> {
        hash(&self.ca)
    }

    /// The same of the certificates in `dir`, of which nothing is made or renewed; `None` if there
    /// are none.
    ///
    /// # Errors
    /// As [`Pki::open`].
    pub fn ca_hash_in(dir: &Path) -> Result<Option<String>, PkiError> {
        let ca = file::read_pair(dir, CA.name)?;
        ca.as_ref().map(hash).transpose()
    }

    /// The same of a certificate that is no file yet.
    ///
    /// # Errors
    /// [`PkiError::Parse`].
    pub fn hash_of(certificate_pem: &str) -> Result<String, PkiError> {
        hash(&KeyPair {
            cert_pem: certificate_pem.to_owned(),
            key_pem: String::new(),
        })
    }

    /// What all servers of a cluster have in common: the name of each file in the directory, and
    /// what is in it. Everything else each server makes of these for itself.
    #[must_use]
    pub fn shared_files(&self) -> [(&'static str, &str); 5] {
        [
            ("ca.key", &self.ca.key_pem),
            ("ca.crt", &self.ca.cert_pem),
            ("kubelet-ca.key", &self.kubelet_ca.key_pem),
            ("kubelet-ca.crt", &self.kubelet_ca.cert_pem),
            (SERVICE_ACCOUNT_KEY, &self.service_account_key_pem),
        ]
    }

    /// The administrator's kubeconfig for the server at `url`, everything inline.
    pub fn admin_kubeconfig(&self, url: &str) -> String {
        kubeconfig::render(url, &self.ca.cert_pem, ADMIN_NAME, &self.admin)
    }
}

/// The authority as it is stored, and ready to sign: damage shows at the start, not when the first
/// node joins.
fn ensure_authority(dir: &Path, called: &AuthorityName) -> Result<(KeyPair, Authority), PkiError> {
    let pair = match file::read_pair(dir, called.name)? {
        Some(pair) => pair,
        None => file::write_pair(dir, called.name, Authority::create(called)?)?,
    };
    let authority = Authority::load(&pair, called)?;
    Ok((pair, authority))
}

fn hash(authority: &KeyPair) -> Result<String, PkiError> {
    use sha2::Digest as _;
    let chain = authority.chain()?;
    let der = chain.first().ok_or(PkiError::Parse {
        what: "the CA certificate",
    })?;
    Ok(hex::encode(sha2::Sha256::digest(der.as_ref())))
}

fn admin_profile() -> Profile {
    Profile::client(ADMIN_NAME, GROUP_MASTERS)
}

fn kubelet_client_profile() -> Profile {
    Profile::client(KUBELET_CLIENT_NAME, GROUP_KUBELET_CLIENTS)
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
    let mut addresses = vec![
        IpAddr::from([127, 0, 0, 1]),
        IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1u16]),
    ];
    addresses.extend(
        names
            .addresses
            .iter()
            .copied()
            .filter(|address| !address.is_unspecified()),
    );
    dns.sort();
    dns.dedup();
    addresses.sort();
    addresses.dedup();
    Profile::server("kube-apiserver", dns, addresses)
}

#[cfg(test)]
mod tests;
