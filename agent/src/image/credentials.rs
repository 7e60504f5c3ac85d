//! Pull secrets: what they hold, and which of it is for an image. Pure.
//!
//! A key of a secret names a registry, or a part of one: `r.example/team`, `*.example.com`,
//! `https://index.docker.io/v1/`. The most specific keys come first; several credentials may fit,
//! and are tried in order.
//!
//! Source: `pkg/credentialprovider/{keyring,config}.go` at v1.37.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::Deserialize;
use sha2::{Digest, Sha256};

use crate::runtime::{RegistryAuth, SecretCoordinates};

/// The key under which `docker login` keeps what is for `docker.io`.
const DEFAULT_KEY: &str = "index.docker.io";
/// Most secrets that are read for one pod: each is a request, and anybody may name thousands.
const SECRETS_MAX: usize = 100;
/// Most bytes of a pod's secrets that are read: a few of the largest.
const BYTES_MAX: usize = 4 << 20;
/// Most entries taken from a pod's secrets; a large organisation has some hundreds.
const ENTRIES_MAX: usize = 4096;

/// As `docker login` writes it.
#[derive(Deserialize)]
struct Entry {
    #[serde(default)]
    auth: String,
    #[serde(default)]
    username: String,
    #[serde(default)]
    password: String,
    #[serde(default)]
    identitytoken: String,
    #[serde(default)]
    registrytoken: String,
}

#[derive(Deserialize)]
struct Config {
    #[serde(default)]
    auths: BTreeMap<String, Entry>,
}

/// The secrets to read of those a pod names, each once, and those beyond the most that are read.
pub(crate) fn to_read<'a>(names: impl Iterator<Item = &'a str>) -> (Vec<&'a str>, Vec<&'a str>) {
    let mut seen = BTreeSet::new();
    let mut names: Vec<&str> = names.filter(|name| seen.insert(*name)).collect();
    let beyond = names.split_off(names.len().min(SECRETS_MAX));
    (names, beyond)
}

/// What a pod's secrets hold, as far as that is bounded: their authors are as little trusted as the
/// pod's.
#[derive(Default)]
pub(crate) struct Collected {
    /// In the order of the secrets.
    pub auths: Vec<RegistryAuth>,
    bytes: usize,
}

impl Collected {
    /// Adds what the secret at `coordinates` holds, as `parse` reads it. Says whether that was all
    /// of it.
    pub(crate) fn add(
        &mut self,
        json: &[u8],
        parse: fn(&[u8]) -> Vec<RegistryAuth>,
        coordinates: SecretCoordinates,
    ) -> bool {
        if self.bytes + json.len() > BYTES_MAX {
            return false;
        }
        self.bytes += json.len();
        let (entries, secret) = (parse(json), Arc::new(coordinates));
        let room = ENTRIES_MAX - self.auths.len();
        let is_all = entries.len() <= room;
        let entries = entries.into_iter().take(room);
        self.auths.extend(entries.map(|auth| RegistryAuth {
            secret: Some(Arc::clone(&secret)),
            ..auth
        }));
        is_all
    }
}

/// `.dockerconfigjson`; nothing if it is none.
pub(crate) fn parse_config(json: &[u8]) -> Vec<RegistryAuth> {
    serde_json::from_slice::<Config>(json)
        .map(|config| entries(config.auths))
        .unwrap_or_default()
}

/// `.dockercfg`, its older form.
pub(crate) fn parse_legacy(json: &[u8]) -> Vec<RegistryAuth> {
    serde_json::from_slice(json)
        .map(entries)
        .unwrap_or_default()
}

fn entries(auths: BTreeMap<String, Entry>) -> Vec<RegistryAuth> {
    let auth = |(key, entry): (String, Entry)| {
        let decoded = STANDARD
            .decode(entry.auth.trim())
            .ok()
            .and_then(|bytes| String::from_utf8(bytes).ok());
        let pair = decoded.as_deref().and_then(|text| text.split_once(':'));
        let (username, password) = match pair {
            Some((username, password)) => (
                username.to_owned(),
                password.trim_end_matches('\0').to_owned(),
            ),
            None => (entry.username, entry.password),
        };
        let found = RegistryAuth {
            registry: normal_key(&key),
            username,
            password,
            identity_token: entry.identitytoken,
            registry_token: entry.registrytoken,
            secret: None,
        };
        let empty = [
            &found.username,
            &found.identity_token,
            &found.registry_token,
        ]
        .iter()
        .all(|text| text.is_empty());
        (!empty).then_some(found)
    };
    auths.into_iter().filter_map(auth).collect()
}

