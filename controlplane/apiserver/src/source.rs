//! Where a request comes from, and so who asks: a part of this process, which is who it says, or a
//! connection, whose certificate or token says it.

use std::sync::Arc;

use coracle_api::status::Status;
use coracle_auth::{authn::Authenticator, user::UserInfo};
use http::HeaderMap;

use crate::{
    body::Body,
    connection::Connection,
    limits::{Limits, Requester},
    progress::Progress,
    tls_session::LargeAnswer,
};

/// Where a request comes from.
#[derive(Clone)]
pub(crate) enum Source {
    /// A part of this process, which is who it says.
    Part(Arc<UserInfo>),
    /// A client's connection.
    Connection(Arc<Connection>),
    /// Somebody else, who is believed.
    #[cfg(test)]
    Outsider(Arc<UserInfo>),
}

impl Source {
    pub(crate) fn is_part(&self) -> bool {
        matches!(self, Self::Part(_))
    }

    /// Lets the connection of a sender that has shown who it is stay.
    ///
    /// # Errors
    /// 429 if it has too many.
    pub(crate) fn claim_identity(
        &self,
        limits: &Limits,
        requester: Requester,
    ) -> Result<(), Status> {
        match self {
            Self::Connection(connection) => connection.claim_identity(limits, requester),
            _ => Ok(()),
        }
    }

    pub(crate) fn connection(&self) -> Option<&Connection> {
        match self {
            Self::Connection(connection) => Some(connection),
            _ => None,
        }
    }

    /// Lets the connection hold more for its client until the answer has gone, if that is large
    /// and has an end.
    pub(crate) fn begin_answer(&self, body: &Body) -> Option<LargeAnswer> {
        match self {
            Self::Connection(connection) if body.is_large() => {
                Some(connection.large_answers().begin())
            }
            _ => None,
        }
    }

    /// Who looks after the answer.
    pub(crate) fn progress(&self) -> Option<Arc<Progress>> {
        match self {
            Self::Connection(connection) => {
                Some(Progress::current().unwrap_or_else(|| connection.progress()))
            }
            _ => None,
        }
    }

    /// The user of a request: its sender's, its certificate's, its token's, or nobody.
    ///
    /// # Errors
    /// 401 for credentials that are no good.
    pub(crate) async fn authenticate(
        &self,
        authenticator: &Authenticator,
        limits: &Limits,
        headers: &HeaderMap,
    ) -> Result<Arc<UserInfo>, Status> {
        match self {
            Self::Part(user) => Ok(Arc::clone(user)),
            #[cfg(test)]
            Self::Outsider(user) => Ok(Arc::clone(user)),
            Self::Connection(connection) => {
                let turn = limits.authentication();
                authenticator
                    .credentials(connection.certificate(), headers, turn)
                    .await
            }
        }
    }
}
