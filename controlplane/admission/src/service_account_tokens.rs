//! Secrets of type `kubernetes.io/service-account-token`: they get a token of the account that they
//! name when they are made, and get back what somebody takes out of them.
//!
//! The token is bound to the Secret and lasts as long as it does. An account that does not exist
//! (yet) gives none: the controller deletes such a Secret.
//!
//! Source: `pkg/controller/serviceaccount/tokens_controller.go` at v1.37.

use std::sync::Arc;

use async_trait::async_trait;
use base64::{Engine as _, prelude::BASE64_STANDARD};
use coracle_api::{meta, status::Status};
use coracle_auth::authn::service_account::{
    BoundObject, ISSUER, ObjectIdentity, TokenSigner, TokenSubject, claims,
};
use coracle_registry::{
    api_resource::ApiResource,
    object_meta::{self, metadata_mut},
    resource::Registry,
    store::Store,
};
use serde_json::Value;

use crate::{
    attributes::{Attributes, Operation},
    parts::Parts,
    plugin::Plugin,
};

const TYPE: &str = "kubernetes.io/service-account-token";
const ACCOUNT: &str = "kubernetes.io/service-account.name";
const ACCOUNT_UID: &str = "kubernetes.io/service-account.uid";
/// A hundred years: the Secret ends the token.
const LIFETIME_SECS: i64 = 100 * 365 * 24 * 3600;

pub(crate) struct ServiceAccountTokens {
    store: Store,
    registry: Arc<Registry>,
    signer: Arc<TokenSigner>,
    cluster_ca: String,
}

impl ServiceAccountTokens {
    pub(crate) fn new(parts: &Parts) -> Self {
        Self {
            store: parts.store.clone(),
            registry: Arc::clone(&parts.registry),
            signer: Arc::clone(&parts.signer),
            cluster_ca: parts.cluster_ca.clone(),
        }
    }

    /// The UID of the account. A new Secret may name one that was made a moment ago.
    async fn account_uid(
        &self,
        namespace: &str,
        account: &str,
        is_new: bool,
    ) -> Result<Option<String>, Status> {
        let Some(accounts) = self.registry.core("serviceaccounts") else {
            return Ok(None);
        };
        let key = accounts.key(namespace, account);
        if is_new {
            return Ok(self
                .store
                .fresh(&key)
                .await?
                .map(|found| meta::uid(&found.object).to_owned()));
        }
        Ok(accounts.cache.get(&key).map(|entry| entry.uid().to_owned()))
    }

    /// Adds what is missing, and the present certificate of the cluster.
    fn complete(
        &self,
        namespace: &str,
        secret: &mut Value,
        account: &str,
        account_uid: &str,
    ) -> Result<(), Status> {
        metadata_mut(secret);
        meta::set_annotation(secret, ACCOUNT_UID, account_uid);
        let is_missing =
            |secret: &Value, key: &str| meta::get_str(secret, &["data", key]).is_empty();
        if is_missing(secret, "token") {
            let token = self.token(namespace, secret, account, account_uid)?;
            meta::set(secret, &["data", "token"], BASE64_STANDARD.encode(token));
        }
        if is_missing(secret, "namespace") {
            meta::set(
                secret,
                &["data", "namespace"],
                BASE64_STANDARD.encode(namespace),
            );
        }
        meta::set(
            secret,
            &["data", "ca.crt"],
            BASE64_STANDARD.encode(&self.cluster_ca),
        );
        Ok(())
    }

    fn token(
        &self,
        namespace: &str,
        secret: &Value,
        account: &str,
        account_uid: &str,
    ) -> Result<String, Status> {
        let now_secs = jiff::Timestamp::now().as_second();
        let subject = TokenSubject {
            namespace: namespace.to_owned(),
            account: account.to_owned(),
            account_uid: account_uid.to_owned(),
            bound: Some(BoundObject {
                kind: "secret".to_owned(),
                object: ObjectIdentity {
                    name: meta::name(secret).to_owned(),
                    uid: meta::uid(secret).to_owned(),
                },
            }),
            node: None,
            audiences: vec![ISSUER.to_owned()],
            expires_secs: now_secs + LIFETIME_SECS,
        };
        self.signer
            .sign(&claims(&subject, now_secs))
            .ok_or_else(|| Status::internal("failed to generate token"))
    }
}

#[async_trait]
impl Plugin for ServiceAccountTokens {
    fn name(&self) -> &'static str {
        "ServiceAccountTokens"
    }

    fn handles(&self, operation: Operation, resource: &ApiResource) -> bool {
        operation.writes() && resource.is_core("secrets")
    }

    async fn mutate(&self, attributes: &mut Attributes<'_>) -> Result<(), Status> {
        // One that may not change stays as it is, whatever has become of it.
        if attributes.old().is_some_and(|old| old["immutable"] == true) {
            return Ok(());
        }
        let Some(account) = account_of(attributes.object()).map(str::to_owned) else {
            return Ok(());
        };
        let (namespace, is_new) = (attributes.namespace, attributes.old().is_none());
        let Some(uid) = self.account_uid(namespace, &account, is_new).await? else {
            return Ok(());
        };
        if meta::annotation(attributes.object(), ACCOUNT_UID).is_some_and(|named| named != uid) {
            return Ok(());
        }
        let secret = attributes.object_mut();
        // The token names the Secret that it goes with: the name is chosen now, and for good.
        object_meta::generate_name(secret);
        self.complete(namespace, secret, &account, &uid)
    }
}

/// The account that a Secret wants a token of.
fn account_of(secret: &Value) -> Option<&str> {
    (secret["type"] == TYPE)
        .then(|| meta::annotation(secret, ACCOUNT))
        .flatten()
}
