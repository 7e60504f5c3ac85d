//! Secrets of type `kubernetes.io/service-account-token`: they get a token of the account that they name when they are
//! made, and get back what somebody takes out of them.
//!
//! The token is bound to the Secret and lasts as long as it does. An account that does not exist (yet) gives none:
//! the controller deletes such a Secret.
//!
//! Source: `pkg/controller/serviceaccount/tokens_controller.go` at v1.37.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use coracle_api::{meta, status::Status};
use coracle_auth::authn::service_account::{ISSUER, TokenSubject, claims};
use coracle_registry::{object_meta::metadata_mut, resource::Resource};
use serde_json::Value;

use crate::state::State;

const TYPE: &str = "kubernetes.io/service-account-token";
const ACCOUNT: &str = "kubernetes.io/service-account.name";
const ACCOUNT_UID: &str = "kubernetes.io/service-account.uid";
/// A hundred years: the Secret ends the token.
const LIFETIME_SECS: i64 = 100 * 365 * 24 * 3600;

/// Fills a new Secret, which has its name and UID.
pub(crate) async fn fill(
    server: &State,
    resource: &Resource,
    namespace: &str,
    secret: &mut Value,
) -> Result<(), Status> {
    let Some(account) = account_of(resource, secret).map(str::to_owned) else { return Ok(()) };
    let Some(accounts) = server.registry.core("serviceaccounts") else { return Ok(()) };
    let Some(found) = server.store.fresh(&accounts.key(namespace, &account)).await? else { return Ok(()) };
    complete(server, namespace, secret, &account, meta::uid(&found.object))
}

/// Fills in what a change took out of a Secret.
pub(crate) fn refill(server: &State, resource: &Resource, secret: &mut Value) -> Result<(), Status> {
    let Some(account) = account_of(resource, secret).map(str::to_owned) else { return Ok(()) };
    let Some(accounts) = server.registry.core("serviceaccounts") else { return Ok(()) };
    let namespace = meta::namespace(secret).to_owned();
    let Some(found) = accounts.cache.get(&accounts.key(&namespace, &account)) else { return Ok(()) };
    complete(server, &namespace, secret, &account, found.uid())
}

/// The account that a Secret wants a token of.
fn account_of<'a>(resource: &Resource, secret: &'a Value) -> Option<&'a str> {
    let is_token_secret = resource.is_core("secrets") && secret["type"] == TYPE;
    is_token_secret.then(|| meta::annotation(secret, ACCOUNT)).flatten()
}

/// Adds what is missing, and the present certificate of the cluster.
fn complete(
    server: &State,
    namespace: &str,
    secret: &mut Value,
    account: &str,
    account_uid: &str,
) -> Result<(), Status> {
    if meta::annotation(secret, ACCOUNT_UID).is_some_and(|uid| uid != account_uid) {
        return Ok(());
    }
    metadata_mut(secret);
    meta::set_annotation(secret, ACCOUNT_UID, account_uid);
    let is_missing = |secret: &Value, key: &str| meta::get_str(secret, &["data", key]).is_empty();
    if is_missing(secret, "token") {
        let token = token(server, namespace, secret, account, account_uid)?;
        meta::set(secret, &["data", "token"], BASE64_STANDARD.encode(token));
    }
    if is_missing(secret, "namespace") {
        meta::set(secret, &["data", "namespace"], BASE64_STANDARD.encode(namespace));
    }
    meta::set(secret, &["data", "ca.crt"], BASE64_STANDARD.encode(&server.config.pki.ca.cert_pem));
    Ok(())
}

fn token(server: &State, namespace: &str, secret: &Value, account: &str, account_uid: &str) -> Result<String, Status> {
    let now_secs = jiff::Timestamp::now().as_second();
    let subject = TokenSubject {
        namespace: namespace.to_owned(),
        account: account.to_owned(),
        account_uid: account_uid.to_owned(),
        bound: Some(("secret".to_owned(), meta::name(secret).to_owned(), meta::uid(secret).to_owned())),
        node: None,
        audiences: vec![ISSUER.to_owned()],
        expires_secs: now_secs + LIFETIME_SECS,
    };
    server.signer.sign(&claims(&subject, now_secs)).ok_or_else(|| Status::internal("failed to generate token"))
}
