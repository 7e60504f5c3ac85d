//! Certificates and keys on disk and in use.
//!
//! [`Identity`] is what TLS asks at each handshake, so that a renewed certificate is used without a
//! restart.

use std::{
    fs,
    io::{self, Write},
    net::IpAddr,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use base64::Engine as _;
use coracle_telemetry::{Backoff, ErrorChain};
use parking_lot::RwLock;
use rustls::{
    SignatureScheme,
    client::ResolvesClientCert,
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use tokio_util::sync::CancellationToken;
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

use super::{JoinError, csr};

const SERVING: &str = "serving";
const RETRY_MIN: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(300);
/// How often it is compared whose certificates the API server believes: a look at what is in
/// memory.
const AUTHORITY_CHECK: Duration = Duration::from_secs(5);
/// Renewed when this part of its life is over.
const RENEW_AT: f64 = 0.75;

/// A certificate with its key, parsed.
#[derive(Debug)]
pub(crate) struct Stored {
    key: Arc<CertifiedKey>,
    common_name: Option<String>,
    addresses: Vec<IpAddr>,
    /// The authority that issued it, if it came with it.
    authority: Option<CertificateDer<'static>>,
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
    fn names(&self, wanted: &csr::Wanted) -> bool {
        wanted
            .addresses()
            .iter()
            .all(|address| self.addresses.contains(address))
    }

    fn renew_in(&self) -> Duration {
        let life = self
            .not_after
            .duration_since(self.not_before)
            .unwrap_or_default();
        let due = self.not_before + life.mul_f64(RENEW_AT);
        due.duration_since(SystemTime::now()).unwrap_or_default()
    }
}

/// The certificate in use.
#[derive(Debug)]
pub(crate) struct Identity {
    current: RwLock<Stored>,
}

impl Identity {
    pub(crate) fn new(stored: Stored) -> Self {
        Self {
            current: RwLock::new(stored),
        }
    }

    fn key(&self) -> Arc<CertifiedKey> {
        Arc::clone(&self.current.read().key)
    }

    /// The authority that issued it, if it came with it.
    pub(crate) fn authority(&self) -> Option<CertificateDer<'static>> {
        self.current.read().authority.clone()
    }
}

impl ResolvesClientCert for Identity {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(self.key())
    }

    fn has_certs(&self) -> bool {
        true
    }
}

impl ResolvesServerCert for Identity {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.key())
    }
}

/// Which certificate.
pub(crate) struct Purpose {
    /// File name without suffix.
    pub(crate) name: &'static str,
    pub(crate) wanted: csr::Wanted,
}

impl Purpose {
    /// The node's identity towards the API.
    pub(crate) fn client(node_name: &str) -> Self {
        Self {
            name: super::CLIENT,
            wanted: csr::Wanted::client(node_name),
        }
    }

    /// The identity of the node's own HTTPS API.
    pub(crate) fn serving(node_name: &str, address: IpAddr) -> Self {
        Self {
            name: SERVING,
            wanted: csr::Wanted::serving(node_name, address),
        }
    }

    /// Whether a certificate is of the time before nodes had an authority of their own: clients of
    /// the API believe it.
    fn is_outdated(&self, identity: &Identity) -> bool {
        self.name == SERVING && identity.authority().is_none()
    }

    /// The stored certificate if it is still good, or a new one; tries until it has one.
    pub(crate) async fn obtain(
        &self,
        client: &kube::Client,
        pki: &Path,
    ) -> Result<Arc<Identity>, JoinError> {
        make_private_dir(pki)?;
        if let Some(stored) =
            load(pki, self.name)?.filter(|stored| stored.is_valid() && stored.names(&self.wanted))
        {
            return Ok(Arc::new(Identity::new(stored)));
        }
        let mut retry = Backoff::new(RETRY_MIN, RETRY_MAX);
        loop {
            match csr::obtain(client, &self.wanted).await {
                Ok(pair) => {
                    save(pki, self.name, &pair)?;
                    return Ok(Arc::new(Identity::new(Stored::from_pair(pair)?)));
                }
                Err(error) => {
                    tracing::warn!(certificate = self.name, error = %ErrorChain(&error), "obtain a certificate")
                }
            }
            tokio::time::sleep(retry.pause()).await;
        }
    }
}

