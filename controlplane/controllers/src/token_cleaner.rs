//! Deletes bootstrap tokens when they expire.
//!
//! Source: `pkg/controller/bootstrap/tokencleaner.go` at v1.37.

use std::{sync::Arc, time::Duration};

use k8s_openapi::{api::core::v1::Secret, jiff::Timestamp};
use kube::{
    Api, Client,
    api::{DeleteParams, Preconditions},
};
use tokio_util::sync::CancellationToken;

use crate::{
    cache::{Cache, Key},
    context::Context,
    controller::{self, CallContext, Outcome},
    errors::is_not_found,
    informer::Informer,
    work_queue::WorkQueue,
};

/// The `type` of the Secrets that are tokens.
pub(crate) const TOKEN_TYPE: &str = "bootstrap.kubernetes.io/token";

/// The controller; its state is in the cache and the queue.
pub(crate) struct TokenCleaner {
    client: Client,
    secrets: Arc<Cache<Secret>>,
    queue: Arc<WorkQueue<Key>>,
}

impl TokenCleaner {
    /// Registers with an informer of bootstrap token Secrets.
    pub(crate) fn new(context: &Context, secrets: &mut Informer<Secret>) -> Arc<Self> {
        let this = Arc::new(Self {
            client: context.client.clone(),
            secrets: secrets.cache(),
            queue: context.queue("token_cleaner"),
        });
        let queue = this.queue.clone();
        secrets.on_change(move |change| queue.add(Key::of(change.latest().as_ref())));
        this
    }

    /// Reconciles until `shutdown`.
    pub(crate) async fn run(self: Arc<Self>, shutdown: CancellationToken) {
        let queue = self.queue.clone();
        controller::run("token-cleaner", queue, 1, shutdown, move |key| {
            let this = self.clone();
            async move { this.reconcile(key).await }
        })
        .await;
    }

    async fn reconcile(&self, key: Key) -> Outcome {
        let Some(secret) = self.secrets.get(&key) else { return Ok(None) };
        let Some(left) = time_left(&secret, Timestamp::now()) else { return Ok(None) };
        if !left.is_zero() {
            return Ok(Some(left));
        }
        let api: Api<Secret> = Api::namespaced(self.client.clone(), &key.namespace);
        // A token that was prolonged meanwhile stays.
        let same = Preconditions {
            uid: secret.metadata.uid.clone(),
            resource_version: secret.metadata.resource_version.clone(),
        };
        match api.delete(&key.name, &DeleteParams::default().preconditions(same)).await {
            Err(error) if !is_not_found(&error) => Err(error).during("delete expired bootstrap token"),
            _ => Ok(None),
        }
    }
}

/// Drops everything but the expiration, the secret itself first of all.
pub(crate) fn trim(secret: &mut Secret) {
    if let Some(data) = &mut secret.data {
        data.retain(|key, _| key == EXPIRATION);
    }
    secret.metadata.annotations = None;
}

const EXPIRATION: &str = "expiration";

/// How long the token is valid; `None` for one without an end, zero also for an end that cannot be read.
fn time_left(secret: &Secret, now: Timestamp) -> Option<Duration> {
    if secret.type_.as_deref() != Some(TOKEN_TYPE) {
        return None;
    }
    let text = secret.data.as_ref()?.get(EXPIRATION)?;
    let end: Option<Timestamp> = std::str::from_utf8(&text.0).ok().and_then(|text| text.parse().ok());
    Some(end.and_then(|end| Duration::try_from(end.duration_since(now)).ok()).unwrap_or(Duration::ZERO))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;

    use super::*;

    #[test]
    fn token_lives_until_its_expiration() {
        let now = "2026-11-21T12:00:00Z".parse().unwrap();
        let table = [
            (Some("2026-11-21T12:00:30Z"), Some(Duration::from_secs(30))),
            (Some("2026-11-21T11:00:00Z"), Some(Duration::ZERO)),
            (Some("tomorrow"), Some(Duration::ZERO)),
            (None, None),
        ];
        for (text, expected) in table {
            let secret = Secret {
                type_: Some(TOKEN_TYPE.into()),
                data: text.map(|text| [(EXPIRATION.to_owned(), ByteString(text.into()))].into()),
                ..Secret::default()
            };
            assert_eq!(time_left(&secret, now), expected, "{text:?}");
        }
    }
}
