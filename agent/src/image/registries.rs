//! Mirrors, credentials and TLS of registries, from a file in the shape of k3s's `registries.yaml`.
//!
//! ```yaml
//! mirrors:
//!   docker.io:
//!     endpoint: ["http://198.18.0.1:5000"]
//! configs:
//!   "198.18.0.1:5000":
//!     auth: { username: u, password: p }
//!     tls: { ca_file: /etc/coracle/ca.pem, insecure_skip_verify: false }
//! ```
//!
//! Parsing only; who asks which endpoint in which order is decided in [`Registries::endpoints`],
//! still pure.

use std::{collections::BTreeMap, path::PathBuf};

use serde::Deserialize;

/// The file.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Registries {
    /// By registry host as it stands in image names; `*` is any other.
    #[serde(default)]
    pub mirrors: BTreeMap<String, Mirror>,
    /// By endpoint host (with port).
    #[serde(default)]
    pub configs: BTreeMap<String, EndpointConfig>,
}

/// Where to ask instead of (or before) the registry itself.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mirror {
    /// URLs, asked in order; the registry itself is asked last.
    #[serde(default)]
    pub endpoint: Vec<String>,
}

/// How to talk to an endpoint.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EndpointConfig {
    /// Credentials.
    #[serde(default)]
    pub auth: Option<Auth>,
    /// TLS.
    #[serde(default)]
    pub tls: Option<Tls>,
}

/// Credentials for an endpoint.
#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Auth {
    /// For basic authentication, with `password`.
    #[serde(default)]
    pub username: Option<String>,
    /// See `username`.
    #[serde(default)]
    pub password: Option<String>,
    /// A bearer token, instead of both.
    #[serde(default)]
    pub token: Option<String>,
}

impl std::fmt::Debug for Auth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Auth")
            .field("username", &self.username)
            .finish_non_exhaustive()
    }
}

/// TLS of an endpoint.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tls {
    /// PEM file of an extra certificate authority.
    #[serde(default)]
    pub ca_file: Option<PathBuf>,
    /// Accept any certificate.
    #[serde(default)]
    pub insecure_skip_verify: bool,
}

/// One place to ask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// Host with port.
    pub host: String,
    /// Plain HTTP.
    pub plain_http: bool,
}

/// Why the file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RegistriesError {
    /// Not readable.
    #[error("read registries file {path}")]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// Not in shape.
    #[error("registries file {path} is not valid: {why}")]
    Parse {
        /// Which.
        path: PathBuf,
        /// Where and what.
        why: String,
    },
}

impl Registries {
    /// Reads and checks the file.
    ///
    /// # Errors
    /// Says which file, which line and what was expected.
    pub fn load(path: &std::path::Path) -> Result<Self, RegistriesError> {
        let text = std::fs::read_to_string(path).map_err(|source| RegistriesError::Read {
            path: path.to_owned(),
            source,
        })?;
        Self::parse(&text).map_err(|why| RegistriesError::Parse {
            path: path.to_owned(),
            why,
        })
    }

    fn parse(text: &str) -> Result<Self, String> {
        let parsed: Option<Self> = serde_yaml::from_str(text).map_err(|error| error.to_string())?;
        let parsed = parsed.unwrap_or_default();
        for (name, mirror) in &parsed.mirrors {
            for url in &mirror.endpoint {
                parse_endpoint(url)
                    .map_err(|why| format!("mirrors.{name}.endpoint {url:?}: {why}"))?;
            }
        }
        Ok(parsed)
    }

    /// Whom to ask for an image of `registry`, in order. The registry itself comes last.
    pub fn endpoints(&self, registry: &str) -> Vec<Endpoint> {
        let mirror = self.mirrors.get(registry).or_else(|| self.mirrors.get("*"));
        let mut endpoints: Vec<Endpoint> = mirror
            .into_iter()
            .flat_map(|mirror| &mirror.endpoint)
            .filter_map(|url| parse_endpoint(url).ok())
            .collect();
        let itself = Endpoint {
            host: default_host(registry).to_owned(),
            plain_http: is_loopback(registry),
        };
        if !endpoints
            .iter()
            .any(|endpoint| endpoint.host == itself.host)
        {
            endpoints.push(itself);
        }
        endpoints
    }
}

/// Docker Hub's API is not served under the name that its images carry.
fn default_host(registry: &str) -> &str {
    if registry == "docker.io" {
        "index.docker.io"
    } else {
        registry
    }
}

/// As containerd and Docker: a registry on loopback may speak plain HTTP.
fn is_loopback(registry: &str) -> bool {
    let host = registry.rsplit_once(':').map_or(registry, |(host, _)| host);
    host == "localhost"
        || host
            .parse::<std::net::IpAddr>()
            .is_ok_and(|ip| ip.is_loopback())
}

fn parse_endpoint(url: &str) -> Result<Endpoint, &'static str> {
    let (plain_http, rest) = match url.split_once("://") {
        Some(("http", rest)) => (true, rest),
        Some(("https", rest)) => (false, rest),
        _ => return Err("expected http://HOST[:PORT] or https://HOST[:PORT]"),
    };
    let host = rest
        .strip_suffix("/v2")
        .unwrap_or(rest)
        .trim_end_matches('/');
    if host.is_empty() || host.contains('/') {
        return Err("expected a host without a path");
    }
    Ok(Endpoint {
        host: host.to_owned(),
        plain_http,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mirrors_come_before_the_registry() {
        let registries =
            Registries::parse("mirrors:\n  docker.io:\n    endpoint: ['http://198.18.0.1:5000']\n")
                .expect("valid");
        let hosts: Vec<_> = registries
            .endpoints("docker.io")
            .into_iter()
            .map(|e| (e.host, e.plain_http))
            .collect();
        assert_eq!(
            hosts,
            [
                ("198.18.0.1:5000".to_owned(), true),
                ("index.docker.io".to_owned(), false)
            ]
        );
    }

    #[test]
    fn wildcard_serves_registries_without_own_entry() {
        let registries = Registries::parse("mirrors:\n  '*':\n    endpoint: ['https://m.test']\n")
            .expect("valid");
        assert_eq!(registries.endpoints("quay.io")[0].host, "m.test");
    }

    #[test]
    fn unusable_files_are_refused_with_the_place() {
        for (text, expect) in [
            (
                "mirrors:\n  a:\n    endpoint: ['ftp://x']\n",
                "mirrors.a.endpoint",
            ),
            ("mirors: {}\n", "unknown field"),
            ("mirrors: [1]\n", "invalid type"),
        ] {
            let why = Registries::parse(text).expect_err(text);
            assert!(why.contains(expect), "{why}");
        }
    }

    #[test]
    fn an_empty_file_is_no_mirrors() {
        assert!(Registries::parse("").expect("valid").mirrors.is_empty());
    }
}
