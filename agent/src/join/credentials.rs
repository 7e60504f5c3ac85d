//! Certificates and keys on disk.

use std::{
    fs, io,
    net::IpAddr,
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::Path,
    sync::Arc,
    time::{Duration, SystemTime},
};

use base64::Engine as _;
use coracle_telemetry::ErrorChain;
use coracle_trust::private_file;
use rustls::sign::CertifiedKey;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

use super::{JoinError, csr};

/// Renewed when this part of its life is over.
const RENEW_AT: f64 = 0.75;

/// A certificate with its key, parsed.
#[derive(Debug)]
pub(crate) struct Stored {
    pub(super) key: Arc<CertifiedKey>,
    common_name: Option<String>,
    addresses: Vec<IpAddr>,
    /// The authority that issued it, if it came with it.
    pub(super) authority: Option<CertificateDer<'static>>,
    not_before: SystemTime,
    not_after: SystemTime,
}

impl Stored {
    pub(crate) fn from_pair(pair: csr::Pair) -> Result<Self, JoinError> {
        parse(pair.certificate.as_bytes(), pair.key.as_bytes()).map_err(|message| {
            JoinError::Certificate {
                what: "this node",
                message,
            }
        })
    }

    pub(crate) fn common_name(&self) -> Option<&str> {
        self.common_name.as_deref()
    }

    /// Not expired, with a minute to spare.
    pub(crate) fn is_valid(&self) -> bool {
        SystemTime::now() + Duration::from_secs(60) < self.not_after
    }

    /// It is for the addresses that are wanted now; the machine may have got others.
    pub(super) fn names(&self, wanted: &csr::Wanted) -> bool {
        wanted
            .addresses()
            .iter()
            .all(|address| self.addresses.contains(address))
    }

    pub(super) fn renew_in(&self) -> Duration {
        let life = self
            .not_after
            .duration_since(self.not_before)
            .unwrap_or_default();
        let due = self.not_before + life.mul_f64(RENEW_AT);
        due.duration_since(SystemTime::now()).unwrap_or_default()
    }
}

/// What is stored under `name`; `None` if there is nothing usable.
pub(super) fn load(pki: &Path, name: &str) -> Result<Option<Stored>, JoinError> {
    let read = |suffix: &str| {
        let path = pki.join(format!("{name}.{suffix}"));
        match fs::read(&path) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(JoinError::File {
                operation: "read",
                path,
                source,
            }),
        }
    };
    let (Some(certificate), Some(key)) = (read("crt")?, read("key")?) else {
        return Ok(None);
    };
    match parse(&certificate, &key) {
        Ok(stored) => Ok(Some(stored)),
        Err(message) => {
            tracing::warn!(name, message, "a stored certificate cannot be used");
            Ok(None)
        }
    }
}

/// Stores a pair; the key first, so that a certificate always has its key.
pub(super) fn save(pki: &Path, name: &str, pair: &csr::Pair) -> Result<(), JoinError> {
    write_private(&pki.join(format!("{name}.key")), pair.key.as_bytes())?;
    write_private(
        &pki.join(format!("{name}.crt")),
        pair.certificate.as_bytes(),
    )
}

/// The key stored under `name`; one is made and stored if there is none that can be used.
///
/// Who asks for a certificate by token asks with this key: a node is known by it, also when its
/// certificate has expired, or when it was killed before it had one.
pub(super) fn kept_key(pki: &Path, name: &str) -> Result<rcgen::KeyPair, JoinError> {
    let path = pki.join(format!("{name}.key"));
    match fs::read_to_string(&path) {
        Ok(text) => match rcgen::KeyPair::from_pem(&text) {
            Ok(key) => return Ok(key),
            Err(error) => {
                tracing::warn!(name, error = %ErrorChain(&error), "a stored key cannot be used");
            }
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(source) => {
            return Err(JoinError::File {
                operation: "read",
                path,
                source,
            });
        }
    }
    let key = csr::new_key().map_err(|error| JoinError::Certificate {
        what: "the node's client identity",
        message: error.to_string(),
    })?;
    write_private(&path, key.serialize_pem().as_bytes())?;
    Ok(key)
}

/// Writes whole, mode 0600, and so that a power cut does not take it back.
pub(super) fn write_private(path: &Path, bytes: &[u8]) -> Result<(), JoinError> {
    private_file::write(path, bytes).map_err(|source| JoinError::File {
        operation: "write",
        path: path.to_owned(),
        source,
    })
}

/// Makes the directory, mode 0700.
pub(super) fn make_private_dir(dir: &Path) -> Result<(), JoinError> {
    let failed = |source| JoinError::File {
        operation: "create",
        path: dir.to_owned(),
        source,
    };
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .map_err(failed)?;
    fs::set_permissions(dir, fs::Permissions::from_mode(0o700)).map_err(failed)
}

/// The first certificate of a PEM text.
pub(crate) fn first_certificate(pem: &[u8]) -> Option<CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(pem).next()?.ok()
}

/// DER as PEM.
pub(super) fn pem(label: &str, der: &[u8]) -> String {
    let body = base64::engine::general_purpose::STANDARD.encode(der);
    let lines: Vec<&str> = body
        .as_bytes()
        .chunks(64)
        .map(|line| std::str::from_utf8(line).unwrap_or_default())
        .collect();
    format!(
        "-----BEGIN {label}-----\n{}\n-----END {label}-----\n",
        lines.join("\n")
    )
}

