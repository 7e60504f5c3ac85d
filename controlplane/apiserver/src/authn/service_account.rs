//! Service-account tokens: ES256 JWTs that this server signed, bound to an account and perhaps a pod.
//!
//! A token is good as long as its signature, its times, its audience, and what it is bound to.
//!
//! Source: `pkg/serviceaccount/{claims,jwt}.go` at v1.37.

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use coracle_api::meta;
use ring::{
    rand::SystemRandom,
    signature::{self, ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _},
};
use rustls_pki_types::{PrivatePkcs8KeyDer, pem::PemObject as _};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::{server::ApiServer, user::UserInfo};

/// `iss` of every token, and the audience of the API server itself.
pub(crate) const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";
const GROUP_SERVICE_ACCOUNTS: &str = "system:serviceaccounts";

/// Signs and checks tokens.
pub(crate) struct TokenSigner {
    key: EcdsaKeyPair,
    random: SystemRandom,
    key_id: String,
}

/// What a token says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TokenSubject {
    pub(crate) namespace: String,
    pub(crate) account: String,
    pub(crate) account_uid: String,
    /// Kind, name and UID of a pod, secret or node that must exist.
    pub(crate) bound: Option<(String, String, String)>,
    pub(crate) audiences: Vec<String>,
    pub(crate) expires_secs: i64,
}

impl TokenSigner {
    /// From a PKCS#8 PEM P-256 key; `None` if it is none.
    pub(crate) fn new(key_pem: &str) -> Option<Self> {
        let der = PrivatePkcs8KeyDer::from_pem_slice(key_pem.as_bytes()).ok()?;
        let random = SystemRandom::new();
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, der.secret_pkcs8_der(), &random).ok()?;
        let key_id = BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(key.public_key().as_ref()));
        Some(Self { key, random, key_id })
    }

    /// A token with these claims; `None` only if the system has no randomness.
    pub(crate) fn sign(&self, claims: &Value) -> Option<String> {
        let header = json!({"alg": "ES256", "kid": self.key_id});
        let encode = |value: &Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
        let message = format!("{}.{}", encode(&header), encode(claims));
        let signature = self.key.sign(&self.random, message.as_bytes()).ok()?;
        Some(format!("{message}.{}", BASE64_URL_SAFE_NO_PAD.encode(signature)))
    }

    /// The claims of a token that this signer signed.
    pub(crate) fn verify(&self, token: &str) -> Option<Value> {
        let (message, signed) = token.rsplit_once('.')?;
        let (header, claims) = message.split_once('.')?;
        let header: Value = serde_json::from_slice(&BASE64_URL_SAFE_NO_PAD.decode(header).ok()?).ok()?;
        if header.get("alg").and_then(Value::as_str) != Some("ES256") {
            return None;
        }
        let signed = BASE64_URL_SAFE_NO_PAD.decode(signed).ok()?;
        let key = signature::UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, self.key.public_key().as_ref());
        key.verify(message.as_bytes(), &signed).ok()?;
        serde_json::from_slice(&BASE64_URL_SAFE_NO_PAD.decode(claims).ok()?).ok()
    }
}

/// The claims of a token for `subject`, issued at `now_secs`.
pub(crate) fn claims(subject: &TokenSubject, now_secs: i64) -> Value {
    let mut private = json!({
        "namespace": subject.namespace,
        "serviceaccount": {"name": subject.account, "uid": subject.account_uid},
    });
    if let Some((kind, name, uid)) = &subject.bound {
        private[kind.to_ascii_lowercase()] = json!({"name": name, "uid": uid});
    }
    json!({
        "iss": ISSUER,
        "sub": format!("system:serviceaccount:{}:{}", subject.namespace, subject.account),
        "aud": subject.audiences,
        "iat": now_secs,
        "nbf": now_secs,
        "exp": subject.expires_secs,
        "jti": uuid::Uuid::new_v4().to_string(),
        "kubernetes.io": private,
    })
}

