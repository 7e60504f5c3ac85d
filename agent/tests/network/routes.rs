//! Routes to other nodes.

use std::{
    io::{Read as _, Write as _},
    net::{Ipv4Addr, TcpListener, TcpStream},
    time::Duration,
};

use coracle_netfilter::ProxyMode;
use serde_json::{Value, json};

use crate::harness::{Node, Pod, ask, lab, output, wait_for};

pub(crate) fn object(name: &str, address: &str, pod_cidr: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
        "spec": {"podCIDR": pod_cidr, "podCIDRs": [pod_cidr]},
        "status": {"addresses": [{"type": "InternalIP", "address": address}]}})
}

fn routes(node: &Node) -> String {
    node.ns.run(|| output("ip", &["route", "show"])).unwrap()
}

#[test]
fn routes_follow_the_nodes_and_foreign_ones_stay() {
    let Some(lab) = lab("routes") else { return };
    let node = lab.node(1);
    node.ns
        .run(|| crate::harness::ip(&["route", "add", "10.50.0.0/24", "via", "198.18.0.9"]))
        .unwrap();
    lab.api
        .put("nodes", object("n1", "198.18.0.1", "10.244.1.0/24"));
    lab.api
        .put("nodes", object("n2", "198.18.0.2", "10.244.2.0/24"));
    lab.api
        .put("nodes", object("far", "203.0.113.3", "10.244.3.0/24"));
    let running = node.routes(None);
    let second = "10.244.2.0/24 via 198.18.0.2 dev eth0 proto 67";
    wait_for("the neighbour's route", || routes(&node).contains(second));
    let all = routes(&node);
    assert!(!all.contains("10.244.1.0/24"), "{all}");
    assert!(
        all.contains("10.244.3.0/24 via 10.244.3.0 dev coracle-vxlan proto 67 onlink"),
        "{all}"
    );
    // Removed by hand: repaired.
    node.ns
        .run(|| crate::harness::ip(&["route", "del", "10.244.2.0/24"]))
        .unwrap();
    wait_for("repaired", || routes(&node).contains(second));
    // A node that is gone while nobody watches.
    drop(running);
    assert!(routes(&node).contains(second));
    lab.api.delete("nodes", "", "n2");
    lab.api
        .put("nodes", object("n4", "198.18.0.4", "10.244.4.0/24"));
    let _running = node.routes(None);
    wait_for("gone and come", || {
        let all = routes(&node);
        !all.contains("10.244.2.0/24") && all.contains("10.244.4.0/24 via 198.18.0.4")
    });
    assert!(routes(&node).contains("10.50.0.0/24 via 198.18.0.9"));
}

#[test]
fn pods_of_another_subnet_are_reached_through_vxlan_under_their_own_address() {
    let Some(lab) = lab("overlay") else { return };
    let (near, far) = (lab.node(1), lab.far_node(2));
    lab.join_subnets(&[&near, &far]);
    for node in [&near, &far] {
        lab.api.put(
            "nodes",
            object(&node.name, &node.address.to_string(), &node.pod_cidr()),
        );
    }
    let (network, other) = (near.ready_network(), far.ready_network());
    let _running = (
        near.routes(Some(network.clone())),
        far.routes(Some(other.clone())),
    );
    wait_for("both tunnels", || {
        [&near, &far]
            .iter()
            .all(|node| routes(node).contains("dev coracle-vxlan"))
    });
    let (client, server) = (
        near.pod(&network, "client", vec![]),
        far.pod(&other, "server", vec![]),
    );
    let _serving = server.serve("server");
    let address = format!("{}:8080", server.address);
    let seen = ask(&client.ns, &address).unwrap();
    assert_eq!(seen, ("server".to_owned(), client.address));
    // The node itself, and back to it.
    assert_eq!(ask(&near.ns, &address).unwrap().0, "server");
    // Pods know nothing of the envelope: their full packets must be cut, both ways.
    assert_eq!(transfer(&client, &server), 10_000_000);
    assert_eq!(transfer(&server, &client), 10_000_000);
    // A node that moves next door is routed directly, and the overlay goes with its last node.
    lab.api
        .put("nodes", object(&far.name, "198.18.0.77", &far.pod_cidr()));
    wait_for("the overlay is gone", || {
        !routes(&near).contains("coracle-vxlan")
    });
}

