//! Rules of Services. Pure: a Service and its endpoints in, rule text out.
//!
//! ```text
//! nat    PREROUTING, OUTPUT -> CORACLE-PROXY
//!          -d SERVICE-CIDR -> CORACLE-SOURCE: from a pod RETURN, else mark for masquerading
//!          -> CORACLE-SERVICES: -d IP --dport PORT -> CORACLE-SVC-<hash>: one DNAT rule an endpoint, chosen at random
//!          to a local address -> CORACLE-NODEPORTS: --dport PORT -> CORACLE-EXT-<hash>: mark, -> CORACLE-SVC-<hash>
//!        POSTROUTING -> CORACLE-POSTROUTING -> CORACLE-HAIRPIN: -s POD -d POD MASQUERADE; what is marked MASQUERADE
//! filter FORWARD, OUTPUT, INPUT (new) -> CORACLE-REJECT: Services without endpoints; the rest of the service CIDR
//!        FORWARD -> CORACLE-FORWARD: what was marked or belongs to a known connection
//! ```
//!
//! A new Service is one chain and one rule. A pod that reaches itself is recognized after the choice was made, by one
//! rule a local endpoint address, so no endpoint needs a chain of its own. Rules are written as `iptables-save` prints
//! them: see [`coracle_cni::iptables::plan`].

use std::{
    collections::{BTreeMap, BTreeSet},
    net::Ipv4Addr,
};

use coracle_cni::iptables::plan::{Chain, Desired, Jump};
use ipnet::{IpNet, Ipv4Net};
use sha2::{Digest as _, Sha256};

use super::change_tracker::{Endpoint, Port, Protocol, ServiceKey, ServiceView};

/// One rule a Service port.
pub const SERVICES: &str = "CORACLE-SERVICES";
/// One rule a node port.
pub const NODE_PORTS: &str = "CORACLE-NODEPORTS";
/// One rule a local endpoint address.
pub const HAIRPIN: &str = "CORACLE-HAIRPIN";
/// One rule a Service port without endpoints.
pub const REJECT: &str = "CORACLE-REJECT";

const PROXY: &str = "CORACLE-PROXY";
const SOURCE: &str = "CORACLE-SOURCE";
const MARK_MASQ: &str = "CORACLE-MARK-MASQ";
const POSTROUTING: &str = "CORACLE-POSTROUTING";
const FORWARD: &str = "CORACLE-FORWARD";
const SERVICE_PREFIX: &str = "CORACLE-SVC-";
const EXTERNAL_PREFIX: &str = "CORACLE-EXT-";
/// The bit of the packet mark that asks for masquerading. Not upstream's (0x4000): both may run on one node.
const MARK: &str = "0x2000";
/// TCP is refused by a reset: the kernel sends few ICMP errors a second, and a client without one waits for its
/// retransmission.
const REFUSE_TCP: &str = "-j REJECT --reject-with tcp-reset";
const REFUSE_OTHERS: &str = "-j REJECT --reject-with icmp-port-unreachable";

/// The rules of one Service.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fragment {
    /// nat chains of its own.
    pub chains: BTreeMap<String, Vec<String>>,
    /// Its rules in [`SERVICES`].
    pub services: Vec<String>,
    /// Its rules in [`NODE_PORTS`].
    pub node_ports: Vec<String>,
    /// Its rules in [`REJECT`].
    pub rejects: Vec<String>,
    /// Local endpoint addresses: each needs a rule in [`HAIRPIN`], shared with other Services.
    pub hairpins: BTreeSet<Ipv4Addr>,
    /// UDP flows that may exist: Service address and port to endpoints. For cleaning the connection table.
    pub udp: BTreeMap<(Ipv4Addr, u16), BTreeSet<Endpoint>>,
    /// The same for node ports.
    pub udp_node_ports: BTreeMap<u16, BTreeSet<Endpoint>>,
}

/// What is the same for all Services.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Addresses of pods.
    pub cluster_cidrs: Vec<Ipv4Net>,
    /// Addresses of Services.
    pub service_cidrs: Vec<Ipv4Net>,
}

impl Frame {
    /// Takes the IPv4 part.
    #[must_use]
    pub fn new(cluster_cidrs: &[IpNet], service_cidrs: &[IpNet]) -> Self {
        let v4 = |cidrs: &[IpNet]| {
            cidrs.iter().filter_map(|c| if let IpNet::V4(c) = c { Some(c.trunc()) } else { None }).collect()
        };
        Self { cluster_cidrs: v4(cluster_cidrs), service_cidrs: v4(service_cidrs) }
    }

