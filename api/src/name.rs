//! What a name, label or qualified name may be, in upstream's words, and generated names.
//!
//! Each rule comes in two forms: `*_errors` gives every text, as upstream's functions do (one field
//! error each); `*_error` joins them with `; ` and gives `None` for a good value.
//!
//! Source: `k8s.io/apimachinery/pkg/util/validation/validation.go`,
//! `k8s.io/apiserver/pkg/storage/names/generate.go`.

use rand::RngExt;

const LABEL_FMT: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const SUBDOMAIN_FMT: &str = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const QUALIFIED_FMT: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const LABEL_MSG: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character";
const SUBDOMAIN_MSG: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character";
const SEARCH_DOMAIN_MSG: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and must start and end with an alphanumeric character";
const LABEL_1035_MSG: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character";
const QUALIFIED_MSG: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";
const LABEL_VALUE_MSG: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";
const WILDCARD_MSG: &str = "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character";
const ENV_MSG: &str = "a valid environment variable name must consist only of printable ASCII characters other than '='";

/// The alphabet of generated names: no vowels and nothing that reads like one, so that no words
/// come out.
const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
const SUFFIX_LEN: usize = 5;
/// Longest generated name: a DNS label.
const MAX_GENERATED_LEN: usize = 63;

/// A DNS subdomain: the name of most objects.
#[must_use]
pub fn dns_subdomain_errors(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    check_len(value, 253, &mut errors);
    if !is_subdomain(value) {
        errors.push(regex_error(SUBDOMAIN_MSG, SUBDOMAIN_FMT, &["example.com"]));
    }
    errors
}

/// A domain that a resolver looks in: a DNS subdomain whose labels may have underscores.
#[must_use]
pub fn search_domain_errors(value: &str) -> Vec<String> {
    let is_label = |label: &str| {
        is_label(
            label
                .strip_prefix('_')
                .unwrap_or(label)
                .replace('_', "-")
                .as_str(),
        )
    };
    let mut errors = Vec::new();
    check_len(value, 253, &mut errors);
    if !value.split('.').all(is_label) {
        let label = "_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?";
        errors.push(regex_error(
            SEARCH_DOMAIN_MSG,
            &format!(r"{label}(\.{label})*"),
            &["example.com"],
        ));
    }
    errors
}

/// A DNS label of RFC 1123: namespaces, containers, volumes.
#[must_use]
pub fn dns_label_errors(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    check_len(value, 63, &mut errors);
    if !is_label(value) {
        if is_subdomain(value) {
            errors.push("must not contain dots".to_owned());
        } else {
            errors.push(regex_error(LABEL_MSG, LABEL_FMT, &["my-name", "123-abc"]));
        }
    }
    errors
}

/// A DNS label of RFC 1035: it starts with a letter.
#[must_use]
pub fn dns_1035_label_errors(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    check_len(value, 63, &mut errors);
    if !is_label(value) || !value.starts_with(|c: char| c.is_ascii_lowercase()) {
        errors.push(regex_error(
            LABEL_1035_MSG,
            "[a-z]([-a-z0-9]*[a-z0-9])?",
            &["my-name", "abc-123"],
        ));
    }
    errors
}

/// A wildcard subdomain such as `*.example.com`.
#[must_use]
pub fn wildcard_subdomain_errors(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    check_len(value, 253, &mut errors);
    if !value.strip_prefix("*.").is_some_and(is_subdomain) {
        errors.push(regex_error(
            WILDCARD_MSG,
            &format!(r"\*\.{SUBDOMAIN_FMT}"),
            &["*.example.com"],
        ));
    }
    errors
}

/// A qualified name, `name` or `prefix.example.com/name`: keys of labels, annotations, taints,
/// resources.
#[must_use]
pub fn qualified_name_errors(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    let parts: Vec<&str> = value.split('/').collect();
    let name = match parts.as_slice() {
        [name] => *name,
        [prefix, name] => {
            if prefix.is_empty() {
                errors.push("prefix part must be non-empty".to_owned());
            } else {
                errors.extend(
                    dns_subdomain_errors(prefix)
                        .into_iter()
                        .map(|e| format!("prefix part {e}")),
                );
            }
            *name
        }
        _ => {
            let text = regex_error(
                QUALIFIED_MSG,
                QUALIFIED_FMT,
                &["MyName", "my.name", "123-abc"],
            );
            let optional =
                "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";
            return vec![format!("a valid label key {text} {optional}")];
        }
    };
    if name.is_empty() {
        errors.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        errors.push("name part must be no more than 63 bytes".to_owned());
    }
    if !is_qualified(name) {
        let text = regex_error(
            QUALIFIED_MSG,
            QUALIFIED_FMT,
            &["MyName", "my.name", "123-abc"],
        );
        errors.push(format!("name part {text}"));
    }
    errors
}

