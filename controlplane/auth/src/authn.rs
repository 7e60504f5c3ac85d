//! Who asks: client certificates, bearer tokens, or nobody.
//!
//! A connection's certificate is read once ([`x509`]) and believed until it expires; tokens that
//! were accepted are remembered for a short time, as long as what they are bound to exists, and so
//! are texts that no time makes a token.
//!
//! Not here: connections, and how many strangers are looked at at once
//! ([`Authenticator::credentials`] is told).

pub mod bootstrap_token;
pub mod impersonation;
pub mod issuer;
pub mod service_account;
pub mod token_file;
pub mod x509;

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use coracle_api::status::Status;
use coracle_registry::{resource::Registry, watch_cache::WatchCache};
use http::{HeaderMap, header};
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};

use self::service_account::{ISSUER, Need, TokenSigner};
use crate::user::UserInfo;

/// How long an accepted token is believed without looking again, and a wrong one disbelieved.
const REMEMBER: Duration = Duration::from_secs(10);
/// Most tokens remembered, and as many that are none.
const REMEMBERED: usize = 4096;

/// Tokens looked at lately, by their hash.
#[derive(Default)]
struct TokenCache {
    accepted: Mutex<Remembered<Arc<Accepted>>>,
    /// Not ours, whatever happens: a signature that is not ours, or no token at all.
    foreign: Mutex<Remembered<()>>,
}

/// By the token's hash: since when, and what.
type Remembered<T> = HashMap<[u8; 32], (Instant, T)>;

/// A token that was accepted.
pub struct Accepted {
    /// Whose it is.
    pub user: Arc<UserInfo>,
    /// Those it is for, of those that were asked for.
    pub audiences: Vec<String>,
    expires_secs: Option<i64>,
    /// Without these it is worth nothing.
    needs: Vec<Need>,
}

impl Accepted {
    /// Whether it has not expired and everything is there that it is bound to.
    fn still_holds(&self) -> bool {
        self.expires_secs
            .is_none_or(|expires| jiff::Timestamp::now().as_second() < expires)
            && self.needs.iter().all(Need::is_there)
    }
}

impl TokenCache {
    fn get(&self, hash: &[u8; 32]) -> Option<Arc<Accepted>> {
        let accepted = self.accepted.lock();
        accepted
            .get(hash)
            .filter(|(since, _)| since.elapsed() < REMEMBER)
            .map(|(_, accepted)| Arc::clone(accepted))
    }

    fn put(&self, hash: [u8; 32], accepted: Arc<Accepted>) {
        remember(&mut self.accepted.lock(), hash, accepted);
    }

    fn is_foreign(&self, hash: &[u8; 32]) -> bool {
        self.foreign
            .lock()
            .get(hash)
            .is_some_and(|(since, ())| since.elapsed() < REMEMBER)
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

/// Looks at credentials. One a server.
pub struct Authenticator {
    registry: Arc<Registry>,
    cache: Arc<WatchCache>,
    signer: Arc<TokenSigner>,
    static_tokens: HashMap<String, UserInfo>,
    tokens: TokenCache,
    anonymous: Arc<UserInfo>,
}

impl Authenticator {
    /// Believes what `signer` signed as long as it is in the registry, and `static_tokens`. `cache`
    /// is the registry's.
    pub fn new(
        registry: Arc<Registry>,
        cache: Arc<WatchCache>,
        signer: Arc<TokenSigner>,
        static_tokens: HashMap<String, UserInfo>,
    ) -> Self {
        let (tokens, anonymous) = (TokenCache::default(), Arc::new(UserInfo::anonymous()));
        Self {
            registry,
            cache,
            signer,
            static_tokens,
            tokens,
            anonymous,
        }
    }

    /// Whether this is who comes without credentials, as [`Authenticator::credentials`] gives it.
    pub fn is_anonymous(&self, user: &Arc<UserInfo>) -> bool {
        Arc::ptr_eq(user, &self.anonymous)
    }

    /// The user of a connection's request: its certificate's, its token's, or nobody. A token that
    /// was not seen lately waits for its `turn`, and holds it while it is looked at.
    ///
    /// # Errors
    /// 401 for credentials that are no good, and the turn's.
    pub async fn credentials<G>(
        &self,
        certificate: Option<&x509::Holder>,
        headers: &HeaderMap,
        turn: impl Future<Output = Result<G, Status>>,
    ) -> Result<Arc<UserInfo>, Status> {
        if let Some(holder) = certificate {
            let now_secs = jiff::Timestamp::now().as_second();
            return holder
                .user_at(now_secs)
                .map(Arc::clone)
                .ok_or_else(Status::unauthorized);
        }
        let Some(value) = headers.get(header::AUTHORIZATION) else {
            return Ok(Arc::clone(&self.anonymous));
        };
        let token = value
            .to_str()
            .ok()
            .and_then(bearer)
            .ok_or_else(Status::unauthorized)?;
        let hash: [u8; 32] = Sha256::digest(token.as_bytes()).into();
        let known = self.tokens.get(&hash);
        if let Some(accepted) = &known
            && self.cache.is_current()
            && accepted.still_holds()
        {
            return Ok(Arc::clone(&accepted.user));
        }
        if self.tokens.is_foreign(&hash) {
            return Err(Status::unauthorized());
        }
        // Strangers get here: so many at once.
        let _turn = turn.await?;
        if let Some(accepted) = known
            && self.cache.catch_up().await.is_ok()
            && accepted.still_holds()
        {
            return Ok(Arc::clone(&accepted.user));
        }
        let Some(accepted) = self.token(token, &[ISSUER]).await else {
            if !self.is_audience_agnostic(token) && self.signer.verify(token).is_none() {
                self.tokens.put_foreign(hash);
            }
            return Err(Status::unauthorized());
        };
        let user = Arc::clone(&accepted.user);
        self.tokens.put(hash, Arc::new(accepted));
        Ok(user)
    }

    /// Whose a token is that is meant for one of `audiences`; `None` if it is no good.
    pub async fn token(&self, token: &str, audiences: &[&str]) -> Option<Accepted> {
        if !self.is_audience_agnostic(token) {
            let claims = self.signer.verify(token)?;
            return service_account::authenticate(&self.registry, &self.cache, &claims, audiences)
                .await;
        }
        // Other tokens are for this server alone.
        if !audiences.contains(&ISSUER) {
            return None;
        }
        let (user, needs) = match self.static_tokens.get(token) {
            Some(user) => (user.clone(), Vec::new()),
            None => {
                let (user, need) =
                    bootstrap_token::authenticate(&self.registry, &self.cache, token).await?;
                (user, vec![need])
            }
        };
        Some(Accepted {
            user: Arc::new(user),
            audiences: vec![ISSUER.to_owned()],
            expires_secs: None,
            needs,
        })
    }

    fn is_audience_agnostic(&self, token: &str) -> bool {
        self.static_tokens.contains_key(token)
            || (token.contains('.') && token.len() == bootstrap_token::LENGTH)
    }
}

/// The token of an `Authorization` header; `None` if it is of another scheme.
pub fn bearer(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    scheme
        .eq_ignore_ascii_case("bearer")
        .then_some(token.trim())
        .filter(|token| !token.is_empty())
}
