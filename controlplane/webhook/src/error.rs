//! Why there is no answer. What is said is what Go's client says: people look for it.

use std::io;

use crate::{
    dial::DialError,
    words::{self, MAX_ANSWER},
};

/// Why a call has brought nothing.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// It cannot be called at all: the configuration is to be mended.
    #[error("could not get REST client: {0}")]
    Setup(#[source] SetupError),
    /// The exchange did not come to an end.
    #[error("Post {url:?}: {why}")]
    Exchange {
        /// What was called.
        url: String,
        /// What became of it.
        #[source]
        why: ExchangeError,
    },
    /// It answered, and not with a success.
    #[error("{message}")]
    Answered {
        /// HTTP's.
        code: u16,
        /// The Status that it sent, or what its code means.
        message: String,
    },
}

impl CallError {
    /// The code of the answer, if there was one.
    #[must_use]
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Answered { code, .. } => Some(*code),
            Self::Setup(_) | Self::Exchange { .. } => None,
        }
    }

    /// Whether the answer is longer than is read: a smaller question may be answered.
    #[must_use]
    pub fn is_too_long(&self) -> bool {
        let why = match self {
            Self::Exchange { why, .. } => Some(why),
            _ => None,
        };
        matches!(why, Some(ExchangeError::TooLong))
    }

    /// Whether the other side has broken off: the same call may succeed.
    #[must_use]
    pub fn is_reset(&self) -> bool {
        let Self::Exchange { why, .. } = self else {
            return false;
        };
        let mut cause: Option<&dyn std::error::Error> = Some(why);
        while let Some(error) = cause {
            let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
            if kind == Some(io::ErrorKind::ConnectionReset) {
                return true;
            }
            cause = error.source();
        }
        false
    }
}

/// Why a webhook cannot be called.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// It has no address.
    #[error("Unparsable URL: {url:?}")]
    Url {
        /// As it was written.
        url: String,
    },
    /// Nobody can be believed.
    #[error("unable to load root certificates: unable to parse bytes as PEM block")]
    CaBundle,
    /// What the caller was to show of itself is no such thing.
    #[error("unable to use the client's {what}")]
    Credentials {
        /// Which part of it.
        what: &'static str,
    },
    /// The machine's own authorities cannot be read.
    #[error("unable to load root certificates of this machine")]
    SystemRoots(#[source] io::Error),
    /// It took too long.
    #[error("context deadline exceeded")]
    Deadline,
    /// TLS as such.
    #[error("cannot set up TLS")]
    Tls(#[source] rustls::Error),
}

/// What became of an exchange.
#[derive(Debug, thiserror::Error)]
pub enum ExchangeError {
    /// It took too long.
    #[error("context deadline exceeded")]
    Deadline,
    /// There is no way to the Service.
    #[error("{0}")]
    Dial(#[source] DialError),
    /// There is no way to the host of a URL.
    #[error("dial tcp {address}: {}", words::of_io(.source))]
    Connect {
        /// Host and port.
        address: String,
        /// What the system says of it.
        source: io::Error,
    },
    /// Somebody else answers there, or in another way.
    #[error("{}", words::of_tls(.0))]
    Tls(#[source] io::Error),
    /// What was said was no HTTP, or it broke off.
    #[error("{}", words::of_http(.0))]
    Http(#[source] hyper::Error),
    /// The other side has gone before anything was sent.
    #[error("EOF")]
    Gone,
    /// More than is read.
    #[error("the answer is longer than {MAX_ANSWER} bytes")]
    TooLong,
}
