//! Answers by a table: a node `n1` with pods `a` and `b`, and a node `n2` with pod `c`.

mod listings;
mod notes;
mod paths;

use std::{collections::BTreeMap, net::IpAddr};

use coracle_netfilter::{
    host_port::HostPort,
    node::{Envelopes, Overlay},
    policy::{Plan, PolicyKey},
    service::{Endpoint, Port, PortView, Protocol, ServiceKey, ServiceNetwork, ServiceView},
};
use coracle_policy::{
    objects::{Labels, PodKey, PodView},
    policy::Policy,
    tracker::Tracker,
};
use serde_json::{Value, json};

use super::*;

const A: &str = "10.244.1.2";
const B: &str = "10.244.1.3";
const C: &str = "10.244.2.2";

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn key(name: &str) -> ServiceKey {
    ServiceKey {
        namespace: "default".to_owned(),
        name: name.to_owned(),
    }
}

fn service(address: &str, endpoints: &[(&str, bool)]) -> ServiceView {
    let endpoints = endpoints.iter().map(|(address, local)| Endpoint {
        address: (ip(address), 8080).into(),
        local: *local,
    });
    let cluster: Vec<Endpoint> = endpoints.collect();
    let port = Port {
        name: "http".to_owned(),
        protocol: Protocol::Tcp,
        port: 80,
        node_port: Some(30080),
    };
    ServiceView {
        cluster_ips: vec![ip(address)],
        ports: vec![PortView {
            port,
            local: cluster.iter().filter(|one| one.local).copied().collect(),
            serving: cluster.iter().map(|one| one.address.ip()).collect(),
            cluster,
        }],
        ..ServiceView::default()
    }
}

fn pod(name: &str, address: &str, node: &str) -> KnownPod {
    KnownPod {
        name: format!("default/{name}"),
        addresses: vec![ip(address)],
        node: node.to_owned(),
        host_network: false,
        host_ports: Vec::new(),
    }
}

/// With these policies of the namespace.
fn world(policies: &[(&str, Value)]) -> World {
    let network = ServiceNetwork::new(
        &["10.244.0.0/16".parse().unwrap()],
        &["10.96.0.0/16".parse().unwrap()],
    );
    let mut tracker = Tracker::new("n1");
    tracker.set_namespace("default", Some(Labels::new([("team", "x")])));
    for (name, address, node) in [("a", A, "n1"), ("b", B, "n1"), ("c", C, "n2")] {
        let key = PodKey::new("default", name);
        let view = PodView {
            key: key.clone(),
            labels: Labels::new([("pod", name)]),
            addresses: vec![ip(address)],
            node: node.into(),
            ports: Vec::new(),
        };
        tracker.set_pod(&key, Some(view));
    }
    for (name, spec) in policies {
        let key = PolicyKey {
            namespace: "default".to_owned(),
            name: (*name).to_owned(),
        };
        let object = json!({"metadata": {"namespace": "default", "name": name}, "spec": spec,
            "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy"});
        let object = serde_json::from_value(object).unwrap();
        tracker.set_policy(&key, Some(Policy::from_object(&object).unwrap()));
    }
    let mut written = Plan::default();
    written.apply(&tracker.changes());
    let node = |address: &str, cidr: &str| KnownNode {
        address: address.parse().ok(),
        pod_cidrs: vec![cidr.parse().unwrap()],
    };
    let hop = |destination: &str, link: &str, gateway: Option<&str>| Hop {
        destination: destination.parse().unwrap(),
        gateway: gateway.map(|gateway| gateway.parse().unwrap()),
        link: link.to_owned(),
    };
    World {
        node: "n1".to_owned(),
        engine: "nftables".to_owned(),
        network: network
            .with_pod_interface(Some("coracle0".to_owned()))
            .with_node_ip(Some(ip("198.18.0.1"))),
        services: BTreeMap::from([
            (key("web"), service("10.96.0.10", &[(A, true), (C, false)])),
            (
                key("empty"),
                ServiceView {
                    ports: vec![PortView {
                        port: Port {
                            node_port: None,
                            ..service("10.96.0.11", &[]).ports[0].port.clone()
                        },
                        ..service("10.96.0.11", &[]).ports[0].clone()
                    }],
                    ..service("10.96.0.11", &[])
                },
            ),
        ]),
        unwritten: BTreeMap::new(),
        without_rules: BTreeMap::from([(key("peers"), "it is headless".to_owned())]),
        trouble: None,
        policies: Some(PolicyPlan {
            written,
            tracker,
            is_complete: true,
            trouble: None,
        }),
        pods: vec![pod("a", A, "n1"), pod("b", B, "n1"), pod("c", C, "n2")],
        nodes: BTreeMap::from([
            ("n1".to_owned(), node("198.18.0.1", "10.244.1.0/24")),
            ("n2".to_owned(), node("198.18.0.2", "10.244.2.0/24")),
        ]),
        own_network: Some(OwnNetwork {
            bridge: "coracle0".to_owned(),
            subnet: "10.244.1.0/24".parse().ok(),
            no_masquerade: ["10.244.0.0/16", "198.18.0.1/32", "198.18.0.2/32"]
                .map(|cidr| cidr.parse().unwrap())
                .to_vec(),
        }),
        overlay: Overlay::None,
        kernel: Kernel {
            own: ["127.0.0.1", "198.18.0.1", "10.244.1.1"].map(ip).into(),
            bridge_netfilter: true,
            forwards: true,
            hops: vec![
                hop("10.244.1.0/24", "coracle0", None),
                hop("10.244.2.0/24", "eth0", Some("198.18.0.2")),
                hop("198.18.0.0/24", "eth0", None),
                hop("0.0.0.0/0", "eth0", Some("198.18.0.254")),
            ],
        },
    }
}

fn ask(world: &World, from: &str, to: &str) -> Result<Path, String> {
    match world.answer(&Question::parse(from, Some(to)).unwrap())? {
        Answer::Path(path) => Ok(*path),
        Answer::Listing(listing) => panic!("{listing}"),
    }
}

/// What becomes of it, and what is said among other things.
fn check(world: &World, cases: &[(&str, &str, Verdict, &[&str])]) {
    for (from, to, verdict, says) in cases {
        let path = ask(world, from, to).unwrap();
        let text = path.to_string();
        assert_eq!(path.verdict, *verdict, "{from} to {to}:\n{text}");
        for part in *says {
            assert!(
                text.contains(part),
                "{from} to {to}: no {part:?} in\n{text}"
            );
        }
    }
}
