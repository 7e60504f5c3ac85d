//! What etcd and the network say, in sentences, and what follows of it: whether it may be tried
//! again, and whether something may have been written.
//!
//! Source: `etcd/api/v3rpc/rpctypes/error.go` for etcd's messages.

use std::{error::Error, time::Duration};

use coracle_store::StoreError;
use tonic::Code;

use crate::config::ConfigError;

/// Why a call to a member failed.
#[derive(Debug, Clone, thiserror::Error)]
#[error("etcd at {url} {}", .cause.sentence())]
pub struct CallError {
    url: String,
    cause: Cause,
}

/// What is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Cause {
    /// No connection.
    Unreachable(String),
    /// It shows a certificate that is not trusted.
    Untrusted,
    /// It does not take our certificate.
    Distrusts,
    /// It does not speak TLS, or speaks nothing else.
    OtherScheme,
    /// Not enough members run.
    NoLeader,
    /// It has more to do than it can.
    Busy,
    /// It did not answer in time.
    Silent(Duration),
    /// The connection broke, or it gave up while it was at it.
    Lost(String),
    /// It has no more room.
    Full,
    /// It does not let us.
    Forbidden(String),
    /// The request is larger than it takes.
    TooLarge,
    /// The revision is compacted.
    Compacted,
    /// The revision is not there yet.
    Future,
    /// It belongs to another etcd than the other members.
    OtherCluster,
    /// It is too old.
    TooOld(String),
    /// Anything else.
    Failed(String),
}

/// Why a store could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The flags contradict each other.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// No member answers, or one says no.
    #[error("cannot use etcd as the store")]
    Call(#[from] CallError),
    /// The keys under the prefix are not Coracle's.
    #[error(
        "{prefix} in etcd holds data of something else than Coracle: choose another --etcd-prefix"
    )]
    Foreign {
        /// The prefix.
        prefix: String,
    },
    /// There is something where a copy shall go.
    #[error("{prefix} in etcd is not empty: choose another --etcd-prefix, or delete what is there")]
    NotEmpty {
        /// The prefix.
        prefix: String,
    },
    /// A copy broke off.
    #[error(
        "{prefix} in etcd holds a copy that was not finished: delete it (etcdctl del --prefix {prefix}/) and copy again"
    )]
    Unfinished {
        /// The prefix.
        prefix: String,
    },
    /// They are of another cluster.
    #[error(
        "{prefix} in etcd holds another cluster, with certificate authority {found} where this server has {ours}: choose another \
         --etcd-prefix, or give this server that cluster's DATA_DIR/server/pki"
    )]
    OtherOwner {
        /// The prefix.
        prefix: String,
        /// Whose they are.
        found: String,
        /// Who we are.
        ours: String,
    },
    /// They are of another release's form.
    #[error(
        "{prefix} in etcd holds data of version {found}, and this release reads version {ours}: {advice}"
    )]
    OtherVersion {
        /// The prefix.
        prefix: String,
        /// The version there.
        found: u64,
        /// Ours.
        ours: u64,
        /// What to do.
        advice: &'static str,
    },
}

impl CallError {
    pub(crate) fn new(url: &str, cause: Cause) -> Self {
        Self {
            url: url.to_owned(),
            cause,
        }
    }

    pub(crate) fn of(url: &str, error: &etcd_client::Error) -> Self {
        Self::new(url, Cause::of(error))
    }

    pub(crate) fn cause(&self) -> &Cause {
        &self.cause
    }

    /// Where no certificate is shown: a member that wants one says so only after the handshake, and
    /// its connection is often gone before that is read.
    pub(crate) fn of_nobody(self) -> Self {
        let cause = match self.cause {
            Cause::Lost(why) => Cause::Lost(format!(
                "{why} (it may want a certificate, and none is shown: look at --etcd-cert and --etcd-key)"
            )),
            other => other,
        };
        Self { cause, ..self }
    }

    /// What came in the way of a call that was not sent then: it certainly was not.
    pub(crate) fn before_the_call(self) -> Self {
        let cause = match self.cause {
            Cause::Silent(time) => {
                Cause::Unreachable(format!("no answer within {} s", time.as_secs_f32()))
            }
            Cause::Lost(why) => Cause::Unreachable(why),
            other => other,
        };
        Self { cause, ..self }
    }
}

