//! URLs, after the rules of Go's `net/url`.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    function::{Function, function, walk_first},
    meter::Meter,
    value::{EvalError, Evaluated, Key, Map, Opaque, Text, Value},
};

pub(super) const FUNCTIONS: &[Function] = &[
    function("url", url, &[("string_to_url", "string -> kubernetes.URL")]).named(walk_first),
    function("isURL", is_url, &[("is_url_string", "string -> bool")]),
    function(
        "getScheme",
        scheme,
        &[("url_get_scheme", ".kubernetes.URL -> string")],
    ),
    function(
        "getHost",
        host,
        &[("url_get_host", ".kubernetes.URL -> string")],
    ),
    function(
        "getHostname",
        hostname,
        &[("url_get_hostname", ".kubernetes.URL -> string")],
    ),
    function(
        "getPort",
        port,
        &[("url_get_port", ".kubernetes.URL -> string")],
    ),
    function(
        "getEscapedPath",
        escaped_path,
        &[("url_get_escaped_path", ".kubernetes.URL -> string")],
    ),
    function(
        "getQuery",
        query,
        &[(
            "url_get_query",
            ".kubernetes.URL -> map(string, list(string))",
        )],
    ),
];

#[derive(Debug, PartialEq)]
struct Url {
    text: String,
    scheme: String,
    host: String,
    path: String,
    query: String,
}

impl Opaque for Url {
    fn type_name(&self) -> &'static str {
        "kubernetes.URL"
    }

    fn equals(&self, other: &dyn Opaque) -> bool {
        other.as_any().downcast_ref() == Some(self)
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}

/// Whether a text is an absolute URL or an absolute path.
///
/// # Errors
/// Go's message.
pub(super) fn check(text: &str) -> Result<(), String> {
    parse(text)
        .map(|_| ())
        .map_err(|why| format!("parse {}: {why}", super::texts::quoted(text)))
}

fn parse(text: &str) -> Result<Url, String> {
    if text.chars().any(|c| c.is_ascii_control()) {
        return Err("net/url: invalid control character in URL".into());
    }
    if text.is_empty() {
        return Err("empty url".into());
    }
    let (whole, _fragment) = text.split_once('#').unwrap_or((text, ""));
    let (scheme, rest) = split_scheme(whole)?;
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    if !rest.starts_with('/') {
        if scheme.is_empty() {
            return Err("invalid URI for request".into());
        }
        // What has a scheme and no slash is opaque: it has no host and no path.
        return Ok(Url {
            text: text.into(),
            scheme: scheme.to_ascii_lowercase(),
            host: String::new(),
            path: String::new(),
            query: query.into(),
        });
    }
    let (host, path) = match rest.strip_prefix("//") {
        Some(rest) if !scheme.is_empty() || !rest.starts_with('/') => {
            let end = rest.find('/').unwrap_or(rest.len());
            (authority(&rest[..end])?, &rest[end..])
        }
        _ => (String::new(), rest),
    };
    unescape(path, false)?;
    Ok(Url {
        text: text.into(),
        scheme: scheme.to_ascii_lowercase(),
        host,
        path: escape_path(path),
        query: query.into(),
    })
}

fn split_scheme(text: &str) -> Result<(&str, &str), String> {
    for (at, c) in text.char_indices() {
        match c {
            'a'..='z' | 'A'..='Z' => {}
            '0'..='9' | '+' | '-' | '.' if at > 0 => {}
            ':' if at > 0 => return Ok((&text[..at], &text[at + 1..])),
            ':' => return Err("missing protocol scheme".into()),
            _ => return Ok(("", text)),
        }
    }
    Ok(("", text))
}

