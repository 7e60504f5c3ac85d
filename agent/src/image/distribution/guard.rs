//! Where a registry may send this node, and with what.
//!
//! A registry names other places: the realm that gives out tokens, redirects to where blobs are.
//! Image names come from whoever may create a pod, so these places must not be the node's own
//! services or its cloud's metadata address. As containerd and the distribution specification have
//! it, another host is fine, and credentials go to the registry and the realm alone. Beyond that:
//! no step down from https to http, and no loopback, link-local, multicast or metadata address on
//! another host than the registry's own. Pure but for name resolution.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use reqwest::{
    Url,
    dns::{Addrs, Name, Resolve, Resolving},
};

use super::super::error::RegistryError;

/// Metadata services outside of the link-local range: Amazon's over IPv6, Alibaba's, Oracle's old
/// one.
const METADATA: [IpAddr; 3] = [
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V4(Ipv4Addr::new(192, 0, 0, 192)),
];

/// What one registry endpoint may lead to.
#[derive(Debug, Clone)]
pub(in crate::image) struct Guard {
    /// The endpoint's own address.
    base: Url,
}

impl Guard {
    pub(in crate::image) fn new(base: Url) -> Self {
        Self { base }
    }

    /// Whether a request may go there.
    ///
    /// # Errors
    /// [`RegistryError::Forbidden`].
    pub(in crate::image) fn check(&self, url: &Url) -> Result<(), RegistryError> {
        let refused = |why| {
            Err(RegistryError::Forbidden {
                host: self.host().to_owned(),
                url: url.to_string(),
                why,
            })
        };
        match url.scheme() {
            "https" => {}
            "http" if self.base.scheme() == "http" => {}
            _ => return refused("only https is followed from there"),
        }
        let Some(host) = url.host_str() else {
            return refused("no host");
        };
        if !self.is_own(host)
            && let Ok(address) = host.trim_matches(['[', ']']).parse()
            && self.is_inner(address)
        {
            return refused("the address is not one of a registry's");
        }
        Ok(())
    }

    /// Whether the registry's credentials may go along: scheme, host and port are its own.
    pub(in crate::image) fn takes_credentials(&self, url: &Url) -> bool {
        (url.scheme(), url.host_str(), url.port_or_known_default())
            == (
                self.base.scheme(),
                self.base.host_str(),
                self.base.port_or_known_default(),
            )
    }

    fn host(&self) -> &str {
        self.base.host_str().unwrap_or_default()
    }

    fn is_own(&self, host: &str) -> bool {
        host.eq_ignore_ascii_case(self.host())
    }

    /// Addresses of this machine, its link or its cloud. A registry on loopback may name loopback.
    fn is_inner(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        let link_local = match address {
            IpAddr::V4(v4) => v4.is_link_local() || v4.is_broadcast(),
            IpAddr::V6(v6) => v6.is_unicast_link_local(),
        };
        let own = self.host();
        let local = own == "localhost"
            || own
                .trim_matches(['[', ']'])
                .parse::<IpAddr>()
                .is_ok_and(|ip| ip.is_loopback());
        link_local
            || address.is_unspecified()
            || address.is_multicast()
            || METADATA.contains(&address)
            || address.is_loopback() && !local
    }
}

/// Names are looked up as ever; what they must not lead to is left out of the answer.
impl Resolve for Guard {
    fn resolve(&self, name: Name) -> Resolving {
        let guard = self.clone();
        Box::pin(async move {
            let found: Vec<SocketAddr> =
                tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            let own = guard.is_own(name.as_str());
            let allowed: Vec<SocketAddr> = found
                .into_iter()
                .filter(|address| own || !guard.is_inner(address.ip()))
                .collect();
            if allowed.is_empty() {
                return Err(format!(
                    "{} has no address that a registry may send to",
                    name.as_str()
                )
                .into());
            }
            Ok(Box::new(allowed.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guard(base: &str) -> Guard {
        Guard::new(base.parse().expect("URL"))
    }

    #[test]
    fn other_hosts_are_fine_and_inner_addresses_are_not() {
        for (base, to, allowed) in [
            ("https://r.test", "https://auth.test/token", true),
            ("https://r.test", "https://10.1.2.3/token", true),
            ("https://r.test", "https://r.test:444/token", true),
            ("https://r.test", "http://auth.test/token", false),
            ("https://r.test", "ftp://auth.test/token", false),
            ("https://r.test", "file:///etc/passwd", false),
            ("http://r.test", "http://auth.test/token", true),
            (
                "http://r.test",
                "http://169.254.169.254/latest/meta-data",
                false,
            ),
            ("http://r.test", "http://0xa9fea9fe/latest", false),
            (
                "http://r.test",
                "http://[::ffff:169.254.169.254]/latest",
                false,
            ),
            ("http://r.test", "http://[fe80::1]/", false),
            ("http://r.test", "http://[fd00:ec2::254]/", false),
            ("http://r.test", "http://100.100.100.200/", false),
            ("http://r.test", "http://127.0.0.1:10250/", false),
            ("http://r.test", "http://[::1]:10250/", false),
            ("http://r.test", "http://0.0.0.0:10250/", false),
            ("http://127.0.0.1:5000", "http://127.0.0.2:5001/token", true),
            ("http://127.0.0.1:5000", "http://169.254.169.254/", false),
            (
                "http://169.254.1.1:5000",
                "http://169.254.1.1:5000/token",
                true,
            ),
        ] {
            let outcome = guard(base).check(&to.parse().expect("URL"));
            assert_eq!(outcome.is_ok(), allowed, "{base} to {to}: {outcome:?}");
        }
    }

    #[test]
    fn credentials_stay_with_scheme_host_and_port() {
        for (to, own) in [
            ("https://r.test/v2/x", true),
            ("https://r.test:443/v2/x", true),
            ("https://R.test/v2/x", true),
            ("https://r.test:444/v2/x", false),
            ("http://r.test/v2/x", false),
            ("https://r.test.evil/v2/x", false),
        ] {
            assert_eq!(
                guard("https://r.test/").takes_credentials(&to.parse().expect("URL")),
                own,
                "{to}"
            );
        }
    }

    #[tokio::test]
    async fn names_do_not_lead_to_inner_addresses() {
        use std::str::FromStr;
        let lookup = |base| guard(base).resolve(Name::from_str("localhost").expect("name"));
        assert!(lookup("https://r.test").await.is_err());
        assert!(lookup("http://localhost:5000").await.is_ok());
    }
}
