//! Rules that others have changed, or that a predecessor has left.

use coracle_netfilter::{
    nftables::policies::{self, Left, Policies},
    policy::{Change, Plan, Selected},
};
use serde_json::json;

use super::{
    echo::Echo,
    table, tables,
    world::{Cluster, on_bridge},
};
use crate::harness::{lab, output};

#[test]
fn what_others_break_is_mended_and_a_successor_takes_over() {
    let Some(lab) = lab("np-repair") else { return };
    let mut cluster = Cluster::new(&lab);
    let echo = Echo::new(&cluster.pod("a").ns);
    let mut b = echo.connect(&cluster.pod("b").ns, cluster.pod("a").address);
    let of = |pod: &str| json!({"matchLabels": {"pod": pod}});
    let from_b = json!([{"podSelector": of("b")}]);
    cluster.policy(
        "only-b",
        Some(json!({"podSelector": of("a"), "ingress": [{"from": from_b}]})),
    );
    let right = table(&cluster.nodes[0]);
    let reconcile = |cluster: &mut Cluster<'_>| {
        let (node, engine) = (&cluster.nodes[0], &mut cluster.enforcers[0].engine);
        node.ns.run(|| engine.reconcile().unwrap()).unwrap()
    };
    let nft = |cluster: &Cluster<'_>, command: &str| {
        let command: Vec<&str> = command.split(' ').collect();
        let node = &cluster.nodes[0];
        node.ns.run(|| output("nft", &command)).unwrap();
    };
    assert!(!reconcile(&mut cluster), "nothing to do");
    let chain = right
        .lines()
        .find(|line| line.trim().starts_with("chain c-"))
        .unwrap();
    let chain = chain.trim().split(' ').nth(1).unwrap().to_owned();
    for harm in [
        "flush ruleset".to_owned(),
        "delete table ip coracle-policy".to_owned(),
        "flush chain ip coracle-policy forward".to_owned(),
        format!("flush chain ip coracle-policy {chain}"),
        format!("insert rule ip coracle-policy {chain} return"),
        "flush map ip coracle-policy to".to_owned(),
        "add element ip coracle-policy itself { 10.0.0.1 . 10.0.0.2 }".to_owned(),
        "add set ip coracle-policy mine { type ipv4_addr; }".to_owned(),
    ] {
        nft(&cluster, &harm);
        assert_ne!(table(&cluster.nodes[0]), right, "{harm}");
        assert!(reconcile(&mut cluster), "{harm}");
        assert_eq!(table(&cluster.nodes[0]), right, "{harm}");
    }
    // Others' tables are not ours to mend.
    nft(&cluster, "add table ip foreign");
    assert!(!reconcile(&mut cluster));
    // The next agent finds it right, and no packet notices.
    let plan = cluster.enforcers[0].engine.plan().clone();
    let change = whole(&plan);
    let mut next = Policies::new(on_bridge());
    let node = &cluster.nodes[0];
    node.ns.run(|| next.apply(&change).unwrap()).unwrap();
    assert_eq!((next.plan(), table(node)), (&plan, right));
    assert!(b.answers() && !cluster.reaches("c", "a", 8080));
    node.ns.run(|| policies::remove().unwrap()).unwrap();
    assert!(!tables(node).contains("coracle-policy"));
    assert!(cluster.reaches("c", "a", 8080));
}