/// The link outlives the agent: so does what keeps pods out of it, whichever engine follows.
#[test]
fn the_next_agent_keeps_pods_out_of_the_overlay_without_a_server() {
    let Some(lab) = lab("untold") else { return };
    let (near, far) = (lab.node(1), lab.far_node(2));
    lab.register(&[&near, &far]);
    let guarded = |mode: ProxyMode| match mode {
        ProxyMode::Nftables => near
            .nft(&["list", "table", "ip", "coracle-overlay"])
            .is_ok(),
        _ => near.iptables_save().contains("-j CORACLE-OVERLAY-IN"),
    };
    let running = near.routes(Some(near.ready_network_by(ProxyMode::Nftables)));
    wait_for("the overlay", || {
        routes(&near).contains("dev coracle-vxlan")
    });
    drop(running);
    for (flushed, next) in [
        (true, ProxyMode::Nftables),
        (false, ProxyMode::Iptables),
        (true, ProxyMode::Iptables),
    ] {
        if flushed {
            near.nft(&["flush", "ruleset"]).unwrap();
        }
        near.block_on(near.network_by(next).repair()).unwrap();
        assert!(guarded(next), "flushed: {flushed}, {next:?}");
    }
    // Only nodes of the own subnet are left.
    lab.api.delete("nodes", "", "n2");
    let _running = near.routes(Some(near.network_by(ProxyMode::Iptables)));
    wait_for("no overlay, and no rules of it", || {
        !near.iptables_save().contains("CORACLE-OVERLAY")
    });
}

/// What the server tells every node.
pub(crate) fn told(mut node: Value, mode: &str, port: u16) -> Value {
    let told = json!({"mode": mode, "vxlanPort": port, "clusterCIDR": "10.244.0.0/16"}).to_string();
    node["metadata"]["annotations"] = json!({"coracle.dev/pod-network": told});
    node
}

#[test]
fn a_route_of_somebody_else_outlives_node_and_keeper() {
    let Some(lab) = lab("theirs") else { return };
    let node = lab.node(1);
    let theirs = "10.244.2.0/24 via 198.18.0.9";
    let add = [
        "route",
        "add",
        "10.244.2.0/24",
        "via",
        "198.18.0.9",
        "proto",
        "static",
    ];
    node.ns.run(|| crate::harness::ip(&add)).unwrap();
    lab.api
        .put("nodes", object("n1", "198.18.0.1", "10.244.1.0/24"));
    lab.api
        .put("nodes", object("n2", "198.18.0.2", "10.244.2.0/24"));
    lab.api
        .put("nodes", object("n3", "198.18.0.3", "10.244.3.0/24"));
    let _running = node.routes(None);
    wait_for("the other node's route", || {
        routes(&node).contains("10.244.3.0/24 via 198.18.0.3")
    });
    assert!(routes(&node).contains(theirs), "{}", routes(&node));
    lab.api.delete("nodes", "", "n2");
    lab.api.delete("nodes", "", "n3");
    wait_for("the own route is gone", || {
        !routes(&node).contains("10.244.3.0/24")
    });
    assert!(routes(&node).contains(theirs), "{}", routes(&node));
}

fn tunnel(node: &Node) -> String {
    node.ns
        .run(|| output("ip", &["-d", "link", "show", "type", "vxlan"]))
        .unwrap()
}

/// A fabric that drops pods' addresses: whatever is not in an envelope.
fn drop_bare_pods(node: &Node) {
    let rules = "*mangle\n-A PREROUTING -i eth0 -s 10.244.0.0/16 -j DROP\nCOMMIT\n";
    node.ns
        .run(|| {
            coracle_netfilter::iptables::Iptables::find()
                .unwrap()
                .restore(rules)
                .unwrap()
        })
        .unwrap();
}

