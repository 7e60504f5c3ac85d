//! What comes to addresses of balancers.

use std::io::ErrorKind;

use coracle_netfilter::ProxyMode;
use serde_json::{Value, json};

use super::{NEVER, OneNode, one_node};
use crate::{
    fake_api::{service, slice},
    harness::{ask, lab_by, wait_for},
};

for_each_engine!(a_balancers_address_is_served_as_its_status_says);

/// A node's address, or the one that a router translates to it, at the ports that are given.
fn a_balancers_address_is_served_as_its_status_says(mode: ProxyMode) {
    let Some(lab) = lab_by(mode, "balancer") else {
        return;
    };
    let OneNode { node, pods } = one_node(&lab, &["a"]);
    let outside = lab.node(2);
    let _server = pods[0].serve("a");
    let ports = json!([{"name": "http", "port": 80, "protocol": "TCP"}, {"name": "https", "port": 443, "protocol": "TCP"}]);
    let shown = |ip: &str, given: &[u16]| {
        let given: Vec<Value> = given
            .iter()
            .map(|port| json!({"port": port, "protocol": "TCP"}))
            .collect();
        let mut web = service(
            "web",
            "10.96.0.10",
            &ports,
            &json!({"type": "LoadBalancer"}),
        );
        web["status"] =
            json!({"loadBalancer": {"ingress": [{"ip": ip, "ipMode": "VIP", "ports": given}]}});
        lab.api.put("services", web);
    };
    let at = |port: u16| ask(&outside.ns, &format!("198.18.0.1:{port}"));
    let is_refused =
        |port| at(port).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused);
    let targets = json!([{"name": "http", "port": 8080, "protocol": "TCP"}, {"name": "https", "port": 8080, "protocol": "TCP"}]);
    let address = pods[0].address.to_string();
    lab.api.put(
        "endpointslices",
        slice("web", &targets, &[(&address, "n1")]),
    );
    shown("198.18.0.1", &[80]);
    let _proxy = node.proxy(NEVER);
    wait_for("the port that is given", || at(80).is_ok());
    assert!(is_refused(443), "not given");
    shown("198.18.0.1", &[80, 443]);
    wait_for("the other port", || at(443).is_ok());
    // Shown as it is known outside.
    shown("203.0.113.9", &[443]);
    wait_for("no port of the node", || is_refused(80) && is_refused(443));
    let addresses = json!([{"type": "InternalIP", "address": "198.18.0.1"}, {"type": "ExternalIP", "address": "203.0.113.9"}]);
    let own = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}, "status": {"addresses": addresses}});
    lab.api.put("nodes", own);
    wait_for("what is sent there and translated", || at(443).is_ok());
    assert!(is_refused(80), "not given");
}
