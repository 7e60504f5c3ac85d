//! Who asks: client certificates, bearer tokens, or nobody.
//!
//! A connection's certificate is read once ([`x509`]); tokens that were accepted are remembered for a short time.
//! In-process clients carry their [`UserInfo`] in the request's extensions and never come here.

pub(crate) mod bootstrap_token;
pub(crate) mod service_account;
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

use crate::{server::ApiServer, user::UserInfo};

/// How long an accepted token is believed without looking again.
const REMEMBER: Duration = Duration::from_secs(10);
/// Most tokens remembered.
const REMEMBERED: usize = 4096;

/// Tokens accepted lately, by their hash.
#[derive(Default)]
pub(crate) struct TokenCache(Mutex<HashMap<[u8; 32], Accepted>>);

/// When a token was accepted, and whose it is.
type Accepted = (Instant, Arc<UserInfo>);

impl TokenCache {
    fn get(&self, hash: &[u8; 32]) -> Option<Arc<UserInfo>> {
        let cache = self.0.lock();
        cache.get(hash).filter(|(since, _)| since.elapsed() < REMEMBER).map(|(_, user)| Arc::clone(user))
    }

    fn put(&self, hash: [u8; 32], user: Arc<UserInfo>) {
        let mut cache = self.0.lock();
        if cache.len() >= REMEMBERED {
            cache.retain(|_, (since, _)| since.elapsed() < REMEMBER);
        }
        if cache.len() < REMEMBERED {
            cache.insert(hash, (Instant::now(), user));
        }
    }
}

/// The user of a request: its certificate's, its token's, or nobody.
///
/// # Errors
/// 401 for credentials that are no good.
pub(crate) async fn authenticate(
    server: &ApiServer,
    certificate: Option<&Arc<UserInfo>>,
    headers: &HeaderMap,
) -> Result<Arc<UserInfo>, Status> {
    if let Some(user) = certificate {
        return Ok(Arc::clone(user));
    }
    let Some(value) = headers.get(header::AUTHORIZATION) else {
        return Ok(Arc::clone(&server.anonymous));
    };
    let token = value.to_str().ok().and_then(bearer).ok_or_else(Status::unauthorized)?;
    let hash: [u8; 32] = Sha256::digest(token.as_bytes()).into();
    if let Some(user) = server.tokens.get(&hash) {
        return Ok(user);
    }
    let user = match server.config.static_tokens.get(token) {
        Some(user) => Some(user.clone()),
        None if token.contains('.') && token.len() == bootstrap_token::LENGTH => {
            bootstrap_token::authenticate(server, token).await
        }
        None => service_account::authenticate(server, token).await,
    };
    let user = Arc::new(user.ok_or_else(Status::unauthorized)?);
    server.tokens.put(hash, Arc::clone(&user));
    Ok(user)
}

fn bearer(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token.trim()).filter(|token| !token.is_empty())
}
