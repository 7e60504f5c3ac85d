//! The specification, naively: whole objects, no groups, nothing shared.

use std::{collections::BTreeMap, net::IpAddr};

use coracle_netfilter::policy::{Direction, Packet};
use ipnet::IpNet;
use serde_json::Value;

use crate::objects::PodView;

/// A cluster as a list of objects.
#[derive(Default, Clone)]
pub(crate) struct Cluster {
    pub(crate) namespaces: BTreeMap<String, Value>,
    pub(crate) pods: BTreeMap<(String, String), PodView>,
    pub(crate) policies: BTreeMap<(String, String), Value>,
}

impl Cluster {
    /// Whether both ends let the packet through.
    pub(crate) fn is_allowed(&self, packet: &Packet) -> bool {
        packet.source == packet.destination
            || self.passes(Direction::Egress, packet) && self.passes(Direction::Ingress, packet)
    }

    fn passes(&self, direction: Direction, packet: &Packet) -> bool {
        let (own, peer) = match direction {
            Direction::Ingress => (packet.destination, packet.source),
            Direction::Egress => (packet.source, packet.destination),
        };
        let Some(pod) = self.pod_at(own) else {
            return true;
        };
        let (kind, rules, peers) = match direction {
            Direction::Ingress => ("Ingress", "ingress", "from"),
            Direction::Egress => ("Egress", "egress", "to"),
        };
        let mut is_isolated = false;
        for ((namespace, _), spec) in &self.policies {
            let is_of_kind = match spec["policyTypes"].as_array() {
                Some(types) => types.iter().any(|t| t == kind),
                None => {
                    kind == "Ingress" || spec["egress"].as_array().is_some_and(|r| !r.is_empty())
                }
            };
            if !is_of_kind
                || **namespace != *pod.key.namespace
                || !selects_pod(&spec["podSelector"], pod)
            {
                continue;
            }
            is_isolated = true;
            for rule in list(&spec[rules]) {
                let (peers, ports) = (list(&rule[peers]), list(&rule["ports"]));
                if (peers.is_empty() || peers.iter().any(|p| self.is_peer(p, namespace, peer)))
                    && (ports.is_empty() || ports.iter().any(|p| self.is_port(p, packet)))
                {
                    return true;
                }
            }
        }
        !is_isolated
    }

    fn pod_at(&self, address: IpAddr) -> Option<&PodView> {
        self.pods
            .values()
            .find(|pod| pod.addresses.contains(&address))
    }

    fn is_peer(&self, peer: &Value, namespace: &str, address: IpAddr) -> bool {
        if let Some(cidr) = peer["ipBlock"]["cidr"].as_str() {
            let is_in = |net: &str| net.parse::<IpNet>().expect("a net").contains(&address);
            let excepts = list(&peer["ipBlock"]["except"]);
            return is_in(cidr) && !excepts.iter().any(|e| is_in(e.as_str().expect("text")));
        }
        let Some(pod) = self.pod_at(address) else {
            return false;
        };
        let is_inside = match peer.get("namespaceSelector") {
            Some(selector) => self
                .namespaces
                .get(&*pod.key.namespace)
                .is_some_and(|labels| selects(selector, |key| labels[key].as_str())),
            None => *pod.key.namespace == *namespace,
        };
        is_inside && selects_pod(&peer["podSelector"], pod)
    }

    fn is_port(&self, port: &Value, packet: &Packet) -> bool {
        let protocol = port["protocol"].as_str().unwrap_or("TCP").to_lowercase();
        if packet.protocol.is_none_or(|of| of.as_str() != protocol) {
            return false;
        }
        let number = u64::from(packet.destination_port);
        match &port["port"] {
            Value::Null => true,
            Value::String(name) => self.pod_at(packet.destination).is_some_and(|pod| {
                pod.ports.iter().any(|p| {
                    *p.name == **name
                        && Some(p.protocol) == packet.protocol
                        && p.port == packet.destination_port
                })
            }),
            first => {
                let first = first.as_u64().expect("a port");
                let last = port["endPort"].as_u64().unwrap_or(first);
                (first..=last).contains(&number)
            }
        }
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn selects_pod(selector: &Value, pod: &PodView) -> bool {
    selects(selector, |key| pod.labels.get(key))
}

fn selects<'a>(selector: &Value, label: impl Fn(&str) -> Option<&'a str>) -> bool {
    let mut wanted = selector["matchLabels"].as_object().into_iter().flatten();
    wanted.all(|(key, value)| label(key) == value.as_str())
        && list(&selector["matchExpressions"])
            .iter()
            .all(|expression| {
                let value = label(expression["key"].as_str().expect("a key"));
                let is_listed =
                    value.is_some_and(|v| list(&expression["values"]).iter().any(|x| x == v));
                match expression["operator"].as_str() {
                    Some("In") => is_listed,
                    Some("NotIn") => !is_listed,
                    Some("Exists") => value.is_some(),
                    Some("DoesNotExist") => value.is_none(),
                    other => panic!("operator {other:?}"),
                }
            })
}
