//! Where pods ask for names, and where those are asked for that are not the cluster's.

use std::{net::IpAddr, str::FromStr};

use coracle_api::cluster_dns;
use coracle_dns::name::{self, Name};

use super::{AgentConfig, ConfigError, bad};

/// Names below `domain` are asked for at these servers: `example.org=10.0.0.1,10.0.0.2`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StubDomain {
    /// Whole.
    pub domain: Name,
    /// In the order in which they are asked.
    pub servers: Vec<IpAddr>,
}

impl FromStr for StubDomain {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected =
            || format!("{text:?}: expected DOMAIN=ADDRESS,... such as example.org=10.0.0.1");
        let (domain, servers) = text.split_once('=').ok_or_else(expected)?;
        let servers: Result<Vec<IpAddr>, _> = servers.split(',').map(str::parse).collect();
        Ok(Self {
            domain: name::whole(domain).ok_or_else(expected)?,
            servers: servers.map_err(|_| expected())?,
        })
    }
}

impl AgentConfig {
    /// The address at which this node answers names; `None` if it leaves them to others.
    pub(crate) fn dns_address(&self) -> Option<IpAddr> {
        let services = self.service_cidr.filter(|_| !self.no_dns)?;
        let address = cluster_dns::address(services.network(), services.prefix_len())?;
        let is_asked = self.cluster_dns.is_empty() || self.cluster_dns.contains(&address);
        // Everything on a node is of IPv4 yet.
        (is_asked && address.is_ipv4()).then_some(address)
    }

    /// # Errors
    /// A domain that is none, and servers to ask on a node that asks nobody.
    pub(super) fn check_names(&self) -> Result<(), ConfigError> {
        if let Some(why) = coracle_api::name::dns_subdomain_error(&self.cluster_domain) {
            return bad("--cluster-domain", self.cluster_domain.clone(), why);
        }
        if let (Some(stub), None) = (self.dns_forward.first(), self.dns_address()) {
            let expected = "has no use on a node that answers no names: drop it, or --no-dns and --cluster-dns";
            return bad(
                "--dns-forward",
                stub.domain.to_string(),
                expected.to_owned(),
            );
        }
        Ok(())
    }

    /// The name servers of pods with `dnsPolicy: ClusterFirst`. With others answering at the
    /// usual address, these.
    pub(crate) fn name_servers(&self) -> Vec<IpAddr> {
        if !self.cluster_dns.is_empty() {
            return self.cluster_dns.clone();
        }
        let services = self.service_cidr.into_iter();
        services
            .filter_map(|cidr| cluster_dns::address(cidr.network(), cidr.prefix_len()))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> AgentConfig {
        AgentConfig {
            service_cidr: Some("10.96.0.0/16".parse().unwrap()),
            ..AgentConfig::new("n", "192.0.2.1".parse().unwrap())
        }
    }

    #[test]
    fn a_node_answers_unless_others_do() {
        let tenth: IpAddr = "10.96.0.10".parse().unwrap();
        let other: IpAddr = "10.96.3.3".parse().unwrap();
        let (mut off, mut elsewhere, mut both) = (config(), config(), config());
        off.no_dns = true;
        elsewhere.cluster_dns = vec![other];
        both.cluster_dns = vec![tenth, other];
        for (config, answers, told) in [
            (config(), Some(tenth), vec![tenth]),
            (off, None, vec![tenth]),
            (elsewhere, None, vec![other]),
            (both, Some(tenth), vec![tenth, other]),
        ] {
            assert_eq!(config.dns_address(), answers);
            assert_eq!(config.name_servers(), told);
        }
    }

    #[test]
    fn only_a_node_that_answers_asks_others() {
        let mut config = config();
        config.dns_forward = vec!["example.org=10.0.0.1".parse().unwrap()];
        assert!(config.validate().is_ok());
        config.no_dns = true;
        let why = config.validate().unwrap_err().to_string();
        assert!(why.contains("--dns-forward"), "{why}");
    }

    #[test]
    fn a_stub_domain_has_servers() {
        let stub: StubDomain = "Example.org.=10.0.0.1,fd00::1".parse().unwrap();
        assert_eq!(stub.domain.to_string(), "Example.org.");
        assert_eq!(stub.servers.len(), 2);
        for wrong in [
            "",
            "example.org",
            "=10.0.0.1",
            "example.org=",
            "example.org=x",
            ".=10.0.0.1",
        ] {
            assert!(wrong.parse::<StubDomain>().is_err(), "{wrong}");
        }
    }
}
