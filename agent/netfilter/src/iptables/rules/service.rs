//! The rules of one Service. Pure.
//!
//! Where a packet may go depends on where it comes from, as upstream's
//! `pkg/proxy/iptables/proxier.go` has it: to the cluster IP by `internalTrafficPolicy`, from
//! outside by `externalTrafficPolicy`; pods of this node and the node itself reach external
//! addresses as if a balancer had brought them back in. Under `Local` the source address is kept,
//! and what has no endpoint here but one elsewhere is dropped, not refused: the sender asks again,
//! and may be lucky.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use ipnet::IpNet;

use super::{
    BaseRules, EXTERNAL_PREFIX, FIREWALL_PREFIX, LOCAL_PREFIX, MARK_MASQ, REFUSE_OTHERS,
    REFUSE_TCP, SERVICE_PREFIX,
    balance::{balance, port_hash},
};
use crate::{
    flows::Targets,
    service::{Endpoint, Port, PortView, Protocol, ServiceKey, ServiceView},
};

const DROP: &str = "-j DROP";
/// What every own chain starts with: the target of a jump, not of the kernel.
const OWN_CHAINS: &str = "CORACLE-";

/// The rules of one Service.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServiceRules {
    /// nat chains of its own.
    pub chains: BTreeMap<String, Vec<String>>,
    /// Its rules in [`super::SERVICES`].
    pub services: Vec<String>,
    /// Its rules in [`super::EXTERNALS`].
    pub externals: Vec<String>,
    /// Its rules in [`super::NODE_PORTS`].
    pub node_ports: Vec<String>,
    /// Its rules in [`super::UNSERVED`].
    pub unserved: Vec<String>,
    /// Local endpoint addresses: each needs a rule in [`super::HAIRPIN`], shared with other
    /// Services.
    pub hairpins: BTreeSet<IpAddr>,
    /// Where UDP flows may go, for cleaning the connection table.
    pub udp: Targets,
}

impl ServiceRules {
    /// All rules of the nat table, and all of the filter table, with jumps made harmless: for
    /// trying, in a chain that nothing leads to, whether the kernel takes them.
    #[must_use]
    pub fn trial(&self) -> (Vec<String>, Vec<String>) {
        let nat = self
            .chains
            .values()
            .flatten()
            .chain(&self.services)
            .chain(&self.externals);
        let nat = nat.chain(&self.node_ports);
        (
            nat.map(|rule| harmless(rule)).collect(),
            self.unserved.clone(),
        )
    }
}

fn harmless(rule: &str) -> String {
    match rule.rsplit_once("-j ") {
        Some((matches, target)) if target.starts_with(OWN_CHAINS) => format!("{matches}-j RETURN"),
        _ => rule.to_owned(),
    }
}

impl BaseRules {
    /// The rules of one Service.
    #[must_use]
    pub fn service(&self, key: &ServiceKey, view: &ServiceView) -> ServiceRules {
        let view = view.without_stolen_addresses(&self.0, key);
        let mut service = ServiceRules {
            udp: Targets::of(&view),
            ..ServiceRules::default()
        };
        for ports in &view.ports {
            let port = &ports.port;
            let label = if port.name.is_empty() {
                key.to_string()
            } else {
                format!("{key}:{}", port.name)
            };
            let one = OnePort {
                base: self,
                view: &view,
                ports,
                label,
                hash: port_hash(key, port),
            };
            one.translate(&mut service);
            one.refuse(&mut service);
        }
        service
    }
}

/// One port of a Service on its way to rules.
struct OnePort<'a> {
    base: &'a BaseRules,
    view: &'a ServiceView,
    ports: &'a PortView,
    label: String,
    hash: String,
}

