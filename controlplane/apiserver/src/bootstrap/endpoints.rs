//! Where the `kubernetes` Service leads: Endpoints and EndpointSlice of all servers. Pure.
//!
//! The servers of a cluster listen on one port, as upstream's have to. Where somebody has not kept
//! to that, Endpoints say of each what is true, and the one EndpointSlice those that are most.

use std::{collections::BTreeMap, net::SocketAddr};

use serde_json::{Value, json};

/// Both objects for `servers`; `None` if there are none: a Service that leads nowhere helps nobody.
pub(super) fn of(servers: &[SocketAddr]) -> Option<(Value, Value)> {
    let mut groups: BTreeMap<(bool, u16), Vec<SocketAddr>> = BTreeMap::new();
    for server in servers {
        let group = groups.entry((server.is_ipv6(), server.port())).or_default();
        group.push(*server);
    }
    for group in groups.values_mut() {
        group.sort_unstable();
        group.dedup();
    }
    // Among groups of one size the first one: whoever counts comes to the same.
    let most = groups.iter().rev().max_by_key(|(_, group)| group.len());
    let ((is_ipv6, port), group) = most?;
    let endpoints: Vec<Value> = group
        .iter()
        .map(
            |server| json!({"addresses": [server.ip().to_string()], "conditions": {"ready": true}}),
        )
        .collect();
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": kubernetes(json!({"kubernetes.io/service-name": "kubernetes"})),
        "addressType": if *is_ipv6 { "IPv6" } else { "IPv4" },
        "endpoints": endpoints,
        "ports": [{"name": "https", "port": port, "protocol": "TCP"}],
    });
    let subsets: Vec<Value> = groups
        .iter()
        .map(|((_, port), group)| {
            let addresses: Vec<Value> = group
                .iter()
                .map(|server| json!({"ip": server.ip().to_string()}))
                .collect();
            json!({"addresses": addresses, "ports": [{"name": "https", "port": port, "protocol": "TCP"}]})
        })
        .collect();
    let endpoints = json!({
        "apiVersion": "v1", "kind": "Endpoints",
        "metadata": kubernetes(json!({"endpointslice.kubernetes.io/skip-mirror": "true"})),
        "subsets": subsets,
    });
    Some((endpoints, slice))
}

fn kubernetes(labels: Value) -> Value {
    json!({"name": "kubernetes", "namespace": "default", "labels": labels})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(servers: &[&str]) -> Vec<SocketAddr> {
        servers.iter().map(|one| one.parse().unwrap()).collect()
    }

    fn told(servers: &[&str]) -> (Value, Value) {
        let (old, new) = of(&parse(servers)).unwrap();
        (old["subsets"].clone(), new)
    }

    #[test]
    fn every_server_is_told_once_and_in_one_order() {
        let (subsets, slice) = told(&["198.18.0.10:6443", "198.18.0.9:6443", "198.18.0.10:6443"]);
        let (again, same) = told(&["198.18.0.9:6443", "198.18.0.10:6443"]);
        assert_eq!((&subsets, &slice), (&again, &same));
        assert_eq!(
            subsets,
            json!([{"addresses": [{"ip": "198.18.0.9"}, {"ip": "198.18.0.10"}],
                "ports": [{"name": "https", "port": 6443, "protocol": "TCP"}]}])
        );
        assert_eq!(slice["endpoints"][1]["addresses"], json!(["198.18.0.10"]));
        assert_eq!(of(&[]), None);
    }

    #[test]
    fn ports_are_not_mixed_up() {
        let (subsets, slice) = told(&["198.18.0.1:1", "198.18.0.2:2", "198.18.0.3:2"]);
        assert_eq!(subsets.as_array().unwrap().len(), 2);
        assert_eq!(
            (
                &slice["ports"][0]["port"],
                slice["endpoints"].as_array().unwrap().len()
            ),
            (&json!(2), 2)
        );
        let (_, slice) = told(&["198.18.0.1:2", "198.18.0.2:1"]);
        assert_eq!(slice["ports"][0]["port"], json!(1));
    }
}