#[test]
fn neighbours_use_the_overlay_when_the_server_says_so() {
    let Some(lab) = lab("cloud") else { return };
    let (first, second) = (lab.node(1), lab.node(2));
    let put = |mode: &str, port: u16| {
        for node in [&first, &second] {
            lab.api.put(
                "nodes",
                told(
                    object(&node.name, &node.address.to_string(), &node.pod_cidr()),
                    mode,
                    port,
                ),
            );
        }
    };
    put("overlay", 8472);
    let (network, other) = (first.ready_network(), second.ready_network());
    let _running = (
        first.routes(Some(network.clone())),
        second.routes(Some(other.clone())),
    );
    wait_for("both tunnels", || {
        [&first, &second]
            .iter()
            .all(|node| routes(node).contains("dev coracle-vxlan"))
    });
    assert!(
        tunnel(&first).contains("dstport 8472"),
        "{}",
        tunnel(&first)
    );
    wait_for("room for the envelope", || node_mtu(&first) == 1450);
    [&first, &second].into_iter().for_each(drop_bare_pods);
    let (client, server) = (
        first.pod(&network, "client", vec![]),
        second.pod(&other, "server", vec![]),
    );
    let _serving = server.serve("server");
    let address = format!("{}:8080", server.address);
    wait_for("pod to pod", || ask(&client.ns, &address).is_ok());
    assert_eq!(ask(&client.ns, &address).unwrap().1, client.address);
    // The other node itself sees the node, not the pod, whose address its network does not let
    // through.
    let _host = crate::harness::serve(&second.ns, "host");
    assert_eq!(
        ask(&client.ns, "198.18.0.2:8080").unwrap(),
        ("host".into(), first.address)
    );
    // Another port, then another way: both nodes follow.
    put("overlay", 4789);
    wait_for("the other port", || tunnel(&first).contains("dstport 4789"));
    wait_for("both moved", || ask(&client.ns, &address).is_ok());
    put("auto", 4789);
    wait_for("direct", || {
        routes(&first).contains("10.244.2.0/24 via 198.18.0.2 dev eth0")
    });
    assert!(!routes(&first).contains("coracle-vxlan"));
}

fn node_mtu(node: &Node) -> u32 {
    let links = node
        .ns
        .run(|| {
            coracle_cni::netlink::Netlink::open()
                .unwrap()
                .links()
                .unwrap()
        })
        .unwrap();
    links
        .iter()
        .find(|link| link.name == "coracle0")
        .map_or(0, |link| link.mtu)
}

#[test]
fn hundreds_of_far_nodes_are_reached_and_forgotten() {
    let Some(lab) = lab("many") else { return };
    let node = lab.far_node(1);
    lab.api
        .put("nodes", object("n1", "198.18.1.1", "10.244.0.0/24"));
    for n in 1..=200 {
        lab.api.put(
            "nodes",
            object(
                &format!("f{n}"),
                &format!("203.0.113.{n}"),
                &format!("10.244.{n}.0/24"),
            ),
        );
    }
    let _running = node.routes(None);
    let count = || routes(&node).matches("dev coracle-vxlan proto 67").count();
    wait_for("all of them", || count() == 200);
    let known = || {
        node.ns
            .run(|| output("bridge", &["fdb", "show", "dev", "coracle-vxlan"]))
            .unwrap()
            .lines()
            .count()
    };
    assert_eq!(known(), 200);
    for n in 11..=200 {
        lab.api.delete("nodes", "", &format!("f{n}"));
    }
    wait_for("only ten are left", || count() == 10);
    wait_for("the others are forgotten", || known() == 10);
}

/// Sends ten million bytes from one pod to the other; returns how many arrived.
fn transfer(from: &Pod, to: &Pod) -> usize {
    let listener = to
        .ns
        .run(|| TcpListener::bind((Ipv4Addr::UNSPECIFIED, 9090)).unwrap())
        .unwrap();
    let received = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        let mut all = Vec::new();
        // Cut short by the timeout, what came counts.
        let _ = stream.read_to_end(&mut all);
        all.len()
    });
    let target = (to.address, 9090);
    let mut stream = from.ns.run(|| TcpStream::connect(target).unwrap()).unwrap();
    stream
        .set_write_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    stream.write_all(&vec![7; 10_000_000]).unwrap();
    drop(stream);
    received.join().unwrap()
}