impl Cause {
    fn sentence(&self) -> String {
        match self {
            Self::Unreachable(why) => format!("cannot be reached: {why}"),
            Self::Untrusted => {
                "shows a certificate that --etcd-cacert does not vouch for, or that is for other names".to_owned()
            }
            Self::Distrusts => {
                "does not take our certificate: look at --etcd-cert and --etcd-key (without them none is shown)"
                    .to_owned()
            }
            Self::OtherScheme => {
                "cannot be understood: one side speaks TLS and the other does not (http:// or https:// in --store)"
                    .to_owned()
            }
            Self::NoLeader => {
                "has no leader: more than half of etcd's members must run and reach each other".to_owned()
            }
            Self::Busy => "has too many requests under way".to_owned(),
            Self::Silent(time) => format!("did not answer within {} s", time.as_secs_f32()),
            Self::Lost(why) => format!("broke off: {why}"),
            Self::Full => {
                "is full (alarm NOSPACE): delete objects or raise its --quota-backend-bytes, then compact and defragment it, \
                 and disarm the alarm"
                    .to_owned()
            }
            Self::Forbidden(why) => format!("does not let us: {why}"),
            Self::TooLarge => "takes no request that large: raise its --max-request-bytes".to_owned(),
            Self::Compacted => "has compacted that revision".to_owned(),
            Self::Future => "has not come to that revision".to_owned(),
            Self::OtherCluster => {
                "is no member of the etcd that the other addresses of --store belong to".to_owned()
            }
            Self::TooOld(version) => format!("is of version {version}: 3.4 or later is needed"),
            Self::Failed(why) => format!("failed: {why}"),
        }
    }

    pub(crate) fn of(error: &etcd_client::Error) -> Self {
        let etcd_client::Error::GRpcStatus(status) = error else {
            return Self::Lost(error.to_string());
        };
        if let Some(cause) = Self::of_message(status.message()) {
            return cause;
        }
        let chain = chain(status);
        if let Some(cause) = Self::of_connection(&chain) {
            return cause;
        }
        match status.code() {
            Code::PermissionDenied | Code::Unauthenticated => {
                Self::Forbidden(status.message().to_owned())
            }
            Code::ResourceExhausted | Code::OutOfRange
                if status.message().contains("larger than max") =>
            {
                Self::TooLarge
            }
            Code::InvalidArgument | Code::FailedPrecondition | Code::Unimplemented => {
                Self::Failed(status.message().to_owned())
            }
            _ if is_unsent(status) => Self::Unreachable(last(&chain)),
            _ => Self::Lost(last(&chain)),
        }
    }

    /// Of what etcd itself says.
    fn of_message(message: &str) -> Option<Self> {
        let message = message.strip_prefix("etcdserver: ")?;
        Some(match message {
            "mvcc: required revision has been compacted" => Self::Compacted,
            "mvcc: required revision is a future revision" => Self::Future,
            "mvcc: database space exceeded" => Self::Full,
            "no leader" => Self::NoLeader,
            "too many requests" => Self::Busy,
            // One that has just joined; others answer.
            "rpc not supported for learner" => {
                Self::Unreachable("it is a learner, which answers nobody yet".to_owned())
            }
            "request is too large" => Self::TooLarge,
            "permission denied"
            | "user name is empty"
            | "user name not found"
            | "invalid auth token"
            | "authentication is not enabled"
            | "authentication failed, invalid user ID or password" => {
                Self::Forbidden(message.to_owned())
            }
            // It has begun: request timed out, leader changed, server stopped.
            _ if message.starts_with("request timed out")
                || matches!(message, "leader changed" | "server stopped" | "stopped") =>
            {
                Self::Lost(message.to_owned())
            }
            _ => Self::Failed(message.to_owned()),
        })
    }

    /// Of what TLS and TCP say; there are no types for it behind the layers between.
    fn of_connection(chain: &[String]) -> Option<Self> {
        let says = |text: &str| chain.iter().any(|link| link.contains(text));
        if says("invalid peer certificate") {
            Some(Self::Untrusted)
        } else if says("received fatal alert") && (says("ertificate") || says("UnknownCA")) {
            Some(Self::Distrusts)
        } else if says("tls handshake eof") {
            // One without TLS does so, and one that is just ending.
            Some(Self::Unreachable(
                "it broke off the TLS handshake: does it speak TLS (http:// or https:// in --store)?"
                    .to_owned(),
            ))
        } else if says("InvalidContentType") || says("frame with invalid size") {
            Some(Self::OtherScheme)
        } else {
            None
        }
    }

    /// Whether certainly nothing was carried out, so that a second try can do no harm.
    pub(crate) fn is_unsent(&self) -> bool {
        matches!(
            self,
            Self::Unreachable(_)
                | Self::Untrusted
                | Self::OtherScheme
                | Self::NoLeader
                | Self::Busy
                | Self::OtherCluster
                | Self::TooOld(_)
        )
    }

    /// Whether somebody has to mend it: only another member may do better.
    pub(crate) fn is_lasting(&self) -> bool {
        matches!(
            self,
            Self::Untrusted
                | Self::Distrusts
                | Self::OtherScheme
                | Self::OtherCluster
                | Self::TooOld(_)
        )
    }

