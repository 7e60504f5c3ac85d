//! What a registry wants to know of who asks: `WWW-Authenticate`. Pure.
//!
//! Source: distribution `docs/spec/auth/token.md`, RFC 9110 11.6.1.

/// One challenge that can be answered.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::image) enum Challenge {
    /// Name and password.
    Basic,
    /// A token from somewhere.
    Bearer {
        /// The URL of the token service.
        realm: String,
        /// For whom.
        service: Option<String>,
    },
}

/// The first challenge in the headers that is understood; a token is preferred.
pub(in crate::image) fn parse<'a>(headers: impl Iterator<Item = &'a str>) -> Option<Challenge> {
    let mut basic = None;
    for header in headers {
        let (scheme, rest) = header.trim().split_once(' ').unwrap_or((header.trim(), ""));
        if scheme.eq_ignore_ascii_case("bearer") {
            let parameters = parameters(rest);
            let find = |name: &str| {
                parameters
                    .iter()
                    .find(|(key, _)| key.eq_ignore_ascii_case(name))
                    .map(|(_, value)| value.clone())
            };
            if let Some(realm) = find("realm") {
                return Some(Challenge::Bearer {
                    realm,
                    service: find("service"),
                });
            }
        } else if scheme.eq_ignore_ascii_case("basic") {
            basic = Some(Challenge::Basic);
        }
    }
    basic
}

/// `a="b",c=d`; a quoted value may contain commas and escapes.
fn parameters(text: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some((key, after)) = rest.split_once('=') {
        let key = key.trim_start_matches([',', ' ', '\t']).trim().to_owned();
        let mut value = String::new();
        if let Some(quoted) = after.strip_prefix('"') {
            let mut end = quoted.len();
            let mut escaped = false;
            for (at, character) in quoted.char_indices() {
                match character {
                    _ if escaped => {
                        value.push(character);
                        escaped = false;
                    }
                    '\\' => escaped = true,
                    '"' => {
                        end = at + 1;
                        break;
                    }
                    _ => value.push(character),
                }
            }
            rest = &quoted[end..];
        } else {
            let end = after.find(',').unwrap_or(after.len());
            value.push_str(after[..end].trim());
            rest = &after[end..];
        }
        found.push((key, value));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenges_are_read_as_registries_write_them() {
        let bearer = |realm: &str, service: Option<&str>| {
            Some(Challenge::Bearer {
                realm: realm.to_owned(),
                service: service.map(str::to_owned),
            })
        };
        for (headers, expect) in [
            (vec![], None),
            (vec!["Basic realm=\"r\""], Some(Challenge::Basic)),
            (
                vec![
                    "Bearer realm=\"https://a.test/t\",service=\"s\",scope=\"repository:a/b:pull,push\"",
                ],
                bearer("https://a.test/t", Some("s")),
            ),
            (
                vec!["bearer service=s, realm=\"https://a.test/t?x=1,2\""],
                bearer("https://a.test/t?x=1,2", Some("s")),
            ),
            (
                vec!["Basic realm=x", "Bearer realm=\"u\""],
                bearer("u", None),
            ),
            (vec!["Bearer service=\"no realm\""], None),
            (vec!["Negotiate"], None),
            (vec!["Bearer realm=\"open"], bearer("open", None)),
            (vec!["Bearer realm=\"a\\\"b\""], bearer("a\"b", None)),
        ] {
            assert_eq!(parse(headers.iter().copied()), expect, "{headers:?}");
        }
    }
}
