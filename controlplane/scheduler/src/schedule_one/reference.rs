//! Decisions on random clusters, against rules that look at every pod and node there is.
//! `PROPTEST_CASES=20000` is a long run.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Algorithm, SchedulingFailure};
use crate::{
    cache::Cache,
    framework::CycleState,
    plugins,
    testing::{node_with, pod_of},
};

const ZONE: &str = "topology.kubernetes.io/zone";
const HOST: &str = "kubernetes.io/hostname";
const APPS: [&str; 3] = ["web", "db", "job"];

#[derive(Debug, Clone)]
struct Node {
    zone: Option<usize>,
    cpu: i64,
    pods: usize,
    is_tainted: bool,
    is_cordoned: bool,
}

#[derive(Debug, Clone)]
struct Pod {
    app: usize,
    cpu: i64,
    port: Option<u16>,
    tolerates: bool,
    /// By a node selector, and by affinity: not this one.
    zone: Option<usize>,
    not_zone: Option<usize>,
    /// Of which app it keeps apart by host, and is near to by zone.
    apart: Option<usize>,
    near: Option<usize>,
    /// How much more of its app a zone may have, if it says so.
    skew: Option<i64>,
}

fn nodes() -> impl Strategy<Value = Vec<Node>> {
    let weighted = proptest::bool::weighted;
    let node = (
        proptest::option::weighted(0.9, 0..3_usize),
        1..5_i64,
        1..5_usize,
        weighted(0.2),
        weighted(0.1),
    );
    let node = node.prop_map(|(zone, cpu, pods, is_tainted, is_cordoned)| Node {
        zone,
        cpu,
        pods,
        is_tainted,
        is_cordoned,
    });
    proptest::collection::vec(node, 1..8)
}

fn pod() -> impl Strategy<Value = Pod> {
    let maybe = |share: f64| proptest::option::weighted(share, 0..3_usize);
    let of_places = (
        maybe(0.2),
        maybe(0.2),
        maybe(0.3),
        maybe(0.2),
        proptest::option::weighted(0.3, 1..3_i64),
    );
    let of_itself = (
        0..3_usize,
        0..3_i64,
        proptest::option::weighted(0.3, 80..82_u16),
        any::<bool>(),
    );
    (of_itself, of_places).prop_map(
        |((app, cpu, port, tolerates), (zone, not_zone, apart, near, skew))| Pod {
            app,
            cpu,
            port,
            tolerates,
            zone,
            not_zone,
            apart,
            near,
            skew,
        },
    )
}

impl Node {
    fn object(&self, name: usize) -> k8s_openapi::api::core::v1::Node {
        let taints = self
            .is_tainted
            .then(|| json!([{"key": "gpu", "effect": "NoSchedule"}]));
        let has = json!({"allocatable": {"cpu": self.cpu.to_string(), "memory": "8Gi", "pods": self.pods.to_string()}});
        let spec = json!({"taints": taints, "unschedulable": self.is_cordoned});
        let mut node = node_with(&name.to_string(), spec, has);
        let mut labels = BTreeMap::from([(HOST.to_owned(), name.to_string())]);
        labels.extend(self.zone.map(|zone| (ZONE.to_owned(), zone.to_string())));
        node.metadata.labels = Some(labels);
        node
    }
}

impl Pod {
    fn object(&self, name: &str) -> Value {
        let term = |app: usize, key: &str| json!([{"topologyKey": key, "labelSelector": {"matchLabels": {"app": APPS[app]}}}]);
        let required = "requiredDuringSchedulingIgnoredDuringExecution";
        let mut affinity = json!({});
        if let Some(zone) = self.not_zone {
            let other = json!({"key": ZONE, "operator": "NotIn", "values": [zone.to_string()]});
            affinity["nodeAffinity"][required] =
                json!({"nodeSelectorTerms": [{"matchExpressions": [other]}]});
        }
        if let Some(app) = self.apart {
            affinity["podAntiAffinity"][required] = term(app, HOST);
        }
        if let Some(app) = self.near {
            affinity["podAffinity"][required] = term(app, ZONE);
        }
        let ports = self
            .port
            .map(|port| json!([{"containerPort": port, "hostPort": port, "protocol": "TCP"}]));
        let spread = self.skew.map(|skew| {
            json!([{"maxSkew": skew, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {"app": APPS[self.app]}}}])
        });
        json!({
            "metadata": {"name": name, "namespace": "ns", "uid": name, "labels": {"app": APPS[self.app]}},
            "spec": {
                "containers": [{"name": "c", "image": "i", "ports": ports, "resources": {"requests": {"cpu": self.cpu.to_string()}}}],
                "nodeSelector": self.zone.map(|zone| json!({ZONE: zone.to_string()})),
                "tolerations": self.tolerates.then(|| json!([{"key": "gpu", "operator": "Exists"}])),
                "affinity": affinity, "topologySpreadConstraints": spread,
            },
        })
    }

    /// Whether its selector and affinity allow the node.
    fn allows(&self, node: &Node) -> bool {
        (self.zone.is_none() || self.zone == node.zone)
            && (self.not_zone.is_none() || self.not_zone != node.zone)
    }
}

