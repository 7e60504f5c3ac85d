//! Names and addresses of the net.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::LazyLock,
};

use regex::Regex;

pub(super) fn is_ipv4(text: &str) -> bool {
    // Upstream goes by the dot.
    text.contains('.') && text.parse::<IpAddr>().is_ok()
}

pub(super) fn is_ipv6(text: &str) -> bool {
    text.contains(':') && text.parse::<Ipv6Addr>().is_ok()
}

pub(super) fn is_cidr(text: &str) -> bool {
    let Some((address, length)) = text.split_once('/') else {
        return false;
    };
    let most = if address.parse::<Ipv4Addr>().is_ok() {
        32
    } else if address.parse::<Ipv6Addr>().is_ok() {
        128
    } else {
        return false;
    };
    let is_plain = !length.is_empty() && length.bytes().all(|byte| byte.is_ascii_digit());
    is_plain && length.parse::<u32>().is_ok_and(|length| length <= most)
}

/// 6, 8 or 20 bytes, in the three forms that Go reads.
pub(super) fn is_mac(text: &str) -> bool {
    let (separator, width) = match text.as_bytes().get(2) {
        Some(b':') => (':', 2),
        Some(b'-') => ('-', 2),
        _ => ('.', 4),
    };
    let parts: Vec<&str> = text.split(separator).collect();
    let is_part =
        |part: &&str| part.len() == width && part.bytes().all(|byte| byte.is_ascii_hexdigit());
    matches!(parts.len() * width / 2, 6 | 8 | 20) && parts.iter().all(is_part)
}

static HOSTNAME: LazyLock<Regex> = LazyLock::new(|| {
    let letter = r"a-zA-Z0-9\p{S}\p{L}";
    let single = format!("[{letter}]((-?[{letter}]{{0,62}})?)");
    let front = format!(r"([{letter}](([{letter}\-]{{0,61}}[{letter}])?)(\.)){{1,}}");
    let last = format!("([{letter}])(-?[{letter}]){{1,62}}");
    Regex::new(&format!("^({single}|{front}{last})$")).expect("a constant")
});

pub(super) fn is_hostname(text: &str) -> bool {
    text.len() <= 255 && text.split('.').all(|part| part.len() <= 63) && HOSTNAME.is_match(text)
}

fn is_name(text: &str, most: usize) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !text.is_empty()
        && text.len() <= most
        && text.bytes().all(is_letter)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

pub(super) fn is_label(text: &str) -> bool {
    is_name(text, 63)
}

pub(super) fn is_subdomain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(|part| is_name(part, 253))
}

/// What Go's `url.ParseRequestURI` takes: something with a scheme, or a path.
pub(super) fn is_uri(text: &str) -> bool {
    if text.is_empty() || text.bytes().any(|byte| byte < 0x20 || byte == 0x7f) {
        return false;
    }
    if text == "*" {
        return true;
    }
    let (scheme, rest) = match text.split_once(':') {
        Some((scheme, rest)) if is_scheme(scheme) => (scheme, rest),
        Some(("", _)) => return false,
        _ => ("", text),
    };
    let rest = rest.split('?').next().unwrap_or_default();
    if !rest.starts_with('/') {
        return !scheme.is_empty();
    }
    let Some(after) = rest.strip_prefix("//").filter(|_| !scheme.is_empty()) else {
        return is_percent_encoded(rest);
    };
    let end = after.find('/').unwrap_or(after.len());
    let (authority, path) = after.split_at(end);
    is_authority(authority) && is_percent_encoded(path)
}

fn is_scheme(text: &str) -> bool {
    let mut letters = text.chars();
    letters
        .next()
        .is_some_and(|first| first.is_ascii_alphabetic())
        && letters.all(|next| next.is_ascii_alphanumeric() || matches!(next, '+' | '-' | '.'))
}

fn is_percent_encoded(text: &str) -> bool {
    text.split('%').skip(1).all(|after| {
        let digits = after.as_bytes().get(..2);
        digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    })
}

fn is_authority(text: &str) -> bool {
    let (user, host) = text.rsplit_once('@').unwrap_or(("", text));
    let is_user_letter =
        |byte: u8| byte.is_ascii_alphanumeric() || b"-._:~!$&'()*+,;=%@".contains(&byte);
    let (host, port) = match host.rfind(']') {
        Some(end) => host.split_at(end + 1),
        None => host.split_at(host.find(':').unwrap_or(host.len())),
    };
    let is_port = port.is_empty()
        || port
            .strip_prefix(':')
            .is_some_and(|port| port.bytes().all(|byte| byte.is_ascii_digit()));
    let is_host_letter = |byte: u8| {
        byte.is_ascii_alphanumeric() || byte >= 0x80 || b"-._~!$&'()*+,;=:[]<>\"".contains(&byte)
    };
    let is_bracketed = host.starts_with('[') == host.ends_with(']');
    is_port && is_bracketed && host.bytes().all(is_host_letter) && user.bytes().all(is_user_letter)
}

/// An address as Go's `mail.ParseAddress` takes it, with a name before it or without.
pub(super) fn is_email(text: &str) -> bool {
    let text = text.trim();
    match text
        .strip_suffix('>')
        .and_then(|text| text.rsplit_once('<'))
    {
        Some((name, address)) => !name.contains(['<', '>', '@', ',']) && is_address(address),
        None => is_address(text),
    }
}

fn is_address(text: &str) -> bool {
    let Some((local, domain)) = text.rsplit_once('@') else {
        return false;
    };
    let is_quoted = local.len() >= 3
        && local.starts_with('"')
        && local.ends_with('"')
        && !local[1..local.len() - 1].contains(['"', '\r', '\n']);
    let is_literal = domain.starts_with('[') && domain.ends_with(']');
    (is_quoted || is_dot_atom(local)) && (is_literal || is_dot_atom(domain))
}

fn is_dot_atom(text: &str) -> bool {
    let is_letter = |letter: char| {
        letter.is_ascii_alphanumeric()
            || !letter.is_ascii()
            || "!#$%&'*+-/=?^_`{|}~".contains(letter)
    };
    text.split('.')
        .all(|part| !part.is_empty() && part.chars().all(is_letter))
}