/// Whether the API server has `announced` another authority than the certificate's own: that one
/// was lost with the server's data, and nobody believes the certificate any more.
fn is_foreign(identity: &Identity, announced: Option<&CertificateDer<'_>>) -> bool {
    announced.is_some_and(|announced| identity.authority().as_ref() != Some(announced))
}

/// Returns after `pause`, as soon as the certificate is foreign.
async fn wait_until_foreign(
    identity: &Identity,
    announced_ca: impl Fn() -> Option<CertificateDer<'static>>,
    pause: Duration,
) {
    tokio::time::sleep(pause).await;
    while !is_foreign(identity, announced_ca().as_ref()) {
        tokio::time::sleep(AUTHORITY_CHECK).await;
    }
}

/// A certificate in use, and what it takes to have it renewed.
pub(crate) struct Renewal<F> {
    pub(crate) client: kube::Client,
    /// Where it is stored.
    pub(crate) pki: PathBuf,
    pub(crate) purpose: Purpose,
    pub(crate) identity: Arc<Identity>,
    /// The authority whose certificates the API server says it believes; `None` if it says nothing.
    pub(crate) announced_ca: F,
}

/// Renews the certificate before it expires, until `shutdown`; an outdated one at once, and so one
/// of another authority than the API server announces.
pub(crate) async fn keep_renewed(
    renewal: Renewal<impl Fn() -> Option<CertificateDer<'static>>>,
    shutdown: CancellationToken,
) {
    let Renewal {
        client,
        pki,
        purpose,
        identity,
        announced_ca,
    } = renewal;
    let (mut retry, mut pause) = (Backoff::new(RETRY_MIN, RETRY_MAX), RETRY_MIN);
    let renew_in = || identity.current.read().renew_in();
    let mut wait = if purpose.is_outdated(&identity) {
        Duration::ZERO
    } else {
        renew_in()
    };
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = tokio::time::sleep(wait) => {}
            () = wait_until_foreign(&identity, &announced_ca, pause) => tracing::warn!(
                certificate = purpose.name,
                "the API server announces another authority than this certificate's: requesting a new one"
            ),
        }
        let renewed = async {
            let pair = csr::obtain(&client, &purpose.wanted)
                .await
                .map_err(|error| ErrorChain(&error).to_string())?;
            save(&pki, purpose.name, &pair).map_err(|error| ErrorChain(&error).to_string())?;
            Stored::from_pair(pair).map_err(|error| ErrorChain(&error).to_string())
        };
        match renewed.await {
            Ok(stored) => {
                tracing::info!(certificate = purpose.name, "renewed a certificate");
                *identity.current.write() = stored;
                wait = renew_in();
                // It announces an authority that signs nothing here: not asked for again and again.
                if is_foreign(&identity, announced_ca().as_ref()) {
                    pause = retry.pause();
                } else {
                    retry.reset();
                    pause = RETRY_MIN;
                }
            }
            Err(error) => {
                tracing::warn!(
                    certificate = purpose.name,
                    error = error.as_str(),
                    "renew a certificate"
                );
                pause = retry.pause();
                wait = pause;
            }
        }
    }
}

