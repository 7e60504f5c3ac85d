//! How the agent gets its identity: a client certificate to talk to the API with, and a serving
//! certificate.
//!
//! ```text
//! token K10<hash>::<id>.<secret> --TLS, CA pinned by hash--> CSR kube-apiserver-client-kubelet --> client.crt
//! client.crt --TLS, CA known--> CSR kubelet-serving --> serving.crt
//! ```
//! Certificates and keys live in `<agent>/pki`, mode 0600, and are renewed before they expire. The
//! token is used once and not kept; a node with a valid certificate needs none. Who asks by token
//! asks with the key that is there, for the name belongs to the machine that has it.

mod client;
mod credentials;
pub(crate) mod csr;
mod identity;
pub(crate) mod token;
mod trust;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use coracle_telemetry::{Backoff, ErrorChain, ExponentialBackoff};
use rustls_pki_types::CertificateDer;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::config::AgentConfig;

pub(crate) use client::connect;
#[cfg(test)]
pub(crate) use credentials::Stored;
pub(crate) use credentials::first_certificate;
pub(crate) use identity::{Identity, Purpose, Renewal, keep_renewed};
pub use token::TokenError;

const CLIENT: &str = "client";
const CA_FILE: &str = "ca.crt";
/// How long a server that does not answer is waited for when joining.
const JOIN_LIMIT: Duration = Duration::from_secs(120);
const RETRY: ExponentialBackoff =
    ExponentialBackoff::new(Duration::from_millis(500), Duration::from_secs(5));

/// Why the node cannot join.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JoinError {
    /// `--server` is not a URL.
    #[error("--server {server:?}: must be https://HOST:PORT")]
    Server {
        /// As given.
        server: String,
    },
    /// No certificate yet, and no token to get one.
    #[error("this node has no valid certificate in {}: give --token (made by `coracle token create` on the server)", pki.display())]
    NoToken {
        /// Where certificates would be.
        pki: PathBuf,
    },
    /// The token is malformed.
    #[error("--token")]
    Token(#[from] TokenError),
    /// The server is not the one that the token is for.
    #[error(
        "the server at {server} does not present the CA that the token names: wrong server, or a token of another cluster"
    )]
    WrongCa {
        /// As given.
        server: String,
    },
    /// The server does not accept the token.
    #[error(
        "the server at {server} refuses the token: it may have expired; make a new one with `coracle token create`"
    )]
    Refused {
        /// As given.
        server: String,
    },
    /// Nobody answers.
    #[error("reach the server at {server}: {message}")]
    Unreachable {
        /// As given.
        server: String,
        /// Why.
        message: String,
    },
    /// The name is another machine's.
    #[error("the server at {server} does not take this machine as node {node:?}: {message}")]
    Denied {
        /// As given.
        server: String,
        /// Its name.
        node: String,
        /// Why, and what to do.
        message: String,
    },
    /// The certificate was not issued.
    #[error("obtain a certificate for {what}: {message}")]
    Certificate {
        /// Which.
        what: &'static str,
        /// Why.
        message: String,
    },
    /// The stored identity is another node's.
    #[error("{} holds the certificate of {found}, but this node is {wanted}: use the old --node-name or another --data-dir", pki.display())]
    OtherNode {
        /// Where.
        pki: PathBuf,
        /// Common name in the certificate.
        found: String,
        /// Common name wanted.
        wanted: String,
    },
    /// A file of the identity.
    #[error("{operation} {}", path.display())]
    File {
        /// `read`, `write`...
        operation: &'static str,
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// TLS cannot be set up with what is there.
    #[error("set up TLS: {message}")]
    Tls {
        /// Why.
        message: String,
    },
}

/// A connection to the API with the node's own identity.
pub(crate) struct Joined {
    pub(crate) client: kube::Client,
    pub(crate) identity: Arc<Identity>,
    pub(crate) ca: CertificateDer<'static>,
}

