//! The Services and policies that packets come by.

use coracle_policy::policy::Policy;
use serde_json::{Value, json};

use crate::{
    fake_api::{service, slice},
    harness::Lab,
};

/// `web` is `a` and `b`, at a port of the node, too; `self` is `a`; `empty` is nobody; `guarded`
/// and `open` are `a` behind a balancer, for some and for others; `tunnel` is the overlay's port of
/// a machine outside.
pub(super) fn put_services(lab: &Lab, a: &str, b: &str, outside: &str) {
    let ports = json!([{"port": 80, "protocol": "TCP"}]);
    let target = json!([{"name": "", "port": 8080, "protocol": "TCP"}]);
    let node_port = json!([{"port": 80, "protocol": "TCP", "nodePort": 30080}]);
    let balanced = |name: &str, address: &str, shown: &str, ranges: &str| {
        let more = json!({"type": "LoadBalancer", "loadBalancerSourceRanges": [ranges]});
        let mut object = service(name, address, &ports, &more);
        object["status"]["loadBalancer"]["ingress"] = json!([{"ip": shown}]);
        object
    };
    let web = service(
        "web",
        "10.96.0.10",
        &node_port,
        &json!({"type": "NodePort"}),
    );
    let none = json!({});
    put_tunnel(lab, outside);
    for (object, endpoints) in [
        (web, &[(a, "n1"), (b, "n1")][..]),
        (service("empty", "10.96.0.11", &ports, &none), &[]),
        (service("self", "10.96.0.12", &ports, &none), &[(a, "n1")]),
        (
            balanced("guarded", "10.96.0.13", "203.0.113.8", "198.51.100.0/24"),
            &[(a, "n1")],
        ),
        (
            balanced("open", "10.96.0.14", "203.0.113.9", "198.18.0.0/24"),
            &[(a, "n1")],
        ),
    ] {
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        lab.api
            .put("endpointslices", slice(&name, &target, endpoints));
        lab.api.put("services", object);
    }
}

/// Where `tunnel` leads.
pub(super) const OVERLAY: u16 = 8472;

fn put_tunnel(lab: &Lab, outside: &str) {
    let ports = json!([{"port": 53, "protocol": "UDP", "nodePort": 30053}]);
    let target = json!([{"name": "", "port": OVERLAY, "protocol": "UDP"}]);
    let tunnel = service("tunnel", "10.96.0.15", &ports, &json!({"type": "NodePort"}));
    lab.api.put(
        "endpointslices",
        slice("tunnel", &target, &[(outside, "n3")]),
    );
    lab.api.put("services", tunnel);
}

pub(super) fn policy(name: &str, spec: &Value) -> Policy {
    let object = json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": {"namespace": "default", "name": name}, "spec": spec});
    Policy::from_object(&serde_json::from_value(object).unwrap()).unwrap()
}