/// The value of a label; may be empty.
#[must_use]
pub fn label_value_errors(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    check_len(value, 63, &mut errors);
    if !value.is_empty() && !is_qualified(value) {
        let fmt = format!("({QUALIFIED_FMT})?");
        errors.push(regex_error(
            LABEL_VALUE_MSG,
            &fmt,
            &["MyValue", "my_value", "12345"],
        ));
    }
    errors
}

/// The name of a port: an IANA service name.
#[must_use]
pub fn port_name_errors(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    check_len(value, 15, &mut errors);
    if value.is_empty()
        || !value
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
    {
        errors.push(
            "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".to_owned(),
        );
    }
    if !value.bytes().any(|b| b.is_ascii_lowercase()) {
        errors.push("must contain at least one letter (a-z)".to_owned());
    }
    if value.contains("--") {
        errors.push("must not contain consecutive hyphens".to_owned());
    }
    if value.starts_with('-') || value.ends_with('-') {
        errors.push("must not begin or end with a hyphen".to_owned());
    }
    errors
}

/// The name of an environment variable, in the relaxed form that is the default since v1.34.
#[must_use]
pub fn env_var_name_errors(value: &str) -> Vec<String> {
    if value.is_empty() {
        return vec!["environment variable name must be non-empty".to_owned()];
    }
    if value.chars().any(|c| !matches!(c, ' '..='~') || c == '=') {
        return vec![ENV_MSG.to_owned()];
    }
    Vec::new()
}

/// A key of a ConfigMap or Secret.
#[must_use]
pub fn config_map_key_errors(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    check_len(value, 253, &mut errors);
    if value.is_empty()
        || !value
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b))
    {
        let text = "a valid config key must consist of alphanumeric characters, '-', '_' or '.'";
        errors.push(regex_error(
            text,
            "[-._a-zA-Z0-9]+",
            &["key.name", "KEY_NAME", "key-name"],
        ));
    }
    match value {
        "." => errors.push("must not be '.'".to_owned()),
        ".." => errors.push("must not be '..'".to_owned()),
        v if v.starts_with("..") => errors.push("must not start with '..'".to_owned()),
        _ => {}
    }
    errors
}

/// The name of an HTTP header.
#[must_use]
pub fn http_header_name_errors(value: &str) -> Vec<String> {
    if !value.is_empty()
        && value
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'-')
    {
        return Vec::new();
    }
    let text = "a valid HTTP header must consist of alphanumeric characters or '-'";
    vec![regex_error(text, "[-A-Za-z0-9]+", &["X-Header-Name"])]
}

/// A percentage such as `25%`.
#[must_use]
pub fn percent_errors(value: &str) -> Vec<String> {
    let good = value
        .strip_suffix('%')
        .is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()));
    if good {
        return Vec::new();
    }
    let text = "a valid percent string must be a numeric string followed by an ending '%'";
    vec![regex_error(text, "[0-9]+%", &["1%", "93%"])]
}

/// A name used as one segment of a path: what custom and RBAC names must be at least.
#[must_use]
pub fn path_segment_errors(value: &str) -> Vec<String> {
    match value {
        "." | ".." => return vec![format!("may not be '{value}'")],
        _ => {}
    }
    ["/", "%"]
        .iter()
        .filter(|c| value.contains(**c))
        .map(|c| format!("may not contain '{c}'"))
        .collect()
}

/// A port number.
#[must_use]
pub fn port_number_error(value: i64) -> Option<String> {
    in_range_error(value, 1, 65535)
}

/// A number in an inclusive range.
#[must_use]
pub fn in_range_error(value: i64, min: i64, max: i64) -> Option<String> {
    (!(min..=max).contains(&value)).then(|| format!("must be between {min} and {max}, inclusive"))
}

/// See [`dns_subdomain_errors`].
#[must_use]
pub fn dns_subdomain_error(value: &str) -> Option<String> {
    joined(&dns_subdomain_errors(value))
}

/// See [`dns_label_errors`].
#[must_use]
pub fn dns_label_error(value: &str) -> Option<String> {
    joined(&dns_label_errors(value))
}

/// See [`dns_1035_label_errors`].
#[must_use]
pub fn dns_1035_label_error(value: &str) -> Option<String> {
    joined(&dns_1035_label_errors(value))
}

/// See [`qualified_name_errors`].
#[must_use]
pub fn qualified_name_error(value: &str) -> Option<String> {
    joined(&qualified_name_errors(value))
}