/// The cluster as the rules see it.
struct World<'a> {
    nodes: &'a [Node],
    placed: &'a [(usize, Pod)],
}

impl World<'_> {
    fn on(&self, node: usize) -> impl Iterator<Item = &Pod> {
        let of_node = self.placed.iter().filter(move |(on, _)| *on == node);
        of_node.map(|(_, pod)| pod)
    }

    fn in_zone(&self, zone: Option<usize>) -> impl Iterator<Item = &Pod> {
        let there = self.placed.iter();
        there
            .filter(move |(on, _)| zone.is_some() && self.nodes[*on].zone == zone)
            .map(|(_, pod)| pod)
    }

    fn fits(&self, pod: &Pod, number: usize) -> bool {
        let node = &self.nodes[number];
        let used: i64 = self.on(number).map(|other| other.cpu).sum();
        let has_room =
            (pod.cpu == 0 || used + pod.cpu <= node.cpu) && self.on(number).count() < node.pods;
        let has_port = pod.port.is_none() || self.on(number).all(|other| other.port != pod.port);
        let is_apart = pod
            .apart
            .is_none_or(|app| self.on(number).all(|other| other.app != app))
            && self.on(number).all(|other| other.apart != Some(pod.app));
        !node.is_cordoned
            && (!node.is_tainted || pod.tolerates)
            && pod.allows(node)
            && has_room
            && has_port
            && is_apart
            && self.is_near(pod, node)
            && self.is_spread(pod, node)
    }

    /// The first of its kind may be anywhere that has a zone.
    fn is_near(&self, pod: &Pod, node: &Node) -> bool {
        let Some(app) = pod.near else { return true };
        let is_first = app == pod.app
            && !self
                .placed
                .iter()
                .any(|(on, other)| other.app == app && self.nodes[*on].zone.is_some());
        node.zone.is_some() && (is_first || self.in_zone(node.zone).any(|other| other.app == app))
    }

    /// By the zones of the nodes that the pod's selector and affinity allow.
    fn is_spread(&self, pod: &Pod, node: &Node) -> bool {
        let Some(skew) = pod.skew else { return true };
        let allowed = |other: &&Node| other.zone.is_some() && pod.allows(other);
        let count = |zone: Option<usize>| {
            let there = self.placed.iter().filter(|(on, other)| {
                let on = &self.nodes[*on];
                on.zone == zone && pod.allows(on) && other.app == pod.app
            });
            i64::try_from(there.count()).expect("few")
        };
        let fewest = self
            .nodes
            .iter()
            .filter(allowed)
            .map(|other| count(other.zone))
            .min();
        node.zone.is_some() && count(node.zone) + 1 - fewest.unwrap_or(0) <= skew
    }
}

proptest! {
    /// A pod gets a node exactly if it fits on one, and one that it fits on; and so does the next,
    /// in the cluster that the first has made.
    #[test]
    fn decisions_are_those_of_the_rules(nodes in nodes(), pods in proptest::collection::vec(pod(), 1..14)) {
        static DECIDED: AtomicUsize = AtomicUsize::new(0);
        let mut cache = Cache::default();
        for (name, node) in nodes.iter().enumerate() {
            cache.set_node(&node.object(name));
        }
        let framework = Arc::new(plugins::without_binding(&Arc::default()));
        let mut algorithm = Algorithm::new(framework.into());
        let mut placed: Vec<(usize, Pod)> = Vec::new();
        for (number, pod) in pods.iter().enumerate() {
            let world = World { nodes: &nodes, placed: &placed };
            let fitting: Vec<usize> = (0..nodes.len()).filter(|node| world.fits(pod, *node)).collect();
            let info = Arc::new(pod_of(pod.object(&number.to_string())));
            let decided = algorithm.schedule(&mut CycleState::default(), &info, None, &cache.snapshot());
            let chosen = match decided {
                Ok(node) => Some(node.name.parse::<usize>().expect("a number")),
                Err(SchedulingFailure::Unschedulable(_)) => None,
                Err(SchedulingFailure::Error(status)) => panic!("{}", status.message()),
            };
            prop_assert_eq!(chosen.is_some(), !fitting.is_empty(), "{:?} fits on {:?} of {:?}", pod, fitting, nodes);
            DECIDED.fetch_add(1, Relaxed);
            if let Some(node) = chosen {
                prop_assert!(fitting.contains(&node), "{:?} does not fit on {} but on {:?}", pod, node, fitting);
                cache.assume(info, &node.to_string());
                placed.push((node, pod.clone()));
            }
        }
        let decided = DECIDED.load(Relaxed);
        if decided % 10_000 < pods.len() {
            eprintln!("{decided} decisions were those of the rules");
        }
    }
}