/// Without scheme; the path of the API's version is none.
fn normal_key(key: &str) -> String {
    let rest = key
        .strip_prefix("https://")
        .or_else(|| key.strip_prefix("http://"))
        .unwrap_or(key);
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    let path = path
        .strip_prefix("v1/")
        .or_else(|| path.strip_prefix("v2/"))
        .unwrap_or(path);
    if path.is_empty() {
        host.to_owned()
    } else {
        format!("{host}/{path}")
    }
}

/// Those for `registry/repository`, the most specific key first.
pub(super) fn for_image<'a>(
    auths: &'a [RegistryAuth],
    registry: &str,
    repository: &str,
) -> Vec<&'a RegistryAuth> {
    let mut found: Vec<_> = auths
        .iter()
        .filter(|auth| key_fits(&auth.registry, registry, repository))
        .collect();
    found.sort_by(|a, b| b.registry.cmp(&a.registry));
    if found.is_empty() && matches!(registry, "docker.io" | DEFAULT_KEY) {
        found = auths
            .iter()
            .filter(|auth| auth.registry == DEFAULT_KEY)
            .collect();
    }
    found
}

/// Part by part of the host, each of which may hold wildcards; the port as it is; the path as a
/// prefix.
fn key_fits(key: &str, registry: &str, repository: &str) -> bool {
    let (host, path) = key.split_once('/').unwrap_or((key, ""));
    let (pattern, pattern_port) = split_port(host);
    let (name, port) = split_port(registry);
    let (patterns, names): (Vec<_>, Vec<_>) =
        (pattern.split('.').collect(), name.split('.').collect());
    pattern_port == port
        && patterns.len() == names.len()
        && patterns
            .iter()
            .zip(&names)
            .all(|(pattern, name)| glob(pattern.as_bytes(), name.as_bytes()))
        && repository.starts_with(path)
}

fn split_port(host: &str) -> (&str, &str) {
    match host.rsplit_once(':') {
        Some((name, port))
            if !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) =>
        {
            (name, port)
        }
        _ => (host, ""),
    }
}

