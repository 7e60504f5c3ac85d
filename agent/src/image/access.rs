//! Who may use what was pulled, without asking its registry. Pure.
//!
//! Shape of a line: `<fingerprint>` of a credential, or
//! `secret:<uid>/<namespace>/<name> <fingerprint>` with the secret that it was last seen in. Either
//! opens; a secret has one credential at a time, so what it was rotated from opens nothing any
//! more. Older agents wrote both apart.
//!
//! Source: `mergePullSecrets` in `pkg/kubelet/images/pullmanager/image_pull_manager.go` at v1.37.

use std::collections::BTreeSet;

/// Everybody on this node may use what came without credentials, with the node's own, or from a
/// file.
pub(crate) const ANYBODY: &str = "node";
/// Beyond so many lines, none is added without a pull, as upstream.
const LEARNED_MAX: usize = 100;

/// Of one who wants to use something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Key {
    /// Of the credential, or [`ANYBODY`].
    pub fingerprint: String,
    /// [`super::credentials::coordinates`] of the secret that it is in.
    pub secret: Option<String>,
}

impl Key {
    pub(crate) fn anybody() -> Self {
        Self {
            fingerprint: ANYBODY.to_owned(),
            secret: None,
        }
    }

    pub(crate) fn line(&self) -> String {
        match &self.secret {
            Some(secret) => format!("{secret} {}", self.fingerprint),
            None => self.fingerprint.clone(),
        }
    }
}

/// How a key opens; the least is the surest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fit {
    Same,
    Credential,
    Secret,
}

/// Secret and fingerprint of a line.
fn parts(line: &str) -> (Option<&str>, Option<&str>) {
    match line.split_once(' ') {
        Some((secret, fingerprint)) => (Some(secret), Some(fingerprint)),
        None if line.starts_with("secret:") => (Some(line), None),
        None => (None, Some(line)),
    }
}

/// How `key` opens what these lines are of.
pub(crate) fn fit<'a>(lines: impl IntoIterator<Item = &'a str>, key: &Key) -> Option<Fit> {
    let one = |line| {
        let (secret, fingerprint) = parts(line);
        let is_credential = fingerprint == Some(&*key.fingerprint);
        let is_secret = secret == key.secret.as_deref();
        match (is_credential || fingerprint == Some(ANYBODY), is_secret) {
            (true, true) => Some(Fit::Same),
            (true, false) => Some(Fit::Credential),
            (false, true) if secret.is_some() => Some(Fit::Secret),
            (false, _) => None,
        }
    };
    lines.into_iter().filter_map(one).min()
}

/// Adds `line` in the place of what its secret had before.
pub(crate) fn note(lines: &mut BTreeSet<String>, line: &str) {
    let (secret, fingerprint) = parts(line);
    match secret {
        Some(secret) => {
            // Of an older agent: any of the fingerprints there may be what it had.
            let was_apart = lines.remove(secret);
            lines.retain(|old| match parts(old) {
                (Some(other), _) => other != secret,
                (None, old) => old == Some(ANYBODY) || !was_apart && old != fingerprint,
            });
        }
        None if lines.iter().any(|old| parts(old).1 == fingerprint) => return,
        None => {}
    }
    lines.insert(line.to_owned());
}

/// Notes `key`, which opens this, unless there are too many. Says whether that changed anything.
pub(crate) fn learn(lines: &mut BTreeSet<String>, key: &Key) -> bool {
    let mut after = lines.clone();
    note(&mut after, &key.line());
    let is_open = fit(lines.iter().map(String::as_str), key).is_some();
    if !is_open || after == *lines || after.len() > lines.len().max(LEARNED_MAX) {
        return false;
    }
    *lines = after;
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(secret: &str, fingerprint: &str) -> Key {
        let secret = (!secret.is_empty()).then(|| format!("secret:{secret}"));
        Key {
            fingerprint: fingerprint.to_owned(),
            secret,
        }
    }

    fn set(lines: &[&str]) -> BTreeSet<String> {
        lines.iter().map(|line| (*line).to_owned()).collect()
    }

    #[test]
    fn a_secret_has_one_credential_at_a_time() {
        for (before, key, after) in [
            (
                &["secret:a old"][..],
                key("a", "new"),
                &["secret:a new"][..],
            ),
            (
                &["secret:a old"],
                key("b", "old"),
                &["secret:a old", "secret:b old"],
            ),
            (&["secret:a old"], key("", "old"), &["secret:a old"]),
            // Of older agents.
            (&["old"], key("a", "old"), &["secret:a old"]),
            (&["x", "old"], key("a", "old"), &["secret:a old", "x"]),
            (
                &["old", "x", "secret:a", "secret:b", "node"],
                key("a", "new"),
                &["node", "secret:a new", "secret:b"],
            ),
            // It opens nothing.
            (
                &["secret:a old", "x"],
                key("b", "new"),
                &["secret:a old", "x"],
            ),
        ] {
            let mut lines = set(before);
            learn(&mut lines, &key);
            assert_eq!(lines, set(after), "{before:?} {key:?}");
        }
    }

    #[test]
    fn what_is_full_only_replaces() {
        let mut lines: BTreeSet<_> = (0..LEARNED_MAX)
            .map(|n| format!("secret:{n} old"))
            .collect();
        assert!(!learn(&mut lines, &key("copy", "old")));
        assert!(learn(&mut lines, &key("7", "new")) && lines.contains("secret:7 new"));
        assert!(!learn(&mut lines, &key("7", "new")), "nothing new");
        assert_eq!(lines.len(), LEARNED_MAX);
    }

    #[test]
    fn the_surest_fit_counts() {
        let lines = ["secret:a old", "x", "secret:b"];
        for (key, expected) in [
            (key("a", "old"), Some(Fit::Same)),
            (key("c", "old"), Some(Fit::Credential)),
            (key("a", "x"), Some(Fit::Credential)),
            (key("a", "new"), Some(Fit::Secret)),
            (key("b", "new"), Some(Fit::Secret)),
            (key("c", "new"), None),
            (key("", "new"), None),
        ] {
            assert_eq!(fit(lines, &key), expected, "{key:?}");
        }
    }
}
