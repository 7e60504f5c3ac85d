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
mod reach;
pub(crate) mod token;
mod trust;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use coracle_telemetry::ErrorChain;
use rustls::ClientConfig;
use rustls_pki_types::CertificateDer;
use tokio_util::sync::CancellationToken;

use crate::{
    balancer::{Balancer, ServerAddress},
    config::AgentConfig,
};

#[cfg(test)]
pub(crate) use client::{connect, tls};
#[cfg(test)]
pub(crate) use credentials::Stored;
pub(crate) use credentials::first_certificate;
pub(crate) use identity::{Identity, Purpose, Renewal, keep_renewed};
pub use token::TokenError;

const CLIENT: &str = "client";
const CA_FILE: &str = "ca.crt";

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
    /// The balancer's port cannot be listened on.
    #[error("--lb-server-port {port}: listen on 127.0.0.1")]
    Port {
        /// As given, or by default.
        port: u16,
        /// What the kernel says.
        #[source]
        source: std::io::Error,
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
    /// What the client speaks with.
    pub(crate) tls: ClientConfig,
}

impl Joined {
    fn new(
        balancer: &Balancer,
        identity: Identity,
        ca: CertificateDer<'static>,
    ) -> Result<Self, JoinError> {
        let identity = Arc::new(identity);
        let tls = client::tls(&ca, Some(Arc::clone(&identity)))?;
        Ok(Self {
            client: client::connect(balancer, tls.clone(), None)?,
            identity,
            ca,
            tls,
        })
    }
}

/// Where the servers are that were given.
pub(crate) fn addresses(servers: &[String]) -> Result<Vec<ServerAddress>, JoinError> {
    let address = |server: &String| {
        ServerAddress::of_url(server).ok_or_else(|| JoinError::Server {
            server: server.clone(),
        })
    };
    servers.iter().map(address).collect()
}

/// Uses the stored identity, or gets one with the token.
pub(crate) async fn join(
    config: &AgentConfig,
    balancer: &Balancer,
    token: &str,
    shutdown: &CancellationToken,
) -> Result<Joined, JoinError> {
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
            return Joined::new(balancer, Identity::new(stored), ca);
        }
        tracing::warn!("the node's client certificate has expired");
    }
    if token.is_empty() {
        return Err(JoinError::NoToken { pki });
    }
    let token = token::parse(token)?;
    let (server, ca) = reach::first(balancer, &token, shutdown).await?;
    let bootstrap = client::connect(balancer, client::tls(&ca, None)?, Some(&token.bearer))?;
    let pair = ask(&bootstrap, config, server.to_string(), &pki).await?;
    credentials::save(&pki, CLIENT, &pair)?;
    credentials::write_private(
        &pki.join(CA_FILE),
        credentials::pem("CERTIFICATE", &ca).as_bytes(),
    )?;
    let identity = Identity::new(credentials::Stored::from_pair(pair)?);
    Joined::new(balancer, identity, ca)
}

/// A certificate for the node's key, by token.
async fn ask(
    bootstrap: &kube::Client,
    config: &AgentConfig,
    server: String,
    pki: &Path,
) -> Result<csr::Pair, JoinError> {
    let wanted = csr::Wanted::client(&config.node_name);
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
