//! Policies and expectations, as the cases write them.

use std::net::IpAddr;

use coracle_netfilter::{policy::Packet, service::Protocol};
use serde_json::{Value, json};

use crate::tests::{NODES, World, pod};

pub(super) const NAME: &str = "kubernetes.io/metadata.name";

pub(super) fn relabel(world: &mut World, namespace: char, name: char, labels: &Value) {
    let node = NODES[usize::from(number(namespace, name) % 2)];
    let address = address(namespace, name);
    let (namespace, name) = (namespace.to_string(), name.to_string());
    let view = pod(&namespace, &name, address, node, labels);
    world.pod(&namespace, &name, Some(view));
}

pub(super) fn number(namespace: char, name: char) -> u8 {
    (namespace as u8 - b'x') * 3 + (name as u8 - b'a') + 1
}

pub(super) fn address(namespace: char, name: char) -> IpAddr {
    [10, 0, 0, number(namespace, name)].into()
}

pub(super) fn one(namespace: char, name: char) -> String {
    format!("{}/32", address(namespace, name))
}

pub(super) fn expect(
    world: &mut World,
    protocol: Protocol,
    port: u16,
    passes: impl Fn(&str, &str) -> bool,
) {
    world.settle();
    let pods = || {
        ['x', 'y', 'z']
            .into_iter()
            .flat_map(|n| ['a', 'b', 'c'].map(|p| (n, p)))
    };
    for source in pods() {
        for destination in pods().filter(|d| *d != source) {
            let packet = Packet {
                source: address(source.0, source.1),
                destination: address(destination.0, destination.1),
                protocol: Some(protocol),
                destination_port: port,
            };
            let from = format!("{}/{}", source.0, source.1);
            let to = format!("{}/{}", destination.0, destination.1);
            assert_eq!(
                world.passes(&packet),
                passes(&from, &to),
                "{from} to {to}, {protocol:?} {port}"
            );
        }
    }
}

pub(super) fn is_in(pod: &str, namespace: &str) -> bool {
    pod.split('/').next() == Some(namespace)
}

pub(super) fn is(pod: &str) -> Value {
    json!({"matchLabels": {"pod": pod}})
}

pub(super) fn named(namespace: &str) -> Value {
    json!({"matchLabels": {NAME: namespace}})
}

pub(super) fn expression(key: &str, operator: &str, values: &[&str]) -> Value {
    json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]})
}

pub(super) fn not_x() -> Value {
    expression(NAME, "NotIn", &["x"])
}

#[allow(clippy::needless_pass_by_value, reason = "the cases read better")]
pub(super) fn ingress(pods: Value, rules: Value) -> Value {
    json!({"podSelector": pods, "ingress": rules, "policyTypes": ["Ingress"]})
}

#[allow(clippy::needless_pass_by_value, reason = "the cases read better")]
pub(super) fn egress(pods: Value, rules: Value) -> Value {
    json!({"podSelector": pods, "egress": rules, "policyTypes": ["Egress"]})
}

pub(super) fn deny_all() -> Value {
    json!({"podSelector": {}, "policyTypes": ["Ingress", "Egress"]})
}

#[allow(clippy::needless_pass_by_value, reason = "the cases read better")]
pub(super) fn from_peers(peers: Value) -> Value {
    ingress(is("a"), json!([{"from": peers}]))
}

#[allow(clippy::needless_pass_by_value, reason = "the cases read better")]
pub(super) fn from_y_on(port: Value) -> Value {
    let peers = json!([{"namespaceSelector": named("y")}]);
    ingress(is("a"), json!([{"from": peers, "ports": [port]}]))
}

#[allow(clippy::needless_pass_by_value, reason = "the cases read better")]
pub(super) fn to_block(block: Value) -> Value {
    egress(is("a"), json!([{"to": [{"ipBlock": block}]}]))
}
