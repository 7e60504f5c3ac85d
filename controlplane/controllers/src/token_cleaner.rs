//! Deletes bootstrap tokens when they expire.
//!
//! Source: `pkg/controller/bootstrap/tokencleaner.go` at v1.37.

use std::{sync::Arc, time::Duration};

use k8s_openapi::{api::core::v1::Secret, jiff::Timestamp};
use kube::{Client, api::DeleteParams};

use crate::{
    Manager,
    builder::Builder,
    cache::{Cache, Key},
    context::Context,
    controller::{Outcome, Reconciler},
    informers::Source,
    writes::Write,
};

/// The `type` of the Secrets that are tokens.
const TOKEN_TYPE: &str = "bootstrap.kubernetes.io/token";
pub(crate) const EXPIRATION: &str = "expiration";

/// The controller; its state is in the cache.
pub(crate) struct TokenCleaner {
    client: Client,
    secrets: Arc<Cache<Secret>>,
}

impl TokenCleaner {
    /// Says what it reads and what wakes it.
    pub(crate) fn setup(manager: &mut Manager, context: &Context) {
        let mut controller =
            Builder::managed_by(manager, "token-cleaner-controller", "token_cleaner");
        controller.select(
            Source::<Secret>::in_namespace("kube-system").fields(format!("type={TOKEN_TYPE}")),
        );
        let this = Self {
            client: context.client.clone(),
            secrets: controller.for_kind(),
        };
        controller.complete(Arc::new(this));
    }
}

impl Reconciler for TokenCleaner {
    async fn reconcile(&self, key: Key) -> Outcome {
        let Some(secret) = self.secrets.get(&key) else {
            return Ok(None);
        };
        let Some(left) = time_left(&secret, Timestamp::now()) else {
            return Ok(None);
        };
        if !left.is_zero() {
            return Ok(Some(left));
        }
        // A token that was prolonged meanwhile stays.
        let delete = Write::to(&self.client, &*secret, "delete expired bootstrap token");
        let delete = delete.if_unchanged();
        delete.delete(DeleteParams::default()).await?;
        Ok(None)
    }
}

/// How long the token is valid; `None` for one without an end, zero also for an end that cannot be
/// read.
fn time_left(secret: &Secret, now: Timestamp) -> Option<Duration> {
    if secret.type_.as_deref() != Some(TOKEN_TYPE) {
        return None;
    }
    let text = secret.data.as_ref()?.get(EXPIRATION)?;
    let end: Option<Timestamp> = std::str::from_utf8(&text.0)
        .ok()
        .and_then(|text| text.parse().ok());
    Some(
        end.and_then(|end| Duration::try_from(end.duration_since(now)).ok())
            .unwrap_or(Duration::ZERO),
    )
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
