//! Certificates in use, and how they are renewed.
//!
//! [`Identity`] is what TLS asks at each handshake, so that a renewed certificate is used without a
//! restart. What is on disk is the business of [`super::credentials`].

use std::{
    net::IpAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use coracle_telemetry::{Backoff, ErrorChain};
use parking_lot::RwLock;
use rustls::{
    SignatureScheme,
    client::ResolvesClientCert,
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use rustls_pki_types::CertificateDer;
use tokio_util::sync::CancellationToken;

use super::{
    JoinError,
    credentials::{Stored, load, make_private_dir, save},
    csr,
};

const SERVING: &str = "serving";
const RETRY_MIN: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(300);
/// How often it is compared whose certificates the API server believes: a look at what is in
/// memory.
const AUTHORITY_CHECK: Duration = Duration::from_secs(5);

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
                    tracing::warn!(certificate = self.name, error = %ErrorChain(&error), "cannot obtain a certificate; trying again")
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::join::first_certificate;

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
}