/// Uses the stored identity, or gets one with the token.
pub(crate) async fn join(
    config: &AgentConfig,
    server: &str,
    token: &str,
    shutdown: &CancellationToken,
) -> Result<Joined, JoinError> {
    let uri: http::Uri = server
        .parse()
        .ok()
        .filter(|uri: &http::Uri| uri.scheme_str() == Some("https") && uri.host().is_some())
        .ok_or_else(|| JoinError::Server {
            server: server.to_owned(),
        })?;
    let pki = pki_dir(config);
    credentials::make_private_dir(&pki)?;
    let user = node_user(&config.node_name);
    let stored = credentials::load(&pki, CLIENT)?;
    if let (Some(stored), Some(ca)) = (stored, load_ca(&pki)?) {
        if stored.common_name() != Some(user.as_str()) {
            return Err(JoinError::OtherNode {
                pki,
                found: stored.common_name().unwrap_or_default().to_owned(),
                wanted: user,
            });
        }
        if stored.is_valid() {
            let identity = Arc::new(Identity::new(stored));
            let client = connect(&uri, &ca, Some(Arc::clone(&identity)), None)?;
            return Ok(Joined {
                client,
                identity,
                ca,
            });
        }
        tracing::warn!("the node's client certificate has expired");
    }
    if token.is_empty() {
        return Err(JoinError::NoToken { pki });
    }
    let token = token::parse(token)?;
    let ca = reach(server, &uri, &token, shutdown).await?;
    let bootstrap = connect(&uri, &ca, None, Some(&token.bearer))?;
    let pair = ask(&bootstrap, config, server, &pki).await?;
    credentials::save(&pki, CLIENT, &pair)?;
    credentials::write_private(
        &pki.join(CA_FILE),
        credentials::pem("CERTIFICATE", &ca).as_bytes(),
    )?;
    let identity = Arc::new(Identity::new(credentials::Stored::from_pair(pair)?));
    let client = connect(&uri, &ca, Some(Arc::clone(&identity)), None)?;
    Ok(Joined {
        client,
        identity,
        ca,
    })
}

/// A certificate for the node's key, by token.
async fn ask(
    bootstrap: &kube::Client,
    config: &AgentConfig,
    server: &str,
    pki: &Path,
) -> Result<csr::Pair, JoinError> {
    let (wanted, server) = (csr::Wanted::client(&config.node_name), server.to_owned());
    let key = credentials::kept_key(pki, CLIENT)?;
    let pair = csr::obtain_for(bootstrap, &wanted, &key).await;
    pair.map_err(|error| match error {
        csr::CsrError::Refused => JoinError::Refused { server },
        csr::CsrError::Denied { message } => JoinError::Denied {
            server,
            node: config.node_name.clone(),
            message,
        },
        other => JoinError::Certificate {
            what: "the node's client identity",
            message: ErrorChain(&other).to_string(),
        },
    })
}

/// `<agent>/pki`.
pub(crate) fn pki_dir(config: &AgentConfig) -> PathBuf {
    config.agent_dir().join("pki")
}

/// The user name of a node.
pub(crate) fn node_user(node_name: &str) -> String {
    format!("system:node:{node_name}")
}

/// The CA's certificate, with the patience that a server needs that starts at the same time.
async fn reach(
    server: &str,
    uri: &http::Uri,
    token: &token::Token,
    shutdown: &CancellationToken,
) -> Result<CertificateDer<'static>, JoinError> {
    let end = Instant::now() + JOIN_LIMIT;
    let (mut told, mut retry) = (false, Backoff::of(RETRY));
    loop {
        let message = match trust::fetch_ca(uri, &token.ca_hash).await {
            Ok(ca) => return Ok(ca),
            Err(trust::TrustError::WrongCa) => {
                return Err(JoinError::WrongCa {
                    server: server.to_owned(),
                });
            }
            Err(error) => ErrorChain(&error).to_string(),
        };
        if Instant::now() >= end || shutdown.is_cancelled() {
            return Err(JoinError::Unreachable {
                server: server.to_owned(),
                message,
            });
        }
        if !std::mem::replace(&mut told, true) {
            tracing::warn!(server, message, "wait for the server");
        }
        tokio::select! {
            () = shutdown.cancelled() => {}
            () = tokio::time::sleep(retry.pause()) => {}
        }
    }
}

fn load_ca(pki: &Path) -> Result<Option<CertificateDer<'static>>, JoinError> {
    let path = pki.join(CA_FILE);
    match std::fs::read(&path) {
        Ok(text) => Ok(credentials::first_certificate(&text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(JoinError::File {
            operation: "read",
            path,
            source,
        }),
    }
}
