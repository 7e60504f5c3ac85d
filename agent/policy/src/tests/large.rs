//! What one policy, or very many, may cost.

use std::{
    net::IpAddr,
    time::{Duration, Instant},
};

use coracle_netfilter::{
    policy::{Packet, Plan, PolicyKey},
    service::Protocol,
};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use serde_json::{Value, json};

use super::{World, parsed, pod};
use crate::{
    objects::{Labels, PodKey},
    policy::{Policy, PolicyError},
    tracker::Tracker,
};

/// Builds without optimization on a machine that has other things to do included.
const LIMIT: Duration = Duration::from_secs(20);

fn read(spec: &Value) -> Result<Policy, PolicyError> {
    let object = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": {"namespace": "x", "name": "large"}, "spec": spec,
    });
    let object: NetworkPolicy = serde_json::from_value(object).expect("a policy");
    Policy::from_object(&object)
}

fn many(count: usize, one: impl Fn(usize) -> Value) -> Vec<Value> {
    (0..count).map(one).collect()
}

fn labelled(number: usize) -> Value {
    json!({"podSelector": {"matchLabels": {"n": number.to_string()}}})
}

#[test]
fn what_peers_and_ports_multiply_to_is_bounded() {
    let started = Instant::now();
    let names = || many(3_000, |number| json!({"port": format!("p{number}")}));
    // Every second one: none joins another.
    let numbers = || many(30_000, |number| json!({"port": 2 * number + 1}));
    let peers = |count| many(count, labelled);
    let excepts = many(50_000, |number| {
        json!(format!("10.{}.{}.0/31", number / 256, number % 256))
    });
    let blocks = json!([{"ipBlock": {"cidr": "10.0.0.0/8", "except": excepts}}]);
    for (spec, is_read) in [
        (json!({"ingress": [{"from": peers(3_000)}]}), true),
        (json!({"ingress": [{"ports": names()}]}), true),
        (
            json!({"ingress": [{"from": peers(6), "ports": numbers()}]}),
            true,
        ),
        (
            json!({"egress": [{"to": blocks, "ports": numbers()}]}),
            true,
        ),
        (
            json!({"ingress": [{"from": peers(3_000), "ports": names()}]}),
            false,
        ),
        (
            json!({"egress": [{"to": peers(3_000), "ports": names()}]}),
            false,
        ),
        (
            json!({"ingress": [{"from": peers(3_000), "ports": numbers()}]}),
            false,
        ),
        (
            json!({"ingress": many(9, |_| json!({"ports": numbers()}))}),
            false,
        ),
    ] {
        match read(&spec) {
            Ok(_) => assert!(is_read),
            Err(error) => assert!(
                !is_read && matches!(error, PolicyError::TooLarge),
                "{error}"
            ),
        }
    }
    assert!(started.elapsed() < LIMIT, "{:?}", started.elapsed());
}

#[test]
fn what_is_said_again_and_again_is_read_once() {
    let started = Instant::now();
    let peers = many(5_000, |_| json!({"podSelector": {}}));
    let ports = many(100_000, |_| json!({"port": 80}));
    let policy = read(&json!({"ingress": [{"from": peers, "ports": ports}]})).unwrap();
    let once = json!({"ingress": [{"from": [{"podSelector": {}}], "ports": [{"port": 80}]}]});
    assert_eq!(policy, read(&once).unwrap());
    assert!(started.elapsed() < LIMIT, "{:?}", started.elapsed());
}

#[test]
fn policies_that_are_too_large_together_let_nothing_through() {
    let mut tracker = Tracker::new("one");
    tracker.set_namespace("x", Some(Labels::default()));
    let address = IpAddr::from([10, 0, 0, 1]);
    let view = pod("x", "p", address, "one", &json!({}));
    tracker.set_pod(&view.key.clone(), Some(view));
    let key = |number: usize| PolicyKey {
        namespace: "x".to_owned(),
        name: format!("n{number}"),
    };
    let policy = |number: usize| {
        let peers = many(5_000, |peer| labelled(10_000 * number + peer));
        let spec = json!({"podSelector": {}, "ingress": [{"from": peers}]});
        parsed("x", &format!("n{number}"), &spec)
    };
    let mut plan = Plan::default();
    let mut rules = |tracker: &mut Tracker| {
        plan.apply(&tracker.changes());
        plan.chains[&plan.to[&address]].rules.len()
    };
    for (number, expect) in [(1, 5_000), (2, 10_000), (3, 15_000), (4, 20_000), (5, 0)] {
        tracker.set_policy(&key(number), Some(policy(number)));
        assert_eq!(rules(&mut tracker), expect);
        let told = tracker.take_overfull();
        assert_eq!(told.len(), usize::from(expect == 0));
        assert!(
            told.iter()
                .all(|policies| *policies == [1, 2, 3, 4, 5].map(key))
        );
    }
    tracker.set_policy(&key(2), None);
    assert_eq!(rules(&mut tracker), 20_000);
}

#[test]
fn policies_that_come_together_are_joined_once() {
    const POLICIES: usize = 1_000;
    let started = Instant::now();
    let mut tracker = Tracker::new("one");
    tracker.set_namespace("x", Some(Labels::default()));
    for last in 0..4 {
        let address = IpAddr::from([10, 0, 0, last]);
        let view = pod("x", &format!("p{last}"), address, "one", &json!({}));
        tracker.set_pod(&PodKey::new("x", &format!("p{last}")), Some(view));
    }
    for policy in 0..POLICIES {
        let key = PolicyKey {
            namespace: "x".to_owned(),
            name: format!("policy-{policy}"),
        };
        let block = |number: usize| json!({"from": [{"ipBlock": {"cidr": format!("10.{}.{number}.0/24", policy % 250)}}]});
        let spec = json!({"podSelector": {}, "ingress": many(50, block)});
        let policy = parsed("x", &key.name, &spec);
        tracker.set_policy(&key, Some(policy));
    }
    let change = tracker.changes();
    assert_eq!((change.chains_made.len(), change.to.len()), (1, 4));
    let chain = change.chains_made.values().next().expect("one");
    // What several say is said once.
    assert_eq!(
        (chain.policies.len(), chain.rules.len()),
        (POLICIES, 250 * 50)
    );
    assert!(started.elapsed() < LIMIT, "{:?}", started.elapsed());
}

#[test]
fn a_block_of_many_holes_has_them_all() {
    let mut world = World::new();
    world.namespace("x", Some(json!({})));
    let target = IpAddr::from([10, 9, 0, 1]);
    world.pod("x", "a", Some(pod("x", "a", target, "one", &json!({}))));
    // Out of order, within each other, at both ends.
    let holes = json!([
        "10.2.0.0/16",
        "10.2.3.0/24",
        "10.255.0.0/16",
        "10.0.0.0/16",
        "10.1.0.0/16"
    ]);
    let from = json!([{"ipBlock": {"cidr": "10.0.0.0/8", "except": holes}}]);
    world.policy(
        "x",
        "p",
        Some(json!({"podSelector": {}, "ingress": [{"from": from}]})),
    );
    world.settle();
    for (second, passes) in [
        (0, false),
        (1, false),
        (2, false),
        (3, true),
        (254, true),
        (255, false),
    ] {
        for last in [0, 255] {
            let packet = Packet {
                source: IpAddr::from([10, second, last, last]),
                destination: target,
                protocol: Some(Protocol::Tcp),
                destination_port: 80,
            };
            assert_eq!(world.passes(&packet), passes, "{packet:?}");
        }
    }
}
