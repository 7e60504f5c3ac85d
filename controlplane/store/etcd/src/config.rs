//! Where etcd is and how to speak to it, as the flags say it. Nothing is connected here.

use std::{collections::BTreeSet, fs, io, path::PathBuf};

use etcd_client::{Certificate, Identity, TlsOptions};

/// Where a cluster's keys are unless `--etcd-prefix` says otherwise. Not `/registry`: that is where
/// Kubernetes' own API server keeps values that are no JSON.
pub const DEFAULT_PREFIX: &str = "/coracle";

/// Where etcd is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EtcdConfig {
    /// Such as `https://10.0.0.1:2379`; all members of one etcd.
    pub endpoints: Vec<String>,
    /// What all keys begin with: `/coracle`.
    pub prefix: String,
    /// Whom to trust, and who we are; for `https`.
    pub tls: EtcdTls,
}

/// Files of PEM.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EtcdTls {
    /// The authority of etcd's certificates.
    pub ca: Option<PathBuf>,
    /// Our certificate, if etcd wants one.
    pub cert: Option<PathBuf>,
    /// Its key.
    pub key: Option<PathBuf>,
}

/// What cannot work, and what would.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// No member is named.
    #[error("--store etcd= names no member: expected etcd=https://10.0.0.1:2379,https://...")]
    NoEndpoint,
    /// A member's URL is none.
    #[error(
        "--store etcd: {url:?} cannot be used: expected http://ADDRESS:PORT or https://ADDRESS:PORT"
    )]
    Endpoint {
        /// As it was given.
        url: String,
    },
    /// A member is named twice.
    #[error("--store etcd names {url} twice")]
    Twice {
        /// The member.
        url: String,
    },
    /// Some members would be spoken to in clear, some not.
    #[error("--store etcd mixes http:// and https://: all members speak TLS, or none does")]
    Mixed,
    /// TLS, and nobody to trust.
    #[error(
        "--store etcd=https://... needs --etcd-cacert: the file with the authority of etcd's certificates"
    )]
    NoAuthority,
    /// Certificates, and no TLS.
    #[error("{flag} is of no use with http://: write https:// in --store, or leave it out")]
    NoTls {
        /// The flag.
        flag: &'static str,
    },
    /// A certificate without its key, or a key without its certificate.
    #[error("--etcd-cert and --etcd-key go together: one is missing")]
    Halves,
    /// The prefix cannot be one.
    #[error("--etcd-prefix {prefix:?} cannot be used: expected a path such as /coracle")]
    Prefix {
        /// As it was given.
        prefix: String,
    },
    /// A file cannot be read.
    #[error("cannot read {flag} {}", path.display())]
    Read {
        /// The flag.
        flag: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl EtcdConfig {
    /// With the default prefix and no certificates.
    pub fn new(endpoints: Vec<String>) -> Self {
        Self {
            endpoints,
            prefix: DEFAULT_PREFIX.to_owned(),
            tls: EtcdTls::default(),
        }
    }

    /// Refuses what contradicts itself; without connecting, and without reading a file.
    ///
    /// # Errors
    /// One sentence that names the flag.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let mut seen = BTreeSet::new();
        let mut secure = BTreeSet::new();
        for url in &self.endpoints {
            secure.insert(is_secure(url)?);
            if !seen.insert(url.trim_end_matches('/')) {
                return Err(ConfigError::Twice { url: url.clone() });
            }
        }
        let is_secure = match (secure.len(), secure.first()) {
            (0, _) | (_, None) => return Err(ConfigError::NoEndpoint),
            (1, Some(is_secure)) => *is_secure,
            _ => return Err(ConfigError::Mixed),
        };
        self.tls.validate(is_secure)?;
        let elements = self.prefix.strip_prefix('/').map(|rest| rest.split('/'));
        let is_path = elements.is_some_and(|mut elements| {
            elements.all(|element| {
                !element.is_empty()
                    && element
                        .bytes()
                        .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
            })
        });
        if is_path {
            Ok(())
        } else {
            Err(ConfigError::Prefix {
                prefix: self.prefix.clone(),
            })
        }
    }

    /// Whether everything is sent in clear to another machine.
    pub fn is_in_clear(&self) -> bool {
        self.endpoints.iter().any(|url| {
            let uri = url.parse::<http::Uri>().unwrap_or_default();
            let host = uri.host().unwrap_or_default();
            let address = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
            uri.scheme() == Some(&http::uri::Scheme::HTTP)
                && host != "localhost"
                && !address.is_ok_and(|address| address.is_loopback())
        })
    }
}

