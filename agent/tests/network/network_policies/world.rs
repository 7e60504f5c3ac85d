//! Two nodes that enforce policies, and pods that reach each other or not.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    time::Duration,
};

use coracle_agent::network::cni::CniNetwork;
use coracle_netfilter::{
    nftables::policies::{NodeNetwork, Policies},
    policy::{Change, PolicyKey},
    refused,
    service::Protocol,
};
use coracle_netns::NetNs;
use coracle_policy::{
    objects::{Labels, NamedPort, PodKey, PodView},
    policy::Policy,
    tracker::Tracker,
};
use serde_json::{Value, json};

use crate::harness::{Lab, Node, Pod, Running, wait_for};

/// A local connection is made within a millisecond.
pub(super) const PATIENCE: Duration = Duration::from_millis(250);

/// A node whose pods are on the own network's bridge.
pub(super) fn on_bridge() -> NodeNetwork {
    NodeNetwork {
        own_service_ips: Vec::new(),
        bridge: Some("coracle0".to_owned()),
    }
}

/// What one node enforces.
pub(super) struct Enforcer {
    pub(super) tracker: Tracker,
    pub(super) engine: Policies,
}

impl Enforcer {
    pub(super) fn new(node: &Node) -> Self {
        Self::of(node, on_bridge())
    }

    pub(super) fn of(node: &Node, network: NodeNetwork) -> Self {
        Self {
            tracker: Tracker::new(&node.name),
            engine: Policies::new(network),
        }
    }

    /// A policy of namespace `ns` is so now; it is not written yet.
    pub(super) fn policy(&mut self, name: &str, spec: Option<Value>) {
        let key = PolicyKey {
            namespace: "ns".to_owned(),
            name: name.to_owned(),
        };
        let parsed = spec.map(|spec| {
            let object = json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
                "metadata": {"namespace": "ns", "name": name}, "spec": spec});
            Policy::from_object(&serde_json::from_value(object).unwrap()).unwrap()
        });
        self.tracker.set_policy(&key, parsed);
    }

    /// Writes what has changed, as the agent would.
    pub(super) fn settle(&mut self, node: &Node) -> Change {
        let change = self.tracker.changes();
        let own = IpAddr::from(node.address);
        node.ns
            .run(|| {
                self.engine.apply(&change).unwrap();
                if refused::may_refuse(&change) {
                    refused::cut(self.engine.plan(), |address| address == own).unwrap();
                }
            })
            .unwrap();
        change
    }
}

/// Two nodes with pods: `a`, `b` on the first, `c` on the second, all of namespace `ns` and with
/// their name as label `pod`; each listens on 8080 and 8081.
pub(super) struct Cluster<'a> {
    pub(super) nodes: [Node; 2],
    pub(super) enforcers: [Enforcer; 2],
    pods: Vec<(&'a str, Pod, usize)>,
    _routes: Vec<Running>,
    _servers: Vec<Listening>,
}

impl Cluster<'_> {
    pub(super) fn new(lab: &Lab) -> Self {
        let nodes = [lab.node(1), lab.node(2)];
        lab.register(&[&nodes[0], &nodes[1]]);
        let networks: Vec<CniNetwork> = nodes.iter().map(Node::ready_network).collect();
        let mut pods = Vec::new();
        for (name, at) in [("a", 0), ("b", 0), ("c", 1)] {
            pods.push((name, nodes[at].pod(&networks[at], name, Vec::new()), at));
        }
        let routes = nodes.iter().zip(networks);
        let routes = routes.map(|(node, network)| node.routes(Some(network)));
        let routes = routes.collect();
        let servers = pods
            .iter()
            .flat_map(|(_, pod, _)| [8080, 8081].map(|port| Listening::new(&pod.ns, port)));
        let servers = servers.collect();
        let enforcers = [Enforcer::new(&nodes[0]), Enforcer::new(&nodes[1])];
        let mut cluster = Self {
            nodes,
            enforcers,
            pods,
            _routes: routes,
            _servers: servers,
        };
        wait_for("the way to the other node", || {
            cluster.reaches("a", "c", 8080)
        });
        for enforcer in &mut cluster.enforcers {
            enforcer
                .tracker
                .set_namespace("ns", Some(Labels::new([("ns", "ns")])));
        }
        for at in 0..cluster.pods.len() {
            let view = cluster.view(at);
            for enforcer in &mut cluster.enforcers {
                enforcer
                    .tracker
                    .set_pod(&view.key.clone(), Some(view.clone()));
            }
        }
        cluster.settle();
        cluster
    }

    pub(super) fn view(&self, at: usize) -> PodView {
        let (name, pod, node) = &self.pods[at];
        PodView {
            key: PodKey::new("ns", name),
            labels: Labels::new([("pod", *name)]),
            addresses: vec![pod.address.into()],
            node: (*self.nodes[*node].name).into(),
            ports: vec![NamedPort {
                name: "web".into(),
                protocol: Protocol::Tcp,
                port: 8081,
            }],
        }
    }

    pub(super) fn policy(&mut self, name: &str, spec: Option<Value>) {
        for enforcer in &mut self.enforcers {
            enforcer.policy(name, spec.clone());
        }
        self.settle();
    }

    pub(super) fn settle(&mut self) {
        for (enforcer, node) in self.enforcers.iter_mut().zip(&self.nodes) {
            enforcer.settle(node);
        }
    }

    pub(super) fn pod(&self, name: &str) -> &Pod {
        let found = self.pods.iter().find(|(of, ..)| *of == name);
        &found.unwrap().1
    }

    pub(super) fn reaches(&self, from: &str, to: &str, port: u16) -> bool {
        reaches(&self.pod(from).ns, self.pod(to).address, port)
    }

    /// Which of the pairs `from`, `to` get through to this port, as `ab ac ...`.
    pub(super) fn passing(&self, port: u16) -> String {
        let mut passing = Vec::new();
        for (from, ..) in &self.pods {
            for (to, ..) in self.pods.iter().filter(|(to, ..)| to != from) {
                if self.reaches(from, to, port) {
                    passing.push(format!("{from}{to}"));
                }
            }
        }
        passing.join(" ")
    }
}

pub(super) fn reaches(from: &NetNs, to: Ipv4Addr, port: u16) -> bool {
    let to = SocketAddr::from((to, port));
    from.run(|| TcpStream::connect_timeout(&to, PATIENCE).is_ok())
        .unwrap()
}

/// Accepts, and holds on to what it has accepted.
pub(super) struct Listening {
    _tcp: TcpListener,
}

impl Listening {
    pub(super) fn new(ns: &NetNs, port: u16) -> Self {
        let tcp = ns.run(|| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)));
        Self {
            _tcp: tcp.unwrap().unwrap(),
        }
    }
}

/// Selects the pod of this name.
pub(super) fn of(pod: &str) -> Value {
    json!({"matchLabels": {"pod": pod}})
}

/// Nobody reaches the pod.
pub(super) fn deny(pod: &str) -> Option<Value> {
    Some(json!({"podSelector": of(pod), "policyTypes": ["Ingress"]}))
}
