//! Where an API server is: host and port, in one form only, so that one server is known once.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
};

use http::{Uri, uri::PathAndQuery};

/// Of a URL that names none.
const HTTPS_PORT: u16 = 443;

/// `198.18.0.1:6443`, `[fd00::1]:6443` or `kube.example:6443`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ServerAddress(String);

impl ServerAddress {
    /// Of `https://HOST` or `https://HOST:PORT`; `None` for everything else.
    pub(crate) fn of_url(url: &str) -> Option<Self> {
        let uri: Uri = url.parse().ok()?;
        if uri.scheme_str() != Some("https") || uri.path() != "/" || uri.query().is_some() {
            return None;
        }
        let authority = uri.authority()?;
        let port = match authority.as_str().strip_prefix(authority.host())? {
            "" => HTTPS_PORT,
            _ => authority.port_u16()?,
        };
        Self::new(authority.host(), port)
    }

    /// Of what [`fmt::Display`] writes.
    pub(super) fn of_text(text: &str) -> Option<Self> {
        Self::of_url(&format!("https://{text}")).filter(|address| address.0 == text)
    }

    fn new(host: &str, port: u16) -> Option<Self> {
        if port == 0 || host.is_empty() {
            return None;
        }
        Some(match host.trim_matches(['[', ']']).parse::<IpAddr>() {
            Ok(ip) => SocketAddr::new(ip, port).into(),
            Err(_) => Self(format!("{}:{port}", host.to_ascii_lowercase())),
        })
    }

    /// A URL of the server.
    ///
    /// # Errors
    /// None with a path that is one: the rest was read from a URL.
    pub(super) fn uri(&self, path: PathAndQuery) -> Result<Uri, http::Error> {
        Uri::builder()
            .scheme("https")
            .authority(self.0.as_str())
            .path_and_query(path)
            .build()
    }

    /// `host:port`, as the resolver takes it.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<SocketAddr> for ServerAddress {
    fn from(address: SocketAddr) -> Self {
        Self(address.to_string())
    }
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_has_one_address_however_it_is_written() {
        for (url, expected) in [
            ("https://198.18.0.1:6443", Some("198.18.0.1:6443")),
            ("https://198.18.0.1:6443/", Some("198.18.0.1:6443")),
            ("https://Kube.Example", Some("kube.example:443")),
            ("https://[FD00::1]:6443", Some("[fd00::1]:6443")),
            ("https://[fd00:0::1]", Some("[fd00::1]:443")),
            ("http://198.18.0.1:6443", None),
            ("198.18.0.1:6443", None),
            ("https://198.18.0.1:0", None),
            ("https://198.18.0.1:66666", None),
            ("https://198.18.0.1:", None),
            ("https://user@198.18.0.1:6443", None),
            ("https://198.18.0.1:6443/api", None),
            ("https://198.18.0.1:6443?a=b", None),
            ("https://", None),
            ("", None),
        ] {
            let found = ServerAddress::of_url(url);
            assert_eq!(found.as_ref().map(ServerAddress::as_str), expected, "{url}");
            if let Some(address) = found {
                assert_eq!(ServerAddress::of_text(address.as_str()), Some(address));
            }
        }
        for text in ["198.18.0.1", "KUBE:6443", "a b:1", "https://a:1", ""] {
            assert_eq!(ServerAddress::of_text(text), None, "{text}");
        }
    }
}
