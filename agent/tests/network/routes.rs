//! Routes to other nodes.

use std::{
    io::{Read as _, Write as _},
    net::{Ipv4Addr, TcpListener, TcpStream},
    time::Duration,
};

use serde_json::{Value, json};

use crate::harness::{Node, Pod, ask, lab, output, wait_for};

fn object(name: &str, address: &str, pod_cidr: &str) -> Value {
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
    node.ns.run(|| crate::harness::ip(&["route", "add", "10.50.0.0/24", "via", "198.18.0.9"])).unwrap();
    lab.api.put("nodes", object("n1", "198.18.0.1", "10.244.1.0/24"));
    lab.api.put("nodes", object("n2", "198.18.0.2", "10.244.2.0/24"));
    lab.api.put("nodes", object("far", "203.0.113.3", "10.244.3.0/24"));
    let running = node.routes(None);
    let second = "10.244.2.0/24 via 198.18.0.2 dev eth0 proto 67";
    wait_for("the neighbour's route", || routes(&node).contains(second));
    let all = routes(&node);
    assert!(!all.contains("10.244.1.0/24"), "{all}");
    assert!(all.contains("10.244.3.0/24 via 10.244.3.0 dev coracle-vxlan proto 67 onlink"), "{all}");
    // Removed by hand: repaired.
    node.ns.run(|| crate::harness::ip(&["route", "del", "10.244.2.0/24"])).unwrap();
    wait_for("repaired", || routes(&node).contains(second));
    // A node that is gone while nobody watches.
    drop(running);
    assert!(routes(&node).contains(second));
    lab.api.delete("nodes", "", "n2");
    lab.api.put("nodes", object("n4", "198.18.0.4", "10.244.4.0/24"));
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
        lab.api.put("nodes", object(&node.name, &node.address.to_string(), &node.pod_cidr()));
    }
    let (network, other) = (near.ready_network(), far.ready_network());
    let _running = (near.routes(Some(network.clone())), far.routes(Some(other.clone())));
    wait_for("both tunnels", || [&near, &far].iter().all(|node| routes(node).contains("dev coracle-vxlan")));
    let (client, server) = (near.pod(&network, "client", vec![]), far.pod(&other, "server", vec![]));
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
    lab.api.put("nodes", object(&far.name, "198.18.0.77", &far.pod_cidr()));
    wait_for("the overlay is gone", || !routes(&near).contains("coracle-vxlan"));
}

/// Sends ten million bytes from one pod to the other; returns how many arrived.
fn transfer(from: &Pod, to: &Pod) -> usize {
    let listener = to.ns.run(|| TcpListener::bind((Ipv4Addr::UNSPECIFIED, 9090)).unwrap()).unwrap();
    let received = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let mut all = Vec::new();
        // Cut short by the timeout, what came counts.
        let _ = stream.read_to_end(&mut all);
        all.len()
    });
    let target = (to.address, 9090);
    let mut stream = from.ns.run(|| TcpStream::connect(target).unwrap()).unwrap();
    stream.set_write_timeout(Some(Duration::from_secs(10))).unwrap();
    stream.write_all(&vec![7; 10_000_000]).unwrap();
    drop(stream);
    received.join().unwrap()
}
