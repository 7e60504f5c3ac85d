//! Service-account tokens: ES256 JWTs that this server signed, bound to an account and perhaps a
//! pod.
//!
//! A token is good as long as its signature, its times, its audience, and what it is bound to.
//!
//! Source: `pkg/serviceaccount/{claims,jwt}.go` at v1.37.

use std::sync::Arc;

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use coracle_api::meta;
use coracle_registry::{
    resource::{Registry, Resource},
    watch_cache::WatchCache,
};
use ring::{
    rand::SystemRandom,
    signature::{
        self, ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _,
    },
};
use rustls_pki_types::{PrivatePkcs8KeyDer, pem::PemObject as _};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::Accepted;
use crate::user::UserInfo;

/// `iss` of every token, and the audience of the API server itself.
pub const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";
/// How long a token outlives its pod or account that hangs in its deletion.
const DELETION_LEEWAY_SECS: i64 = 60;

/// Signs and checks tokens.
pub struct TokenSigner {
    key: EcdsaKeyPair,
    random: SystemRandom,
    key_id: String,
}

/// What a token says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenSubject {
    /// Where the account is.
    pub namespace: String,
    /// Its name.
    pub account: String,
    /// Its UID.
    pub account_uid: String,
    /// A pod, secret or node that must exist.
    pub bound: Option<BoundObject>,
    /// The node that the pod runs on.
    pub node: Option<ObjectIdentity>,
    /// Whom it is for.
    pub audiences: Vec<String>,
    /// Unix time of its end.
    pub expires_secs: i64,
}

/// What a token is bound to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BoundObject {
    /// `pod`, `secret` or `node`, in any case.
    pub kind: String,
    /// Which of that kind.
    pub object: ObjectIdentity,
}

/// One object of a kind, and not another of the same name later.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectIdentity {
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
}

impl TokenSigner {
    /// From a PKCS#8 PEM P-256 key; `None` if it is none.
    pub fn new(key_pem: &str) -> Option<Self> {
        let der = PrivatePkcs8KeyDer::from_pem_slice(key_pem.as_bytes()).ok()?;
        let random = SystemRandom::new();
        let key = EcdsaKeyPair::from_pkcs8(
            &ECDSA_P256_SHA256_FIXED_SIGNING,
            der.secret_pkcs8_der(),
            &random,
        )
        .ok()?;
        let key_id = BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(key.public_key().as_ref()));
        Some(Self {
            key,
            random,
            key_id,
        })
    }

    /// A token with these claims; `None` only if the system has no randomness.
    pub fn sign(&self, claims: &Value) -> Option<String> {
        let header = json!({"alg": "ES256", "kid": self.key_id});
        let encode = |value: &Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
        let message = format!("{}.{}", encode(&header), encode(claims));
        let signature = self.key.sign(&self.random, message.as_bytes()).ok()?;
        Some(format!(
            "{message}.{}",
            BASE64_URL_SAFE_NO_PAD.encode(signature)
        ))
    }

    /// The public key as a JSON Web Key.
    ///
    /// Source: RFC 7517 and RFC 7518, 6.2.1.
    pub fn public_jwk(&self) -> Value {
        // An uncompressed point: 4, then both coordinates.
        let point = self.key.public_key().as_ref();
        let coordinate = |range: std::ops::Range<usize>| {
            BASE64_URL_SAFE_NO_PAD.encode(point.get(range).unwrap_or_default())
        };
        json!({
            "use": "sig", "kty": "EC", "kid": self.key_id, "crv": "P-256", "alg": "ES256",
            "x": coordinate(1..33), "y": coordinate(33..65),
        })
    }

    /// The claims of a token that this signer signed.
    pub fn verify(&self, token: &str) -> Option<Value> {
        let (message, signed) = token.rsplit_once('.')?;
        let (header, claims) = message.split_once('.')?;
        let header: Value =
            serde_json::from_slice(&BASE64_URL_SAFE_NO_PAD.decode(header).ok()?).ok()?;
        if header.get("alg").and_then(Value::as_str) != Some("ES256") {
            return None;
        }
        let signed = BASE64_URL_SAFE_NO_PAD.decode(signed).ok()?;
        let key = signature::UnparsedPublicKey::new(
            &ECDSA_P256_SHA256_FIXED,
            self.key.public_key().as_ref(),
        );
        key.verify(message.as_bytes(), &signed).ok()?;
        serde_json::from_slice(&BASE64_URL_SAFE_NO_PAD.decode(claims).ok()?).ok()
    }
}

