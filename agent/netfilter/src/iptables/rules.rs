//! Rules of Services. Pure: a Service and its endpoints in, rule text out.
//!
//! ```text
//! nat    PREROUTING, OUTPUT -> CORACLE-PROXY
//!          -d SERVICE-CIDR -> CORACLE-SOURCE: from a pod RETURN, else mark for masquerading
//!          -d SERVICE-CIDR -> CORACLE-SERVICES, and all -> CORACLE-EXTERNALS:
//!                              -d IP --dport PORT -> CORACLE-SVC-<hash>: one DNAT rule an endpoint, chosen at random
//!                                                  or CORACLE-SVL-<hash>: the same for endpoints of this node
//!                              -d BALANCER -> CORACLE-FWL-<hash>: -s ALLOWED -> CORACLE-EXT-<hash>
//!          to a local address -> CORACLE-NODEPORTS: --dport PORT -> CORACLE-EXT-<hash>: mark, -> CORACLE-SVC-<hash>
//!                                 or under policy Local: own pods -> CORACLE-SVC-<hash>, others -> CORACLE-SVL-<hash>
//!        POSTROUTING -> CORACLE-POSTROUTING -> CORACLE-HAIRPIN: -s POD -d POD MASQUERADE; what is marked MASQUERADE
//! filter FORWARD, OUTPUT, INPUT (new) -> CORACLE-REJECT -> CORACLE-UNSERVED: Services without endpoints (here)
//!                                                       the rest of the service CIDR
//!        FORWARD -> CORACLE-FORWARD: what was marked or belongs to a known connection
//! ```
//!
//! A new Service is one chain and one rule. A pod that reaches itself is recognized after the
//! choice was made, by one rule a local endpoint address, so no endpoint needs a chain of its own.
//! Rules are written as `iptables-save` prints them: see [`super::plan`].

mod balance;
mod service;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use ipnet::IpNet;

pub use self::service::ServiceRules;
use super::plan::{Chain, Desired, Jump};
use crate::service::ServiceNetwork;

/// One rule a Service port, of addresses inside the service CIDR: other packets do not pass through
/// them.
pub const SERVICES: &str = "CORACLE-SERVICES";
/// One rule an address outside the service CIDR and port.
pub const EXTERNALS: &str = "CORACLE-EXTERNALS";
/// One rule a node port.
pub const NODE_PORTS: &str = "CORACLE-NODEPORTS";
/// One rule a local endpoint address.
pub const HAIRPIN: &str = "CORACLE-HAIRPIN";
/// Rules of Service ports that nobody can serve here.
pub const UNSERVED: &str = "CORACLE-UNSERVED";

/// Where rules are tried; nothing leads there.
pub const TRIAL: &str = "CORACLE-TRIAL";

const REJECT: &str = "CORACLE-REJECT";
const PROXY: &str = "CORACLE-PROXY";
const SOURCE: &str = "CORACLE-SOURCE";
const MARK_MASQ: &str = "CORACLE-MARK-MASQ";
const POSTROUTING: &str = "CORACLE-POSTROUTING";
const FORWARD: &str = "CORACLE-FORWARD";
const SERVICE_PREFIX: &str = "CORACLE-SVC-";
const LOCAL_PREFIX: &str = "CORACLE-SVL-";
const EXTERNAL_PREFIX: &str = "CORACLE-EXT-";
const FIREWALL_PREFIX: &str = "CORACLE-FWL-";
/// The bit of the packet mark that asks for masquerading. Neither upstream's (0x4000) nor that of
/// the CNI plugin portmap (0x2000): all of them may run on one node.
const MARK: &str = "0x1000";
/// TCP is refused by a reset: the kernel sends few ICMP errors a second, and a client without one
/// waits for its retransmission.
const REFUSE_TCP: &str = "-j REJECT --reject-with tcp-reset";
const REFUSE_OTHERS: &str = "-j REJECT --reject-with icmp-port-unreachable";

/// Chains of the nat table that are this module's.
const NAT_PREFIXES: [&str; 13] = [
    SERVICE_PREFIX,
    LOCAL_PREFIX,
    EXTERNAL_PREFIX,
    FIREWALL_PREFIX,
    PROXY,
    SOURCE,
    SERVICES,
    EXTERNALS,
    NODE_PORTS,
    HAIRPIN,
    MARK_MASQ,
    POSTROUTING,
    TRIAL,
];