impl EtcdTls {
    fn validate(&self, is_secure: bool) -> Result<(), ConfigError> {
        let given = [
            ("--etcd-cacert", &self.ca),
            ("--etcd-cert", &self.cert),
            ("--etcd-key", &self.key),
        ];
        match given.into_iter().find(|(_, path)| path.is_some()) {
            Some((flag, _)) if !is_secure => Err(ConfigError::NoTls { flag }),
            _ if is_secure && self.ca.is_none() => Err(ConfigError::NoAuthority),
            _ if self.cert.is_some() != self.key.is_some() => Err(ConfigError::Halves),
            _ => Ok(()),
        }
    }

    /// What a connection needs; `None` for one in clear. Blocks.
    pub(crate) fn read(&self) -> Result<Option<TlsOptions>, ConfigError> {
        let Some(ca) = &self.ca else {
            return Ok(None);
        };
        let read = |flag, path: &PathBuf| {
            fs::read(path).map_err(|source| ConfigError::Read {
                flag,
                path: path.clone(),
                source,
            })
        };
        let ca = Certificate::from_pem(read("--etcd-cacert", ca)?);
        let mut tls = TlsOptions::new().ca_certificate(ca);
        if let (Some(cert), Some(key)) = (&self.cert, &self.key) {
            let cert = read("--etcd-cert", cert)?;
            tls = tls.identity(Identity::from_pem(cert, read("--etcd-key", key)?));
        }
        Ok(Some(tls))
    }
}

fn is_secure(url: &str) -> Result<bool, ConfigError> {
    let wrong = || ConfigError::Endpoint {
        url: url.to_owned(),
    };
    let uri: http::Uri = url.parse().map_err(|_| wrong())?;
    let is_whole = uri.host().is_some_and(|host| !host.is_empty())
        && uri.port_u16().is_some()
        && matches!(uri.path(), "" | "/")
        && uri.query().is_none();
    match uri.scheme_str() {
        Some("https") if is_whole => Ok(true),
        Some("http") if is_whole => Ok(false),
        _ => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(endpoints: &[&str], change: impl FnOnce(&mut EtcdConfig)) -> String {
        let mut config = EtcdConfig::new(endpoints.iter().map(|&url| url.to_owned()).collect());
        change(&mut config);
        match config.validate() {
            Ok(()) => String::new(),
            Err(error) => error.to_string(),
        }
    }

    const CLEAR: &str = "http://127.0.0.1:2379";
    const SECURE: &str = "https://etcd.example:2379";

    #[test]
    fn what_is_whole_is_taken() {
        assert_eq!(refused(&[CLEAR, "http://127.0.0.1:2479/"], |_| {}), "");
        let with_ca = |config: &mut EtcdConfig| config.tls.ca = Some("ca.pem".into());
        assert_eq!(refused(&[SECURE, "https://[fd00::1]:2379"], with_ca), "");
    }

    #[test]
    fn contradictions_are_refused_in_a_sentence() {
        let file = || Some(PathBuf::from("file"));
        for (endpoints, change, expected) in [
            (&[][..], (|_| {}) as fn(&mut EtcdConfig), "names no member"),
            (&["127.0.0.1:2379"], |_| {}, "expected http://"),
            (&["http://127.0.0.1"], |_| {}, "expected http://"),
            (&["ftp://127.0.0.1:1"], |_| {}, "expected http://"),
            (&["http://127.0.0.1:1/v3"], |_| {}, "expected http://"),
            (&[CLEAR, CLEAR], |_| {}, "twice"),
            (&[CLEAR, SECURE], |_| {}, "mixes"),
            (&[SECURE], |_| {}, "needs --etcd-cacert"),
            (
                &[CLEAR],
                |c| c.tls.ca = Some("f".into()),
                "--etcd-cacert is of no use",
            ),
            (&[CLEAR], |c| c.prefix = "coracle".into(), "--etcd-prefix"),
            (&[CLEAR], |c| c.prefix = "/".into(), "--etcd-prefix"),
            (&[CLEAR], |c| c.prefix = "/a//b".into(), "--etcd-prefix"),
            (&[CLEAR], |c| c.prefix = "/a/".into(), "--etcd-prefix"),
        ] {
            let said = refused(endpoints, change);
            assert!(said.contains(expected), "{endpoints:?}: {said}");
        }
        let said = refused(&[SECURE], |config| {
            config.tls.ca = file();
            config.tls.cert = file();
        });
        assert!(said.contains("go together"), "{said}");
    }

    #[test]
    fn what_leaves_the_machine_in_clear_is_known() {
        for (url, expected) in [
            (CLEAR, false),
            (SECURE, false),
            ("http://localhost:2379", false),
            ("http://[::1]:2379", false),
            ("http://10.0.0.1:2379", true),
        ] {
            assert_eq!(
                EtcdConfig::new(vec![url.to_owned()]).is_in_clear(),
                expected,
                "{url}"
            );
        }
    }
}