/// Reads the claims of a token for this server that is valid at `now_secs`.
fn subject(claims: &Value, now_secs: i64) -> Option<TokenSubject> {
    let number = |key: &str| claims.get(key).and_then(Value::as_i64);
    let text = |path: &[&str]| meta::get_str(claims, path).to_owned();
    let expires_secs = number("exp")?;
    let audiences: Vec<String> =
        meta::get_array(claims, &["aud"]).iter().filter_map(Value::as_str).map(str::to_owned).collect();
    let is_valid = claims.get("iss").and_then(Value::as_str) == Some(ISSUER)
        && expires_secs > now_secs
        && number("nbf").is_none_or(|from| from <= now_secs + 60)
        && audiences.iter().any(|audience| audience == ISSUER);
    if !is_valid {
        return None;
    }
    let private = "kubernetes.io";
    let bound = ["pod", "secret", "node"].into_iter().find_map(|kind| {
        claims.get(private)?.get(kind)?;
        Some((kind.to_owned(), text(&[private, kind, "name"]), text(&[private, kind, "uid"])))
    });
    Some(TokenSubject {
        namespace: text(&[private, "namespace"]),
        account: text(&[private, "serviceaccount", "name"]),
        account_uid: text(&[private, "serviceaccount", "uid"]),
        bound,
        audiences,
        expires_secs,
    })
}

/// The identity in a service-account token.
pub(crate) async fn authenticate(server: &ApiServer, token: &str) -> Option<UserInfo> {
    let claims = server.signer.verify(token)?;
    let subject = subject(&claims, jiff::Timestamp::now().as_second())?;
    server.store.cache.catch_up().await.ok()?;
    if !exists(server, "serviceaccounts", &subject.namespace, &subject.account, &subject.account_uid) {
        return None;
    }
    if let Some((kind, name, uid)) = &subject.bound {
        let plural = format!("{kind}s");
        if !exists(server, &plural, &subject.namespace, name, uid) {
            return None;
        }
    }
    let of_namespace = format!("{GROUP_SERVICE_ACCOUNTS}:{}", subject.namespace);
    let name = format!("system:serviceaccount:{}:{}", subject.namespace, subject.account);
    let mut user = UserInfo::new(name, &[GROUP_SERVICE_ACCOUNTS, &of_namespace]);
    user.uid = subject.account_uid;
    if let Some((kind, name, uid)) = subject.bound {
        user.extra.push((format!("authentication.kubernetes.io/{kind}-name"), vec![name]));
        user.extra.push((format!("authentication.kubernetes.io/{kind}-uid"), vec![uid]));
    }
    Some(user)
}

fn exists(server: &ApiServer, plural: &str, namespace: &str, name: &str, uid: &str) -> bool {
    let Some(resource) = server.registry.core(plural) else { return false };
    resource.cache.get(&resource.key(namespace, name)).is_some_and(|entry| entry.uid() == uid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pki::{Pki, ServerNames};

    fn signer() -> TokenSigner {
        TokenSigner::new(&Pki::ephemeral(&ServerNames::default()).unwrap().service_account_key_pem).unwrap()
    }

    fn token_subject() -> TokenSubject {
        TokenSubject {
            namespace: "default".into(),
            account: "builder".into(),
            account_uid: "u1".into(),
            bound: Some(("pod".into(), "p".into(), "u2".into())),
            audiences: vec![ISSUER.into()],
            expires_secs: 2000,
        }
    }

    #[test]
    fn signed_tokens_verify_and_say_the_same() {
        let signer = signer();
        let token = signer.sign(&claims(&token_subject(), 1000)).unwrap();
        assert_eq!(subject(&signer.verify(&token).unwrap(), 1500), Some(token_subject()));
    }

    #[test]
    fn forged_expired_and_foreign_tokens_are_refused() {
        let signer = signer();
        let token = signer.sign(&claims(&token_subject(), 1000)).unwrap();
        assert_eq!(super::super::service_account::tests::signer().verify(&token), None, "another key");
        assert_eq!(signer.verify(&format!("{token}x")), None);
        let claims_then = signer.verify(&token).unwrap();
        assert_eq!(subject(&claims_then, 2000), None, "expired");
        assert_eq!(subject(&claims_then, 900), None, "not yet valid");
        let other = TokenSubject { audiences: vec!["vault".into()], ..token_subject() };
        assert_eq!(subject(&claims(&other, 1000), 1500), None, "another audience");
    }
}
