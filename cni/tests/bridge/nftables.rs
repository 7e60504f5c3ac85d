//! The program's masquerade over nftables.

use std::{net::Ipv4Addr, process::Command};

use coracle_cni::{NetConf, conf::MasqueradeBackend, masquerade};
use coracle_netfilter::iptables::Iptables;
use coracle_netns::NetNs;

use crate::harness::{Node, Pod, talk};

const OUTSIDE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
const NODE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

fn run(ns: &NetNs, program: &str, words: &str) -> String {
    let output = ns.run(|| {
        Command::new(program)
            .args(words.split(' '))
            .output()
            .unwrap()
    });
    let output = output.unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{program} {words}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// A machine beside the node that knows no way to pods.
fn outside(node: &Node) -> Pod {
    let outside = node.pod("outside");
    let path = outside.path.display();
    run(&node.ns, "ip", "link add up0 type veth peer name up1");
    run(&node.ns, "ip", &format!("link set up1 netns {path}"));
    run(&node.ns, "ip", &format!("address add {NODE}/24 dev up0"));
    run(&node.ns, "ip", "link set up0 up");
    run(
        &outside.ns,
        "ip",
        &format!("address add {OUTSIDE}/24 dev up1"),
    );
    run(&outside.ns, "ip", "link set up1 up");
    outside
}

fn add(node: &Node, pod: &Pod, conf: &NetConf) {
    let added = node.ns.run(|| coracle_cni::add(&pod.attachment, conf));
    added.unwrap().unwrap();
}

#[test]
fn the_program_masquerades_over_nftables_where_it_is_asked_to() {
    let Some(node) = Node::new("nft") else {
        return;
    };
    let (a, outside) = (node.pod("a"), outside(&node));
    let mut conf = node.conf();
    conf.ip_masq_backend = Some(MasqueradeBackend::Nftables);
    add(&node, &a, &conf);
    assert_eq!(talk(&a.ns, &outside.ns, OUTSIDE), NODE);
    assert!(run(&node.ns, "nft", "list tables").contains("ip coracle-cni-"));
    let saved = || Iptables::find().unwrap().save("nat").unwrap();
    let saved = node.ns.run(saved).unwrap();
    assert!(!saved.contains("10.77.1.0/24"), "{saved}");
    // To iptables and back, without a moment that leaves it out.
    for (backend, is_table) in [
        (MasqueradeBackend::Iptables, false),
        (MasqueradeBackend::Nftables, true),
    ] {
        conf.ip_masq_backend = Some(backend);
        let keep = || masquerade::keep(&conf);
        node.ns.run(keep).unwrap().unwrap();
        let tables = run(&node.ns, "nft", "list tables");
        assert_eq!(tables.contains("coracle-cni-"), is_table, "{tables}");
        assert_eq!(talk(&a.ns, &outside.ns, OUTSIDE), NODE);
    }
    let remove = || masquerade::remove(&conf);
    node.ns.run(remove).unwrap().unwrap();
    assert!(!run(&node.ns, "nft", "list ruleset").contains("10.77.1.0/24"));
}

#[test]
fn the_program_goes_by_the_agent_of_the_node() {
    let Some(node) = Node::new("nft-agent") else {
        return;
    };
    let keep = || masquerade::keep(&node.conf());
    node.ns.run(keep).unwrap().unwrap();
    assert!(!run(&node.ns, "nft", "list tables").contains("coracle-cni-"));
    run(&node.ns, "nft", "add table ip coracle-node");
    node.ns.run(keep).unwrap().unwrap();
    assert!(run(&node.ns, "nft", "list tables").contains("coracle-cni-"));
}