/// See [`label_value_errors`].
#[must_use]
pub fn label_value_error(value: &str) -> Option<String> {
    joined(&label_value_errors(value))
}

/// `prefix` and five random characters; the prefix is cut so that the whole is a DNS label at most.
#[must_use]
pub fn generate(prefix: &str) -> String {
    let mut cut = prefix.len().min(MAX_GENERATED_LEN - SUFFIX_LEN);
    while !prefix.is_char_boundary(cut) {
        cut -= 1;
    }
    let mut out = String::with_capacity(cut + SUFFIX_LEN);
    out.push_str(&prefix[..cut]);
    let mut rng = rand::rng();
    for _ in 0..SUFFIX_LEN {
        out.push(char::from(ALPHABET[rng.random_range(0..ALPHABET.len())]));
    }
    out
}

fn joined(errors: &[String]) -> Option<String> {
    (!errors.is_empty()).then(|| errors.join("; "))
}

fn check_len(value: &str, max: usize, errors: &mut Vec<String>) {
    if value.len() > max {
        errors.push(format!("must be no more than {max} bytes"));
    }
}

fn regex_error(message: &str, regex: &str, examples: &[&str]) -> String {
    let quoted: Vec<String> = examples.iter().map(|e| format!("'{e}'")).collect();
    format!(
        "{message} (e.g. {}, regex used for validation is '{regex}')",
        quoted.join(",  or ")
    )
}

fn is_label(value: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let bytes = value.as_bytes();
    matches!((bytes.first(), bytes.last()), (Some(a), Some(z)) if inner(*a) && inner(*z))
        && bytes.iter().all(|b| inner(*b) || *b == b'-')
}

fn is_subdomain(value: &str) -> bool {
    value.split('.').all(is_label)
}

fn is_qualified(value: &str) -> bool {
    let bytes = value.as_bytes();
    matches!((bytes.first(), bytes.last()), (Some(a), Some(z)) if a.is_ascii_alphanumeric() && z.is_ascii_alphanumeric())
        && bytes
            .iter()
            .all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_names_pass() {
        assert!(
            ["a", "a.b-c.d", "0"]
                .iter()
                .all(|v| dns_subdomain_errors(v).is_empty())
        );
        assert!(
            ["a", "a-b", "0a"]
                .iter()
                .all(|v| dns_label_errors(v).is_empty())
        );
        assert!(
            ["a", "app.kubernetes.io/name", "A_b.c"]
                .iter()
                .all(|v| qualified_name_errors(v).is_empty())
        );
        assert!(
            ["", "A_b.c", "1"]
                .iter()
                .all(|v| label_value_errors(v).is_empty())
        );
        assert!(
            ["http", "a-1"]
                .iter()
                .all(|v| port_name_errors(v).is_empty())
        );
    }

    #[test]
    fn bad_names_get_upstreams_words() {
        let subdomain = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
        for bad in ["A", "", "-a", "a-", "a..b", "a_b", "ä"] {
            assert_eq!(
                dns_subdomain_error(bad).as_deref(),
                Some(subdomain),
                "{bad}"
            );
        }
        assert_eq!(
            dns_label_error("a.b").as_deref(),
            Some("must not contain dots")
        );
        assert!(
            dns_label_error(&"a".repeat(64)).is_some_and(|e| e == "must be no more than 63 bytes")
        );
        assert!(
            dns_1035_label_error("1a")
                .is_some_and(|e| e.contains("start with an alphabetic character"))
        );
        assert_eq!(
            qualified_name_error("/a").as_deref(),
            Some("prefix part must be non-empty")
        );
        assert!(
            qualified_name_error("a/")
                .is_some_and(|e| e.starts_with("name part must be non-empty; name part must"))
        );
        assert!(
            qualified_name_error("a/b/c")
                .is_some_and(|e| e.ends_with("(e.g. 'example.com/MyName')"))
        );
        assert!(
            label_value_error("a b")
                .is_some_and(|e| e.contains("(e.g. 'MyValue',  or 'my_value',  or '12345'"))
        );
        assert_eq!(config_map_key_errors("..a"), ["must not start with '..'"]);
        assert_eq!(
            port_number_error(0).as_deref(),
            Some("must be between 1 and 65535, inclusive")
        );
    }

    #[test]
    fn generated_names_stay_labels() {
        let name = generate("web-");
        assert_eq!(name.len(), 9);
        assert!(dns_label_error(&name).is_none());
        assert_eq!(generate(&"x".repeat(300)).len(), 63);
        assert_ne!(generate("a"), generate("a"));
    }
}
