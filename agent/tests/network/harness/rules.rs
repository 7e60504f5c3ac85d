//! What a node's kernel has been told, as tools print it.

use std::process::Command;

use coracle_netfilter::ProxyMode;

use super::{Node, output};

impl Node {
    /// What the node's engine has of Services, as its own tool prints it; empty if it has nothing.
    pub(crate) fn service_rules(&self) -> String {
        match self.mode {
            ProxyMode::Nftables => match self.nft(&["list", "table", "ip", "coracle"]) {
                Err(error) if error.contains("No such file") => String::new(),
                listed => listed.unwrap(),
            },
            ProxyMode::Iptables | ProxyMode::Auto => self.iptables_save(),
        }
    }

    /// What the node's engine has of host ports and masquerade, as its own tool prints it.
    pub(crate) fn node_rules(&self) -> String {
        match self.mode {
            ProxyMode::Nftables => self.nft(&["list", "table", "ip", "coracle-node"]).unwrap(),
            ProxyMode::Iptables | ProxyMode::Auto => {
                let saved = self.iptables_save();
                let rules = saved.lines().filter(|line| !line.starts_with('#'));
                rules.map(|rule| format!("{rule}\n")).collect()
            }
        }
    }

    /// Takes the rules of published ports away.
    pub(crate) fn flush_host_ports(&self) {
        match self.mode {
            ProxyMode::Nftables => {
                let flush = ["flush", "map", "ip", "coracle-node", "host-ports"];
                self.nft(&flush).unwrap();
            }
            ProxyMode::Iptables | ProxyMode::Auto => {
                let flush = ["-t", "nat", "-F", "CORACLE-HOSTPORTS"];
                self.ns.run(|| output("iptables", &flush)).unwrap();
            }
        }
    }

    /// How many ports of cluster IPs the node's engine has rules of.
    pub(crate) fn count_services(&self) -> usize {
        let mark = match self.mode {
            ProxyMode::Nftables => " : goto pick-",
            ProxyMode::Iptables | ProxyMode::Auto => "\n-A CORACLE-SERVICES",
        };
        self.service_rules().matches(mark).count()
    }

    /// What the program `nft` prints, or what it says is wrong.
    pub(crate) fn nft(&self, arguments: &[&str]) -> Result<String, String> {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        let output = self
            .ns
            .run(|| Command::new("nft").args(arguments).output().unwrap());
        let output = output.unwrap();
        match output.status.success() {
            true => Ok(text(output.stdout)),
            false => Err(format!("{}: {}", output.status, text(output.stderr))),
        }
    }

    pub(crate) fn iptables_save(&self) -> String {
        self.ns.run(|| output("iptables-save", &[])).unwrap()
    }
}