/// What has changed while no agent ran is what its successor begins with.
#[test]
fn a_successor_takes_over_a_table_of_other_policies() {
    let Some(lab) = lab("np-other") else { return };
    let mut cluster = Cluster::new(&lab);
    let from = |pod: &str| {
        let from = json!([{"podSelector": {"matchLabels": {"pod": pod}}}]);
        Some(json!({"podSelector": {"matchLabels": {"pod": "a"}}, "ingress": [{"from": from}]}))
    };
    cluster.policy("one", from("b"));
    assert_eq!(cluster.passing(8080), "ab ac ba bc cb");
    let old = table(&cluster.nodes[0]);
    let mut plans = Vec::new();
    for (name, spec) in [("one", from("c")), ("two", from("b"))] {
        let enforcer = &mut cluster.enforcers[0];
        enforcer.policy(name, spec);
        enforcer.tracker.changes();
        plans.push(enforcer.tracker.plan());
    }
    for (plan, expected) in plans.iter().zip(["ab ac bc ca cb", "ab ac ba bc ca cb"]) {
        let mut next = Policies::new(on_bridge());
        let (node, change) = (&cluster.nodes[0], whole(plan));
        node.ns.run(|| next.apply(&change).unwrap()).unwrap();
        assert_eq!(cluster.passing(8080), expected);
        assert_ne!(table(node), old);
        assert!(!node.ns.run(|| next.reconcile().unwrap()).unwrap());
    }
    let mut none = Policies::new(on_bridge());
    let node = &cluster.nodes[0];
    node.ns.run(|| none.reconcile().unwrap()).unwrap();
    assert!(!tables(node).contains("coracle-policy"));
}

#[test]
fn rules_of_an_ended_agent_are_not_open_when_others_remove_them() {
    let Some(lab) = lab("np-left") else { return };
    let mut cluster = Cluster::new(&lab);
    let from_b = json!([{"podSelector": {"matchLabels": {"pod": "b"}}}]);
    cluster.policy(
        "only-b",
        Some(json!({"podSelector": {"matchLabels": {"pod": "a"}}, "ingress": [{"from": from_b}]})),
    );
    let node = &cluster.nodes[0];
    let find = || Left::find(on_bridge(), Selected::default()).unwrap();
    let mut left = node.ns.run(find).unwrap();
    let mut keep = || node.ns.run(|| left.keep().unwrap()).unwrap();
    let nft = |command: &str| {
        let command: Vec<&str> = command.split(' ').collect();
        node.ns.run(|| output("nft", &command)).unwrap();
    };
    assert!(!keep(), "nothing was lost");
    nft("add table ip foreign");
    assert!(!keep(), "others' tables are no loss");
    assert!(cluster.reaches("b", "a", 8080));
    // Whose rules are unknown gets nothing; who had none goes on.
    for harm in ["flush chain ip coracle-policy forward", "flush ruleset"] {
        nft(harm);
        assert!(cluster.reaches("c", "a", 8080), "{harm}");
        assert!(keep(), "{harm}");
        assert_eq!(cluster.passing(8080), "ab ac bc cb", "{harm}");
        assert!(!keep(), "{harm}");
    }
    // Nor are they if that was before anybody looked, and an ended agent has said whom they
    // selected.
    nft("flush ruleset");
    assert!(cluster.reaches("c", "a", 8080));
    let selected = Selected::of(cluster.enforcers[0].engine.plan());
    let find = || Left::find(on_bridge(), selected.clone()).unwrap();
    let mut late = node.ns.run(find).unwrap();
    assert!(node.ns.run(|| late.keep().unwrap()).unwrap());
    assert_eq!(cluster.passing(8080), "ab ac bc cb");
    // The successor has a plan.
    let mut next = Policies::new(on_bridge());
    let plan = cluster.enforcers[0].engine.plan().clone();
    let change = whole(&plan);
    node.ns.run(|| next.apply(&change).unwrap()).unwrap();
    assert_eq!(cluster.passing(8080), "ab ac ba bc cb");
}

/// From nothing to a plan.
pub(super) fn whole(plan: &Plan) -> Change {
    let mut change = Change::default();
    change.groups.made = plan.groups.keys().cloned().collect();
    change.groups.added = plan.groups.clone();
    change.chains_made = plan.chains.clone();
    let led = plan.to.iter();
    change.to = led.map(|(ip, id)| (*ip, Some(id.clone()))).collect();
    change
}
