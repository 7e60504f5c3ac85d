//! Random clusters: the plan says what the specification says.

use std::net::IpAddr;

use coracle_netfilter::{
    policy::{Packet, Plan},
    service::Protocol,
};
use serde_json::{Value, json};

use super::{NODES, World, pod};
use crate::objects::PodKey;

/// Numbers from a seed (SplitMix64): a failure names the seed.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((x ^ (x >> 31)) % end as u64).expect("below a usize")
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    fn some(&mut self, most: usize, mut make: impl FnMut(&mut Self) -> Value) -> Vec<Value> {
        (0..self.below(most + 1)).map(|_| make(self)).collect()
    }

    fn labels(&mut self) -> Value {
        let mut labels = json!({});
        for key in ["a", "b"] {
            if self.below(3) > 0 {
                labels[key] = self.one(&["1", "2"]).into();
            }
        }
        labels
    }

    fn selector(&mut self) -> Value {
        let key = self.one(&["a", "b"]);
        let values = self.one(&[&["1"][..], &["2"], &["1", "2"]]);
        let expression = |operator: &str, values: &[&str]| {
            let mut expression = json!({"key": key, "operator": operator});
            if !values.is_empty() {
                expression["values"] = json!(values);
            }
            json!({"matchExpressions": [expression]})
        };
        match self.below(6) {
            0 => json!({}),
            1 => json!({"matchLabels": {key: values[0]}}),
            2 => expression("In", values),
            3 => expression("NotIn", values),
            4 => expression("Exists", &[]),
            _ => expression("DoesNotExist", &[]),
        }
    }

    fn peer(&mut self) -> Value {
        match self.below(5) {
            0 => json!({"ipBlock": {
                "cidr": self.one(&["10.0.0.0/29", "10.0.0.4/30", "0.0.0.0/0", "192.0.2.0/24"]),
                "except": self.some(2, |r| {
                    r.one(&["10.0.0.2/32", "10.0.0.4/31", "192.0.2.128/25"]).into()
                }),
            }}),
            1 => json!({"podSelector": self.selector()}),
            2 => json!({"namespaceSelector": self.selector()}),
            _ => json!({"namespaceSelector": self.selector(), "podSelector": self.selector()}),
        }
    }

    fn port(&mut self) -> Value {
        let mut port = json!({"protocol": self.one(&["TCP", "UDP", "SCTP"])});
        match self.below(5) {
            0 => {}
            1 => {
                port["port"] = self
                    .one(&["serve-80-tcp", "serve-81-tcp", "serve-80-udp"])
                    .into()
            }
            2 => {
                port["port"] = 80.into();
                port["endPort"] = self.one(&[80, 81, 90]).into();
            }
            _ => port["port"] = self.one(&[80, 81]).into(),
        }
        port
    }

    fn spec(&mut self) -> Value {
        let mut rules = |peers: &str| {
            self.some(
                2,
                |r| json!({peers: r.some(2, Self::peer), "ports": r.some(2, Self::port)}),
            )
        };
        let (ingress, egress) = (rules("from"), rules("to"));
        let mut spec = json!({
            "podSelector": self.selector(), "ingress": ingress, "egress": egress,
        });
        match self.below(4) {
            0 => {}
            1 => spec["policyTypes"] = json!(["Ingress"]),
            2 => spec["policyTypes"] = json!(["Egress"]),
            _ => spec["policyTypes"] = json!(["Ingress", "Egress"]),
        }
        spec
    }
}

fn event(world: &mut World, random: &mut Random) {
    let namespace = random.one(&["x", "y", "z"]);
    let is_gone = random.below(4) == 0;
    match random.below(4) {
        0 => {
            let labels = (!is_gone).then(|| random.labels());
            world.namespace(namespace, labels);
        }
        1 => {
            let name = random.one(&["p", "q"]);
            let spec = (!is_gone).then(|| random.spec());
            world.policy(namespace, name, spec);
        }
        _ => {
            let number = random.below(8);
            let namespace = ["x", "y", "z"][number % 3];
            let name = format!("pod-{number}");
            let view = (!is_gone).then(|| {
                let node = random.one(&NODES);
                pod(namespace, &name, address(number), node, &random.labels())
            });
            world.pod(namespace, &name, view);
        }
    }
}

fn address(number: usize) -> IpAddr {
    format!("10.0.0.{number}").parse().expect("an address")
}

fn compare(world: &World) {
    let mut addresses: Vec<IpAddr> = (0..8).map(address).collect();
    addresses.extend(
        ["192.0.2.1", "192.0.2.200", "2001:db8::1"]
            .map(|a| a.parse::<IpAddr>().expect("an address")),
    );
    for &source in &addresses {
        for &destination in addresses.iter().filter(|d| **d != source) {
            for (protocol, destination_port) in [
                (Protocol::Tcp, 80),
                (Protocol::Tcp, 81),
                (Protocol::Tcp, 85),
                (Protocol::Udp, 80),
                (Protocol::Sctp, 80),
            ] {
                world.passes(&Packet {
                    source,
                    destination,
                    protocol: Some(protocol),
                    destination_port,
                });
            }
        }
    }
}

#[test]
fn plan_and_specification_agree_after_any_events() {
    for seed in 0..1000 {
        let mut random = Random(seed);
        let mut world = World::new();
        for round in 0..3 {
            for _ in 0..=random.below(12) {
                event(&mut world, &mut random);
            }
            named(seed, round, || {
                world.settle();
                compare(&world);
            });
        }
    }
}

/// Names the seed of what fails inside.
fn named(seed: u64, round: usize, check: impl FnOnce()) {
    struct Named(u64, usize);
    impl Drop for Named {
        #[allow(clippy::print_stderr, reason = "a test's report")]
        fn drop(&mut self) {
            if std::thread::panicking() {
                eprintln!("seed {}, round {}", self.0, self.1);
            }
        }
    }
    let _named = Named(seed, round);
    check();
}

#[test]
fn pod_beside_another_with_its_policies_changes_elements_only() {
    let mut world = World::new();
    world.namespace("x", Some(json!({})));
    let spec = json!({"podSelector": {}, "ingress": [{"from": [{"podSelector": {}}]}]});
    world.policy("x", "p", Some(spec));
    let labels = json!({});
    world.pod("x", "a", Some(pod("x", "a", address(1), "one", &labels)));
    world.settle();
    let (tracker, _) = &mut world.nodes[0];
    let key = PodKey::new("x", "b");
    tracker.set_pod(&key, Some(pod("x", "b", address(2), "one", &labels)));
    let change = tracker.changes();
    assert!(change.is_elements_only(), "{change:?}");
    assert!(change.to[&address(2)].is_some());
    tracker.set_pod(&key, None);
    assert!(tracker.changes().is_elements_only());
    tracker.set_pod(&PodKey::new("x", "a"), None);
    assert!(!tracker.changes().is_elements_only());
    assert_eq!(tracker.plan(), Plan::default());
}