/// What is stored under `name`; `None` if there is nothing usable.
pub(crate) fn load(pki: &Path, name: &str) -> Result<Option<Stored>, JoinError> {
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
pub(crate) fn save(pki: &Path, name: &str, pair: &csr::Pair) -> Result<(), JoinError> {
    write_private(&pki.join(format!("{name}.key")), pair.key.as_bytes())?;
    write_private(
        &pki.join(format!("{name}.crt")),
        pair.certificate.as_bytes(),
    )
}

/// Writes whole, mode 0600.
pub(crate) fn write_private(path: &Path, bytes: &[u8]) -> Result<(), JoinError> {
    let temporary = path.with_extension("new");
    let write = || {
        let _ = fs::remove_file(&temporary);
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&temporary)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    };
    write().map_err(|source| JoinError::File {
        operation: "write",
        path: path.to_owned(),
        source,
    })
}

/// Makes the directory, mode 0700.
pub(crate) fn make_private_dir(dir: &Path) -> Result<(), JoinError> {
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
pub(crate) fn pem(label: &str, der: &[u8]) -> String {
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

    /// A certificate of an authority, and the authority itself, both PEM.
    fn issued(cn: &str) -> (csr::Pair, String) {
        let key = rcgen::KeyPair::generate().expect("key");
        let mut params = rcgen::CertificateParams::new(Vec::new()).expect("params");
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params
            .distinguished_name
            .push(rcgen::DnType::CommonName, "authority");
        let authority = params.self_signed(&key).expect("authority").pem();
        let issuer = rcgen::Issuer::new(params, key);
        let key = rcgen::KeyPair::generate().expect("key");
        let mut params = rcgen::CertificateParams::new(Vec::new()).expect("params");
        params
            .distinguished_name
            .push(rcgen::DnType::CommonName, cn);
        let certificate = params.signed_by(&key, &issuer).expect("certificate").pem();
        (
            csr::Pair {
                certificate,
                key: key.serialize_pem(),
            },
            authority,
        )
    }

    #[test]
    fn authority_is_the_one_that_came_with_the_certificate() {
        let identity = |pair| Identity::new(Stored::from_pair(pair).expect("pair"));
        let (mut pair, authority) = issued("system:node:n1");
        let purpose = Purpose::serving("n1", IpAddr::from([192, 0, 2, 1]));
        let alone = identity(csr::Pair {
            certificate: pair.certificate.clone(),
            key: pair.key.clone(),
        });
        assert!(alone.authority().is_none() && purpose.is_outdated(&alone));
        assert!(
            !Purpose::client("n1").is_outdated(&alone),
            "the API server knows its own authority"
        );
        let (_, stranger) = issued("system:node:n2");
        pair.certificate
            .push_str(&stranger.replace("authority", "stranger"));
        pair.certificate.push_str(&authority);
        let known = identity(pair);
        assert!(known.authority().is_some() && !purpose.is_outdated(&known));
    }

    #[tokio::test(start_paused = true)]
    async fn a_certificate_of_a_lost_authority_is_foreign() {
        let identity = |told: &str| {
            let (mut pair, _) = issued("system:node:n1");
            pair.certificate.push_str(told);
            Identity::new(Stored::from_pair(pair).expect("pair"))
        };
        let authority = || issued("system:node:n1").1;
        // Both called the same: an authority that is made anew is.
        let (old, new) = (authority(), authority());
        let (own, other) = (
            first_certificate(old.as_bytes()),
            first_certificate(new.as_bytes()),
        );
        let present = identity(&old);
        assert!(!is_foreign(&present, None), "an older server tells nothing");
        assert!(!is_foreign(&present, own.as_ref()) && is_foreign(&present, other.as_ref()));
        assert!(
            is_foreign(&identity(""), own.as_ref()),
            "it came without its authority"
        );

        let began = tokio::time::Instant::now();
        let announced_ca = || {
            if began.elapsed() < Duration::from_secs(60) {
                own.clone()
            } else {
                other.clone()
            }
        };
        wait_until_foreign(&present, announced_ca, RETRY_MIN).await;
        let after = began.elapsed();
        assert!(
            after >= Duration::from_secs(60) && after < Duration::from_secs(70),
            "{after:?}"
        );
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