fn parse(certificate: &[u8], key: &[u8]) -> Result<Stored, String> {
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(certificate)
        .collect::<Result<_, _>>()
        .map_err(|e| e.to_string())?;
    let leaf = chain.first().ok_or("no certificate in it")?;
    let (_, x509) = X509Certificate::from_der(leaf).map_err(|e| e.to_string())?;
    let common_name = x509
        .subject()
        .iter_common_name()
        .next()
        .and_then(|name| name.as_str().ok())
        .map(str::to_owned);
    let addresses = addresses_in(&x509);
    let authority = chain
        .iter()
        .skip(1)
        .find(|other| has_issued(other, &x509))
        .cloned();
    let time = |seconds: i64| {
        SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
    };
    let (not_before, not_after) = (
        time(x509.validity().not_before.timestamp()),
        time(x509.validity().not_after.timestamp()),
    );
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|e| e.to_string())?;
    let signing =
        rustls::crypto::ring::sign::any_supported_type(&key).map_err(|e| e.to_string())?;
    let certified = CertifiedKey::new(chain, signing);
    certified
        .keys_match()
        .map_err(|_| "certificate and key do not belong together".to_owned())?;
    Ok(Stored {
        key: Arc::new(certified),
        common_name,
        addresses,
        authority,
        not_before,
        not_after,
    })
}

/// Whether `der` is the authority that a certificate names as its own.
fn has_issued(der: &CertificateDer<'_>, certificate: &X509Certificate<'_>) -> bool {
    X509Certificate::from_der(der).is_ok_and(|(_, authority)| {
        authority.is_ca() && authority.subject() == certificate.issuer()
    })
}

/// The addresses among the subject's alternative names.
fn addresses_in(certificate: &X509Certificate<'_>) -> Vec<IpAddr> {
    let names = certificate.subject_alternative_name().ok().flatten();
    let names = names
        .map(|extension| extension.value.general_names.as_slice())
        .unwrap_or_default();
    let address = |name: &GeneralName<'_>| match name {
        GeneralName::IPAddress(bytes) => match bytes.len() {
            4 => <[u8; 4]>::try_from(*bytes).ok().map(IpAddr::from),
            16 => <[u8; 16]>::try_from(*bytes).ok().map(IpAddr::from),
            _ => None,
        },
        _ => None,
    };
    names.iter().filter_map(address).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(cn: &str) -> csr::Pair {
        pair_of(cn, Vec::new())
    }

    fn pair_of(cn: &str, names: Vec<String>) -> csr::Pair {
        let key = rcgen::KeyPair::generate().expect("key");
        let mut params = rcgen::CertificateParams::new(names).expect("params");
        params
            .distinguished_name
            .push(rcgen::DnType::CommonName, cn);
        let certificate = params.self_signed(&key).expect("certificate").pem();
        csr::Pair {
            certificate,
            key: key.serialize_pem(),
        }
    }

    #[test]
    fn stored_pairs_are_private_and_load_again() {
        let dir = tempfile::tempdir().expect("directory");
        save(dir.path(), "client", &pair("system:node:n1")).expect("save");
        let mode = fs::metadata(dir.path().join("client.key"))
            .expect("key")
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
        let stored = load(dir.path(), "client").expect("load").expect("there");
        assert_eq!(stored.common_name(), Some("system:node:n1"));
        assert!(stored.is_valid());
    }

    #[test]
    fn certificate_of_another_address_is_not_good_enough() {
        let address = |text: &str| text.parse::<IpAddr>().expect("address");
        let stored = Stored::from_pair(pair_of("n1", vec!["192.0.2.1".to_owned()])).expect("pair");
        assert!(stored.names(&csr::Wanted::serving("n1", address("192.0.2.1"))));
        assert!(!stored.names(&csr::Wanted::serving("n1", address("192.0.2.2"))));
        assert!(stored.names(&csr::Wanted::client("n1")));
    }

    #[test]
    fn a_node_asks_again_with_the_key_that_it_has() {
        let dir = tempfile::tempdir().expect("directory");
        let key = || {
            kept_key(dir.path(), "client")
                .expect("a key")
                .serialize_pem()
        };
        let first = key();
        // Killed before it had a certificate.
        assert_eq!(key(), first);
        let mode = fs::metadata(dir.path().join("client.key")).expect("key");
        assert_eq!(mode.permissions().mode() & 0o777, 0o600);
        // The certificate it has, or had, is of its key.
        let stored = pair("system:node:n1");
        save(dir.path(), "client", &stored).expect("save");
        assert_eq!(key(), stored.key);
        fs::write(dir.path().join("client.key"), "none").expect("write");
        assert_ne!(key(), stored.key);
    }

    #[test]
    fn foreign_key_is_no_identity() {
        let dir = tempfile::tempdir().expect("directory");
        let mixed = csr::Pair {
            certificate: pair("a").certificate,
            key: pair("b").key,
        };
        save(dir.path(), "client", &mixed).expect("save");
        assert!(load(dir.path(), "client").expect("load").is_none());
    }
}
