//! Which rule decided, and what rules say.

use coracle_netfilter::policy::Direction;

use super::*;
use crate::tracker::Place;

const POD: [u8; 4] = [10, 1, 0, 1];
const PEER: [u8; 4] = [10, 1, 0, 2];

fn key(name: &str) -> PolicyKey {
    PolicyKey {
        namespace: "x".to_owned(),
        name: name.to_owned(),
    }
}

/// Two policies that select the pod: the first has two rules, the second repeats one of them.
fn world() -> World {
    let mut world = World::new();
    world.namespace("x", Some(json!({"team": "a"})));
    for (name, address) in [("pod", POD), ("peer", PEER)] {
        let pod = pod("x", name, address.into(), "one", &json!({"pod": name}));
        world.pod("x", name, Some(pod));
    }
    let peers = json!([{"podSelector": {"matchLabels": {"pod": "peer"}}},
        {"ipBlock": {"cidr": "192.0.2.0/24", "except": ["192.0.2.128/25"]}}]);
    let any = json!({"ports": [{"port": 443}]});
    let first = json!({"podSelector": {"matchLabels": {"pod": "pod"}}, "policyTypes": ["Ingress"],
        "ingress": [{"from": peers, "ports": [{"port": 80}, {"port": "serve-81-tcp"}]}, any]});
    world.policy("x", "first", Some(first));
    let second = json!({"podSelector": {}, "policyTypes": ["Ingress"], "ingress": [any]});
    world.policy("x", "second", Some(second));
    world.settle();
    world
}

#[test]
fn the_rules_that_let_a_packet_through_are_known_by_their_place() {
    let world = world();
    let (tracker, plan) = &world.nodes[0];
    for (port, expect) in [
        (80, &[("first", 0)][..]),
        (81, &[("first", 0)]),
        (443, &[("first", 1), ("second", 0)]),
    ] {
        let packet = Packet {
            source: PEER.into(),
            destination: POD.into(),
            protocol: Some(Protocol::Tcp),
            destination_port: port,
        };
        let verdict = plan.verdict(&packet, &[]);
        let step = verdict.steps.first().unwrap();
        let places = tracker.places(&plan.chains[&step.chain], step.rule.unwrap());
        let expect = expect.iter().map(|(name, at)| Place {
            policy: key(name),
            at: *at,
        });
        assert_eq!(places, expect.collect::<Vec<_>>(), "{port}");
    }
}

#[test]
fn a_policy_is_told_in_words() {
    let world = world();
    let (tracker, _) = &world.nodes[0];
    let first = tracker.policy(&key("first")).unwrap();
    assert_eq!(
        first.selected_in_words(),
        "pods with pod=pod in namespace x"
    );
    let selected: Vec<&str> = tracker.selected(first).map(|pod| &*pod.key.name).collect();
    assert_eq!(selected, ["pod"]);
    let lines = first.rules_in_words(Direction::Ingress).unwrap();
    let lines: Vec<(usize, &str)> = lines.iter().map(|(at, line)| (*at, &**line)).collect();
    let expect = [
        (
            0,
            "from pods with pod=peer in namespace x: port \"serve-81-tcp\"/tcp",
        ),
        (0, "from pods with pod=peer in namespace x: 80/tcp"),
        (0, "from 192.0.2.0/25: port \"serve-81-tcp\"/tcp"),
        (0, "from 192.0.2.0/25: 80/tcp"),
        (1, "from anybody: 443/tcp"),
    ];
    assert_eq!(lines, expect);
    assert_eq!(first.rules_in_words(Direction::Egress), None);
    let groups: Vec<String> = first.groups_in_words().into_values().collect();
    assert_eq!(groups, ["pods with pod=peer in namespace x"]);
    let second = tracker.policy(&key("second")).unwrap();
    assert_eq!(second.selected_in_words(), "all pods in namespace x");
}

#[test]
fn who_is_where_is_known() {
    let world = world();
    let (tracker, _) = &world.nodes[1];
    let found = tracker.pod_at(PEER.into()).unwrap();
    assert_eq!((&*found.key.name, &*found.node), ("peer", "one"));
    assert_eq!(tracker.pod(&PodKey::new("x", "nobody")), None);
    assert_eq!(tracker.pods().count(), 2);
}
