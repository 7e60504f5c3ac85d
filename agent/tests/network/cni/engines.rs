//! What is particular to each engine of the node's own rules: the change from one to the other,
//! what others remove, and what others forbid.

use std::{
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::Duration,
};

use coracle_agent::network::PodNetwork as _;
use coracle_cni::veth::host_name;
use coracle_netfilter::ProxyMode::{self, Iptables, Nftables};

use super::published;
use crate::harness::{Conversation, Node, Pod, ask, echo, lab_by, note, output, serve, wait_for};

const NEVER: Duration = Duration::from_secs(3600);

for_each_engine!(
    pods_are_forwarded_where_others_forbid_it,
    pods_are_forwarded_past_a_refusal_at_the_end,
    a_killed_agents_ports_go_on_and_the_next_withdraws_them,
);

/// Which engines have rules of host ports in the node's kernel: iptables, nftables.
fn engines(node: &Node) -> (bool, bool) {
    let listed = node.nft(&["list", "table", "ip", "coracle-node"]);
    (
        node.iptables_save().contains("CORACLE-HOSTPORTS"),
        listed.is_ok_and(|listed| listed.contains("8081")),
    )
}

#[test]
fn host_ports_and_masquerade_change_engine_without_a_connection_lost() {
    let Some(lab) = lab_by(Iptables, "node-change") else {
        return;
    };
    let (node, outside) = (lab.node(1), lab.node(2));
    let network = node.ready_network();
    let pod = node.pod(&network, "a", published(8081));
    let talker = node.pod(&network, "echo", published(8082));
    let client = node.pod(&network, "client", Vec::new());
    let _servers = (pod.serve("a"), serve(&outside.ns, "stranger"));
    echo(&talker.ns, 8080);
    let mut conversation = Conversation::new(&outside.ns, "198.18.0.1:8082");
    conversation.say("first");
    let (stop, asked) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        let asking = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                // By a port of the node, and out to somebody who does not know pods' addresses.
                ask(&outside.ns, "198.18.0.1:8081").unwrap();
                let (_, seen) = ask(&client.ns, "198.18.0.2:8080").unwrap();
                assert_eq!(seen, node.address);
                asked.fetch_add(1, Ordering::Relaxed);
            }
        });
        for mode in [Nftables, Iptables, Nftables, Iptables] {
            // As the next agent would begin.
            let _next = node.ready_network_by(mode);
            assert_eq!(engines(&node), (mode == Iptables, mode == Nftables));
            conversation.say("again");
            let before = asked.load(Ordering::Relaxed);
            wait_for("more connections", || {
                asking.is_finished() || asked.load(Ordering::Relaxed) > before + 20
            });
        }
        stop.store(true, Ordering::Relaxed);
        asking.join().unwrap();
    });
    conversation.say("later");
    note(&format!("{} connections meanwhile", asked.into_inner()));
}

fn pods_are_forwarded_where_others_forbid_it(mode: ProxyMode) {
    let Some(lab) = lab_by(mode, "node-forbidden") else {
        return;
    };
    let (node, outside) = (lab.node(1), lab.node(2));
    let network = node.ready_network();
    let pod = node.pod(&network, "a", published(8081));
    let _servers = (pod.serve("a"), serve(&outside.ns, "stranger"));
    let _running = node.routes_repaired(Some(network), NEVER);
    let iptables = |words: &[&str]| node.ns.run(|| output("iptables", words)).unwrap();
    // As Docker does when it starts, after this node has.
    iptables(&["-P", "FORWARD", "DROP"]);
    let took = wait_for("forwarded", || {
        ask(&outside.ns, "198.18.0.1:8081").is_ok() && ask(&pod.ns, "198.18.0.2:8080").is_ok()
    });
    note(&format!("forwarded after {took:?}"));
    let saved = node.iptables_save();
    let permissions = saved
        .lines()
        .filter(|line| line.starts_with("-A CORACLE-CNI"));
    assert_eq!(permissions.count(), 2, "{saved}");
}

/// As the files of some distributions end: whatever is not let through is refused.
fn pods_are_forwarded_past_a_refusal_at_the_end(mode: ProxyMode) {
    let Some(lab) = lab_by(mode, "node-refused") else {
        return;
    };
    let (node, outside) = (lab.node(1), lab.node(2));
    let iptables = |words: &[&str]| node.ns.run(|| output("iptables", words)).unwrap();
    iptables(&["-A", "FORWARD", "-d", "198.18.0.9", "-j", "DROP"]);
    iptables(&["-A", "FORWARD", "-j", "REJECT"]);
    let network = node.ready_network();
    let pod = node.pod(&network, "a", published(8081));
    let _servers = (pod.serve("a"), serve(&outside.ns, "stranger"));
    let _running = node.routes_repaired(Some(network), NEVER);
    wait_for("forwarded", || {
        ask(&outside.ns, "198.18.0.1:8081").is_ok() && ask(&pod.ns, "198.18.0.2:8080").is_ok()
    });
    let saved = node.iptables_save();
    let at = |rule: &str| {
        saved
            .find(rule)
            .unwrap_or_else(|| panic!("{rule}: {saved}"))
    };
    assert!(at("-d 198.18.0.9/32 -j DROP") < at("-A FORWARD -j CORACLE-CNI"));
}