fn authority(text: &str) -> Result<String, String> {
    let (user, host) = match text.rsplit_once('@') {
        Some((user, host)) => (user, host),
        None => ("", text),
    };
    let fits = |c: char| c.is_ascii_alphanumeric() || "-._~!$&'()*+,;=:%@".contains(c);
    if !user.chars().all(fits) {
        return Err("net/url: invalid userinfo".into());
    }
    let after = match host.strip_prefix('[') {
        Some(rest) => {
            let end = rest.rfind(']').ok_or("missing ']' in host")?;
            &rest[end + 1..]
        }
        None => host.rfind(':').map_or("", |at| &host[at..]),
    };
    let digits = after.strip_prefix(':').unwrap_or(after);
    if !after.is_empty() && (after == digits || !digits.bytes().all(|byte| byte.is_ascii_digit())) {
        return Err(format!("invalid port {after:?} after host"));
    }
    let bad = host.chars().find(|c| {
        c.is_ascii() && !c.is_ascii_alphanumeric() && !"-._~!$&'()*+,;=:[]<>\"%".contains(*c)
    });
    if let Some(bad) = bad {
        return Err(format!(
            "invalid character {:?} in host name",
            bad.to_string()
        ));
    }
    unescape(host, false)
}

/// Without percent signs; in queries a plus is a blank.
fn unescape(text: &str, plus: bool) -> Result<String, String> {
    let bytes = text.as_bytes();
    let (mut out, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while at < bytes.len() {
        match bytes[at] {
            b'%' => {
                let digits = text.get(at + 1..at + 3);
                let byte = digits
                    .filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))
                    .and_then(|digits| u8::from_str_radix(digits, 16).ok());
                let end = text.len().min(at + 3);
                let shown = text.get(at..end).unwrap_or("%");
                out.push(byte.ok_or_else(|| format!("invalid URL escape {shown:?}"))?);
                at += 3;
            }
            b'+' if plus => {
                out.push(b' ');
                at += 1;
            }
            byte => {
                out.push(byte);
                at += 1;
            }
        }
    }
    Ok(String::from_utf8_lossy(&out).into_owned())
}

/// With percent signs for what may not be in a path.
fn escape_path(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@%!'()*[]".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

fn url<'v>(_: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    let text = args[0].as_str()?;
    check(text).map_err(|why| {
        EvalError::new(format!(
            "URL parse error during conversion from string: {why}"
        ))
    })?;
    parse(text).map(Value::opaque).map_err(EvalError::new)
}

fn is_url<'v>(_: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    Ok(Value::Bool(check(args[0].as_str()?).is_ok()))
}

fn scheme<'v>(_: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    Ok(Value::string(&*args[0].downcast::<Url>()?.scheme))
}

fn host<'v>(_: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    Ok(Value::string(&*args[0].downcast::<Url>()?.host))
}

fn split_port(host: &str) -> (&str, &str) {
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => (name, port),
        _ => (host, ""),
    };
    let bare = name
        .strip_prefix('[')
        .and_then(|name| name.strip_suffix(']'));
    (bare.unwrap_or(name), port)
}

fn hostname<'v>(_: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    let url: &Url = args[0].downcast()?;
    Ok(Value::string(split_port(&url.host).0))
}

fn port<'v>(_: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    let url: &Url = args[0].downcast()?;
    Ok(Value::string(split_port(&url.host).1))
}

fn escaped_path<'v>(_: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    Ok(Value::string(&*args[0].downcast::<Url>()?.path))
}

fn query<'v>(_: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    let url: &Url = args[0].downcast()?;
    let mut entries: BTreeMap<String, Vec<Value<'v>>> = BTreeMap::new();
    for pair in url.query.split('&') {
        if pair.is_empty() || pair.contains(';') {
            continue;
        }
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        // What cannot be read is left out.
        if let (Ok(key), Ok(value)) = (unescape(key, true), unescape(value, true)) {
            entries.entry(key).or_default().push(Value::string(value));
        }
    }
    let entries = entries.into_iter().map(|(key, values)| {
        let key = Key::String(Text::Owned(key.into()));
        (key, Value::list(values))
    });
    Ok(Value::Map(Map::Owned(Arc::new(entries.collect()))))
}