/// The claims of a token for `subject`, issued at `now_secs`.
pub fn claims(subject: &TokenSubject, now_secs: i64) -> Value {
    let mut private = json!({
        "namespace": subject.namespace,
        "serviceaccount": {"name": subject.account, "uid": subject.account_uid},
    });
    let identity = |of: &ObjectIdentity| json!({"name": of.name, "uid": of.uid});
    if let Some(bound) = &subject.bound {
        private[bound.kind.to_ascii_lowercase()] = identity(&bound.object);
    }
    if let Some(node) = &subject.node {
        private["node"] = identity(node);
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

/// Reads the claims of a token that is valid at `now_secs`, whomever it is for.
pub fn subject(claims: &Value, now_secs: i64) -> Option<TokenSubject> {
    let number = |key: &str| claims.get(key).and_then(Value::as_i64);
    let text = |path: &[&str]| meta::get_str(claims, path).to_owned();
    let expires_secs = number("exp")?;
    let audiences: Vec<String> = meta::get_array(claims, &["aud"])
        .iter()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect();
    let is_valid = claims.get("iss").and_then(Value::as_str) == Some(ISSUER)
        && expires_secs > now_secs
        && number("nbf").is_none_or(|from| from <= now_secs + 60);
    if !is_valid {
        return None;
    }
    let private = "kubernetes.io";
    let identity = |kind: &str| ObjectIdentity {
        name: text(&[private, kind, "name"]),
        uid: text(&[private, kind, "uid"]),
    };
    let bound = ["pod", "secret", "node"].into_iter().find_map(|kind| {
        claims.get(private)?.get(kind)?;
        Some(BoundObject {
            kind: kind.to_owned(),
            object: identity(kind),
        })
    });
    let is_pod = bound.as_ref().is_some_and(|bound| bound.kind == "pod");
    let node = Some(identity("node")).filter(|node| is_pod && !node.name.is_empty());
    Some(TokenSubject {
        namespace: text(&[private, "namespace"]),
        account: text(&[private, "serviceaccount", "name"]),
        account_uid: text(&[private, "serviceaccount", "uid"]),
        bound,
        node,
        audiences,
        expires_secs,
    })
}

/// The identity in the verified claims of a service-account token that is meant for one of
/// `audiences`.
pub(super) async fn authenticate(
    registry: &Registry,
    cache: &WatchCache,
    claims: &Value,
    audiences: &[&str],
) -> Option<Accepted> {
    let subject = subject(claims, jiff::Timestamp::now().as_second())?;
    let meant: Vec<String> = subject
        .audiences
        .iter()
        .filter(|own| audiences.contains(&own.as_str()))
        .cloned()
        .collect();
    if meant.is_empty() {
        return None;
    }
    cache.catch_up().await.ok()?;
    let account = ObjectIdentity {
        name: subject.account.clone(),
        uid: subject.account_uid.clone(),
    };
    let accounts = registry.core("serviceaccounts")?;
    let mut needs = vec![Need::of(accounts, &subject.namespace, account)];
    if let Some(BoundObject { kind, object }) = &subject.bound {
        let resource = registry.core(&format!("{kind}s"))?;
        needs.push(Need::of(resource, &subject.namespace, object.clone()));
    }
    let mut user = UserInfo::service_account(&subject.namespace, &subject.account);
    user.uid = subject.account_uid;
    let mut extra = |key: &str, value: String| {
        user.extra
            .push((format!("authentication.kubernetes.io/{key}"), vec![value]))
    };
    extra(
        "credential-id",
        format!("JTI={}", meta::get_str(claims, &["jti"])),
    );
    if let Some(node) = subject.node {
        extra("node-name", node.name);
        extra("node-uid", node.uid);
    }
    if let Some(BoundObject { kind, object }) = subject.bound {
        extra(&format!("{kind}-name"), object.name);
        extra(&format!("{kind}-uid"), object.uid);
    }
    let accepted = Accepted {
        user: Arc::new(user),
        audiences: meant,
        expires_secs: Some(subject.expires_secs),
        needs,
    };
    accepted.still_holds().then_some(accepted)
}

/// An object that must exist for a token to be good.
pub(super) struct Need {
    resource: Arc<Resource>,
    key: String,
    uid: String,
}

impl Need {
    pub(super) fn of(resource: &Arc<Resource>, namespace: &str, object: ObjectIdentity) -> Self {
        Self {
            resource: Arc::clone(resource),
            key: resource.key(namespace, &object.name),
            uid: object.uid,
        }
    }

    /// Whether the object is there, the very same.
    pub(super) fn is_there(&self) -> bool {
        let Some(entry) = self.resource.cache.get(&self.key) else {
            return false;
        };
        entry.uid() == self.uid && !(entry.is_terminating() && is_overdue(&entry.unmanaged()))
    }
}

/// Whether an object should have been gone for a while.
fn is_overdue(json: &[u8]) -> bool {
    let object: Value = serde_json::from_slice(json).unwrap_or_default();
    let due = meta::deletion_timestamp(&object).and_then(meta::parse_time);
    due.is_none_or(|due| {
        due.as_second() + DELETION_LEEWAY_SECS < jiff::Timestamp::now().as_second()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signer() -> TokenSigner {
        TokenSigner::new(&rcgen::KeyPair::generate().unwrap().serialize_pem()).unwrap()
    }

    fn token_subject() -> TokenSubject {
        TokenSubject {
            namespace: "default".into(),
            account: "builder".into(),
            account_uid: "u1".into(),
            bound: Some(BoundObject {
                kind: "pod".into(),
                object: ObjectIdentity {
                    name: "p".into(),
                    uid: "u2".into(),
                },
            }),
            node: Some(ObjectIdentity {
                name: "n1".into(),
                uid: "u3".into(),
            }),
            audiences: vec![ISSUER.into()],
            expires_secs: 2000,
        }
    }

    #[test]
    fn signed_tokens_verify_and_say_the_same() {
        let signer = signer();
        let token = signer.sign(&claims(&token_subject(), 1000)).unwrap();
        assert_eq!(
            subject(&signer.verify(&token).unwrap(), 1500),
            Some(token_subject())
        );
    }

    #[test]
    fn forged_expired_and_foreign_tokens_are_refused() {
        let signer = signer();
        let token = signer.sign(&claims(&token_subject(), 1000)).unwrap();
        assert_eq!(super::tests::signer().verify(&token), None, "another key");
        assert_eq!(signer.verify(&format!("{token}x")), None);
        let claims_then = signer.verify(&token).unwrap();
        assert_eq!(subject(&claims_then, 2000), None, "expired");
        assert_eq!(subject(&claims_then, 900), None, "not yet valid");
        let unissued = json!({"iss": "https://example.org", "exp": 2000});
        assert_eq!(subject(&unissued, 1500), None, "another issuer");
    }
}