    /// The rules of one Service.
    #[must_use]
    pub fn fragment(&self, key: &ServiceKey, view: &ServiceView) -> Fragment {
        let mut fragment = Fragment::default();
        for (port, endpoints) in &view.ports {
            let hash = port_hash(key, port);
            let label = if port.name.is_empty() { key.to_string() } else { format!("{key}:{}", port.name) };
            if endpoints.is_empty() {
                self.reject(&mut fragment, view, port, &label);
            } else {
                translate(&mut fragment, view, port, endpoints, &label, &hash);
            }
            if port.protocol == Protocol::Udp {
                let targets: BTreeSet<Endpoint> = endpoints.iter().copied().collect();
                for ip in view.cluster_ips.iter().chain(&view.external_ips) {
                    fragment.udp.insert((*ip, port.port), targets.clone());
                }
                if let Some(node_port) = port.node_port {
                    fragment.udp_node_ports.insert(node_port, targets);
                }
            }
        }
        fragment
    }

    fn reject(&self, fragment: &mut Fragment, view: &ServiceView, port: &Port, label: &str) {
        let refuse = if port.protocol == Protocol::Tcp { REFUSE_TCP } else { REFUSE_OTHERS };
        for ip in view.cluster_ips.iter().chain(&view.external_ips) {
            // The last rule rejects the whole service CIDR: a Service inside needs none, and gets its first endpoint
            // without a change of this table.
            if !self.service_cidrs.iter().any(|cidr| cidr.contains(ip)) {
                fragment.rejects.push(format!("-d {ip}/32 {} {refuse}", matches(port, port.port, label)));
            }
        }
        if let Some(node_port) = port.node_port {
            let matches = matches(port, node_port, label);
            // iptables-save keeps the order of matches.
            fragment.rejects.push(format!("{matches} -m addrtype --dst-type LOCAL {refuse}"));
        }
    }

    /// The whole nat table.
    #[must_use]
    pub fn nat<'a>(&self, fragments: impl Iterator<Item = &'a Fragment>) -> Desired {
        let (mut services, mut node_ports, mut hairpins) = (Vec::new(), Vec::new(), BTreeSet::new());
        let mut chains = BTreeMap::new();
        for fragment in fragments {
            services.extend_from_slice(&fragment.services);
            node_ports.extend_from_slice(&fragment.node_ports);
            hairpins.extend(&fragment.hairpins);
            for (name, rules) in &fragment.chains {
                chains.insert(name.clone(), Chain::sequence(rules.clone()));
            }
        }
        let mut proxy: Vec<String> = self.service_cidrs.iter().map(|cidr| format!("-d {cidr} -j {SOURCE}")).collect();
        proxy.push(format!("-j {SERVICES}"));
        proxy.push(format!("! -d 127.0.0.0/8 -m addrtype --dst-type LOCAL -j {NODE_PORTS}"));
        let mut source: Vec<String> = self.cluster_cidrs.iter().map(|cidr| format!("-s {cidr} -j RETURN")).collect();
        if !source.is_empty() {
            source.push(format!("-j {MARK_MASQ}"));
        }
        let postrouting = vec![
            format!("-j {HAIRPIN}"),
            format!("-m mark ! --mark {MARK}/{MARK} -j RETURN"),
            format!("-j MARK --set-xmark {MARK}/0x0"),
            "-j MASQUERADE --random-fully".to_owned(),
        ];
        chains.extend([
            (PROXY.to_owned(), Chain::sequence(proxy)),
            (SOURCE.to_owned(), Chain::sequence(source)),
            (SERVICES.to_owned(), Chain::set(services)),
            (NODE_PORTS.to_owned(), Chain::set(node_ports)),
            (HAIRPIN.to_owned(), Chain::set(hairpins.into_iter().map(hairpin_rule).collect())),
            (MARK_MASQ.to_owned(), Chain::sequence(vec![format!("-j MARK --set-xmark {MARK}/{MARK}")])),
            (POSTROUTING.to_owned(), Chain::sequence(postrouting)),
        ]);
        let jump = |from, to: &str| Jump { from, rule: format!("-j {to}"), first: true };
        Desired {
            chains,
            jumps: vec![jump("PREROUTING", PROXY), jump("OUTPUT", PROXY), jump("POSTROUTING", POSTROUTING)],
            owned_prefixes: vec![
                SERVICE_PREFIX,
                EXTERNAL_PREFIX,
                PROXY,
                SOURCE,
                SERVICES,
                NODE_PORTS,
                HAIRPIN,
                MARK_MASQ,
                POSTROUTING,
            ],
        }
    }

    /// The whole filter table.
    #[must_use]
    pub fn filter<'a>(&self, fragments: impl Iterator<Item = &'a Fragment>) -> Desired {
        let mut rejects: Vec<String> = fragments.flat_map(|fragment| fragment.rejects.iter().cloned()).collect();
        for cidr in &self.service_cidrs {
            rejects.push(format!("-d {cidr} -p tcp {REFUSE_TCP}"));
            rejects.push(format!("-d {cidr} ! -p tcp {REFUSE_OTHERS}"));
        }
        let forward = vec![
            // Late packets of translated connections would leave untranslated (kubernetes issue 74839).
            "-m conntrack --ctstate INVALID -j DROP".to_owned(),
            format!("-m mark --mark {MARK}/{MARK} -j ACCEPT"),
            "-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT".to_owned(),
        ];
        let reject = |from| Jump { from, rule: format!("-m conntrack --ctstate NEW -j {REJECT}"), first: true };
        let forwarded = Jump { from: "FORWARD", rule: format!("-j {FORWARD}"), first: true };
        Desired {
            chains: BTreeMap::from([
                (REJECT.to_owned(), Chain::set(rejects)),
                (FORWARD.to_owned(), Chain::sequence(forward)),
            ]),
            // Inserted at the top one after the other: the last is the first.
            jumps: vec![forwarded, reject("FORWARD"), reject("OUTPUT"), reject("INPUT")],
            owned_prefixes: vec![REJECT, FORWARD],
        }
    }
}