/// The rules that are the same for all Services.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaseRules(ServiceNetwork);

impl BaseRules {
    /// Takes the IPv4 part.
    #[must_use]
    pub fn new(network: ServiceNetwork) -> Self {
        Self(network.ipv4())
    }

    /// What matches packets of this node's pods. Without a link of their own, of all pods: those of
    /// other nodes are translated on theirs and do not come here, but through a node port.
    fn own_pods(&self) -> Vec<String> {
        match &self.0.pod_interface {
            Some(name) => vec![format!("-i {name}")],
            None => self
                .0
                .cluster_cidrs
                .iter()
                .map(|cidr| format!("-s {cidr}"))
                .collect(),
        }
    }

    /// The whole nat table.
    #[must_use]
    pub fn nat<'a>(&self, rules: impl Iterator<Item = &'a ServiceRules>) -> Desired {
        let (mut services, mut externals) = (Vec::new(), Vec::new());
        let (mut node_ports, mut hairpins) = (Vec::new(), BTreeSet::new());
        let mut chains = BTreeMap::new();
        for service in rules {
            services.extend_from_slice(&service.services);
            externals.extend_from_slice(&service.externals);
            node_ports.extend_from_slice(&service.node_ports);
            hairpins.extend(&service.hairpins);
            for (name, rules) in &service.chains {
                chains.insert(name.clone(), Chain::sequence(rules.clone()));
            }
        }
        chains.extend([
            (PROXY.to_owned(), Chain::sequence(self.proxy())),
            (SOURCE.to_owned(), Chain::sequence(self.source())),
            (SERVICES.to_owned(), Chain::set(services)),
            (EXTERNALS.to_owned(), Chain::set(externals)),
            (NODE_PORTS.to_owned(), Chain::set(node_ports)),
            (
                HAIRPIN.to_owned(),
                Chain::set(hairpins.into_iter().map(hairpin_rule).collect()),
            ),
            (
                MARK_MASQ.to_owned(),
                Chain::sequence(vec![format!("-j MARK --set-xmark {MARK}/{MARK}")]),
            ),
            (POSTROUTING.to_owned(), Chain::sequence(postrouting())),
        ]);
        let jump = |from, to: &str| Jump {
            from,
            rule: format!("-j {to}"),
            first: true,
        };
        Desired {
            chains,
            jumps: vec![
                jump("PREROUTING", PROXY),
                jump("OUTPUT", PROXY),
                jump("POSTROUTING", POSTROUTING),
            ],
            owned_prefixes: NAT_PREFIXES.to_vec(),
        }
    }

    /// Where a packet to a Service goes by its destination. Node ports are not on loopback: that
    /// takes `route_localnet`, which lets neighbours in (CVE-2020-8558). kube-proxy turns it on in
    /// iptables mode unless told otherwise, and in nftables mode has no such node ports either.
    ///
    /// Source: `Backend.PrivilegedInit` in kube-proxy's `pkg/proxy/iptables`, and its flag
    /// `--iptables-localhost-nodeports`.
    fn proxy(&self) -> Vec<String> {
        let cidrs = &self.0.service_cidrs;
        let to = |chain: &'static str| {
            cidrs
                .iter()
                .map(move |cidr| format!("-d {cidr} -j {chain}"))
        };
        let externals = [format!("-j {EXTERNALS}")];
        let node_ports = self
            .node_port_addresses("! -d 127.0.0.0/8 ")
            .map(|at| format!("{at}-m addrtype --dst-type LOCAL -j {NODE_PORTS}"));
        to(SOURCE)
            .chain(to(SERVICES))
            .chain(externals)
            .chain(node_ports)
            .collect()
    }

    /// What matches the addresses that node ports are on, beside that they are the node's: `all`
    /// where that is all of them.
    fn node_port_addresses<'a>(&'a self, all: &'a str) -> impl Iterator<Item = String> + 'a {
        let cidrs = &self.0.node_port_cidrs;
        let all = cidrs.is_empty().then(|| all.to_owned());
        let some = cidrs.iter().map(|cidr| format!("-d {cidr} "));
        all.into_iter().chain(some)
    }

    /// What comes from outside of the cluster's pods is masqueraded.
    fn source(&self) -> Vec<String> {
        let cidrs = self.0.cluster_cidrs.iter();
        let mut rules: Vec<String> = cidrs.map(|cidr| format!("-s {cidr} -j RETURN")).collect();
        if !rules.is_empty() {
            rules.push(format!("-j {MARK_MASQ}"));
        }
        rules
    }

    /// What is left in iptables' tables where another engine keeps Services: nothing of nat, and
    /// of filter the permission to be forwarded, which only rules beside those that forbid it can
    /// give.
    #[must_use]
    pub fn of_other_engine(&self) -> (Desired, Desired) {
        let nat = Desired {
            owned_prefixes: NAT_PREFIXES.to_vec(),
            ..Desired::default()
        };
        let mut filter = self.filter(std::iter::empty());
        filter.chains.retain(|name, _| name == FORWARD);
        filter.jumps.retain(|jump| jump.rule.ends_with(FORWARD));
        (nat, filter)
    }

    /// The whole filter table.
    #[must_use]
    pub fn filter<'a>(&self, rules: impl Iterator<Item = &'a ServiceRules>) -> Desired {
        let unserved: Vec<String> = rules
            .flat_map(|service| service.unserved.iter().cloned())
            .collect();
        let mut rejects = vec![format!("-j {UNSERVED}")];
        let own = self.0.own_service_ip.map(IpNet::from);
        rejects.extend(own.map(|own| format!("-d {own} -j RETURN")));
        for cidr in &self.0.service_cidrs {
            rejects.push(format!("-d {cidr} -p tcp {REFUSE_TCP}"));
            rejects.push(format!("-d {cidr} ! -p tcp {REFUSE_OTHERS}"));
        }
        let mut forward = self.drop_invalid();
        forward.push(format!("-m mark --mark {MARK}/{MARK} -j ACCEPT"));
        forward.push("-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT".to_owned());
        let reject = |from| Jump {
            from,
            rule: format!("-m conntrack --ctstate NEW -j {REJECT}"),
            first: true,
        };
        let forwarded = Jump {
            from: "FORWARD",
            rule: format!("-j {FORWARD}"),
            first: true,
        };
        Desired {
            chains: BTreeMap::from([
                (REJECT.to_owned(), Chain::sequence(rejects)),
                (UNSERVED.to_owned(), Chain::set(unserved)),
                (FORWARD.to_owned(), Chain::sequence(forward)),
            ]),
            // Inserted at the top one after the other: the last is the first.
            jumps: vec![
                forwarded,
                reject("FORWARD"),
                reject("OUTPUT"),
                reject("INPUT"),
            ],
            owned_prefixes: vec![REJECT, UNSERVED, FORWARD, TRIAL],
        }
    }

    /// Late packets of translated connections would leave untranslated (kubernetes issue 74839).
    /// Only what concerns the cluster: a machine that also routes for others may see one direction
    /// of their connections only.
    fn drop_invalid(&self) -> Vec<String> {
        const INVALID: &str = "-m conntrack --ctstate INVALID -j DROP";
        if self.0.cluster_cidrs.is_empty() {
            return vec![INVALID.to_owned()];
        }
        let from = self
            .0
            .cluster_cidrs
            .iter()
            .map(|cidr| format!("-s {cidr} {INVALID}"));
        let to = self
            .0
            .cluster_cidrs
            .iter()
            .chain(&self.0.service_cidrs)
            .map(|cidr| format!("-d {cidr} {INVALID}"));
        from.chain(to).collect()
    }
}

/// Masquerades what is marked. As upstream, the mark goes first: a packet that comes by again, as
/// out of a tunnel, is not masqueraded twice.
fn postrouting() -> Vec<String> {
    vec![
        format!("-j {HAIRPIN}"),
        format!("-m mark ! --mark {MARK}/{MARK} -j RETURN"),
        format!("-j MARK --set-xmark {MARK}/0x0"),
        "-j MASQUERADE --random-fully".to_owned(),
    ]
}

/// The rule in [`HAIRPIN`] for a local endpoint: after translation, source and destination are the
/// same pod.
#[must_use]
pub fn hairpin_rule(address: IpAddr) -> String {
    let host = IpNet::from(address);
    format!("-s {host} -d {host} -m conntrack --ctstate DNAT -j MASQUERADE --random-fully")
}

#[cfg(test)]
pub(crate) mod tests;