#[test]
fn flushed_rules_of_the_node_come_back_long_before_the_regular_comparison() {
    let Some(lab) = lab_by(Nftables, "node-flush") else {
        return;
    };
    let (node, outside) = (lab.node(1), lab.node(2));
    let network = node.ready_network();
    let pod = node.pod(&network, "a", published(8081));
    let _servers = (pod.serve("a"), serve(&outside.ns, "stranger"));
    let _running = node.routes_repaired(Some(network), NEVER);
    let mut soonest = NEVER;
    for damage in [
        &["flush", "ruleset"][..],
        &["delete", "table", "ip", "coracle-node"],
        &["flush", "set", "ip", "coracle-node", "outgoing"],
    ] {
        // Who does it again and again waits for the next regular look, a second later.
        node.block_on(async { tokio::time::sleep(Duration::from_millis(1200)).await });
        node.nft(damage).unwrap();
        let took = wait_for("healed", || {
            let seen = ask(&pod.ns, "198.18.0.2:8080");
            ask(&outside.ns, "198.18.0.1:8081").is_ok()
                && seen.is_ok_and(|(_, seen)| seen == node.address)
        });
        note(&format!("{damage:?} healed: {took:?}"));
        assert!(took < Duration::from_secs(10), "{took:?}");
        soonest = soonest.min(took);
    }
    let told = Duration::from_millis(500);
    assert!(soonest < told, "the kernel has told of it: {soonest:?}");
}

/// Pods are asked by each other, themselves and strangers.
#[test]
fn pods_come_back_to_a_bridge_that_somebody_has_taken() {
    let Some(lab) = lab_by(Nftables, "node-bridge") else {
        return;
    };
    let (node, outside) = (lab.node(1), lab.node(2));
    let network = node.ready_network();
    let a = node.pod(&network, "a", published(8081));
    let b = node.pod(&network, "b", Vec::new());
    let _servers = (a.serve("a"), b.serve("b"));
    // Somebody else's, with such a name.
    let theirs = "veth0123456789a";
    let ip = |words: &str| {
        node.ns
            .run(|| output("ip", &words.split(' ').collect::<Vec<_>>()))
    };
    ip(&format!("link add {theirs} up type veth peer name theirs")).unwrap();
    let running = node.routes_repaired(Some(network.clone()), NEVER);
    let link_of = |pod: &Pod| host_name(&pod.request.sandbox_id.0, "eth0");
    for damage in [
        "link del coracle0",
        "link set coracle0 down",
        "addr flush dev coracle0",
        "link set coracle0 name elsewhere",
        &format!("link del {}", link_of(&a)),
    ] {
        ip(damage).unwrap();
        let took = wait_for("healed", || {
            ask(&outside.ns, "198.18.0.1:8081").is_ok()
                && ask(&a.ns, "198.18.0.1:8081").is_ok()
                && ask(&a.ns, &format!("{}:8080", b.address)).is_ok()
        });
        note(&format!("{damage} healed: {took:?}"));
        assert!(took < Duration::from_secs(20), "{took:?}");
    }
    let shown = ip(&format!("-d link show {theirs}")).unwrap();
    assert!(!shown.contains("master"), "{shown}");
    let links = ip("-o link show").unwrap();
    assert!(!links.contains("elsewhere"), "{links}");
    // One that serves under another name is left alone.
    ip(&format!("link set {} name elsewhere", link_of(&b))).unwrap();
    node.block_on(network.repair()).unwrap();
    assert!(ip("-o link show").unwrap().contains("elsewhere"));
    assert!(ask(&a.ns, &format!("{}:8080", b.address)).is_ok());
    // The next agent is told of what an earlier one has attached.
    drop((running, network));
    let next = node.ready_network();
    next.know(&a.request);
    ip(&format!("link del {}", link_of(&a))).unwrap();
    node.block_on(next.repair()).unwrap();
    assert!(ask(&outside.ns, "198.18.0.1:8081").is_ok());
    // Nobody makes one for a pod that goes.
    node.block_on(next.teardown(&a.request)).unwrap();
    ip(&format!("link del {}", link_of(&a))).unwrap();
    node.block_on(next.repair()).unwrap();
    assert!(!ip("-o link show").unwrap().contains(&link_of(&a)));
}

fn a_killed_agents_ports_go_on_and_the_next_withdraws_them(mode: ProxyMode) {
    let Some(lab) = lab_by(mode, "node-killed") else {
        return;
    };
    let (node, outside) = (lab.node(1), lab.node(2));
    let network = node.ready_network();
    let kept = node.pod(&network, "kept", published(8081));
    let gone = node.pod(&network, "gone", published(8082));
    let _servers = (kept.serve("kept"), gone.serve("gone"));
    // Nothing is said at a kill.
    drop(network);
    assert_eq!(ask(&outside.ns, "198.18.0.1:8082").unwrap().0, "gone");
    let next = node.network();
    node.block_on(next.gc(std::slice::from_ref(&kept.request.sandbox_id)))
        .unwrap();
    assert_eq!(ask(&outside.ns, "198.18.0.1:8081").unwrap().0, "kept");
    assert!(ask(&outside.ns, "198.18.0.1:8082").is_err());
    assert!(!node.node_rules().contains("8082"));
    node.block_on(next.teardown(&kept.request)).unwrap();
    assert!(!node.node_rules().contains("8081"));
    // After a reboot the records are there and the rules are not.
    node.block_on(next.repair()).unwrap();
    assert!(ask(&outside.ns, "198.18.0.1:8081").is_err());
}
