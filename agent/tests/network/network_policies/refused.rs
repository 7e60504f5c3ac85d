//! Rules that the kernel does not take.

use coracle_netfilter::{
    policy::{Change, Peer, Ports, Rule},
    service::Protocol,
};
use serde_json::json;

use super::{echo::Echo, world::Cluster};
use crate::harness::lab;

/// From a higher port to a lower one, which nothing that the API lets through becomes.
fn spoil(change: &mut Change) {
    for chain in change.chains_made.values_mut() {
        chain.rules.push(Rule {
            peer: Peer::Any,
            ports: Ports::Numbers(vec![(Protocol::Tcp, 9000, 80)]),
        });
    }
}

#[test]
fn a_policy_that_the_kernel_refuses_stops_no_other() {
    let Some(lab) = lab("np-refused") else { return };
    let mut cluster = Cluster::new(&lab);
    let echo = Echo::new(&cluster.pod("a").ns);
    let mut before = echo.connect(&cluster.pod("b").ns, cluster.pod("a").address);
    let of = |pod: &str| json!({"matchLabels": {"pod": pod}});
    let write = |cluster: &mut Cluster<'_>, is_spoiled: bool| {
        let (node, enforcer) = (&cluster.nodes[0], &mut cluster.enforcers[0]);
        let mut change = enforcer.tracker.changes();
        if is_spoiled {
            spoil(&mut change);
        }
        let engine = &mut enforcer.engine;
        node.ns.run(|| engine.apply(&change).unwrap()).unwrap();
        engine.take_refused()
    };
    // One that lets all in, if only the kernel took it, and beside it one of somebody else.
    cluster.enforcers[0].policy(
        "of-a",
        Some(json!({"podSelector": of("a"), "ingress": [{}]})),
    );
    let told = write(&mut cluster, true);
    let names: Vec<String> = told
        .iter()
        .flat_map(|one| &one.policies)
        .map(ToString::to_string)
        .collect();
    assert_eq!(names, ["ns/of-a"], "{told:?}");
    assert!(told[0].why.contains("Invalid argument"), "{told:?}");
    cluster.enforcers[0].policy(
        "of-b",
        Some(json!({"podSelector": of("b"), "policyTypes": ["Ingress"]})),
    );
    assert_eq!(write(&mut cluster, false), [], "told once");
    assert_eq!(cluster.passing(8080), "ac bc", "a and b are shut");
    let (node, enforcer) = (&cluster.nodes[0], &mut cluster.enforcers[0]);
    let plan = enforcer.engine.plan();
    let own = node.address;
    let cut = node
        .ns
        .run(|| coracle_netfilter::refused::cut(plan, |ip| ip == own))
        .unwrap();
    assert!(
        cut.unwrap() > 0 && !before.answers(),
        "what was open is cut"
    );
    assert!(
        !node
            .ns
            .run(|| enforcer.engine.reconcile().unwrap())
            .unwrap(),
        "what is refused is not missed"
    );
    // Others come and go meanwhile, also among those that are refused.
    cluster.enforcers[0].policy("of-b", None);
    cluster.enforcers[0].policy(
        "of-b-too",
        Some(json!({"podSelector": of("b"), "policyTypes": ["Egress"]})),
    );
    let told = write(&mut cluster, true);
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(
        cluster.passing(8080),
        "ab ac cb",
        "b sends nothing, a gets nothing"
    );
    // What becomes usable is as its author says.
    for gone in ["of-a", "of-b-too"] {
        cluster.enforcers[0].policy(gone, None);
    }
    cluster.enforcers[0].policy(
        "only-c",
        Some(json!({"podSelector": of("a"), "ingress": [{"from": [{"podSelector": of("c")}]}]})),
    );
    assert_eq!(write(&mut cluster, false), []);
    assert_eq!(cluster.passing(8080), "ab ac bc ca cb");
    let tables = super::tables(&cluster.nodes[0]);
    assert!(!tables.contains("trial"), "{tables}");
}
