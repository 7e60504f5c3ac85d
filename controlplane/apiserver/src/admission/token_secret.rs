//! Secrets of type `kubernetes.io/service-account-token`: they get a token of the account that they name when they are
//! made.
//!
//! The token is bound to the Secret and lasts as long as it does. An account that does not exist (yet) gives none:
//! the controller deletes such a Secret.
//!
//! Source: `pkg/controller/serviceaccount/tokens_controller.go` at v1.37.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use coracle_api::{meta, status::Status};
use serde_json::Value;

use crate::{
    ApiServer,
    authn::service_account::{ISSUER, TokenSubject, claims},
    registry::{object_meta::metadata_mut, resource::Resource},
};

const TYPE: &str = "kubernetes.io/service-account-token";
const ACCOUNT: &str = "kubernetes.io/service-account.name";
const ACCOUNT_UID: &str = "kubernetes.io/service-account.uid";
/// A hundred years: the Secret ends the token.
const LIFETIME_SECS: i64 = 100 * 365 * 24 * 3600;

/// Fills a new Secret, which has its name and UID.
pub(crate) async fn fill(
    server: &ApiServer,
    resource: &Resource,
    namespace: &str,
    secret: &mut Value,
) -> Result<(), Status> {
    if !resource.is_core("secrets") || secret["type"] != TYPE {
        return Ok(());
    }
    let Some(account) = meta::annotation(secret, ACCOUNT).map(str::to_owned) else { return Ok(()) };
    let Some(accounts) = server.registry.core("serviceaccounts") else { return Ok(()) };
    let Some(found) = server.store.fresh(&accounts.key(namespace, &account)).await? else { return Ok(()) };
    let account_uid = meta::uid(&found.object).to_owned();
    if meta::annotation(secret, ACCOUNT_UID).is_some_and(|uid| uid != account_uid) {
        return Ok(());
    }
    let now_secs = jiff::Timestamp::now().as_second();
    let subject = TokenSubject {
        namespace: namespace.to_owned(),
        account,
        account_uid: account_uid.clone(),
        bound: Some(("secret".to_owned(), meta::name(secret).to_owned(), meta::uid(secret).to_owned())),
        node: None,
        audiences: vec![ISSUER.to_owned()],
        expires_secs: now_secs + LIFETIME_SECS,
    };
    let token = server.signer.sign(&claims(&subject, now_secs));
    let token = token.ok_or_else(|| Status::internal("failed to generate token"))?;
    metadata_mut(secret);
    meta::set_annotation(secret, ACCOUNT_UID, &account_uid);
    let values =
        [("token", token.as_str()), ("ca.crt", server.config.pki.ca.cert_pem.as_str()), ("namespace", namespace)];
    for (key, value) in values {
        if secret["data"][key].is_null() {
            meta::set(secret, &["data", key], BASE64_STANDARD.encode(value));
        }
    }
    Ok(())
}
