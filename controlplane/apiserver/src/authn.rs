//! Who asks: client certificates, bearer tokens, or nobody.
//!
//! A connection's certificate is read once ([`x509`]) and believed until it expires; tokens that were accepted are
//! remembered for a short time, as long as what they are bound to exists, and so are texts that no time makes a token.
//! In-process clients say who they are.

pub(crate) mod bootstrap_token;
pub(crate) mod impersonation;
pub(crate) mod issuer;
pub(crate) mod service_account;
pub mod token_file;
pub(crate) mod x509;

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use coracle_api::status::Status;
use http::{HeaderMap, header};
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};

use self::service_account::{ISSUER, Need};
use crate::{
    limits::{Asking, Limits},
    progress::Progress,
    serve::connection::Connection,
    server::ApiServer,
    user::UserInfo,
};

/// How long an accepted token is believed without looking again, and a wrong one disbelieved.
const REMEMBER: Duration = Duration::from_secs(10);
/// Most tokens remembered, and as many that are none.
const REMEMBERED: usize = 4096;

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

    /// The sender has shown who it is: its connection may stay.
    ///
    /// # Errors
    /// 429 if it has too many.
    pub(crate) fn is_somebody(&self, limits: &Limits, asking: Asking) -> Result<(), Status> {
        match self {
            Self::Connection(connection) => connection.is_somebody(limits, asking),
            _ => Ok(()),
        }
    }

    pub(crate) fn connection(&self) -> Option<&Connection> {
        match self {
            Self::Connection(connection) => Some(connection),
            _ => None,
        }
    }

    /// Who looks after the answer.
    pub(crate) fn progress(&self) -> Option<Arc<Progress>> {
        match self {
            Self::Connection(connection) => Some(Progress::current().unwrap_or_else(|| connection.progress())),
            _ => None,
        }
    }
}

/// Tokens looked at lately, by their hash.
#[derive(Default)]
pub(crate) struct TokenCache {
    accepted: Mutex<Remembered<Arc<Accepted>>>,
    /// Not ours, whatever happens: a signature that is not ours, or no token at all.
    foreign: Mutex<Remembered<()>>,
}

/// By the token's hash: since when, and what.
type Remembered<T> = HashMap<[u8; 32], (Instant, T)>;

/// A token that was accepted.
pub(crate) struct Accepted {
    pub(crate) user: Arc<UserInfo>,
    /// Those it is for, of those that were asked for.
    pub(crate) audiences: Vec<String>,
    expires_secs: Option<i64>,
    /// Without these it is worth nothing.
    needs: Vec<Need>,
}

impl Accepted {
    /// Whether it has not expired and everything is there that it is bound to.
    fn still_holds(&self) -> bool {
        self.expires_secs.is_none_or(|expires| jiff::Timestamp::now().as_second() < expires)
            && self.needs.iter().all(Need::is_there)
    }
}

impl TokenCache {
    fn get(&self, hash: &[u8; 32]) -> Option<Arc<Accepted>> {
        let accepted = self.accepted.lock();
        accepted.get(hash).filter(|(since, _)| since.elapsed() < REMEMBER).map(|(_, accepted)| Arc::clone(accepted))
    }

    fn put(&self, hash: [u8; 32], accepted: Arc<Accepted>) {
        remember(&mut self.accepted.lock(), hash, accepted);
    }

    fn is_foreign(&self, hash: &[u8; 32]) -> bool {
        self.foreign.lock().get(hash).is_some_and(|(since, ())| since.elapsed() < REMEMBER)
    }

    fn put_foreign(&self, hash: [u8; 32]) {
        remember(&mut self.foreign.lock(), hash, ());
    }
}

fn remember<T>(known: &mut Remembered<T>, hash: [u8; 32], what: T) {
    if known.len() >= REMEMBERED {
        known.retain(|_, (since, _)| since.elapsed() < REMEMBER);
    }
    if known.len() < REMEMBERED {
        known.insert(hash, (Instant::now(), what));
    }
}

/// The user of a request: its certificate's, its token's, or nobody.
///
/// # Errors
/// 401 for credentials that are no good.
pub(crate) async fn authenticate(
    server: &ApiServer,
    source: &Source,
    headers: &HeaderMap,
) -> Result<Arc<UserInfo>, Status> {
    match source {
        Source::Part(user) => Ok(Arc::clone(user)),
        #[cfg(test)]
        Source::Outsider(user) => Ok(Arc::clone(user)),
        Source::Connection(connection) => credentials(server, connection.certificate(), headers).await,
    }
}

/// The user of a connection's request.
pub(crate) async fn credentials(
    server: &ApiServer,
    certificate: Option<&x509::Holder>,
    headers: &HeaderMap,
) -> Result<Arc<UserInfo>, Status> {
    if let Some(holder) = certificate {
        let now_secs = jiff::Timestamp::now().as_second();
        return holder.user_at(now_secs).map(Arc::clone).ok_or_else(Status::unauthorized);
    }
    let Some(value) = headers.get(header::AUTHORIZATION) else {
        return Ok(Arc::clone(&server.anonymous));
    };
    let token = value.to_str().ok().and_then(bearer).ok_or_else(Status::unauthorized)?;
    let hash: [u8; 32] = Sha256::digest(token.as_bytes()).into();
    let known = server.tokens.get(&hash);
    if let Some(accepted) = &known
        && server.store.cache.is_current()
        && accepted.still_holds()
    {
        return Ok(Arc::clone(&accepted.user));
    }
    if server.tokens.is_foreign(&hash) {
        return Err(Status::unauthorized());
    }
    // Strangers get here: so many at once.
    let _turn = server.limits.authentication().await?;
    if let Some(accepted) = known
        && server.store.cache.catch_up().await.is_ok()
        && accepted.still_holds()
    {
        return Ok(Arc::clone(&accepted.user));
    }
    let Some(accepted) = authenticate_token(server, token, &[ISSUER]).await else {
        if !is_audience_agnostic(server, token) && server.signer.verify(token).is_none() {
            server.tokens.put_foreign(hash);
        }
        return Err(Status::unauthorized());
    };
    let user = Arc::clone(&accepted.user);
    server.tokens.put(hash, Arc::new(accepted));
    Ok(user)
}

/// Whose a token is that is meant for one of `audiences`; `None` if it is no good.
pub(crate) async fn authenticate_token(server: &ApiServer, token: &str, audiences: &[&str]) -> Option<Accepted> {
    if !is_audience_agnostic(server, token) {
        return service_account::authenticate(server, token, audiences).await;
    }
    // Other tokens are for this server alone.
    if !audiences.contains(&ISSUER) {
        return None;
    }
    let (user, needs) = match server.config.static_tokens.get(token) {
        Some(user) => (user.clone(), Vec::new()),
        None => {
            let (user, need) = bootstrap_token::authenticate(server, token).await?;
            (user, vec![need])
        }
    };
    Some(Accepted { user: Arc::new(user), audiences: vec![ISSUER.to_owned()], expires_secs: None, needs })
}

fn is_audience_agnostic(server: &ApiServer, token: &str) -> bool {
    server.config.static_tokens.contains_key(token) || (token.contains('.') && token.len() == bootstrap_token::LENGTH)
}

pub(crate) fn bearer(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token.trim()).filter(|token| !token.is_empty())
}
