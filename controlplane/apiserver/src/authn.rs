//! Who asks: client certificates, bearer tokens, or nobody.
//!
//! A connection's certificate is read once ([`x509`]), its end looked at with each request; tokens that were accepted are remembered for a short time, as long
//! as what they are bound to exists.
//! In-process clients carry their [`UserInfo`] in the request's extensions and never come here.

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
use crate::{server::ApiServer, user::UserInfo};

/// How long an accepted token is believed without looking again.
const REMEMBER: Duration = Duration::from_secs(10);
/// Most tokens remembered.
const REMEMBERED: usize = 4096;

/// Tokens accepted lately, by their hash.
#[derive(Default)]
pub(crate) struct TokenCache(Mutex<Remembered>);

/// By the token's hash: until when, and whose it is.
type Remembered = HashMap<[u8; 32], (Instant, Arc<Accepted>)>;

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
        let cache = self.0.lock();
        cache.get(hash).filter(|(since, _)| since.elapsed() < REMEMBER).map(|(_, accepted)| Arc::clone(accepted))
    }

    fn put(&self, hash: [u8; 32], accepted: Arc<Accepted>) {
        let mut cache = self.0.lock();
        if cache.len() >= REMEMBERED {
            cache.retain(|_, (since, _)| since.elapsed() < REMEMBER);
        }
        if cache.len() < REMEMBERED {
            cache.insert(hash, (Instant::now(), accepted));
        }
    }
}

/// The user of a request: its certificate's, its token's, or nobody.
///
/// # Errors
/// 401 for credentials that are no good.
pub(crate) async fn authenticate(
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
    if let Some(accepted) = server.tokens.get(&hash)
        && server.store.cache.catch_up().await.is_ok()
        && accepted.still_holds()
    {
        return Ok(Arc::clone(&accepted.user));
    }
    let accepted = authenticate_token(server, token, &[ISSUER]).await.ok_or_else(Status::unauthorized)?;
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
