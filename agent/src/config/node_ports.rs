//! On which of the node's addresses node ports are.
//!
//! Source: `NodePortAddresses` in `pkg/proxy/apis/config/types.go` and
//! `pkg/proxy/util/nodeport_addresses.go` at v1.37. Its `localhost` is refused: node ports are not
//! on loopback here.

use std::str::FromStr;

use ipnet::IpNet;

use super::AgentConfig;

/// One of several.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodePortAddresses {
    /// All of the node's, but those of loopback.
    All,
    /// The node's InternalIP.
    Primary,
    /// Those in a range.
    Within(IpNet),
}

impl FromStr for NodePortAddresses {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = |what: &str| {
            format!("{text:?}: expected primary, all or a range such as 10.0.0.0/8{what}")
        };
        match text {
            "all" => return Ok(Self::All),
            "primary" => return Ok(Self::Primary),
            _ => {}
        }
        let range: IpNet = text.parse().map_err(|_| expected(""))?;
        if range.addr().is_loopback() {
            return Err(expected("; node ports are not on loopback"));
        }
        Ok(Self::Within(range))
    }
}

impl NodePortAddresses {
    /// Whether it is every address of a family.
    fn is_all(&self, ipv4: bool) -> bool {
        match self {
            Self::All => true,
            Self::Primary => false,
            Self::Within(range) => range.prefix_len() == 0 && range.addr().is_ipv4() == ipv4,
        }
    }
}

impl AgentConfig {
    /// The ranges of the addresses that node ports are on; empty for all.
    pub(crate) fn node_port_cidrs(&self) -> Vec<IpNet> {
        let chosen = &self.node_port_addresses;
        // Family by family, as upstream: `::/0` says nothing of IPv4, of which node ports are.
        if chosen.iter().any(|one| one.is_all(true)) {
            return Vec::new();
        }
        let chosen = chosen.iter().filter(|one| !one.is_all(false));
        let range = |one: &NodePortAddresses| match one {
            NodePortAddresses::All => None,
            NodePortAddresses::Primary => Some(IpNet::from(self.node_ip)),
            NodePortAddresses::Within(range) => Some(*range),
        };
        let mut ranges: Vec<IpNet> = chosen.filter_map(range).collect();
        ranges.sort_unstable();
        ranges.dedup();
        ranges
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    fn cidrs(chosen: &[&str]) -> Result<Vec<String>, String> {
        let node_ip: IpAddr = [192, 0, 2, 7].into();
        let mut config = AgentConfig::new("n1", node_ip);
        let parsed: Result<_, String> = chosen.iter().map(|one| one.parse()).collect();
        config.node_port_addresses = parsed?;
        let cidrs = config.node_port_cidrs();
        Ok(cidrs.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn chosen_addresses_become_ranges() {
        let check = |chosen: &[&str], expect: &[&str]| assert_eq!(cidrs(chosen).unwrap(), expect);
        check(&[], &[]);
        check(&["all"], &[]);
        check(&["0.0.0.0/0"], &[]);
        check(&["primary"], &["192.0.2.7/32"]);
        check(&["10.0.0.0/8", "primary"], &["10.0.0.0/8", "192.0.2.7/32"]);
        check(&["10.0.0.0/8", "10.0.0.0/8"], &["10.0.0.0/8"]);
        // A family says nothing of the other.
        check(&["10.0.0.0/8", "::/0"], &["10.0.0.0/8"]);
        check(&["::/0", "primary"], &["192.0.2.7/32"]);
        check(&["::/0"], &[]);
        check(&["2001:db8::/32", "0.0.0.0/0"], &[]);
        // Everything is more than some.
        check(&["primary", "all"], &[]);
    }

    #[test]
    fn other_words_and_loopback_are_refused() {
        for wrong in ["localhost", "127.0.0.0/8", "::1/128", "10.0.0.1", ""] {
            let said = cidrs(&[wrong]).unwrap_err();
            assert!(said.contains("expected primary, all or a range"), "{said}");
        }
    }
}
