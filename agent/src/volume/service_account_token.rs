//! Service account tokens, bound to their pod, renewed when 80 % of their life is over, or a day.
//!
//! How long a token lives is the API server's word; how much of that has passed is measured by a
//! clock that nobody sets, from before the token was asked for. So a node whose time of day is
//! wrong renews neither too late nor all the time.
//!
//! Source: `pkg/kubelet/token/token_manager.go` at v1.37.

use std::{collections::HashMap, time::Duration};

use k8s_openapi::api::{
    authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec},
    core::v1::{Pod, ServiceAccount, ServiceAccountTokenProjection},
};
use kube::{Api, api::PostParams};
use parking_lot::Mutex;

use super::error::VolumePluginError;
use crate::{pod::PodExt, runtime::types::PodUid};

const DEFAULT_LIFE_SECS: i64 = 3600;
const REQUEST_LIMIT: Duration = Duration::from_secs(10);
const MAX_AGE: Duration = Duration::from_secs(24 * 3600);
/// Tokens that were asked for at once are not renewed at once.
const JITTER_SECS: f64 = 10.0;

struct Token {
    text: String,
    /// By [`uptime`].
    renew_at: Duration,
}

/// By audience and life.
type OfPod = HashMap<(String, i64), Token>;

/// Asks for tokens and keeps those in use, by pod and by audience and life.
pub(super) struct Tokens {
    client: kube::Client,
    tokens: Mutex<HashMap<PodUid, OfPod>>,
}

impl Tokens {
    pub(super) fn new(client: kube::Client) -> Self {
        Self {
            client,
            tokens: Mutex::default(),
        }
    }

    pub(super) fn forget(&self, uid: &PodUid) {
        self.tokens.lock().remove(uid);
    }

    /// The token, from memory if it is still young.
    pub(super) async fn get(
        &self,
        pod: &Pod,
        source: &ServiceAccountTokenProjection,
    ) -> Result<String, VolumePluginError> {
        let life = source.expiration_seconds.unwrap_or(DEFAULT_LIFE_SECS);
        let audience = source.audience.clone().unwrap_or_default();
        let key = (audience.clone(), life);
        let uid = pod.uid();
        if let Some(token) = self.young(&uid, &key) {
            return Ok(token);
        }
        let request = token_request(pod, audience, life);
        let asked_at = uptime();
        let answer = self.create(pod, &request).await?;
        // The server may grant another life than was asked for, and says so.
        let life = u64::try_from(
            answer
                .spec
                .and_then(|spec| spec.expiration_seconds)
                .unwrap_or(life),
        )
        .unwrap_or(0);
        let text = answer
            .status
            .and_then(|status| status.token)
            .unwrap_or_default();
        if text.is_empty() {
            return Err(VolumePluginError::NoToken);
        }
        let renew_at = asked_at + renewal_age(Duration::from_secs(life), rand::random());
        let token = Token {
            text: text.clone(),
            renew_at,
        };
        self.tokens
            .lock()
            .entry(uid)
            .or_default()
            .insert(key, token);
        Ok(text)
    }

    async fn create(
        &self,
        pod: &Pod,
        request: &TokenRequest,
    ) -> Result<TokenRequest, VolumePluginError> {
        let account = pod
            .spec_or_default()
            .service_account_name
            .as_deref()
            .filter(|name| !name.is_empty())
            .unwrap_or("default");
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), pod.namespace());
        let params = PostParams::default();
        let answer = accounts.create_token_request(account, &params, request);
        match tokio::time::timeout(REQUEST_LIMIT, answer).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(source)) => Err(VolumePluginError::Token {
                source: Box::new(source),
            }),
            Err(_) => Err(VolumePluginError::TokenTimeout),
        }
    }

    fn young(&self, uid: &PodUid, key: &(String, i64)) -> Option<String> {
        let tokens = self.tokens.lock();
        tokens
            .get(uid)?
            .get(key)
            .filter(|token| uptime() < token.renew_at)
            .map(|token| token.text.clone())
    }
}

/// Bound to the pod: the token is worth nothing once that is gone.
fn token_request(pod: &Pod, audience: String, life: i64) -> TokenRequest {
    TokenRequest {
        spec: Some(TokenRequestSpec {
            // None named: the API server's own.
            audiences: Some(
                Some(audience)
                    .filter(|name| !name.is_empty())
                    .into_iter()
                    .collect(),
            ),
            expiration_seconds: Some(life),
            bound_object_ref: Some(BoundObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Pod".to_owned()),
                name: Some(pod.name().to_owned()),
                uid: Some(pod.uid().0),
            }),
            ..TokenRequestSpec::default()
        }),
        ..TokenRequest::default()
    }
}

/// How old a token of this life gets; `chance` is from 0 to 1.
fn renewal_age(life: Duration, chance: f64) -> Duration {
    let jitter = Duration::from_secs_f64(JITTER_SECS * chance.clamp(0.0, 1.0));
    (life * 4 / 5).min(MAX_AGE).saturating_sub(jitter)
}

/// Since the machine's start, time asleep included.
fn uptime() -> Duration {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME)
        .expect("the kernel has this clock");
    Duration::from(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_renewed_by_its_life_and_not_by_the_time_of_day() {
        let cases = [
            (3600, 0.0, 2880),
            (3600, 1.0, 2870),
            (600, 0.0, 480),
            (7 * 86_400, 0.0, 86_400),
            (0, 1.0, 0),
        ];
        for (life, chance, expected) in cases {
            let age = renewal_age(Duration::from_secs(life), chance);
            assert_eq!(age, Duration::from_secs(expected), "{life} {chance}");
        }
        let before = uptime();
        assert!(before > Duration::ZERO && uptime() >= before);
    }
}
