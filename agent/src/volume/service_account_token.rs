//! Service account tokens, bound to their pod, renewed when 80 % of their life is over.

use std::{
    collections::HashMap,
    time::{Duration, SystemTime},
};

use k8s_openapi::api::{
    authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec},
    core::v1::{Pod, ServiceAccount, ServiceAccountTokenProjection},
};
use kube::{Api, api::PostParams};
use parking_lot::Mutex;

use super::{KindError, VolumeManager};
use crate::{
    pod::{PodExt, system_time},
    runtime::types::PodUid,
};

const DEFAULT_LIFE_SECS: i64 = 3600;
const REQUEST_LIMIT: Duration = Duration::from_secs(10);
const MAX_AGE: Duration = Duration::from_secs(24 * 3600);

struct Token {
    text: String,
    renew_at: SystemTime,
}

/// By audience and life.
type OfPod = HashMap<(String, i64), Token>;

/// Tokens in use, by pod and by audience and life.
#[derive(Default)]
pub(super) struct Tokens {
    tokens: Mutex<HashMap<PodUid, OfPod>>,
}

impl Tokens {
    pub(super) fn forget(&self, uid: &PodUid) {
        self.tokens.lock().remove(uid);
    }

    fn get(&self, uid: &PodUid, key: &(String, i64)) -> Option<String> {
        let tokens = self.tokens.lock();
        tokens.get(uid)?.get(key).filter(|token| SystemTime::now() < token.renew_at).map(|token| token.text.clone())
    }
}

/// The token, from memory if it is still young.
pub(super) async fn get(
    volumes: &VolumeManager,
    pod: &Pod,
    source: &ServiceAccountTokenProjection,
) -> Result<String, KindError> {
    let life = source.expiration_seconds.unwrap_or(DEFAULT_LIFE_SECS);
    let audience = source.audience.clone().unwrap_or_default();
    let key = (audience.clone(), life);
    let uid = pod.uid();
    if let Some(token) = volumes.tokens.get(&uid, &key) {
        return Ok(token);
    }
    let account =
        pod.spec_or_default().service_account_name.as_deref().filter(|name| !name.is_empty()).unwrap_or("default");
    let request = TokenRequest {
        spec: Some(TokenRequestSpec {
            audiences: Some(if audience.is_empty() { Vec::new() } else { vec![audience] }),
            expiration_seconds: Some(life),
            bound_object_ref: Some(BoundObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Pod".to_owned()),
                name: Some(pod.name().to_owned()),
                uid: Some(uid.0.clone()),
            }),
            ..TokenRequestSpec::default()
        }),
        ..TokenRequest::default()
    };
    let accounts: Api<ServiceAccount> = Api::namespaced(volumes.client.clone(), pod.namespace());
    let answer = match tokio::time::timeout(
        REQUEST_LIMIT,
        accounts.create_token_request(account, &PostParams::default(), &request),
    )
    .await
    {
        Ok(Ok(answer)) => answer,
        Ok(Err(source)) => return Err(KindError::Token { source: Box::new(source) }),
        Err(_) => return Err(KindError::TokenTimeout),
    };
    let status = answer.status.unwrap_or_default();
    let now = SystemTime::now();
    let text = status.token.unwrap_or_default();
    let end = status.expiration_timestamp.as_ref().map_or(now, system_time);
    let left = end.duration_since(now).unwrap_or_default();
    let token = Token { text: text.clone(), renew_at: now + left.mul_f64(0.8).min(MAX_AGE) };
    volumes.tokens.tokens.lock().entry(uid).or_default().insert(key, token);
    Ok(text)
}
