//! Bootstrap tokens: `<id>.<secret>`, kept as Secrets in `kube-system`.
//!
//! Source: `plugin/pkg/auth/authenticator/token/bootstrap/bootstrap.go` at v1.37.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use coracle_api::meta;
use coracle_registry::{resource::Registry, watch_cache::WatchCache};
use serde_json::Value;

use super::service_account::{Need, ObjectIdentity};
use crate::user::{GROUP_BOOTSTRAPPERS, UserInfo};

const ID_LENGTH: usize = 6;
const SECRET_LENGTH: usize = 16;
/// Of a whole token.
pub(super) const LENGTH: usize = ID_LENGTH + 1 + SECRET_LENGTH;

/// The identity of a token that is known, alive, and meant for authentication.
pub(super) async fn authenticate(
    registry: &Registry,
    cache: &WatchCache,
    token: &str,
) -> Option<(UserInfo, Need)> {
    let (id, secret) = token.split_once('.')?;
    let is_plain = |text: &str| {
        text.bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
    };
    if id.len() != ID_LENGTH || secret.len() != SECRET_LENGTH || !is_plain(id) || !is_plain(secret)
    {
        return None;
    }
    // The token may have been made a moment ago.
    cache.catch_up().await.ok()?;
    let secrets = registry.core("secrets")?;
    let entry = secrets
        .cache
        .get(&secrets.key("kube-system", &format!("bootstrap-token-{id}")))?;
    if entry.is_terminating() {
        return None;
    }
    let object: Value = serde_json::from_slice(&entry.unmanaged()).ok()?;
    let user = check(&object, id, secret, jiff::Timestamp::now())?;
    let secret = ObjectIdentity {
        name: entry.name().to_owned(),
        uid: entry.uid().to_owned(),
    };
    Some((user, Need::of(secrets, "kube-system", secret)))
}

/// The identity of the token that a Secret holds, if it has this ID and secret and may be used at
/// `now`.
pub fn check(object: &Value, id: &str, secret: &str, now: jiff::Timestamp) -> Option<UserInfo> {
    let data = |key: &str| -> Option<String> {
        let encoded = meta::get(object, &["data", key])?.as_str()?;
        String::from_utf8(BASE64_STANDARD.decode(encoded).ok()?).ok()
    };
    let stored = data("token-secret")?;
    let is_valid = object.get("type").and_then(Value::as_str)
        == Some("bootstrap.kubernetes.io/token")
        && is_equal(&stored, secret)
        && data("token-id").as_deref() == Some(id)
        && data("usage-bootstrap-authentication").as_deref() == Some("true");
    if !is_valid {
        return None;
    }
    if let Some(expiration) = data("expiration")
        && meta::parse_time(&expiration).is_none_or(|expiration| expiration <= now)
    {
        return None;
    }
    let extra = data("auth-extra-groups").unwrap_or_default();
    let mut groups = vec![GROUP_BOOTSTRAPPERS];
    groups.extend(
        extra
            .split(',')
            .filter(|group| group.starts_with("system:bootstrappers:")),
    );
    Some(UserInfo::new(format!("system:bootstrap:{id}"), &groups))
}

/// In a time that does not depend on where the texts differ.
fn is_equal(a: &str, b: &str) -> bool {
    a.len() == b.len()
        && a.bytes()
            .zip(b.bytes())
            .fold(0, |differs, (a, b)| differs | (a ^ b))
            == 0
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(change: impl FnOnce(&mut Value)) -> Value {
        let encode = |text: &str| BASE64_STANDARD.encode(text);
        let mut object = json!({"type": "bootstrap.kubernetes.io/token", "data": {
            "token-id": encode("abcdef"), "token-secret": encode("0123456789abcdef"),
            "usage-bootstrap-authentication": encode("true"), "expiration": encode("2030-01-01T00:00:00Z"),
        }});
        change(&mut object);
        object
    }

    #[test]
    fn only_what_matches_and_lives_is_accepted() {
        let now: jiff::Timestamp = "2029-01-01T00:00:00Z".parse().unwrap();
        let later: jiff::Timestamp = "2031-01-01T00:00:00Z".parse().unwrap();
        let ask = |object: &Value, secret: &str, now| {
            check(object, "abcdef", secret, now).map(|user| user.name)
        };
        let good = object(|_| ());
        assert_eq!(
            ask(&good, "0123456789abcdef", now).as_deref(),
            Some("system:bootstrap:abcdef")
        );
        assert_eq!(ask(&good, "0123456789abcdee", now), None);
        assert_eq!(ask(&good, "0123456789abcdef", later), None);
        let unusable = object(|o| o["data"]["usage-bootstrap-authentication"] = "ZmFsc2U=".into());
        assert_eq!(ask(&unusable, "0123456789abcdef", now), None);
        let other_type = object(|o| o["type"] = "Opaque".into());
        assert_eq!(ask(&other_type, "0123456789abcdef", now), None);
    }
}