/// The rule in [`HAIRPIN`] for a local endpoint: after translation, source and destination are the same pod.
#[must_use]
pub fn hairpin_rule(address: Ipv4Addr) -> String {
    format!("-s {address}/32 -d {address}/32 -m conntrack --ctstate DNAT -j MASQUERADE --random-fully")
}

fn translate(
    fragment: &mut Fragment,
    view: &ServiceView,
    port: &Port,
    endpoints: &[Endpoint],
    label: &str,
    hash: &str,
) {
    let chain = format!("{SERVICE_PREFIX}{hash}");
    for ip in &view.cluster_ips {
        fragment.services.push(format!("-d {ip}/32 {} -j {chain}", matches(port, port.port, label)));
    }
    if !view.external_ips.is_empty() || port.node_port.is_some() {
        let external = format!("{EXTERNAL_PREFIX}{hash}");
        for ip in &view.external_ips {
            fragment.services.push(format!("-d {ip}/32 {} -j {external}", matches(port, port.port, label)));
        }
        if let Some(node_port) = port.node_port {
            fragment.node_ports.push(format!("{} -j {external}", matches(port, node_port, label)));
        }
        let rules = vec![format!("-j {MARK_MASQ}"), format!("-j {chain}")];
        fragment.chains.insert(external, rules);
    }
    fragment.hairpins.extend(endpoints.iter().filter(|e| e.local).map(|e| *e.address.ip()));
    fragment.chains.insert(chain, balance(port, endpoints, view.affinity_secs, hash));
}

/// The rules that choose one endpoint.
fn balance(port: &Port, endpoints: &[Endpoint], affinity_secs: Option<u32>, hash: &str) -> Vec<String> {
    let protocol = port.protocol.as_str();
    let mut rules = Vec::with_capacity(endpoints.len() * 2);
    let list = |endpoint: &Endpoint| format!("--name {} --mask 255.255.255.255 --rsource", recent(hash, endpoint));
    for endpoint in endpoints {
        let Some(secs) = affinity_secs else { break };
        rules.push(format!(
            "-p {protocol} -m recent --update --seconds {secs} --reap {} -j DNAT --to-destination {}",
            list(endpoint),
            endpoint.address
        ));
    }
    for (index, endpoint) in endpoints.iter().enumerate() {
        let mut rule = format!("-p {protocol}");
        let left = endpoints.len() - index;
        if left > 1 {
            rule += &format!(" -m statistic --mode random --probability {}", probability(left));
        }
        if affinity_secs.is_some() {
            rule += &format!(" -m recent --set {}", list(endpoint));
        }
        rules.push(format!("{rule} -j DNAT --to-destination {}", endpoint.address));
    }
    rules
}

/// 1 of `parts`, as `iptables-save` prints what the kernel keeps: a multiple of 2^-31 with 11 digits.
fn probability(parts: usize) -> String {
    const WHOLE: f64 = 2_147_483_648.0;
    let parts = u32::try_from(parts).unwrap_or(u32::MAX);
    format!("{:.11}", (WHOLE / f64::from(parts)).round() / WHOLE)
}

/// Name of the list of clients of one endpoint.
fn recent(hash: &str, endpoint: &Endpoint) -> String {
    format!("CORACLE-{}", short_hash(&format!("{hash} {}", endpoint.address)))
}

fn matches(port: &Port, number: u16, label: &str) -> String {
    let protocol = port.protocol.as_str();
    format!("-p {protocol} -m comment --comment \"{label}\" -m {protocol} --dport {number}")
}

fn port_hash(key: &ServiceKey, port: &Port) -> String {
    short_hash(&format!("{key}:{}:{}:{}", port.name, port.protocol.as_str(), port.port))
}

/// 16 characters: with the prefix, chain names have the 28 characters that iptables allows.
fn short_hash(text: &str) -> String {
    const ALPHABET: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
    Sha256::digest(text).iter().take(16).map(|byte| char::from(ALPHABET[usize::from(byte & 31)])).collect()
}

#[cfg(test)]
mod tests;
