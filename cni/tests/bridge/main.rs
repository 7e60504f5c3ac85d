//! The plugin against a real kernel: a node namespace with pod namespaces, no uplink. Needs root.

#![allow(clippy::unwrap_used, reason = "a test that cannot set up fails")]

mod asked;
mod bandwidth;
mod harness;
mod nftables;
mod spoofing;

use std::{
    collections::HashMap, io::Write, net::Ipv4Addr, path::Path, process::Command, time::Instant,
};

use coracle_cni::{
    Attachment, bridge, masquerade,
    netlink::{Netlink, Request, Route, RouteNetlinkMessage},
    skel::{Output, dispatch},
    veth,
};
use coracle_netfilter::iptables::{Iptables, plan};
use coracle_netns::unpin;

use self::harness::{Node, talk};

#[test]
fn pods_reach_each_other_the_node_and_themselves_without_nat() {
    let Some(node) = Node::new("reach") else {
        return;
    };
    let (a, b) = (node.pod("a"), node.pod("b"));
    let started = Instant::now();
    let address_a = node.add(&a);
    let first = started.elapsed();
    let started = Instant::now();
    let address_b = node.add(&b);
    let _ = writeln!(
        std::io::stderr(),
        "ADD: first {first:?}, second {:?}",
        started.elapsed()
    );
    assert_eq!(talk(&a.ns, &b.ns, address_b), address_a);
    assert_eq!(
        talk(&node.ns, &b.ns, address_b),
        Ipv4Addr::new(10, 77, 1, 1)
    );
    assert_eq!(
        talk(&b.ns, &node.ns, Ipv4Addr::new(10, 77, 1, 1)),
        address_b
    );
    assert_eq!(talk(&a.ns, &a.ns, address_a), address_a);
}

#[test]
fn add_is_idempotent_and_check_agrees() {
    let Some(node) = Node::new("idem") else {
        return;
    };
    let pod = node.pod("a");
    let address = node.add(&pod);
    assert_eq!(node.add(&pod), address);
    node.ns
        .run(|| coracle_cni::check(&pod.attachment, &node.conf()))
        .unwrap()
        .unwrap();
    // A sandbox that was made anew under the same id: the old pair leads nowhere.
    unpin(&pod.path).unwrap();
    let again = node.pod("a");
    assert_eq!(node.add(&again), address);
    assert_eq!(
        talk(&node.ns, &again.ns, address),
        Ipv4Addr::new(10, 77, 1, 1)
    );
    drop(pod);
}

#[test]
fn del_leaves_nothing_and_succeeds_again_and_without_namespace() {
    let Some(node) = Node::new("del") else { return };
    let (a, b) = (node.pod("a"), node.pod("b"));
    node.add(&a);
    node.add(&b);
    assert_eq!((node.ports().len(), node.reservations().len()), (2, 2));
    let started = Instant::now();
    node.del(&a.attachment);
    let _ = writeln!(std::io::stderr(), "DEL with link: {:?}", started.elapsed());
    node.del(&a.attachment);
    unpin(&b.path).unwrap();
    drop(b.ns);
    node.del(&Attachment {
        netns: None,
        ..b.attachment
    });
    assert_eq!((node.ports(), node.reservations()), (vec![], vec![]));
    assert!(
        node.ns
            .run(|| coracle_cni::check(&a.attachment, &node.conf()))
            .unwrap()
            .is_err()
    );
    node.ns
        .run(|| {
            let iptables = Iptables::find().unwrap();
            masquerade::remove(&node.conf()).unwrap();
            for table in ["nat", "filter"] {
                let left = plan::parse(&iptables.save(table).unwrap());
                assert!(
                    !left.keys().any(|chain| chain.contains("CORACLE")),
                    "{left:?}"
                );
                assert!(left.values().all(Vec::is_empty), "{left:?}");
            }
            bridge::remove(&mut Netlink::open().unwrap(), "br0").unwrap();
        })
        .unwrap();
}

#[test]
fn a_failed_add_leaves_nothing() {
    let Some(node) = Node::new("fail") else {
        return;
    };
    let pod = node.pod("a");
    // Its end of the pair cannot be made: there is one of that name.
    pod.ns
        .run(|| {
            let run =
                |args: &[&str]| assert!(Command::new("ip").args(args).status().unwrap().success());
            run(&["link", "add", "eth0", "type", "bridge"]);
        })
        .unwrap();
    let error = node
        .ns
        .run(|| coracle_cni::add(&pod.attachment, &node.conf()))
        .unwrap()
        .unwrap_err();
    assert_eq!(error.code(), 100);
    assert_eq!((node.ports(), node.reservations()), (vec![], vec![]));
}

#[test]
fn gc_removes_links_and_addresses_of_vanished_sandboxes() {
    let Some(node) = Node::new("gc") else { return };
    let (a, b) = (node.pod("a"), node.pod("b"));
    let kept = node.add(&a);
    node.add(&b);
    let mut conf = node.conf();
    conf.valid_attachments = vec![coracle_cni::conf::ValidAttachment {
        container_id: a.attachment.container_id.clone(),
        ifname: "eth0".into(),
    }];
    node.ns.run(|| coracle_cni::gc(&conf)).unwrap().unwrap();
    assert_eq!(
        node.ports(),
        [veth::host_name(&a.attachment.container_id, "eth0")]
    );
    assert_eq!(node.reservations(), [kept.to_string()]);
}