impl OnePort<'_> {
    fn accessible(&self) -> bool {
        self.view.is_externally_accessible(&self.ports.port)
    }

    fn internal(&self) -> &[Endpoint] {
        if self.view.internal_local {
            &self.ports.local
        } else {
            &self.ports.cluster
        }
    }

    fn external(&self) -> &[Endpoint] {
        if self.view.external_local {
            &self.ports.local
        } else {
            &self.ports.cluster
        }
    }

    fn name(&self, prefix: &str) -> String {
        format!("{prefix}{}", self.hash)
    }

    fn policy_chain(&self, local: bool) -> String {
        self.name(if local { LOCAL_PREFIX } else { SERVICE_PREFIX })
    }

    fn to_address(&self, ip: IpAddr, verdict: &str) -> String {
        format!(
            "-d {} {} {verdict}",
            IpNet::from(ip),
            matches(&self.ports.port, self.ports.port.port, &self.label)
        )
    }

    fn translate(&self, service: &mut ServiceRules) {
        let (view, port) = (self.view, &self.ports.port);
        let mut choose = |local: bool, endpoints: &[Endpoint]| {
            if !endpoints.is_empty() {
                service
                    .hairpins
                    .extend(endpoints.iter().filter(|e| e.local).map(|e| e.address.ip()));
                let rules = balance(port, endpoints, view.affinity_secs, &self.hash);
                service.chains.insert(self.policy_chain(local), rules);
            }
        };
        // Also for external policy `Local`: pods of this node go there.
        if !view.internal_local || self.accessible() {
            choose(false, &self.ports.cluster);
        }
        if view.internal_local || (view.external_local && self.accessible()) {
            choose(true, &self.ports.local);
        }
        if !self.internal().is_empty() {
            self.lead(
                service,
                view.cluster_ips.iter().copied(),
                &format!("-j {}", self.policy_chain(view.internal_local)),
            );
        }
        if self.accessible() && !self.ports.cluster.is_empty() {
            self.translate_external(service);
        }
    }

    /// Adds the ways from addresses into a chain: where packets to such an address come by.
    fn lead(&self, service: &mut ServiceRules, ips: impl Iterator<Item = IpAddr>, jump: &str) {
        for ip in ips {
            let inside = self.base.0.is_of_services(&ip);
            let list = if inside {
                &mut service.services
            } else {
                &mut service.externals
            };
            list.push(self.to_address(ip, jump));
        }
    }

    fn translate_external(&self, service: &mut ServiceRules) {
        let (view, port) = (self.view, &self.ports.port);
        let external = self.name(EXTERNAL_PREFIX);
        let jump = format!("-j {external}");
        self.lead(service, view.external_ips_of(port), &jump);
        if let Some(node_port) = port.node_port {
            service
                .node_ports
                .push(format!("{} {jump}", matches(port, node_port, &self.label)));
        }
        let mut balancer_jump = jump.clone();
        if let (Some(ranges), false) = (&view.source_ranges, view.balancer_ips.is_empty()) {
            let firewall = self.name(FIREWALL_PREFIX);
            balancer_jump = format!("-j {firewall}");
            service
                .chains
                .insert(firewall, self.firewall(ranges, &jump));
        }
        self.lead(service, view.balancer_ips_of(port), &balancer_jump);
        service.chains.insert(external, self.external_rules());
    }

    fn external_rules(&self) -> Vec<String> {
        let cluster = self.policy_chain(false);
        if !self.view.external_local {
            // The answer must come back through here, whichever node the endpoint is on.
            return vec![format!("-j {MARK_MASQ}"), format!("-j {cluster}")];
        }
        let mut rules: Vec<String> = self
            .base
            .own_pods()
            .iter()
            .map(|from| format!("{from} -j {cluster}"))
            .collect();
        // The node's own packets may have the external address as their source.
        rules.push(format!("-m addrtype --src-type LOCAL -j {MARK_MASQ}"));
        rules.push(format!("-m addrtype --src-type LOCAL -j {cluster}"));
        if !self.ports.local.is_empty() {
            rules.push(format!("-j {}", self.policy_chain(true)));
        }
        rules
    }

    /// Who may use the balancer addresses; others fall through to [`super::UNSERVED`].
    fn firewall(&self, ranges: &[IpNet], jump: &str) -> Vec<String> {
        let mut rules: Vec<String> = ranges
            .iter()
            // As iptables-save prints it.
            .map(|range| {
                if range.prefix_len() == 0 {
                    jump.to_owned()
                } else {
                    format!("-s {range} {jump}")
                }
            })
            .collect();
        let node_may = self
            .base
            .0
            .node_ip
            .is_some_and(|ip| ranges.iter().any(|range| range.contains(&ip)));
        if node_may {
            // Where the balancer's address is also on the node, its own packets come from there.
            rules.extend(
                self.view
                    .balancer_ips
                    .iter()
                    .map(|ip| format!("-s {} {jump}", IpNet::from(*ip))),
            );
        }
        rules
    }

    /// What was not translated because nobody can take it, or nobody may.
    fn refuse(&self, service: &mut ServiceRules) {
        let (view, port) = (self.view, &self.ports.port);
        let nobody = self.ports.cluster.is_empty();
        let refuse = if port.protocol == Protocol::Tcp {
            REFUSE_TCP
        } else {
            REFUSE_OTHERS
        };
        let verdict = |empty: bool| {
            if nobody {
                Some(refuse)
            } else {
                empty.then_some(DROP)
            }
        };
        if let Some(verdict) = verdict(self.internal().is_empty()) {
            // Without any endpoint the last rule rejects, for the whole service CIDR: a Service
            // inside gets its first endpoint without a change of this table.
            let covered = |ip: &IpAddr| nobody && self.base.0.is_of_services(ip);
            let ips = view.cluster_ips.iter().filter(|ip| !covered(ip));
            service
                .unserved
                .extend(ips.map(|ip| self.to_address(*ip, verdict)));
        }
        let unserved = self.external().is_empty();
        if let Some(verdict) = verdict(unserved) {
            service.unserved.extend(
                view.external_ips_of(port)
                    .map(|ip| self.to_address(ip, verdict)),
            );
            if let Some(node_port) = port.node_port {
                let matches = matches(port, node_port, &self.label);
                // iptables-save keeps the order of matches.
                let rules = self
                    .base
                    .node_port_addresses("")
                    .map(|at| format!("{at}{matches} -m addrtype --dst-type LOCAL {verdict}"));
                service.unserved.extend(rules);
            }
        }
        if let Some(verdict) = verdict(unserved || view.source_ranges.is_some()) {
            service.unserved.extend(
                view.balancer_ips_of(port)
                    .map(|ip| self.to_address(ip, verdict)),
            );
        }
    }
}

fn matches(port: &Port, number: u16, label: &str) -> String {
    let protocol = port.protocol.as_str();
    format!("-p {protocol} -m comment --comment \"{label}\" -m {protocol} --dport {number}")
}
