//! Names of properties as expressions write them.
//!
//! Source: `k8s.io/apiserver/pkg/cel/escaping.go`.

use crate::lexer::is_reserved;

const ESCAPES: [(&str, &str); 4] = [
    ("__", "__underscores__"),
    (".", "__dot__"),
    ("-", "__dash__"),
    ("/", "__slash__"),
];

/// The name by which an expression selects a property, if it can.
pub fn escape(name: &str) -> Option<String> {
    if is_reserved(name) {
        return Some(format!("__{name}__"));
    }
    let fits = |c: char| c.is_ascii_alphanumeric() || "_.-/".contains(c);
    let starts = name.starts_with(|c: char| c.is_ascii_alphabetic() || "_.-/".contains(c));
    if !starts || !name.chars().all(fits) {
        return None;
    }
    let mut escaped = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(c) = rest.chars().next() {
        let escape = ESCAPES.iter().find(|(raw, _)| rest.starts_with(raw));
        let (raw, written) = escape.copied().unwrap_or(("", ""));
        if raw.is_empty() {
            escaped.push(c);
            rest = &rest[c.len_utf8()..];
        } else {
            escaped.push_str(written);
            rest = &rest[raw.len()..];
        }
    }
    Some(escaped)
}

/// The property that an expression means by a name.
pub fn unescape(name: &str) -> Option<String> {
    let word = name
        .strip_prefix("__")
        .and_then(|name| name.strip_suffix("__"));
    if let Some(word) = word.filter(|word| is_reserved(word)) {
        return Some(word.into());
    }
    let mut raw = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(at) = rest.find("__") {
        raw.push_str(&rest[..at]);
        rest = &rest[at..];
        let (plain, written) = ESCAPES
            .iter()
            .find(|(_, written)| rest.starts_with(written))?;
        raw.push_str(plain);
        rest = &rest[written.len()..];
    }
    raw.push_str(rest);
    Some(raw)
}
