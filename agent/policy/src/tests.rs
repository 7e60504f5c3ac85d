//! A cluster of two nodes in memory, beside the naive evaluator.

mod answers;
mod large;
mod netpol;
mod objects;
mod random;

use std::net::IpAddr;

use coracle_netfilter::{
    policy::{Packet, Plan, PolicyKey},
    service::Protocol,
};
use k8s_openapi::{Resource as _, api::networking::v1::NetworkPolicy};
use serde_json::{Value, json};

use crate::{
    objects::{Labels, NamedPort, PodKey, PodView},
    policy::Policy,
    reference::Cluster,
    tracker::Tracker,
};

const NODES: [&str; 2] = ["one", "two"];

/// The same events told to a tracker a node and to the evaluator.
struct World {
    cluster: Cluster,
    nodes: Vec<(Tracker, Plan)>,
}

impl World {
    fn new() -> Self {
        Self {
            cluster: Cluster::default(),
            nodes: NODES
                .iter()
                .map(|node| (Tracker::new(node), Plan::default()))
                .collect(),
        }
    }

    fn namespace(&mut self, name: &str, labels: Option<Value>) {
        for (tracker, _) in &mut self.nodes {
            tracker.set_namespace(name, labels.as_ref().map(labels_of));
        }
        match labels {
            Some(labels) => self.cluster.namespaces.insert(name.to_owned(), labels),
            None => self.cluster.namespaces.remove(name),
        };
    }

    fn pod(&mut self, namespace: &str, name: &str, pod: Option<PodView>) {
        for (tracker, _) in &mut self.nodes {
            tracker.set_pod(&PodKey::new(namespace, name), pod.clone());
        }
        let key = (namespace.to_owned(), name.to_owned());
        match pod {
            Some(pod) => self.cluster.pods.insert(key, pod),
            None => self.cluster.pods.remove(&key),
        };
    }

    fn policy(&mut self, namespace: &str, name: &str, spec: Option<Value>) {
        let key = PolicyKey {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        };
        for (tracker, _) in &mut self.nodes {
            let policy = spec.as_ref().map(|spec| parsed(namespace, name, spec));
            tracker.set_policy(&key, policy);
        }
        let key = (namespace.to_owned(), name.to_owned());
        match spec {
            Some(spec) => self.cluster.policies.insert(key, spec),
            None => self.cluster.policies.remove(&key),
        };
    }

    /// Brings each node's plan up to date by its changes and compares it with the whole.
    fn settle(&mut self) {
        for (tracker, plan) in &mut self.nodes {
            plan.apply(&tracker.changes());
            assert_eq!(*plan, tracker.plan());
            assert!(tracker.changes().is_empty());
        }
        // Each knows what the other makes of it.
        let [(one, at_one), (two, at_two)] = &self.nodes[..] else {
            panic!("two nodes");
        };
        assert_eq!(one.for_node(NODES[1]).plan(), *at_two);
        assert_eq!(two.for_node(NODES[0]).plan(), *at_one);
    }

    /// Whether both nodes' plans let it pass, which the evaluator must say too.
    fn passes(&self, packet: &Packet) -> bool {
        let mut plans = self.nodes.iter().map(|(_, plan)| plan);
        let passes = plans.all(|plan| plan.verdict(packet, &[]).is_allowed());
        assert_eq!(passes, self.cluster.is_allowed(packet), "{packet:?}");
        passes
    }
}

fn labels_of(labels: &Value) -> Labels {
    let labels = labels.as_object().expect("labels");
    Labels::new(labels.iter().map(|(k, v)| (k, v.as_str().expect("text"))))
}

fn parsed(namespace: &str, name: &str, spec: &Value) -> Policy {
    let object: NetworkPolicy = serde_json::from_value(json!({
        "apiVersion": NetworkPolicy::API_VERSION,
        "kind": NetworkPolicy::KIND,
        "metadata": {"namespace": namespace, "name": name},
        "spec": spec,
    }))
    .expect("a policy");
    Policy::from_object(&object).expect("a policy that can be read")
}

fn pod(namespace: &str, name: &str, address: IpAddr, node: &str, labels: &Value) -> PodView {
    let port = |name: &str, protocol, port| NamedPort {
        name: name.into(),
        protocol,
        port,
    };
    PodView {
        key: PodKey::new(namespace, name),
        labels: labels_of(labels),
        addresses: vec![address],
        node: node.into(),
        ports: vec![
            port("serve-80-tcp", Protocol::Tcp, 80),
            port("serve-81-tcp", Protocol::Tcp, 81),
            port("serve-80-udp", Protocol::Udp, 80),
            port("serve-80-sctp", Protocol::Sctp, 80),
        ],
    }
}
