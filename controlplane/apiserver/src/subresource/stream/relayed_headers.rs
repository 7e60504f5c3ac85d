//! Which headers of a client reach what is behind this server. Pure.
//!
//! Not: those that concern one connection only (also what `Connection` names), those that prove to
//! this server who asks, and those by which a server behind could be told that somebody else asks.
//!
//! Source: RFC 9110 section 7.6.1;
//! `k8s.io/apiserver/pkg/endpoints/filters/{authentication,impersonation}.go` at v1.37.

use http::{HeaderMap, HeaderName, header};

/// What concerns one connection only.
pub(super) const HOP_BY_HOP: [HeaderName; 9] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];
/// What concerns this server and its client, or is made anew.
const OURS: [HeaderName; 4] = [
    header::AUTHORIZATION,
    header::HOST,
    header::CONTENT_LENGTH,
    header::COOKIE,
];
/// Who asks, in the words of impersonation and of proxies in front of an API server.
const IDENTITIES: [&str; 2] = ["impersonate-", "x-remote-"];

/// Those that are relayed of a request. An upgrade is for the caller to say again.
pub(super) fn of_request(headers: &HeaderMap) -> HeaderMap {
    let mut relayed = headers.clone();
    remove_hop_by_hop(&mut relayed);
    for name in &OURS {
        relayed.remove(name);
    }
    let is_identity = |name: &&HeaderName| {
        IDENTITIES
            .iter()
            .any(|prefix| name.as_str().starts_with(prefix))
    };
    let identities: Vec<HeaderName> = relayed.keys().filter(is_identity).cloned().collect();
    for name in identities {
        relayed.remove(name);
    }
    relayed
}

/// Takes away what concerns one connection only.
pub(super) fn remove_hop_by_hop(headers: &mut HeaderMap) {
    let values = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok());
    let named: Vec<HeaderName> = values
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in named.iter().chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_and_what_is_one_connections_is_not_relayed() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("accept", "text/plain"),
            ("x-forwarded-for", "192.0.2.1"),
            ("connection", "close, X-Secret"),
            ("connection", "x-other"),
            ("x-secret", "1"),
            ("x-other", "1"),
            ("upgrade", "websocket"),
            ("proxy-connection", "keep-alive"),
            ("authorization", "Bearer x"),
            ("cookie", "a=b"),
            ("impersonate-user", "bob"),
            ("impersonate-group", "masters"),
            ("impersonate-uid", "1"),
            ("impersonate-extra-scopes", "all"),
            ("x-remote-user", "bob"),
            ("x-remote-group", "masters"),
            ("x-remote-extra-scopes", "all"),
        ] {
            headers.append(HeaderName::from_static(name), value.parse().unwrap());
        }
        let relayed = of_request(&headers);
        let mut names: Vec<&str> = relayed.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["accept", "x-forwarded-for"]);
    }
}