    /// Whether another member, or the same one later, may do better.
    pub(crate) fn may_pass(&self) -> bool {
        self.is_unsent() || matches!(self, Self::Silent(_) | Self::Lost(_) | Self::Distrusts)
    }
}

/// Whether no connection could be made.
fn is_unsent(status: &tonic::Status) -> bool {
    let mut link: Option<&(dyn Error + 'static)> = status.source();
    while let Some(error) = link {
        if error.is::<tonic::ConnectError>() {
            return true;
        }
        link = error.source();
    }
    false
}

fn chain(status: &tonic::Status) -> Vec<String> {
    let mut links = vec![status.message().to_owned()];
    let mut link = status.source();
    while let Some(error) = link {
        links.push(error.to_string());
        link = error.source();
    }
    links
}

fn last(chain: &[String]) -> String {
    chain.last().cloned().unwrap_or_default()
}

// === in the store's terms ===

/// A call that writes nothing, or nothing twice.
pub(crate) fn read_failed(error: CallError) -> StoreError {
    match error.cause {
        Cause::Failed(_) => engine_failed("carry out a request", error),
        _ => StoreError::Unavailable {
            source: Box::new(error),
        },
    }
}

/// A transaction.
pub(crate) fn write_failed(error: CallError) -> StoreError {
    match &error.cause {
        Cause::Full => StoreError::Full {
            source: Box::new(error),
        },
        Cause::TooLarge => StoreError::InvalidTxn {
            why: "it is larger than etcd takes (--max-request-bytes, 1.5 MiB unless raised)",
        },
        Cause::Failed(_) | Cause::Compacted | Cause::Future => {
            engine_failed("carry out a transaction", error)
        }
        cause if cause.is_unsent() || matches!(cause, Cause::Forbidden(_)) => {
            StoreError::Unavailable {
                source: Box::new(error),
            }
        }
        _ => StoreError::Unsure {
            source: Box::new(error),
        },
    }
}

fn engine_failed(what: &str, error: CallError) -> StoreError {
    StoreError::Engine {
        what: what.to_owned(),
        source: Box::new(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(code: Code, message: &str) -> Cause {
        Cause::of(&etcd_client::Error::GRpcStatus(tonic::Status::new(
            code, message,
        )))
    }

    #[test]
    fn what_etcd_says_is_understood() {
        for (code, message, expected) in [
            (
                Code::OutOfRange,
                "etcdserver: mvcc: required revision has been compacted",
                Cause::Compacted,
            ),
            (
                Code::OutOfRange,
                "etcdserver: mvcc: required revision is a future revision",
                Cause::Future,
            ),
            (
                Code::ResourceExhausted,
                "etcdserver: mvcc: database space exceeded",
                Cause::Full,
            ),
            (Code::Unavailable, "etcdserver: no leader", Cause::NoLeader),
            (
                Code::ResourceExhausted,
                "etcdserver: too many requests",
                Cause::Busy,
            ),
            (
                Code::Unavailable,
                "etcdserver: rpc not supported for learner",
                Cause::Unreachable("it is a learner, which answers nobody yet".to_owned()),
            ),
            (
                Code::InvalidArgument,
                "etcdserver: request is too large",
                Cause::TooLarge,
            ),
            (
                Code::PermissionDenied,
                "etcdserver: permission denied",
                Cause::Forbidden("permission denied".to_owned()),
            ),
            (
                Code::Unavailable,
                "etcdserver: leader changed",
                Cause::Lost("leader changed".to_owned()),
            ),
        ] {
            assert_eq!(said(code, message), expected, "{message}");
        }
    }

    #[test]
    fn a_transaction_that_may_have_been_written_is_told_as_such() {
        for (cause, is_unsure) in [
            (
                said(Code::Unavailable, "etcdserver: request timed out"),
                true,
            ),
            (
                said(
                    Code::Unavailable,
                    "etcdserver: request timed out, possibly due to previous leader failure",
                ),
                true,
            ),
            (said(Code::Unavailable, "etcdserver: leader changed"), true),
            (said(Code::Unknown, "transport error"), true),
            (Cause::Silent(Duration::from_secs(1)), true),
            (Cause::Distrusts, true),
            (Cause::Unreachable("connection refused".to_owned()), false),
            (Cause::NoLeader, false),
            (Cause::Full, false),
            (Cause::TooLarge, false),
            (Cause::Forbidden(String::new()), false),
        ] {
            let text = format!("{cause:?}");
            let error = write_failed(CallError::new("http://127.0.0.1:1", cause));
            assert_eq!(
                matches!(error, StoreError::Unsure { .. }),
                is_unsure,
                "{text}"
            );
        }
    }
}