/// `*` is any number of characters, `?` is one.
fn glob(pattern: &[u8], text: &[u8]) -> bool {
    // Where to go on after the last star, and from how far in the text.
    let (mut p, mut t, mut star) = (0, 0, None);
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p + 1, t));
                p += 1;
            }
            Some(b'?') => (p, t) = (p + 1, t + 1),
            Some(byte) if *byte == text[t] => (p, t) = (p + 1, t + 1),
            _ => match star {
                Some((after, from)) => {
                    (p, t) = (after, from + 1);
                    star = Some((after, from + 1));
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}

/// Names a credential without telling it: who has the same may use what it opened.
pub(super) fn fingerprint(auth: &RegistryAuth) -> String {
    let mut hash = Sha256::new();
    for part in [
        &auth.username,
        &auth.password,
        &auth.identity_token,
        &auth.registry_token,
    ] {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hex::encode(hash.finalize())
}

/// Names the secret that a credential is kept in: who may use what it opened may so after its
/// content was rotated.
///
/// Shape: `secret:<uid>/<namespace>/<name>`.
pub(super) fn coordinates(auth: &RegistryAuth) -> Option<String> {
    let secret = auth
        .secret
        .as_ref()
        .filter(|secret| !secret.uid.is_empty())?;
    Some(format!(
        "secret:{}/{}/{}",
        secret.uid, secret.namespace, secret.name
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn auth(registry: &str) -> RegistryAuth {
        RegistryAuth {
            registry: registry.to_owned(),
            username: registry.to_owned(),
            ..RegistryAuth::default()
        }
    }

    #[test]
    fn the_most_specific_key_comes_first() {
        let auths = [
            "r.test",
            "r.test/teamA",
            "r.test/teamB",
            "*.test",
            "index.docker.io",
            "r.test:5000",
            "a.b.test",
        ]
        .map(auth);
        for (registry, repository, expected) in [
            (
                "r.test",
                "teamA/app",
                vec!["r.test/teamA", "r.test", "*.test"],
            ),
            (
                "r.test",
                "teamB/app",
                vec!["r.test/teamB", "r.test", "*.test"],
            ),
            ("r.test", "other", vec!["r.test", "*.test"]),
            ("r.test:5000", "teamA/app", vec!["r.test:5000"]),
            ("x.test", "app", vec!["*.test"]),
            ("x.y.test", "app", vec![]),
            ("docker.io", "library/nginx", vec!["index.docker.io"]),
            ("evil.test.example", "app", vec![]),
        ] {
            let found: Vec<_> = for_image(&auths, registry, repository)
                .iter()
                .map(|one| &*one.registry)
                .collect();
            assert_eq!(found, expected, "{registry}/{repository}");
        }
    }

    #[test]
    fn both_forms_of_a_secret_are_read() {
        // "dTpw" is `u:p`.
        let entries = r#"{"https://index.docker.io/v1/": {"auth": "dTpw"}, "s.test:5000/team": {"username": "a", "password": "b"},
            "t.test": {}, "u.test": {"registrytoken": "r"}, "v.test": {"auth": "dTo=", "identitytoken": "i"}}"#;
        let expected = |registry: &str,
                        username: &str,
                        password: &str,
                        registry_token: &str,
                        identity_token: &str| {
            let [registry, username, password, registry_token, identity_token] =
                [registry, username, password, registry_token, identity_token].map(str::to_owned);
            RegistryAuth {
                registry,
                username,
                password,
                registry_token,
                identity_token,
                secret: None,
            }
        };
        let expected = [
            expected("index.docker.io", "u", "p", "", ""),
            expected("s.test:5000/team", "a", "b", "", ""),
            expected("u.test", "", "", "r", ""),
            expected("v.test", "u", "", "", "i"),
        ];
        assert!(parse_config(format!(r#"{{"auths": {entries}}}"#).as_bytes()) == expected);
        assert!(parse_legacy(entries.as_bytes()) == expected);
        assert!(parse_config(b"[]").is_empty() && parse_legacy(b"nonsense").is_empty());
    }

    #[test]
    fn a_hostile_secret_is_taken_in_part() {
        let coordinates = |name: &str| SecretCoordinates {
            uid: "1".to_owned(),
            namespace: "team".to_owned(),
            name: name.to_owned(),
        };
        let many: BTreeMap<_, _> = (0..20_000)
            .map(|n| {
                (
                    format!("r.test/{n}"),
                    serde_json::json!({ "username": "u", "password": n.to_string() }),
                )
            })
            .collect();
        let many = serde_json::to_vec(&many).expect("JSON");
        let mut found = Collected::default();
        assert!(!found.add(&many, parse_legacy, coordinates("many")));
        assert_eq!(found.auths.len(), ENTRIES_MAX);
        assert!(!found.add(&many, parse_legacy, coordinates("more")));
        assert_eq!(found.auths.len(), ENTRIES_MAX);
        let place = found.auths[0].secret.as_ref().expect("coordinates");
        assert_eq!(Arc::strong_count(place), ENTRIES_MAX, "they are kept once");

        // The bytes count, not only the entries.
        let big =
            serde_json::json!({ "r.test": { "username": "u", "password": "p".repeat(1_000_000) } })
                .to_string();
        let mut found = Collected::default();
        let taken = (0..1000)
            .filter(|n| found.add(big.as_bytes(), parse_legacy, coordinates(&n.to_string())))
            .count();
        assert_eq!((taken, found.auths.len()), (4, 4));
    }

    #[test]
    fn each_secret_is_read_once_and_not_too_many_are() {
        let names: Vec<_> = (0..150).map(|n| format!("s{n}")).collect();
        let (read, beyond) = to_read(names.iter().cycle().take(100_000).map(|name| &**name));
        assert_eq!(
            (read, beyond),
            (
                names[..100].iter().map(|name| &**name).collect(),
                names[100..].iter().map(|name| &**name).collect()
            )
        );
        assert_eq!(
            to_read(["a", "b", "a"].into_iter()),
            (vec!["a", "b"], vec![])
        );
    }

    #[test]
    fn wildcards_stay_within_a_part() {
        for (pattern, text, fits) in [
            ("*", "", true),
            ("a*c", "abbc", true),
            ("a*c", "abb", false),
            ("?", "a", true),
            ("?", "", false),
            ("*-*", "a-b-c", true),
        ] {
            assert_eq!(
                glob(pattern.as_bytes(), text.as_bytes()),
                fits,
                "{pattern} {text}"
            );
        }
    }

    #[test]
    fn credentials_that_differ_have_different_fingerprints() {
        let (mut one, mut other) = (auth("a"), auth("a"));
        (one.username, one.password) = ("ab".to_owned(), "c".to_owned());
        (other.username, other.password) = ("a".to_owned(), "bc".to_owned());
        assert_ne!(fingerprint(&one), fingerprint(&other));
        other.clone_from(&one);
        other.registry = "elsewhere".to_owned();
        assert_eq!(fingerprint(&one), fingerprint(&other));
    }
}