#[test]
fn a_flushed_masquerade_chain_is_written_again() {
    let Some(node) = Node::new("masq") else {
        return;
    };
    let pod = node.pod("a");
    node.add(&pod);
    node.ns
        .run(|| {
            let iptables = Iptables::find().unwrap();
            let before = plan::parse(&iptables.save("nat").unwrap());
            iptables.restore("*nat\n-F CORACLE-MASQ\nCOMMIT\n").unwrap();
            masquerade::ensure(&iptables, &node.conf()).unwrap();
            assert_eq!(plan::parse(&iptables.save("nat").unwrap()), before);
            // Written as they are read: a second look finds nothing to do.
            for nft in [true, false] {
                let iptables = Iptables::variant(nft).unwrap();
                masquerade::ensure(&iptables, &node.conf()).unwrap();
                let once = iptables.save("nat").unwrap();
                masquerade::ensure(&iptables, &node.conf()).unwrap();
                assert_eq!(
                    plan::parse(&iptables.save("nat").unwrap()),
                    plan::parse(&once)
                );
            }
        })
        .unwrap();
}

#[test]
fn the_binary_speaks_the_protocol() {
    let Some(node) = Node::new("bin") else { return };
    let pod = node.pod("a");
    let conf = serde_json::to_vec(&node.conf()).unwrap();
    let call = |command: &str| node.call(&pod, command, &conf);
    let added = call("ADD");
    assert!(
        added.status.success(),
        "{}",
        String::from_utf8_lossy(&added.stdout)
    );
    let result: serde_json::Value = serde_json::from_slice(&added.stdout).unwrap();
    assert_eq!(result["ips"][0]["address"], "10.77.1.2/24");
    assert_eq!(
        result["interfaces"][2]["sandbox"],
        pod.path.display().to_string()
    );
    assert!(call("CHECK").status.success());
    assert!(call("DEL").stdout.is_empty());
    assert!(!call("CHECK").status.success());
    assert_eq!((node.ports(), node.reservations()), (vec![], vec![]));
}

#[test]
fn a_missing_namespace_is_an_unknown_container() {
    let environment: HashMap<String, String> = [
        ("CNI_COMMAND", "ADD"),
        ("CNI_CONTAINERID", "a"),
        ("CNI_IFNAME", "eth0"),
        ("CNI_NETNS", "/nonexistent/netns"),
    ]
    .into_iter()
    .map(|(k, v)| (k.to_owned(), v.to_owned()))
    .collect();
    let conf = br#"{"cniVersion":"1.0.0","name":"n","type":"coracle-cni","ipam":{"subnet":"10.1.0.0/24"}}"#;
    let Output::Failure(error) = dispatch(&environment, conf) else {
        panic!("succeeded")
    };
    assert_eq!(error.code, 3);
    assert!(!Path::new("/nonexistent/netns").exists());
}

#[test]
fn the_generation_changes_with_the_rules_and_only_then() {
    let Some(node) = Node::new("gen") else { return };
    node.ns
        .run(|| {
            let iptables = Iptables::variant(true).unwrap();
            let before = iptables.generation();
            iptables.save("nat").unwrap();
            assert!(before.is_some());
            assert_eq!(iptables.generation(), before);
            iptables.restore("*nat\n:X - [0:0]\nCOMMIT\n").unwrap();
            assert_ne!(iptables.generation(), before);
            assert_eq!(Iptables::variant(false).unwrap().generation(), None);
        })
        .unwrap();
}

#[test]
fn more_requests_than_a_receive_buffer_holds_answers_for_are_all_answered() {
    let Some(node) = Node::new("batch") else {
        return;
    };
    node.ns
        .run(|| {
            assert!(
                Command::new("ip")
                    .args(["link", "set", "lo", "up"])
                    .status()
                    .unwrap()
                    .success()
            );
            let route = |n: u32| Route {
                destination: ipnet::Ipv4Net::new(Ipv4Addr::from(0x0b00_0000 + n * 256), 24)
                    .unwrap(),
                gateway: None,
                interface: Some(1),
                source: None,
                protocol: 67,
            };
            let requests = |n| RouteNetlinkMessage::NewRoute(route(n).message());
            let mut netlink = Netlink::open().unwrap();
            netlink
                .batch(
                    (0..1000)
                        .map(|n| Request::create("add", requests(n)))
                        .collect(),
                )
                .unwrap();
            assert_eq!(
                netlink
                    .routes()
                    .unwrap()
                    .iter()
                    .filter(|route| route.protocol == 67)
                    .count(),
                1000
            );
            // A refusal in the middle stops nothing, and is the answer.
            let again = (990..1010)
                .map(|n| Request::create("add", requests(n)))
                .collect();
            assert_eq!(
                netlink.batch(again).unwrap_err().errno(),
                Some(nix::errno::Errno::EEXIST)
            );
            assert_eq!(
                netlink
                    .routes()
                    .unwrap()
                    .iter()
                    .filter(|route| route.protocol == 67)
                    .count(),
                1010
            );
        })
        .unwrap();
}
