//! What came of asking a registry.

use std::{
    fmt,
    io::{self, ErrorKind},
    path::PathBuf,
    str::FromStr,
    time::Duration,
};

use http::StatusCode;
use reqwest::Url;

use super::{DocumentError, io_errors};

/// Why a registry did not give what it was asked for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegistryError {
    /// An endpoint, a redirect or a realm that is no URL.
    #[error("{what} {address:?}")]
    Address {
        /// Which of them.
        what: &'static str,
        /// As written.
        address: String,
        /// Why not.
        source: <Url as FromStr>::Err,
    },
    /// The authority that the node is told to trust cannot be read.
    #[error("read ca_file {path}")]
    CaFile {
        /// Which file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// It has no certificates in it.
    #[error("ca_file {path}")]
    Certificates {
        /// Which file.
        path: PathBuf,
        /// The cause.
        source: reqwest::Error,
    },
    /// No client for it could be made.
    #[error("set up the client for {host}")]
    Client {
        /// Which endpoint.
        host: String,
        /// The cause.
        source: reqwest::Error,
    },
    /// It sends the node where the node does not go.
    #[error("registry {host} sends to {url}: {why}")]
    Forbidden {
        /// Who sends.
        host: String,
        /// Where to.
        url: String,
        /// Why not.
        why: &'static str,
    },
    /// It sends the node on and on.
    #[error("more than {0} redirects")]
    Redirects(u32),
    /// There is no connection to it.
    #[error("failed to reach {host}")]
    Unreachable {
        /// Whom.
        host: String,
        /// The cause.
        source: reqwest::Error,
    },
    /// The connection ended before the answer did.
    #[error("the connection to {host} broke")]
    Broken {
        /// To whom.
        host: String,
        /// The cause.
        source: reqwest::Error,
    },
    /// It says nothing.
    #[error("no answer within {} s", .0.as_secs())]
    Deadline(Duration),
    /// It sends too little.
    #[error("no progress: {bytes} bytes within {} s, at least {least} are needed{when}", .window.as_secs())]
    NoProgress {
        /// Came.
        bytes: u64,
        /// Are needed.
        least: u64,
        /// In which time.
        window: Duration,
        /// Under which circumstances, with a space before.
        when: &'static str,
    },
    /// No token from the realm.
    #[error("failed to authorize")]
    Authorize(#[source] Box<RegistryError>),
    /// An answer of the realm without a token in it.
    #[error("no token in the answer")]
    NoToken,
    /// These credentials do not open it, or it is not there: registries do not tell which.
    #[error("pull access denied, repository does not exist or may require authorization{said}")]
    Denied {
        /// The registry's words.
        said: Said,
    },
    /// It is not there.
    #[error("{what}: not found{said}")]
    NotFound {
        /// What: `HOST/REPOSITORY` with the tag or digest.
        what: String,
        /// The registry's words.
        said: Said,
    },
    /// The node, its address or its account has asked too often.
    #[error("unexpected status {}{}{said}", StatusCode::TOO_MANY_REQUESTS, after(.retry_after))]
    TooManyRequests {
        /// When to come again.
        retry_after: Option<Duration>,
        /// The registry's words.
        said: Said,
    },
    /// It cannot answer now: 408 or 5xx.
    #[error("unexpected status {status}{}{said}", after(.retry_after))]
    Unwell {
        /// What it answers.
        status: StatusCode,
        /// When to come again.
        retry_after: Option<Duration>,
        /// The registry's words.
        said: Said,
    },
    /// Any other refusal.
    #[error("unexpected status {status}{said}")]
    Status {
        /// What it answers.
        status: StatusCode,
        /// The registry's words.
        said: Said,
    },
    /// An answer that has no end, or a far one.
    #[error("the answer is longer than {0} bytes")]
    TooLong(u64),
    /// A part of a blob, but not the rest that was asked for.
    #[error("the bytes from {from} on were asked for, and {range:?} came")]
    Range {
        /// Asked for.
        from: u64,
        /// `Content-Range`.
        range: String,
    },
    /// A document is not what its name says.
    #[error("{what} is {actual}, expected {expected}")]
    Mismatch {
        /// `manifest`, `config`.
        what: &'static str,
        /// Found.
        actual: String,
        /// Promised.
        expected: String,
    },
    /// A document cannot be used.
    #[error(transparent)]
    Document(#[from] DocumentError),
}

impl RegistryError {
    /// What ended a request to `host`. Leaves the URL out, which may have a signature in it.
    pub(crate) fn of_request(host: &str, error: reqwest::Error) -> Self {
        let (host, source) = (host.to_owned(), error.without_url());
        if source.is_connect() {
            Self::Unreachable { host, source }
        } else {
            Self::Broken { host, source }
        }
    }

    /// Of the registry or of its realm.
    fn innermost(&self) -> &Self {
        match self {
            Self::Authorize(source) => source.innermost(),
            _ => self,
        }
    }

    /// Whether the same request may well be answered a moment later. Whom nobody reaches, or who
    /// says nothing, is asked again by the pod's back-off alone.
    pub(crate) fn is_transient(&self) -> bool {
        matches!(
            self.innermost(),
            Self::Broken { .. } | Self::TooManyRequests { .. } | Self::Unwell { .. }
        )
    }

    /// Whether what was on its way may go on: the registry was there, so it will be again.
    pub(crate) fn is_interruption(&self) -> bool {
        self.is_transient()
            || matches!(
                self.innermost(),
                Self::Unreachable { .. } | Self::Deadline(_)
            )
    }

    /// Whether there was nobody to ask, in place of an answer.
    ///
    /// Source: CRI-O `server/image_pull.go`, where it gives `RegistryUnavailable`. What is wrong
    /// with a certificate is none of it.
    #[must_use]
    pub fn is_unavailable(&self) -> bool {
        match self.innermost() {
            Self::Unreachable { source, .. } => {
                source.is_timeout()
                    || source.is_dns()
                    || io_errors(source).any(|error| is_of_network(error.kind()))
            }
            Self::Broken { .. } | Self::Deadline(_) => true,
            Self::Unwell { status, .. } => status.is_server_error(),
            _ => false,
        }
    }

    /// Whether it says no more than that.
    pub(crate) fn is_denied(&self) -> bool {
        matches!(self.innermost(), Self::Denied { .. })
    }

    /// Whether other credentials may get another answer.
    pub(crate) fn is_of_credentials(&self) -> bool {
        matches!(
            self.innermost(),
            Self::Denied { .. } | Self::NotFound { .. } | Self::TooManyRequests { .. }
        )
    }

    /// When the registry wants to be asked again.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        match self.innermost() {
            Self::TooManyRequests { retry_after, .. } | Self::Unwell { retry_after, .. } => {
                *retry_after
            }
            _ => None,
        }
    }
}

fn is_of_network(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::ConnectionRefused
            | ErrorKind::ConnectionReset
            | ErrorKind::HostUnreachable
            | ErrorKind::NetworkUnreachable
            | ErrorKind::TimedOut
    )
}

fn after(retry_after: &Option<Duration>) -> String {
    retry_after.map_or_else(String::new, |after| {
        format!(" (Retry-After: {} s)", after.as_secs())
    })
}

/// A registry's own words, if it has any.
#[derive(Debug, Default)]
pub struct Said(pub Option<String>);

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(words) => write!(f, ": server message: {words}"),
            None => Ok(()),
        }
    }
}
